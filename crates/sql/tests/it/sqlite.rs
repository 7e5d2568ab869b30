//! A database in one file: who may read it, whose it is, and one writer beside readers.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, Transaction};
use secateur_sql::SqlError;
use secateur_sql::sqlite::{Schema, Sqlite, SqliteReader};
use tempfile::TempDir;

const STORE: Schema = Schema {
    name: "store",
    application_id: 0x0102_0304,
    version: 3,
    tables: "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
        CREATE TABLE coins (id INTEGER PRIMARY KEY, value INTEGER NOT NULL);",
    upgrades: &[],
};

fn new() -> (TempDir, PathBuf, Sqlite) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.sqlite");
    let store = Sqlite::open(&path, &STORE, &[]).unwrap();
    (dir, path, store)
}

fn put(txn: &Transaction<'_>, id: i64) -> Result<(), SqlError> {
    txn.execute("INSERT INTO coins VALUES (?1, 1)", [id])?;
    Ok(())
}

async fn add(store: &Sqlite, id: i64) -> Result<(), SqlError> {
    store
        .write(move |connection| {
            connection.busy_timeout(Duration::ZERO)?;
            let txn = connection.transaction()?;
            put(&txn, id)?;
            Ok(txn.commit()?)
        })
        .await
}

fn one<T: rusqlite::types::FromSql>(connection: &Connection, sql: &str) -> Result<T, SqlError> {
    Ok(connection.query_row(sql, [], |row| row.get(0))?)
}

async fn count(reader: &SqliteReader) -> i64 {
    reader.read(|connection| one(connection, "SELECT count(*) FROM coins")).await.unwrap()
}

#[tokio::test]
async fn a_file_and_its_log_are_their_owners_alone_unless_somebody_said_otherwise() {
    let (_dir, path, store) = new();
    add(&store, 1).await.unwrap();
    let beside = |end: &str| PathBuf::from(format!("{}{end}", path.display()));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for file in [&path, &beside("-wal"), &beside("-shm")] {
        assert_eq!(mode(file), 0o600, "{}", file.display());
    }
    drop(store);
    std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    let store = Sqlite::open(&path, &STORE, &[]).unwrap();
    add(&store, 2).await.unwrap();
    assert_eq!((mode(&path), mode(&beside("-wal"))), (0o640, 0o640));
}

#[tokio::test]
async fn a_full_disk_may_have_room_later_and_a_file_that_is_none_never_reads() {
    let (dir, path, store) = new();
    // As many pages as the file has, which is how SQLite tells of a disk that has no more.
    let full = Sqlite::open(&path, &STORE, &[("max_page_count", "1")]).unwrap();
    let fill = |connection: &mut Connection| -> Result<(), SqlError> {
        connection.execute("INSERT INTO meta VALUES ('long', hex(zeroblob(9000)))", [])?;
        Ok(())
    };
    let error = full.write(fill).await.unwrap_err();
    assert!(matches!(error, SqlError::Full { .. }) && error.is_retryable(), "{error}");
    store.write(fill).await.unwrap();
    let none = dir.path().join("none.sqlite");
    std::fs::write(&none, "this is no database".repeat(100)).unwrap();
    let error = Sqlite::open(&none, &STORE, &[]).unwrap_err();
    assert!(matches!(error, SqlError::Unreadable { .. }) && !error.is_retryable(), "{error}");
}

#[tokio::test]
async fn a_file_of_another_kind_or_version_is_refused_and_left_alone() {
    let (dir, path, store) = new();
    add(&store, 1).await.unwrap();
    drop(store);
    let foreign = dir.path().join("foreign.sqlite");
    Connection::open(&foreign).unwrap().execute("CREATE TABLE t (x)", []).unwrap();
    let older = Schema { version: 2, ..STORE };
    let other = Schema { application_id: 5, ..STORE };
    for (path, schema, wanted) in [
        (&foreign, STORE, "is no store of Secateur"),
        (&path, other, "is no store of Secateur"),
        (&path, older, "the store has schema version 3, and this program knows 2"),
    ] {
        let opened = Sqlite::open(path, &schema, &[]).map(drop);
        let read = SqliteReader::open(path, &schema).map(drop);
        for error in [opened.unwrap_err(), read.unwrap_err()] {
            assert!(matches!(&error, SqlError::Refused(_)), "{error}");
            assert!(error.to_string().contains(wanted), "{error}");
        }
    }
    let tables =
        one::<i64>(&Connection::open(&foreign).unwrap(), "SELECT count(*) FROM sqlite_schema");
    assert_eq!(tables.unwrap(), 1);
    assert_eq!(count(&SqliteReader::open(&path, &STORE).unwrap()).await, 1);
}

