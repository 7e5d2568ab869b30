//! Several workers: leases expire, are fenced, and cover every block once.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use secateur_core::{BlockHash, Cursor};
use secateur_index::postgres::{LeaseQueue, LeasedSink, backfill};
use secateur_index::sink::{IndexReader as _, Sink as _};
use secateur_index::{ErrorClass, GapRow, IndexError};

use crate::chain::{batch, connect, dump, fresh, number, open};
use crate::fixture;

#[expect(clippy::unnecessary_wraps, reason = "it is compared with what a sink answers")]
fn cursor(number: u64) -> Option<Cursor> {
    Some(Cursor::at_block(number))
}

/// Ends all leases now, as if their holders had been silent for long.
async fn expire(url: &str) {
    let sql = "update leases set expires_at = clock_timestamp() where expires_at is not null; \
        update head_lease set expires_at = clock_timestamp()";
    connect(url).await.batch_execute(sql).await.unwrap();
}

#[tokio::test]
async fn leases_cover_the_backfill_without_hole_or_overlap() {
    let (sink, url) = fresh().await;
    sink.commit(batch(0..250)).await.unwrap();
    let queue = LeaseQueue::new(&sink, "a");
    assert_eq!(queue.plan(0, 3_500).await.unwrap(), 4);
    assert_eq!(queue.plan(0, 3_500).await.unwrap(), 0);
    assert_eq!(queue.plan(0, 5_000).await.unwrap(), 2);
    let mut ranges = Vec::new();
    while let Some(lease) = queue.take().await.unwrap() {
        ranges.push((lease.first, lease.past));
    }
    let wanted =
        [(250, 1000), (1000, 2000), (2000, 3000), (3000, 3500), (3500, 4000), (4000, 5000)];
    assert_eq!(ranges, wanted);
    assert_eq!(number(&url, "select count(*) from leases where owner = 'a'").await, 6);
}

#[tokio::test]
async fn a_plan_of_more_leases_than_are_made_at_once_goes_on_where_it_ended() {
    let (sink, url) = fresh().await;
    let queue = LeaseQueue::new(&sink, "a");
    let past = 10_500_200;
    let mut planned = Vec::new();
    loop {
        planned.push(queue.plan(0, past).await.unwrap());
        if planned.last() == Some(&0) {
            break;
        }
    }
    assert_eq!(planned, [10_000, 501, 0]);
    assert_eq!(number(&url, "select max(past) from leases").await, 10_500_200);
    assert_eq!(number(&url, "select sum(past - first)::bigint from leases").await, 10_500_200);
}

#[tokio::test]
async fn the_cursor_is_the_height_below_which_everything_is_committed() {
    let (sink, url) = fresh().await;
    let queue = LeaseQueue::new(&sink, "a");
    queue.plan(500, 3_000).await.unwrap();
    assert_eq!(sink.cursor().await.unwrap(), cursor(500));
    let mut leases = Vec::new();
    while let Some(lease) = queue.take().await.unwrap() {
        leases.push(LeasedSink::range(&queue, lease));
    }
    leases[1].commit(batch(1000..2000)).await.unwrap();
    leases[0].commit(batch(500..900)).await.unwrap();
    assert_eq!(leases[0].cursor().await.unwrap(), cursor(900));
    assert_eq!(sink.cursor().await.unwrap(), cursor(500), "nothing is whole yet");
    leases[0].commit(batch(900..1000)).await.unwrap();
    assert_eq!(sink.cursor().await.unwrap(), cursor(2000));
    leases[2].commit(batch(2000..3000)).await.unwrap();
    assert_eq!(sink.cursor().await.unwrap(), cursor(3000));
    assert_eq!(number(&url, "select count(*) from leases").await, 0);
    assert_eq!(queue.backlog().await.unwrap().open, 0);
}

#[tokio::test]
async fn a_dead_workers_lease_goes_on_where_its_last_commit_ended() {
    let (sink, url) = fresh().await;
    let (dead, alive) = (LeaseQueue::new(&sink, "dead"), LeaseQueue::new(&sink, "alive"));
    dead.plan(0, 1_000).await.unwrap();
    let lease = dead.take().await.unwrap().unwrap();
    LeasedSink::range(&dead, lease).commit(batch(0..300)).await.unwrap();
    assert_eq!(alive.take().await.unwrap(), None, "it is held");
    expire(&url).await;
    let taken = alive.take().await.unwrap().unwrap();
    assert_eq!((taken.first, taken.next, taken.epoch), (0, 300, lease.epoch + 1));
    assert!(!dead.renew(&lease).await.unwrap());
    assert!(alive.renew(&taken).await.unwrap());
    // What the dead one gives back now is not its own to give.
    dead.release(&lease).await.unwrap();
    assert_eq!(dead.take().await.unwrap(), None);
}

