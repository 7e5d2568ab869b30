//! The ranges that the big tables are cut into: made before they are needed, dropped as a whole.

use secateur_index::postgres::RANGE_BLOCKS;
use secateur_index::sink::{IndexReader as _, Sink as _};

use crate::chain::{GENESIS, batch, connect, fresh, number, open};
use crate::fixture;

const RANGES: &str = "select count(*) from secateur_partitions() where parent = 'txs'";

#[tokio::test]
async fn a_range_is_there_before_its_first_block() {
    let (sink, url) = fresh().await;
    sink.commit(batch(0..10)).await.unwrap();
    assert_eq!(number(&url, RANGES).await, 2);
    sink.maintain(GENESIS).await.unwrap();
    assert_eq!(number(&url, RANGES).await, 3);
    let sql = "select max(past) from secateur_partitions()";
    assert_eq!(number(&url, sql).await, i64::try_from(3 * RANGE_BLOCKS).unwrap());
}

#[tokio::test]
async fn a_batch_may_lie_in_two_ranges() {
    let (sink, url) = fresh().await;
    let around = RANGE_BLOCKS - 5..RANGE_BLOCKS + 5;
    sink.commit(batch(around)).await.unwrap();
    let sql = "select count(distinct tableoid) from blocks";
    assert_eq!(number(&url, sql).await, 2);
    assert_eq!(number(&url, "select count(*) from blocks").await, 10);
}

#[tokio::test]
async fn many_may_make_the_same_ranges_at_once() {
    let url = fixture::database();
    drop(open(&url).await);
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let url = url.clone();
        tasks.push(tokio::spawn(async move {
            let client = connect(&url).await;
            let row = client.query_one("select secateur_make_partitions(0, 1000000)", &[]).await;
            row.unwrap().get::<_, i32>(0)
        }));
    }
    let mut made = 0;
    for task in tasks {
        made += task.await.unwrap();
    }
    assert_eq!(made, 30, "each of the three tables' ten ranges was made by one of them");
}

#[tokio::test]
async fn making_a_range_waits_for_no_writer_and_no_reader() {
    let (sink, url) = fresh().await;
    sink.commit(batch(0..10)).await.unwrap();
    let mut client = connect(&url).await;
    let busy = client.transaction().await.unwrap();
    busy.execute("insert into blocks (number, tx_count) values (50, 0)", &[]).await.unwrap();
    busy.query("select * from txs", &[]).await.unwrap();
    let other = connect(&url).await;
    other.batch_execute("set lock_timeout = '1s'").await.unwrap();
    other.execute("select secateur_make_partitions(900000, 900001)", &[]).await.unwrap();
    busy.rollback().await.unwrap();
}

#[tokio::test]
async fn old_ranges_are_dropped_whole_and_the_newest_block_stays() {
    let (sink, url) = fresh().await;
    for range in 0..3 {
        let first = range * RANGE_BLOCKS;
        if range > 0 {
            let gap = secateur_index::GapRow {
                block_from: first - RANGE_BLOCKS + 40,
                block_to: first - 1,
                reason: "test".into(),
                noted_at: 0,
            };
            let next = secateur_core::Cursor::at_block(first);
            sink.record_gap(gap, next).await.unwrap();
        }
        sink.commit(batch(first..first + 40)).await.unwrap();
    }
    let time_of = |number: u64| GENESIS + 12 * number;
    // One block of the first range is young enough: all of it stays.
    let kept = sink.retain(time_of(39), 10).await.unwrap();
    assert_eq!((kept.blocks, kept.more), (0, false));
    let gone = sink.retain(time_of(40), 10).await.unwrap();
    assert_eq!((gone.blocks, gone.more), (40, false));
    assert_eq!(number(&url, "select min(number) from blocks").await, 100_000);
    // However old they are, the range of the newest block stays.
    let gone = sink.retain(u64::MAX, 10).await.unwrap();
    assert_eq!((gone.blocks, gone.more), (40, false));
    assert!(gone.rows > gone.blocks, "{gone:?}");
    let last = sink.retain(u64::MAX, 10).await.unwrap();
    assert_eq!((last.rows, last.more), (0, false));
    assert_eq!(number(&url, "select min(number) from blocks").await, 200_000);
    assert_eq!(sink.blocks(None, 1).await.unwrap()[0].number, 200_039);
    let next = sink.cursor().await.unwrap().unwrap().block_number;
    sink.commit(batch(next..next + 5)).await.unwrap();
}

#[tokio::test]
async fn the_day_s_growth_is_counted_once_whoever_measures() {
    let (sink, url) = fresh().await;
    sink.maintain(GENESIS).await.unwrap();
    sink.commit(batch(0..2_000)).await.unwrap();
    sink.maintain(GENESIS).await.unwrap();
    let client = connect(&url).await;
    let day = "select secateur_note_growth(to_timestamp(1700000000)::date)";
    for _ in 0..3 {
        client.execute(day, &[]).await.unwrap();
    }
    let days = sink.days(None, 9).await.unwrap();
    let grown =
        days.iter().find(|day| day.day == secateur_index::day_of(GENESIS)).unwrap().growth_bytes;
    let size = i64::try_from(sink.size_bytes().await.unwrap()).unwrap();
    assert_eq!(
        grown,
        number(&url, "select value::bigint from meta where key = 'size_bytes'").await
    );
    assert!(grown > 500_000 && grown <= size, "{grown} of {size}");
}