#[tokio::test]
async fn an_older_file_is_brought_up_to_date_step_by_step_and_keeps_what_it_holds() {
    const NEWER: Schema = Schema {
        version: 5,
        upgrades: &[
            (3, "CREATE TABLE notes (note TEXT NOT NULL)"),
            (4, "INSERT INTO notes VALUES ('fifth')"),
        ],
        ..STORE
    };
    let (_dir, path, store) = new();
    add(&store, 1).await.unwrap();
    drop(store);
    // Who only reads changes nothing.
    let error = SqliteReader::open(&path, &NEWER).map(drop).unwrap_err();
    assert!(
        error.to_string().contains("has schema version 3, and 5 is wanted: run what writes to it"),
        "{error}"
    );
    for _ in 0..2 {
        let store = Sqlite::open(&path, &NEWER, &[]).unwrap();
        assert_eq!(count(store.reader()).await, 1);
        let notes = one::<i64>(&Connection::open(&path).unwrap(), "SELECT count(*) FROM notes");
        assert_eq!(notes.unwrap(), 1, "each step is done once");
    }
    let error = Sqlite::open(&path, &STORE, &[]).map(drop).unwrap_err();
    assert!(
        error.to_string().contains("has schema version 5, and this program knows 3"),
        "{error}"
    );
}

#[tokio::test]
async fn an_upgrade_that_fails_leaves_the_file_as_it_was() {
    const BAD: Schema = Schema {
        version: 5,
        upgrades: &[(3, "CREATE TABLE notes (note TEXT)"), (4, "INSERT INTO nowhere VALUES (1)")],
        ..STORE
    };
    let (_dir, path, store) = new();
    add(&store, 1).await.unwrap();
    drop(store);
    assert!(Sqlite::open(&path, &BAD, &[]).is_err());
    let store = Sqlite::open(&path, &STORE, &[]).unwrap();
    assert_eq!(count(store.reader()).await, 1);
    let notes = "SELECT count(*) FROM sqlite_schema WHERE name = 'notes'";
    assert_eq!(one::<i64>(&Connection::open(&path).unwrap(), notes).unwrap(), 0);
}

#[tokio::test]
async fn a_reader_makes_no_file_and_writes_to_none() {
    let (dir, path, store) = new();
    let absent = dir.path().join("absent.sqlite");
    let error = SqliteReader::open(&absent, &STORE).unwrap_err();
    assert!(error.to_string().contains("cannot be opened"), "{error}");
    assert!(!absent.exists());
    let reader = SqliteReader::open(&path, &STORE).unwrap();
    let write = |connection: &Connection| Ok(connection.execute("DELETE FROM coins", [])?);
    let error: SqlError = reader.read(write).await.unwrap_err();
    assert!(!error.is_retryable(), "{error}");
    add(&store, 1).await.unwrap();
    assert_eq!(count(&reader).await, 1);
}

#[tokio::test]
async fn the_pragmas_of_a_family_come_after_those_of_all() {
    let (dir, ..) = new();
    let path = dir.path().join("other.sqlite");
    let store =
        Sqlite::open(&path, &STORE, &[("synchronous", "NORMAL"), ("cache_size", "-4096")]).unwrap();
    let said = store.write(|connection| {
        Ok::<_, SqlError>((
            one::<String>(connection, "PRAGMA journal_mode")?,
            one::<i64>(connection, "PRAGMA synchronous")?,
            one::<i64>(connection, "PRAGMA cache_size")?,
            one::<i64>(connection, "PRAGMA wal_autocheckpoint")?,
        ))
    });
    assert_eq!(said.await.unwrap(), ("wal".into(), 1, -4_096, 16_384));
}

#[tokio::test]
async fn what_another_writer_holds_may_pass_and_readers_do_not_wait_for_it() {
    let (_dir, path, store) = new();
    add(&store, 1).await.unwrap();
    let mut other = Connection::open(&path).unwrap();
    let held = other.transaction().unwrap();
    put(&held, 2).unwrap();
    let error = add(&store, 3).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert_eq!(count(store.reader()).await, 1);
    held.commit().unwrap();
    add(&store, 3).await.unwrap();
    let error = add(&store, 3).await.unwrap_err();
    assert!(!error.is_retryable(), "{error}");
    assert_eq!(count(store.reader()).await, 3);
}

#[tokio::test]
async fn a_transaction_has_the_file_from_its_beginning() {
    let (_dir, path, store) = new();
    let other = store.write(move |connection| {
        let _txn = connection.transaction()?;
        let other = Connection::open(path)?;
        other.busy_timeout(Duration::ZERO)?;
        Ok::<_, SqlError>(other.execute("DELETE FROM coins", []).map_err(SqlError::from))
    });
    assert!(other.await.unwrap().unwrap_err().is_retryable());
}

#[tokio::test]
async fn work_that_panics_is_told_and_rolled_back_and_the_next_one_goes_on() {
    let (_dir, _path, store) = new();
    let broken = store.write::<(), SqlError>(|connection| {
        let txn = connection.transaction()?;
        put(&txn, 1)?;
        panic!("a test");
    });
    let error = broken.await.unwrap_err();
    assert!(!error.is_retryable(), "{error}");
    assert_eq!(count(store.reader()).await, 0);
    add(&store, 1).await.unwrap();
    assert_eq!(count(store.reader()).await, 1);
}

#[tokio::test]
async fn a_checkpoint_puts_the_log_into_the_file() {
    let (_dir, path, store) = new();
    add(&store, 1).await.unwrap();
    let file = || std::fs::metadata(&path).unwrap().len();
    assert!(store.reader().size_bytes().await.unwrap() > file(), "the log counts");
    store.checkpoint().await.unwrap();
    assert_eq!(store.reader().size_bytes().await.unwrap(), file());
    assert_eq!(count(store.reader()).await, 1);
}