#[tokio::test]
async fn a_lease_expires_by_the_databases_clock() {
    let (sink, _) = fresh().await;
    let short = LeaseQueue::new(&sink, "short").held_for(Duration::from_millis(300));
    short.plan(0, 1_000).await.unwrap();
    short.take().await.unwrap().unwrap();
    let left = short.backlog().await.unwrap();
    assert_eq!(left.open, 1);
    assert!(left.expires_in.unwrap() <= Duration::from_millis(300), "{left:?}");
    let next = LeaseQueue::new(&sink, "next");
    let pulled = backfill(&next, |sink| async move { sink.commit(batch(0..1_000)).await });
    let done = tokio::time::timeout(Duration::from_secs(30), pulled).await.unwrap().unwrap();
    assert_eq!(done.leases, 1);
}

#[tokio::test]
async fn a_worker_whose_lease_was_taken_over_cannot_commit_into_it() {
    let (sink, url) = fresh().await;
    let (slow, quick) = (LeaseQueue::new(&sink, "slow"), LeaseQueue::new(&sink, "quick"));
    slow.plan(0, 2_000).await.unwrap();
    let slow_sink = LeasedSink::range(&slow, slow.take().await.unwrap().unwrap());
    slow_sink.commit(batch(0..100)).await.unwrap();
    expire(&url).await;
    let quick_sink = LeasedSink::range(&quick, quick.take().await.unwrap().unwrap());
    let refused = |result: Result<(), IndexError>| {
        let error = result.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Refused, "{error}");
    };
    refused(slow_sink.commit(batch(100..200)).await);
    assert!(slow_sink.is_lost());
    assert_eq!(number(&url, "select count(*) from blocks").await, 100);
    quick_sink.commit(batch(100..1_000)).await.unwrap();
    // And also not after the lease is done and gone.
    refused(slow_sink.commit(batch(100..200)).await);
    let gap = GapRow { block_from: 100, block_to: 900, reason: "x".into(), noted_at: 0 };
    refused(slow_sink.record_gap(gap, Cursor::at_block(901)).await);
    assert_eq!(sink.gaps(0, 1).await.unwrap(), []);
    assert_eq!(sink.cursor().await.unwrap(), cursor(1_000));
}

#[tokio::test]
async fn a_commit_whose_answer_got_lost_may_be_tried_again() {
    let (sink, url) = fresh().await;
    let queue = LeaseQueue::new(&sink, "a");
    queue.plan(0, 1_000).await.unwrap();
    let lease = queue.take().await.unwrap().unwrap();
    LeasedSink::range(&queue, lease).commit(batch(0..400)).await.unwrap();
    // It never heard of it, so it stands where it was.
    let again = LeasedSink::range(&queue, lease);
    again.commit(batch(0..400)).await.unwrap();
    assert_eq!(again.cursor().await.unwrap(), cursor(400));
    assert_eq!(number(&url, "select count(*) from blocks").await, 400);
    let error = again.commit(batch(500..600)).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::InvalidCursor);
}

#[tokio::test]
async fn a_lease_over_blocks_that_are_there_in_part_takes_the_rest_and_refuses_another_block() {
    let (sink, url) = fresh().await;
    sink.commit(batch(0..300)).await.unwrap();
    // As if the cursor had been lost: the backfill is planned over what is there.
    let client = connect(&url).await;
    client.batch_execute("delete from meta where key = 'cursor'").await.unwrap();
    let queue = LeaseQueue::new(&sink, "a");
    queue.plan(0, 1_000).await.unwrap();
    let lease = queue.take().await.unwrap().unwrap();
    let leased = LeasedSink::range(&queue, lease);
    let before = dump(&url).await;
    let mut other = batch(0..400);
    other.rows.blocks[299].hash = Some(BlockHash([7; 32]));
    let error = leased.commit(other).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Sink);
    assert!(error.to_string().contains("block 299 is in the index already"), "{error}");
    assert!(error.to_string().contains("nothing was changed"), "{error}");
    assert!(!leased.is_lost(), "it still holds the lease");
    assert_eq!(leased.cursor().await.unwrap(), cursor(0));
    assert_eq!(number(&url, "select next from leases").await, 0);
    assert_eq!(dump(&url).await, before);
    leased.commit(batch(0..400)).await.unwrap();
    leased.commit(batch(400..1_000)).await.unwrap();
    let (alone, alone_url) = fresh().await;
    alone.commit(batch(0..1_000)).await.unwrap();
    assert_eq!(dump(&url).await, dump(&alone_url).await);
    assert_eq!(sink.cursor().await.unwrap(), cursor(1_000));
    // Blocks count once, however often they came.
    assert_eq!(sink.days(None, 1).await.unwrap()[0].blocks_ingested, 1_000);
}

