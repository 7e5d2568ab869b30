//! What a worker does with what it meets.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use secateur_core::{Cursor, Height, PrunePolicy};
use secateur_index::sink::sqlite::SqliteSink;
use secateur_index::sink::{BlockKey, IndexReader as _, Sink as _};
use secateur_index::worker::{End, Event, Observer, OnPruned, Progress, WorkerOptions};
use secateur_index::{ErrorClass, IndexError};
use tokio::sync::watch;

use crate::chain::{CHAIN_ID, History, blocks, dump, options, run, worker};

fn new_sink() -> (tempfile::TempDir, SqliteSink) {
    let dir = tempfile::tempdir().unwrap();
    let sink = SqliteSink::open(&dir.path().join("index.sqlite")).unwrap();
    (dir, sink)
}

/// Remembers what it saw.
#[derive(Default)]
struct Witness {
    progress: Mutex<Vec<Progress>>,
    events: Mutex<Vec<String>>,
    tip: Mutex<Option<watch::Sender<Height>>>,
}

impl Observer for Witness {
    fn progress(&self, progress: &Progress) {
        self.progress.lock().push(*progress);
    }

    fn event(&self, event: &Event<'_>) {
        if let (Event::CaughtUp { next }, Some(tip)) = (event, self.tip.lock().as_ref()) {
            tip.send_replace(*next);
        }
        self.events.lock().push(format!("{event:?}"));
    }
}

#[tokio::test]
async fn an_index_holds_the_whole_chain_in_batches_that_end_between_blocks() {
    let chain = blocks(120);
    let history = History::new(&chain);
    let (dir, sink) = new_sink();
    let witness = Arc::new(Witness::default());
    let (_stop, stopping) = watch::channel(false);
    let worker = worker(history.source(), sink.clone(), options(), Arc::clone(&witness) as _);
    assert_eq!(worker.run(stopping).await.unwrap(), End::CaughtUp);
    assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(120)));
    let reader = sink.reader();
    for block in &chain {
        let row = reader.block(BlockKey::Number(block.meta.height)).await.unwrap().unwrap();
        assert_eq!(row.hash, Some(block.meta.hash));
    }
    let progress = witness.progress.lock().clone();
    assert!(progress.len() > 3, "{} batches", progress.len());
    assert_eq!(progress.last().unwrap().blocks, 120);
    assert_eq!(progress.last().unwrap().lag(), 0);
    let raw: u64 = chain.iter().map(|block| block.payloads.total_len()).sum();
    assert_eq!(progress.last().unwrap().raw_bytes, raw);
    assert!(dump(&dir.path().join("index.sqlite")).len() > 120);
}

#[tokio::test]
async fn at_the_tip_it_waits_without_spinning_and_writes_what_comes() {
    let chain = blocks(40);
    let history = History::new(&chain[..20]);
    let (_dir, sink) = new_sink();
    let (tip, mut tips) = watch::channel(0);
    let witness = Arc::new(Witness { tip: Mutex::new(Some(tip)), ..Witness::default() });
    let (stop, stopping) = watch::channel(false);
    let source = history.source();
    let options = WorkerOptions { follow: true, ..options() };
    let worker = worker(source.clone(), sink.clone(), options, witness);
    let working = tokio::spawn(async move { worker.run(stopping).await });
    tips.wait_for(|next| *next == 20).await.unwrap();
    let (before, since) = (source.pulls.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let asked = source.pulls.load(Ordering::Relaxed) - before;
    // 200, 400, 800 ms: three questions in 1.4 s; in a slow run a few more.
    assert!(asked <= 4 + u64::from(since.elapsed() > Duration::from_secs(3)) * 3, "{asked}");
    history.append(&chain[20..]);
    tips.wait_for(|next| *next == 40).await.unwrap();
    stop.send_replace(true);
    assert_eq!(working.await.unwrap().unwrap(), End::Stopped);
    assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(40)));
}

fn cut(history: &History, limit: Height) {
    history
        .store
        .set_prune_policy(PrunePolicy { retain_blocks: 1, ..PrunePolicy::default() })
        .unwrap();
    while history.store.prune_blocks(limit, 5_000).unwrap().more() {}
    history.store.settle().unwrap();
    assert_eq!(history.store.get_prune_status().unwrap().pruned_before_block, Some(limit));
}

