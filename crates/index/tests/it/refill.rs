//! Blocks that are written again: gaps that are filled, logs that are wanted since, rows decoded anew, and a
//! worker that goes on from an archive where its node has pruned.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rusqlite::Connection;
use secateur_archive::Check;
use secateur_core::{Cursor, Height, PrunePolicy};
use secateur_evm::Verify;
use secateur_index::codec::EvmCodec;
use secateur_index::refill::{Refill, Refilled};
use secateur_index::sink::sqlite::SqliteSink;
use secateur_index::sink::{IndexReader as _, Sink as _};
use secateur_index::source::{ArchiveSource, BackedSource, Source};
use secateur_index::worker::{End, OnPruned, WorkerOptions};
use secateur_index::{ErrorClass, IndexError, LogFilter};
use tokio::sync::watch;

use crate::archive::Room;
use crate::chain::{CHAIN_ID, History, blocks, dump, options, run};

fn cut(history: &History, limit: Height) {
    let policy = PrunePolicy { retain_blocks: 1, ..PrunePolicy::default() };
    history.store.set_prune_policy(policy).unwrap();
    while history.store.prune_blocks(limit, 5_000).unwrap().more() {}
    history.store.settle().unwrap();
}

fn parts(room: &Room) -> ArchiveSource {
    ArchiveSource::new(room.archive.clone(), CHAIN_ID, Check::Hash)
}

async fn refill_with<S: Source>(
    source: S,
    sink: &SqliteSink,
    logs: LogFilter,
    options: WorkerOptions,
    (first, last): (Height, Height),
) -> Result<Refilled, IndexError> {
    let options = WorkerOptions { logs: logs.to_string(), ..options };
    let codec = Arc::new(EvmCodec::new(CHAIN_ID, Verify::Hash, logs));
    let refill = Refill { source: Arc::new(source), sink: Arc::new(sink.clone()), codec, options };
    let (_stop, stopping) = watch::channel(false);
    refill.run(first, last, stopping, Arc::new(|_| {})).await
}

async fn refill<S: Source>(
    source: S,
    sink: &SqliteSink,
    range: (Height, Height),
) -> Result<Refilled, IndexError> {
    refill_with(source, sink, LogFilter::All, options(), range).await
}

async fn gaps(sink: &SqliteSink) -> Vec<(Height, Height)> {
    let gaps = sink.reader().gaps(0, 100).await.unwrap();
    gaps.iter().map(|gap| (gap.block_from, gap.block_to)).collect()
}

/// All rows, but for counts of the day.
fn rows(path: &std::path::Path) -> Vec<Vec<rusqlite::types::Value>> {
    let mut all = dump(path);
    all.pop();
    all
}

/// A chain of 100 blocks, whole in an archive up to block 95, of which an index has 0 to 9, a gap, and what the
/// node still has, from 61 on. Beside it an index of all.
async fn with_a_gap() -> (Room, History, SqliteSink, PathBuf) {
    let history = History::new(&blocks(100));
    let room = Room::new();
    room.archive(history.source(), room.sink("parts.sqlite")).await;
    run(history.source(), room.sink("whole.sqlite"), options()).await.unwrap();
    let sink = room.sink("index.sqlite");
    let first = WorkerOptions { until: Some(9), ..options() };
    run(history.source(), sink.clone(), first).await.unwrap();
    cut(&history, 60);
    let rebase = WorkerOptions { on_pruned: OnPruned::Rebase, ..options() };
    run(history.source(), sink.clone(), rebase).await.unwrap();
    assert_eq!(gaps(&sink).await, [(10, 60)]);
    let whole = room.dir.path().join("whole.sqlite");
    (room, history, sink, whole)
}

/// A gap stayed for ever: SQLite refused every batch that did not begin at the cursor, and nothing but a rebuild
/// from another source filled it. What is filled leaves `gaps`, block for block.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gap_that_is_filled_from_parts_leaves_the_table_and_the_rows_are_as_without_it() {
    let (room, _history, sink, whole) = with_a_gap().await;
    let index = room.dir.path().join("index.sqlite");
    let middle = refill(parts(&room), &sink, (30, 39)).await.unwrap();
    assert_eq!((middle.written, middle.new, middle.missing), (10, 10, vec![]));
    assert_eq!(gaps(&sink).await, [(10, 29), (40, 60)]);
    for (range, left) in
        [((10, 12), vec![(13, 29), (40, 60)]), ((55, 60), vec![(13, 29), (40, 54)])]
    {
        refill(parts(&room), &sink, range).await.unwrap();
        assert_eq!(gaps(&sink).await, left);
    }
    // Over both that are left, and over what is there already.
    let rest = refill(parts(&room), &sink, (0, 70)).await.unwrap();
    assert_eq!((rest.written, rest.new), (71, 32));
    assert_eq!(gaps(&sink).await, []);
    assert_eq!(rows(&index), rows(&whole));
    assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(100)), "the cursor stays");
    let days = sink.reader().days(None, 10).await.unwrap();
    assert_eq!(days.iter().map(|day| day.blocks_ingested).sum::<u64>(), 100, "once each");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_source_does_not_have_either_is_named_and_stays_a_gap() {
    let (room, history, sink, _whole) = with_a_gap().await;
    let node = refill(history.source(), &sink, (5, 70)).await.unwrap();
    assert_eq!(node.missing, [(5, 60)], "it goes on behind what is missing");
    assert_eq!((node.written, node.new), (10, 0));
    assert_eq!(gaps(&sink).await, [(10, 60)]);
    // Above the last part there is nothing in the archive.
    let archive = refill(parts(&room), &sink, (90, 99)).await.unwrap();
    assert_eq!((archive.written, archive.missing), (6, vec![(96, 99)]));
    let last_error = sink.reader().meta().await.unwrap().last_error;
    let message = last_error.unwrap();
    assert!(message.contains("block 10 is pruned"), "only the worker's own is kept: {message}");
}

