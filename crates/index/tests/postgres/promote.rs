//! Moving an index from SQLite: equal, resumable, and not said to be done if anything differs.

use std::fmt::Write as _;

use secateur_core::{BlockHash, Cursor};
use secateur_index::postgres::{PostgresSink, PromotePhase, promote};
use secateur_index::sink::sqlite::{SqliteReader, SqliteSink};
use secateur_index::sink::{Identity, IndexReader, Note, Sink};
use secateur_index::{ErrorClass, GapRow, PartRow};
use tempfile::TempDir;

use crate::chain::{GENESIS, batch, connect, dump, fresh, number, open};
use crate::fixture;

fn identity(chain_id: u64) -> Identity {
    Identity { chain_id, codec: "evm".into(), logs: "all".into() }
}

/// The same chain into any sink, with a gap, parts and an error.
async fn fill(sink: &impl Sink) {
    sink.bind(&identity(7)).await.unwrap();
    for first in (40..2_540).step_by(250) {
        sink.commit(batch(first..first + 250)).await.unwrap();
    }
    let gap =
        GapRow { block_from: 2_540, block_to: 99_989, reason: "pruned".into(), noted_at: GENESIS };
    sink.record_gap(gap, Cursor::at_block(99_990)).await.unwrap();
    sink.commit(batch(99_990..101_200)).await.unwrap();
    for from in [40, 1_040] {
        let part = PartRow {
            block_from: from,
            block_to: from + 999,
            provider: "fs".into(),
            object_key: format!("part={from}"),
            codec: "zstd".into(),
            size_bytes: 4_096,
            sha256: [9; 32],
            parent_hash: BlockHash([1; 32]),
            last_hash: BlockHash([2; 32]),
        };
        sink.add_part(part, GENESIS + 86_400 * from).await.unwrap();
    }
    let error = Some((ErrorClass::Net, "gone".to_owned()));
    sink.note(Note { head: Some(102_000), error, at: GENESIS }).await.unwrap();
}

async fn source() -> (TempDir, SqliteReader) {
    let directory = tempfile::tempdir().unwrap();
    let sink = SqliteSink::open(&directory.path().join("index.sqlite")).unwrap();
    fill(&sink).await;
    (directory, sink.reader())
}

/// Everything that a reader can list.
async fn listing(index: &impl IndexReader) -> String {
    let mut meta = index.meta().await.unwrap();
    // Each kind counts its own versions.
    meta.schema_version = 0;
    let mut text = format!("{meta:?}\n");
    let mut before = None;
    loop {
        let blocks = index.blocks(before, 1_000).await.unwrap();
        for block in &blocks {
            let txs = index.block_txs(block.number, 0, 1_000).await.unwrap();
            writeln!(text, "{block:?} {txs:?}").unwrap();
        }
        before = blocks.last().map(|block| block.number);
        if before.is_none() {
            break;
        }
    }
    let days = index.days(None, 100).await.unwrap();
    let (parts, gaps) = (index.list_parts(0, 9).await.unwrap(), index.gaps(0, 9).await.unwrap());
    write!(text, "{parts:?} {gaps:?} {days:?}").unwrap();
    text
}

#[tokio::test]
async fn the_same_chain_gives_the_same_rows_in_both_sinks() {
    let (_directory, sqlite) = source().await;
    let (sink, _) = fresh().await;
    fill(&sink).await;
    assert_eq!(listing(&sink).await, listing(&sqlite).await);
}