#[tokio::test]
async fn a_gap_beyond_a_range_ends_it_and_no_more() {
    let (sink, _) = fresh().await;
    let queue = LeaseQueue::new(&sink, "a");
    queue.plan(0, 2_000).await.unwrap();
    let lease = LeasedSink::range(&queue, queue.take().await.unwrap().unwrap());
    lease.commit(batch(0..10)).await.unwrap();
    let gap = GapRow { block_from: 10, block_to: 1_499, reason: "pruned".into(), noted_at: 1 };
    lease.record_gap(gap, Cursor::at_block(1_500)).await.unwrap();
    assert_eq!(lease.cursor().await.unwrap(), cursor(1_000));
    assert_eq!(sink.cursor().await.unwrap(), cursor(1_000));
    assert_eq!(sink.gaps(0, 9).await.unwrap()[0].block_to, 999);
}

#[tokio::test]
async fn one_worker_follows_the_head() {
    let (sink, url) = fresh().await;
    sink.commit(batch(0..10)).await.unwrap();
    let (a, b) = (LeaseQueue::new(&sink, "a"), LeaseQueue::new(&sink, "b"));
    let first = a.take_head().await.unwrap().unwrap();
    assert_eq!(b.take_head().await.unwrap(), None);
    let head = LeasedSink::head(&a, first);
    assert_eq!(head.cursor().await.unwrap(), cursor(10));
    head.commit(batch(10..20)).await.unwrap();
    expire(&url).await;
    let second = b.take_head().await.unwrap().unwrap();
    assert!(!a.renew_head(first).await.unwrap());
    assert_eq!(head.commit(batch(20..30)).await.unwrap_err().class(), ErrorClass::Refused);
    LeasedSink::head(&b, second).commit(batch(20..30)).await.unwrap();
    b.release_head(second).await.unwrap();
    assert!(a.take_head().await.unwrap().is_some());
    assert_eq!(sink.cursor().await.unwrap(), cursor(30));
}

/// Pulls a lease in steps, and notes what it committed. Now and then it drops what it does.
async fn pull(
    sink: LeasedSink,
    log: Arc<Mutex<Vec<u64>>>,
    step: u64,
    fails: bool,
) -> Result<(), IndexError> {
    let until = sink.until().unwrap();
    loop {
        let at = sink.cursor().await?.unwrap().block_number;
        if at >= until {
            return Ok(());
        }
        let to = (at + step).min(until);
        sink.commit(batch(at..to)).await?;
        log.lock().extend(at..to);
        if fails && at % 3 == 1 {
            return Err(IndexError::Net("the source went away".into()));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_workers_commit_every_block_once_and_equal_one_alone() {
    const BLOCKS: u64 = 12_345;
    let (alone, alone_url) = fresh().await;
    for first in (0..BLOCKS).step_by(2_000) {
        alone.commit(batch(first..BLOCKS.min(first + 2_000))).await.unwrap();
    }
    let url = fixture::database();
    let planner = open(&url).await;
    LeaseQueue::new(&planner, "planner").plan(0, BLOCKS).await.unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for worker in 0..5_u64 {
        let (url, log) = (url.clone(), Arc::clone(&log));
        tasks.push(tokio::spawn(async move {
            // Each with connections of its own, as a process would have.
            let sink = open(&url).await;
            let queue = LeaseQueue::new(&sink, &format!("worker {worker}"));
            let run = |sink| pull(sink, Arc::clone(&log), 137 + 61 * worker, worker % 2 == 1);
            loop {
                match backfill(&queue, run).await {
                    Ok(done) => return done,
                    Err(error) => assert_eq!(error.class(), ErrorClass::Net, "{error}"),
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let mut committed = log.lock().clone();
    committed.sort_unstable();
    assert_eq!(committed, (0..BLOCKS).collect::<Vec<_>>(), "every block by one worker");
    assert_eq!(planner.cursor().await.unwrap(), cursor(BLOCKS));
    assert_eq!(dump(&url).await, dump(&alone_url).await);
    let counted = planner.days(None, 1).await.unwrap()[0];
    assert_eq!(counted, alone.days(None, 1).await.unwrap()[0]);
}