#[tokio::test]
async fn a_pruned_block_stops_it_with_a_message_that_says_what_to_do() {
    let history = History::new(&blocks(60));
    let (_dir, sink) = new_sink();
    let first = WorkerOptions { until: Some(9), ..options() };
    assert_eq!(run(history.source(), sink.clone(), first).await.unwrap(), End::Until);
    cut(&history, 29);
    let error = run(history.source(), sink.clone(), options()).await.unwrap_err();
    assert_eq!(error, IndexError::Pruned { wanted: 10, pruned_before_block: 29 });
    assert!(error.to_string().contains("on_pruned = rebase"), "{error}");
    assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(10)));
    let meta = sink.reader().meta().await.unwrap();
    assert!(meta.last_error.unwrap().contains("\"class\":\"pruned\""));

    let rebase = WorkerOptions { on_pruned: OnPruned::Rebase, ..options() };
    assert_eq!(run(history.source(), sink.clone(), rebase).await.unwrap(), End::CaughtUp);
    let gaps = sink.reader().gaps(0, 10).await.unwrap();
    assert_eq!(gaps.len(), 1);
    assert_eq!((gaps[0].block_from, gaps[0].block_to), (10, 29));
    assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(60)));
    assert_eq!(sink.reader().block(BlockKey::Number(20)).await.unwrap(), None);
    assert!(sink.reader().block(BlockKey::Number(30)).await.unwrap().is_some());
}

#[tokio::test]
async fn a_wire_that_breaks_is_tried_again_and_nothing_is_lost_or_doubled() {
    let history = History::new(&blocks(30));
    let (dir, sink) = new_sink();
    let source = history.source();
    // Each attempt gets some blocks further before the wire breaks again.
    source.fail_after.store(12, Ordering::Relaxed);
    let (tip, mut tips) = watch::channel(0);
    let witness = Arc::new(Witness { tip: Mutex::new(Some(tip)), ..Witness::default() });
    let patience = (Duration::ZERO, Duration::ZERO);
    let options =
        WorkerOptions { alarm_after: patience.0, pause: patience.1, follow: true, ..options() };
    let (stop, stopping) = watch::channel(false);
    let worker = worker(source.clone(), sink.clone(), options, Arc::clone(&witness) as _);
    let working = tokio::spawn(async move { worker.run(stopping).await });
    tips.wait_for(|next| *next == 30).await.unwrap();
    stop.send_replace(true);
    assert_eq!(working.await.unwrap().unwrap(), End::Stopped);
    assert!(source.failures.load(Ordering::Relaxed) > 0);
    let events = witness.events.lock().join("\n");
    for wanted in ["Retrying", "Alarm", "Recovered"] {
        assert!(events.contains(wanted), "no {wanted} in\n{events}");
    }
    let (clean_dir, clean) = new_sink();
    run(history.source(), clean, crate::chain::options()).await.unwrap();
    let name = "index.sqlite";
    assert_eq!(dump(&dir.path().join(name)), dump(&clean_dir.path().join(name)));
    let day = sink.reader().days(None, 1).await.unwrap()[0];
    assert_eq!(day.errors, source.failures.load(Ordering::Relaxed));
}

#[tokio::test]
async fn a_registered_consumer_acknowledges_only_what_is_written() {
    let history = History::new(&blocks(50));
    let (_dir, sink) = new_sink();
    let source = history.source();
    let options = WorkerOptions { consumer: Some("index".into()), ..options() };
    run(source.clone(), sink, options).await.unwrap();
    let acked = source.acked.lock().clone();
    assert_eq!(acked.last(), Some(&49));
    assert!(acked.is_sorted(), "{acked:?}");
}

#[tokio::test]
async fn an_index_of_another_chain_is_refused_by_its_last_block() {
    let chain = blocks(30);
    let history = History::new(&chain);
    let (_dir, sink) = new_sink();
    let first = WorkerOptions { until: Some(9), ..options() };
    run(history.source(), sink.clone(), first).await.unwrap();
    // The same chain id, and other blocks.
    let spec = secateur_evm::ChainSpec { seed: 99, ..secateur_evm::ChainSpec::default() };
    let generator = secateur_evm::Generator::new(spec).unwrap();
    let mut parent = secateur_core::BlockHash::default();
    let other: Vec<_> = (0..30)
        .map(|height| {
            let block = generator.block(height, parent).unwrap();
            parent = block.meta.hash;
            block
        })
        .collect();
    // One that is longer, and one that ends below the index and would be waited for.
    for length in [30, 5] {
        let other = History::new(&other[..length]);
        let error = run(other.source(), sink.clone(), options()).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Refused);
        assert!(error.to_string().contains("another chain"), "{error}");
    }
    // The same chain, shorter: that one comes.
    let end = run(History::new(&chain[..5]).source(), sink.clone(), options()).await.unwrap();
    assert_eq!(end, End::CaughtUp);
    let error =
        run(history.source(), sink.clone(), WorkerOptions { chain_id: CHAIN_ID + 1, ..options() })
            .await
            .unwrap_err();
    assert!(error.to_string().contains("chain_id 1337"), "{error}");
    assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(10)));
}

