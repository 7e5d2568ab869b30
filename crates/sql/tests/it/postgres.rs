//! A PostgreSQL database: its schema's versions and what they refuse, and errors that may pass.

use std::time::Duration;

use secateur_sql::SqlError;
use secateur_sql::postgres::{Address, Postgres, PostgresOptions, Schema, Told as _};

use crate::fixture::{self, Server, Stop};

/// Two versions of a little store.
pub const STORE: Schema = Schema {
    name: "store",
    updater: "the service",
    migrations: &[
        ("0001_first", "create table store_meta (key text primary key, value text not null)"),
        ("0002_second", "create table coins (id bigint primary key, value bigint not null)"),
    ],
    versions: "store_versions",
    meta: "store_meta",
    lock: 7_001,
};

/// The same store with a third version, which does not work.
const BROKEN: Schema = Schema {
    migrations: &[
        STORE.migrations[0],
        STORE.migrations[1],
        ("0003_third", "create table notes (id bigint); select nonsense from nowhere"),
    ],
    ..STORE
};

/// Another family.
const OTHER: Schema = Schema {
    name: "index",
    migrations: &[("0001", "create table meta (key text primary key, value text not null)")],
    versions: "index_versions",
    meta: "meta",
    lock: 7_002,
    ..STORE
};

async fn open_as(url: &str, schema: &Schema) -> Result<Postgres, SqlError> {
    Postgres::open(&Address::parse(url)?, PostgresOptions::default(), schema).await
}

async fn read_as(url: &str, schema: &Schema) -> Result<Postgres, SqlError> {
    Postgres::open_existing(&Address::parse(url)?, PostgresOptions::default(), schema).await
}

async fn execute(store: &Postgres, sql: &str) -> Result<u64, SqlError> {
    store.client().await?.execute(sql, &[]).await.told("testing")
}

/// What a query answers: one text.
async fn text(store: &Postgres, sql: &str) -> String {
    store.client().await.unwrap().query_one(sql, &[]).await.unwrap().get(0)
}

const VERSIONS: &str = "select string_agg(version || ' ' || name || ' ' || octet_length(sha256), ', ' \
    order by version) from store_versions";
const NEWEST: &str = "select value from store_meta where key = 'schema_version'";
const TABLES: &str = "select count(*)::text from pg_class where relkind = 'r' \
    and relnamespace = 'public'::regnamespace";

#[tokio::test]
async fn every_version_is_applied_once_even_if_many_begin_at_once() {
    let url = fixture::database();
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let url = url.clone();
        tasks.push(tokio::spawn(async move { open_as(&url, &STORE).await.map(drop) }));
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let store = open_as(&url, &STORE).await.unwrap();
    assert_eq!(text(&store, VERSIONS).await, "1 0001_first 32, 2 0002_second 32");
    assert_eq!(text(&store, NEWEST).await, "2");
    assert_eq!(text(&read_as(&url, &STORE).await.unwrap(), NEWEST).await, "2");
}

#[tokio::test]
async fn a_version_that_fails_leaves_those_before_it_and_nothing_of_itself() {
    let url = fixture::database();
    let error = open_as(&url, &BROKEN).await.unwrap_err();
    assert!(error.to_string().contains("bringing the schema up to date"), "{error}");
    assert!(!error.is_retryable(), "{error}");
    let store = read_as(&url, &STORE).await.unwrap();
    assert_eq!(text(&store, NEWEST).await, "2");
    assert_eq!(text(&store, TABLES).await, "3");
    // Who reads what the third version would have made is told what to do.
    let error = read_as(&url, &BROKEN).await.unwrap_err();
    assert!(error.to_string().contains("schema version 2"), "{error}");
    assert!(error.to_string().contains("start the service once"), "{error}");
}