/// A worker whose node had pruned ended, or left a gap, though the archive on its own command line had the blocks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_node_has_pruned_goes_on_from_the_archive_and_then_from_the_node() {
    let history = History::new(&blocks(100));
    let room = Room::new();
    room.archive(history.source(), room.sink("parts.sqlite")).await;
    run(history.source(), room.sink("whole.sqlite"), options()).await.unwrap();
    let sink = room.sink("index.sqlite");
    let first = WorkerOptions { until: Some(9), ..options() };
    run(history.source(), sink.clone(), first).await.unwrap();
    cut(&history, 60);
    let backed = BackedSource::new(history.source(), Some(parts(&room)));
    assert_eq!(run(backed, sink.clone(), options()).await.unwrap(), End::CaughtUp);
    assert_eq!(gaps(&sink).await, []);
    let path = |name: &str| room.dir.path().join(name);
    assert_eq!(dump(&path("index.sqlite")), dump(&path("whole.sqlite")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hole_of_both_is_pruned_and_rebasing_leaves_no_more_than_that_out() {
    let history = History::new(&blocks(100));
    let room = Room::new();
    let known = room.sink("parts.sqlite");
    room.archive(history.source(), known.clone()).await;
    let all = known.parts(0, 100).await.unwrap();
    // Blocks 32 to 47 are in no part any more, and the node has blocks from 61 on.
    room.remove(&all[2], &["zst", "json"]);
    cut(&history, 60);
    let sink = room.sink("index.sqlite");
    // Begun when the node had all: the worker begins at its oldest block.
    let source = || BackedSource::new(history.source(), Some(parts(&room)));
    let begun = WorkerOptions { until: Some(19), ..options() };
    run(parts(&room), sink.clone(), begun).await.unwrap();
    let error = run(source(), sink.clone(), options()).await.unwrap_err();
    assert_eq!(error, IndexError::Pruned { wanted: 32, pruned_before_block: 47 });
    let rebase = WorkerOptions { on_pruned: OnPruned::Rebase, ..options() };
    assert_eq!(run(source(), sink.clone(), rebase).await.unwrap(), End::CaughtUp);
    assert_eq!(gaps(&sink).await, [(32, 47)]);
    assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(100)));
}