#[tokio::test]
async fn a_promoted_index_is_equal_and_the_worker_goes_on_with_it() {
    let (_directory, sqlite) = source().await;
    let (sink, url) = fresh().await;
    let mut phases = Vec::new();
    let done = promote(&sqlite, &sink, |progress| phases.push(progress.phase)).await.unwrap();
    assert_eq!(done.next, 101_200);
    assert_eq!(done.tables[0], ("blocks", 3_710));
    assert!(phases.contains(&PromotePhase::Moving) && phases.contains(&PromotePhase::Comparing));
    assert_eq!(listing(&sink).await, listing(&sqlite).await);
    let (direct, direct_url) = fresh().await;
    fill(&direct).await;
    assert_eq!(dump(&url).await, dump(&direct_url).await, "as if it had always been here");
    sink.bind(&identity(7)).await.unwrap();
    // What was moved is not what a day grew by.
    let grown = "select coalesce(sum(abs(growth_bytes)), 0)::bigint from metrics_daily";
    let before = number(&url, grown).await;
    sink.maintain(GENESIS + 86_400 * 9_000).await.unwrap();
    let size = i64::try_from(sink.size_bytes().await.unwrap()).unwrap();
    assert!(number(&url, grown).await - before < size / 2, "of {size} bytes");
    let own = "delete from metrics_daily where day = date '1970-01-01' + $1::integer";
    let day = i32::try_from(GENESIS / 86_400 + 9_000).unwrap();
    connect(&url).await.execute(own, &[&day]).await.unwrap();
    // Again changes nothing.
    assert_eq!(promote(&sqlite, &sink, |_| ()).await.unwrap(), done);
    sink.commit(batch(101_200..101_300)).await.unwrap();
    assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(101_300)));
    // Nor after the worker went on: it is refused, and the worker is not.
    let before = dump(&url).await;
    let error = promote(&sqlite, &sink, |_| ()).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Refused);
    assert!(error.to_string().contains("a worker has gone on with it"), "{error}");
    assert_eq!(dump(&url).await, before);
    sink.check_whole().await.unwrap();
}

#[tokio::test]
async fn an_index_that_was_moved_stays_whole_whatever_is_promoted_onto_it() {
    let (_directory, sqlite) = source().await;
    let (sink, url) = fresh().await;
    promote(&sqlite, &sink, |_| ()).await.unwrap();
    let before = dump(&url).await;
    // Of the same chain, with other parts.
    let directory = tempfile::tempdir().unwrap();
    let other = SqliteSink::open(&directory.path().join("other.sqlite")).unwrap();
    other.bind(&identity(7)).await.unwrap();
    other.commit(batch(40..290)).await.unwrap();
    let mut part = sqlite.list_parts(0, 1).await.unwrap().remove(0);
    (part.block_to, part.object_key) = (part.block_from + 9, "part=other".into());
    other.add_part(part, GENESIS).await.unwrap();
    promote(&other.reader(), &sink, |_| ()).await.unwrap_err();
    assert_eq!(dump(&url).await, before);
    sink.check_whole().await.unwrap();
}

#[tokio::test]
async fn an_index_whose_worker_noted_parts_since_it_was_moved_is_refused_and_left_alone() {
    let (_directory, sqlite) = source().await;
    let (sink, url) = fresh().await;
    promote(&sqlite, &sink, |_| ()).await.unwrap();
    promote(&sqlite, &sink, |_| ()).await.unwrap();
    let mut part = sqlite.list_parts(0, 1).await.unwrap().remove(0);
    (part.block_from, part.block_to, part.object_key) = (2_040, 2_539, "part=2040".into());
    sink.add_part(part, GENESIS).await.unwrap();
    let before = dump(&url).await;
    let error = promote(&sqlite, &sink, |_| ()).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Refused, "{error}");
    for told in ["a worker has gone on with it since", "nothing was changed"] {
        assert!(error.to_string().contains(told), "no {told} in {error}");
    }
    assert_eq!(dump(&url).await, before);
    sink.check_whole().await.unwrap();
}