#[tokio::test]
async fn a_newer_or_changed_schema_is_refused_and_left_alone() {
    let url = fixture::database();
    let store = open_as(&url, &STORE).await.unwrap();
    execute(&store, "update store_versions set sha256 = '\\x00' where version = 1").await.unwrap();
    let error = open_as(&url, &STORE).await.unwrap_err();
    assert!(matches!(&error, SqlError::Refused(why) if why.contains("another text")), "{error}");
    let newer = "insert into store_versions (version, name, sha256) values (3, 'x', '\\x00')";
    execute(&store, newer).await.unwrap();
    for refused in [open_as(&url, &STORE).await, read_as(&url, &STORE).await] {
        let error = refused.unwrap_err();
        assert!(matches!(&error, SqlError::Refused(_)), "{error}");
        assert!(error.to_string().contains("the store has schema version 3"), "{error}");
        assert!(!error.is_retryable());
    }
    assert_eq!(text(&store, NEWEST).await, "2");
}

#[tokio::test]
async fn a_reader_makes_nothing_in_an_empty_database() {
    let url = fixture::database();
    let error = read_as(&url, &STORE).await.unwrap_err();
    assert!(error.to_string().contains("start the service once"), "{error}");
    let other = open_as(&url, &OTHER).await.unwrap();
    assert_eq!(text(&other, TABLES).await, "2", "only the other's");
}

#[tokio::test]
async fn families_that_name_their_tables_share_a_database() {
    let url = fixture::database();
    let (store, other) =
        (open_as(&url, &STORE).await.unwrap(), open_as(&url, &OTHER).await.unwrap());
    assert_eq!(text(&store, NEWEST).await, "2");
    assert_eq!(text(&other, "select value from meta where key = 'schema_version'").await, "1");
    open_as(&url, &STORE).await.unwrap();
}

#[tokio::test]
async fn every_connection_begins_with_the_settings_that_are_asked_for() {
    let url = fixture::database();
    let options = PostgresOptions {
        connections: 2,
        statement_timeout: Duration::from_millis(4_321),
        settings: &[("plan_cache_mode", "force_custom_plan"), ("work_mem", "'7MB'")],
        ..PostgresOptions::default()
    };
    let store = Postgres::open(&Address::parse(&url).unwrap(), options, &STORE).await.unwrap();
    let (first, second) = (store.client().await.unwrap(), store.client().await.unwrap());
    for client in [first, second] {
        for (name, wanted) in [
            ("plan_cache_mode", "force_custom_plan"),
            ("work_mem", "7MB"),
            ("statement_timeout", "4321ms"),
            ("timezone", "UTC"),
        ] {
            let row = client.query_one(&format!("show {name}"), &[]).await.unwrap();
            assert_eq!(row.get::<_, String>(0), wanted, "{name}");
        }
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_that_may_pass() {
    let mut server = Server::start();
    let store = open_as(&server.database(), &STORE).await.unwrap();
    server.stop(Stop::Fast);
    for _ in 0..3 {
        let error = execute(&store, "delete from coins").await.unwrap_err();
        assert!(error.is_retryable(), "{error}");
    }
    server.run();
    execute(&store, "delete from coins").await.unwrap();
}

#[tokio::test]
async fn a_lock_or_a_connection_that_somebody_keeps_is_waited_for_only_so_long() {
    let url = fixture::database();
    let options = PostgresOptions {
        connections: 2,
        statement_timeout: Duration::from_millis(300),
        connection_timeout: Duration::from_millis(300),
        ..PostgresOptions::default()
    };
    let store = Postgres::open(&Address::parse(&url).unwrap(), options, &STORE).await.unwrap();
    execute(&store, "insert into coins values (1, 5)").await.unwrap();
    let mut keeper = store.client().await.unwrap();
    let held = keeper.transaction().await.unwrap();
    held.execute("update coins set value = 6", &[]).await.unwrap();
    let error = execute(&store, "update coins set value = 7").await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert!(error.to_string().contains("while testing"), "{error}");
    let last = store.client().await.unwrap();
    let error = store.client().await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    drop(last);
    held.rollback().await.unwrap();
    assert_eq!(text(&store, "select value::text from coins").await, "5");
}

#[tokio::test]
async fn a_statement_that_is_wrong_stays_wrong() {
    let store = open_as(&fixture::database(), &STORE).await.unwrap();
    execute(&store, "insert into coins values (1, 1)").await.unwrap();
    for wrong in ["insert into coins values (1, 1)", "delete from nowhere", "nonsense"] {
        let error = execute(&store, wrong).await.unwrap_err();
        assert!(!error.is_retryable(), "{error}");
    }
}