#[tokio::test]
async fn a_source_of_another_chain_is_refused_and_neither_side_is_changed() {
    let history = History::new(&blocks(20));
    let (dir, sink) = new_sink();
    let other = history.source().of_chain(CHAIN_ID + 1);
    let options = WorkerOptions { consumer: Some("index".into()), ..options() };
    let refused = |error: IndexError| {
        assert_eq!(error.class(), ErrorClass::Refused);
        let said = error.to_string();
        assert!(said.contains("the source has chain 1338, and chain 1337 is wanted"), "{said}");
        assert_eq!(said.matches("nothing was changed").count(), 1, "{said}");
    };
    refused(run(other.clone(), sink.clone(), options.clone()).await.unwrap_err());
    let meta = sink.reader().meta().await.unwrap();
    assert_eq!((meta.chain_id, meta.codec, meta.logs, meta.cursor), (None, None, None, None));
    assert_eq!(other.pulls.load(Ordering::Relaxed), 0, "no block was asked for");
    assert_eq!(*other.registered.lock(), [] as [&str; 0]);
    // So the index can still become the right chain's; and then it stays that.
    let right = history.source().of_chain(CHAIN_ID);
    run(right.clone(), sink.clone(), WorkerOptions { until: Some(9), ..options.clone() })
        .await
        .unwrap();
    assert_eq!(*right.registered.lock(), ["index"]);
    let before = dump(&dir.path().join("index.sqlite"));
    refused(run(other, sink, options).await.unwrap_err());
    assert_eq!(dump(&dir.path().join("index.sqlite")), before);
}

/// A chain with a block every hour, and few transactions.
fn hourly(count: u64) -> Vec<secateur_core::Block> {
    let spec = secateur_evm::ChainSpec {
        block_time: 3_600,
        transactions_per_block: 1,
        ..secateur_evm::ChainSpec::default()
    };
    let generator = secateur_evm::Generator::new(spec).unwrap();
    let mut parent = secateur_core::BlockHash::default();
    (0..count)
        .map(|height| {
            let block = generator.block(height, parent).unwrap();
            parent = block.meta.hash;
            block
        })
        .collect()
}

#[tokio::test]
async fn a_worker_that_ends_has_removed_all_that_is_too_old_however_many_steps_that_takes() {
    let history = History::new(&hourly(2_000));
    let (_dir, sink) = new_sink();
    let keep = |days| WorkerOptions { retention_days: Some(days), ..options() };
    run(history.source(), sink.clone(), keep(2)).await.unwrap();
    let reader = sink.reader();
    assert_eq!(reader.blocks(None, 1_000).await.unwrap().len(), 49);
    // Nothing new came, and fewer days are wanted.
    run(history.source(), sink.clone(), keep(1)).await.unwrap();
    assert_eq!(reader.blocks(None, 1_000).await.unwrap().len(), 25);
    assert_eq!(sink.cursor().await.unwrap(), Some(Cursor::at_block(2_000)));
}

#[tokio::test]
async fn retention_keeps_what_is_young_by_the_chains_own_clock() {
    let history = History::new(&hourly(100));
    let (_dir, sink) = new_sink();
    let options = WorkerOptions { retention_days: Some(2), ..options() };
    run(history.source(), sink.clone(), options).await.unwrap();
    let reader = sink.reader();
    // Block 99 is the newest; 48 hours before it is block 51.
    assert_eq!(reader.block(BlockKey::Number(50)).await.unwrap(), None);
    assert!(reader.block(BlockKey::Number(51)).await.unwrap().is_some());
    assert_eq!(reader.blocks(None, 1_000).await.unwrap().len(), 49);
}