#[tokio::test]
async fn one_that_was_broken_off_goes_on_where_it_was() {
    let (_directory, sqlite) = source().await;
    let (sink, url) = fresh().await;
    let client = connect(&url).await;
    let fail = "create function fail() returns trigger language plpgsql as \
        $$ begin raise exception 'no more'; end $$; \
        create trigger fail before insert on blocks for each row \
        when (new.number = 100001) execute function fail()";
    client.batch_execute(fail).await.unwrap();
    let error = promote(&sqlite, &sink, |_| ()).await.unwrap_err();
    assert!(error.to_string().contains("no more"), "{error}");
    assert!(number(&url, "select count(*) from blocks").await > 2_000);
    // No worker goes on in the middle of it.
    for refused in [sink.check_whole().await, sink.bind(&identity(7)).await] {
        let error = refused.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Refused);
        assert!(error.to_string().contains("promote` again"), "{error}");
    }
    client.batch_execute("drop function fail() cascade").await.unwrap();
    let mut first = None;
    promote(&sqlite, &open(&url).await, |progress| {
        first.get_or_insert(progress.at);
    })
    .await
    .unwrap();
    assert_eq!(first, Some(99_990), "what was moved is not moved again");
    sink.check_whole().await.unwrap();
    assert_eq!(listing(&sink).await, listing(&sqlite).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_grew_is_told_and_the_next_try_goes_on_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let sqlite = SqliteSink::open(&directory.path().join("index.sqlite")).unwrap();
    sqlite.bind(&identity(7)).await.unwrap();
    sqlite.commit(batch(0..1_500)).await.unwrap();
    let (sink, _) = fresh().await;
    let grew = std::sync::Once::new();
    let error = promote(&sqlite.reader(), &sink, |progress| {
        if progress.phase == PromotePhase::Comparing {
            // The worker was not stopped.
            grew.call_once(|| {
                let batch = sqlite.commit(batch(1_500..1_700));
                tokio::task::block_in_place(|| {
                    tokio::runtime::Handle::current().block_on(batch).unwrap();
                });
            });
        }
    })
    .await
    .unwrap_err();
    assert!(error.to_string().contains("grew while it was moved"), "{error}");
    let done = promote(&sqlite.reader(), &sink, |_| ()).await.unwrap();
    assert_eq!((done.next, done.tables[0]), (1_700, ("blocks", 1_700)));
    assert_eq!(listing(&sink).await, listing(&sqlite.reader()).await);
}

async fn tampered(sqlite: &SqliteReader, sql: &str, table: &str) {
    let (sink, url): (PostgresSink, String) = fresh().await;
    promote(sqlite, &sink, |_| ()).await.unwrap();
    connect(&url).await.batch_execute(sql).await.unwrap();
    let error = promote(sqlite, &sink, |_| ()).await.unwrap_err();
    assert!(error.to_string().contains(&format!("`{table}` differs")), "{sql}: {error}");
}

#[tokio::test]
async fn a_single_value_that_differs_is_found() {
    let (_directory, sqlite) = source().await;
    for (table, sql) in [
        ("blocks", "update blocks set ts = ts + 1 where number = 77"),
        ("txs", "update txs set value = value + 1 where block_number = 101 and tx_index = 0"),
        ("txs", "delete from txs where block_number = 101 and tx_index = 0"),
        ("logs", "update logs set data = data || '\\x00' where block_number = 101"),
        ("blocks", "insert into blocks (number, tx_count) values (5, 0)"),
        (
            "archive_parts",
            "delete from archive_parts where block_from = 40; \
            insert into archive_parts select 41, block_to, provider, object_key, codec, \
            size_bytes, sha256, parent_hash, last_hash from archive_parts limit 1",
        ),
        // A day that is on both sides is moved again; one that only the target has is not ours.
        ("metrics_daily", "insert into metrics_daily (day, errors) values ('1999-12-31', 1)"),
    ] {
        tampered(&sqlite, sql, table).await;
    }
}

#[tokio::test]
async fn a_target_with_other_data_is_refused_and_left_alone() {
    let (_directory, sqlite) = source().await;
    let (used, url) = fresh().await;
    used.commit(batch(0..10)).await.unwrap();
    let error = promote(&sqlite, &used, |_| ()).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Refused, "{error}");
    assert_eq!(number(&url, "select count(*) from blocks").await, 10);
    let bound = open(&fixture::database()).await;
    bound.bind(&identity(8)).await.unwrap();
    assert_eq!(promote(&sqlite, &bound, |_| ()).await.unwrap_err().class(), ErrorClass::Refused);
    let directory = tempfile::tempdir().unwrap();
    let empty = SqliteSink::open(&directory.path().join("empty.sqlite")).unwrap();
    let (sink, _) = fresh().await;
    let error = promote(&empty.reader(), &sink, |_| ()).await.unwrap_err();
    assert!(error.to_string().contains("nothing to move"), "{error}");
}
