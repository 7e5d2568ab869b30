//! The schema: its versions, who may change it, and what it refuses.

use secateur_index::postgres::{Address, PostgresOptions, PostgresSink};
use secateur_index::sink::{Identity, IndexReader as _, Sink as _};

use crate::chain::{connect, fresh, number, open};
use crate::fixture;

fn identity(chain_id: u64) -> Identity {
    Identity { chain_id, codec: "evm".into(), logs: "off".into() }
}

#[tokio::test]
async fn every_version_is_applied_once_even_if_many_begin_at_once() {
    let url = fixture::database();
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let url = url.clone();
        tasks.push(tokio::spawn(async move { open(&url).await }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(number(&url, "select count(*) from schema_migrations").await, 2);
    let sink = open(&url).await;
    assert_eq!(sink.meta().await.unwrap().schema_version, 2);
    assert_eq!(sink.cursor().await.unwrap(), None);
}

#[tokio::test]
async fn a_newer_or_changed_schema_is_refused_and_left_alone() {
    let (sink, url) = fresh().await;
    drop(sink);
    let client = connect(&url).await;
    let address = Address::parse(&url).unwrap();
    let open = || PostgresSink::open(&address, PostgresOptions::default());
    client
        .execute("update schema_migrations set sha256 = '\\x00' where version = 1", &[])
        .await
        .unwrap();
    let error = open().await.unwrap_err();
    assert!(error.to_string().contains("another text"), "{error}");
    assert!(!error.is_retryable());
    let newer = "insert into schema_migrations (version, name, sha256) values (3, 'x', '\\x00')";
    client.execute(newer, &[]).await.unwrap();
    let error = open().await.unwrap_err();
    assert!(error.to_string().contains("schema version 3"), "{error}");
    let reader = PostgresSink::open_existing(&address, PostgresOptions::default()).await;
    assert!(reader.unwrap_err().to_string().contains("schema version 3"));
}

#[tokio::test]
async fn a_reader_makes_nothing_in_an_empty_database() {
    let url = fixture::database();
    let address = Address::parse(&url).unwrap();
    let reader = PostgresSink::open_existing(&address, PostgresOptions::default()).await;
    assert!(reader.unwrap_err().to_string().contains("start the worker"));
    let sql = "select count(*) from pg_class where relnamespace = 'public'::regnamespace";
    assert_eq!(number(&url, sql).await, 0);
}

#[tokio::test]
async fn an_index_lives_wholly_in_the_schema_that_it_is_given() {
    let url = fixture::database();
    connect(&url).await.batch_execute("create schema aside").await.unwrap();
    let aside = format!("{url}?options=-csearch_path%3Daside");
    let sink = open(&aside).await;
    sink.commit(crate::chain::batch(0..5)).await.unwrap();
    // The functions keep to it too, whoever calls them.
    connect(&url).await.execute("select aside.secateur_make_ahead(3)", &[]).await.unwrap();
    let sql = "select count(*) from pg_class where relnamespace = 'public'::regnamespace";
    assert_eq!(number(&url, sql).await, 0);
    assert_eq!(number(&url, "select count(*) from aside.blocks").await, 5);
}

#[tokio::test]
async fn an_index_of_another_chain_is_refused() {
    let (sink, _) = fresh().await;
    sink.bind(&identity(5)).await.unwrap();
    sink.bind(&identity(5)).await.unwrap();
    let error = sink.bind(&identity(6)).await.unwrap_err();
    assert!(error.to_string().contains("chain 5"), "{error}");
    let other = Identity { codec: "opaque".into(), ..identity(5) };
    assert!(sink.bind(&other).await.is_err());
    let logs = Identity { logs: "all".into(), ..identity(5) };
    sink.bind(&logs).await.unwrap();
    let meta = sink.meta().await.unwrap();
    assert_eq!((meta.chain_id, meta.logs.as_deref()), (Some(5), Some("all")));
}