/// Logs of an address that is wanted later began at the cursor, and blocks that were decoded by an older program
/// kept their rows: only dropping the index and building it again changed that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_that_are_wanted_since_and_rows_decoded_anew_are_filled_in_place() {
    let history = History::new(&blocks(60));
    let room = Room::new();
    run(history.source(), room.sink("whole.sqlite"), options()).await.unwrap();
    let sink = room.sink("index.sqlite");
    // No logs at first; then all of them, from block 40 on.
    let without = |until| WorkerOptions { logs: "off".into(), until: Some(until), ..options() };
    let off = EvmCodec::new(CHAIN_ID, Verify::Hash, LogFilter::Off);
    let metrics =
        secateur_index::worker::Metrics::new(&mut prometheus_client::registry::Registry::default());
    let worker = secateur_index::worker::Worker::new(
        Arc::new(history.source()),
        Arc::new(sink.clone()),
        Arc::new(off),
        without(39),
        Arc::new(metrics),
        Arc::new(()),
    );
    let (_stop, stopping) = watch::channel(false);
    worker.run(stopping).await.unwrap();
    run(history.source(), sink.clone(), options()).await.unwrap();
    let since = async || sink.reader().meta().await.unwrap().logs_since;
    assert_eq!(since().await, Some(40));
    // Rows that a faulty decoder left.
    let index = room.dir.path().join("index.sqlite");
    let raw = Connection::open(&index).unwrap();
    raw.execute_batch("UPDATE txs SET gas_used = 1 WHERE block_number = 21; DELETE FROM txs WHERE block_number = 22")
        .unwrap();
    let part = refill(history.source(), &sink, (20, 30)).await.unwrap();
    assert_eq!((part.written, part.new), (11, 0));
    assert_eq!(since().await, Some(40), "blocks 31 to 39 have none yet");
    refill(history.source(), &sink, (0, 39)).await.unwrap();
    assert_eq!(since().await, Some(0));
    assert_eq!(rows(&index), rows(&room.dir.path().join("whole.sqlite")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refill_of_another_chain_or_above_the_cursor_is_refused_and_changes_nothing() {
    let (room, _history, sink, _whole) = with_a_gap().await;
    let index = room.dir.path().join("index.sqlite");
    let before = rows(&index);
    let spec = secateur_evm::ChainSpec { seed: 99, ..secateur_evm::ChainSpec::default() };
    let generator = secateur_evm::Generator::new(spec).unwrap();
    let other: Vec<_> = generator.blocks().take(100).map(Result::unwrap).collect();
    let other = History::new(&other);
    // Blocks that the index has, the gap above one that it has, and the gap alone below one that it has.
    for range in [(0, 5), (10, 20), (55, 60)] {
        let one_batch = WorkerOptions { max_batch_rows: 100_000, ..options() };
        let filled = refill_with(other.source(), &sink, LogFilter::All, one_batch, range);
        let error = filled.await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Refused, "{range:?}: {error}");
        assert_eq!(rows(&index), before, "{range:?}");
    }
    let error = refill(parts(&room), &sink, (90, 105)).await.unwrap();
    assert_eq!(error.missing, [(96, 105)]);
    let whole = History::new(&blocks(120));
    let error = refill(whole.source(), &sink, (95, 119)).await.unwrap_err();
    assert!(error.to_string().contains("goes on at block 100"), "{error}");
}

/// Retention would remove at once what is older than it, and a gap of such blocks would be filled for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_that_are_older_than_the_retention_are_passed_over_and_are_no_gap_any_more() {
    let (room, _history, sink, _whole) = with_a_gap().await;
    let reader = sink.reader();
    let newest = sink.tip().await.unwrap().unwrap().ts.unwrap();
    let oldest = sink.row_at(0).await.unwrap().unwrap().ts.unwrap();
    let days = u32::try_from((newest - oldest) / 86_400 / 2).unwrap();
    let options = WorkerOptions { retention_days: Some(days), ..options() };
    let filled = refill_with(parts(&room), &sink, LogFilter::All, options, (10, 60)).await.unwrap();
    assert_eq!(filled.written + filled.too_old, 51);
    assert_eq!(filled.too_old > 0, newest - u64::from(days) * 86_400 > oldest, "{filled:?}");
    assert_eq!(gaps(&sink).await, []);
    let there = reader.blocks(Some(61), 100).await.unwrap();
    assert_eq!(there.len() as u64, filled.written + 10);
}

// Years of an archive were pulled to be left out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_that_are_older_than_the_retention_are_not_pulled_to_be_left_out() {
    let (_room, _history, sink, _whole) = with_a_gap().await;
    let whole = History::new(&blocks(100));
    let source = whole.source();
    // Nothing but the newest block is young enough.
    let options = WorkerOptions { retention_days: Some(0), ..options() };
    let filled = refill_with(source.clone(), &sink, LogFilter::All, options, (10, 60)).await;
    let filled = filled.unwrap();
    assert_eq!((filled.too_old, filled.written), (51, 0));
    assert!(source.pulls.load(Ordering::Relaxed) < 40, "{}", source.pulls.load(Ordering::Relaxed));
    assert_eq!(gaps(&sink).await, []);
    assert_eq!(sink.reader().meta().await.unwrap().kept_from, Some(61));
}

// A refill bound the index as its worker does: other logs than its own became the index's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refill_with_other_logs_is_refused_and_the_index_keeps_its_own() {
    let (room, _history, sink, _whole) = with_a_gap().await;
    let filled = refill_with(parts(&room), &sink, LogFilter::Off, options(), (10, 60)).await;
    let error = filled.unwrap_err();
    assert!(error.to_string().contains("the index has logs all"), "{error}");
    let meta = sink.reader().meta().await.unwrap();
    assert_eq!((meta.logs.as_deref(), meta.logs_since), (Some("all"), Some(0)));
    assert_eq!(gaps(&sink).await, [(10, 60)]);
}

/// An index that begins above block 0 notes what is below as missing. A fill takes its own blocks out of that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_below_the_indexs_beginning_are_a_gap_until_they_are_filled() {
    let history = History::new(&blocks(100));
    let room = Room::new();
    room.archive(history.source(), room.sink("parts.sqlite")).await;
    cut(&history, 60);
    let sink = room.sink("index.sqlite");
    run(history.source(), sink.clone(), options()).await.unwrap();
    assert_eq!(gaps(&sink).await, [(0, 60)]);
    refill(parts(&room), &sink, (20, 29)).await.unwrap();
    assert_eq!(gaps(&sink).await, [(0, 19), (30, 60)]);
    refill(parts(&room), &sink, (0, 9)).await.unwrap();
    assert_eq!(gaps(&sink).await, [(10, 19), (30, 60)]);
    refill(parts(&room), &sink, (0, 60)).await.unwrap();
    assert_eq!(gaps(&sink).await, []);
}
