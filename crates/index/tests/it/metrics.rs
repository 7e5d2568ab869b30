//! What the metrics say right after a start, when there is nothing to do.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use secateur_index::IndexReader as _;
use secateur_index::sink::Sink as _;
use secateur_index::sink::sqlite::SqliteSink;
use secateur_index::worker::Metrics;

use crate::archive::Room;
use crate::chain::{History, blocks, options, run};

fn value(text: &str, name: &str) -> i64 {
    let line = text.lines().find(|line| line.split(' ').next() == Some(name));
    let value = line.and_then(|line| line.split(' ').nth(1));
    value.unwrap_or_else(|| panic!("{name} in {text}")).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_is_complete_says_so_from_the_start() {
    let history = History::new(&blocks(40));
    let dir = tempfile::tempdir().unwrap();
    let sink = SqliteSink::open(&dir.path().join("index.sqlite")).unwrap();
    run(history.source(), sink.clone(), options()).await.unwrap();
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let bytes = sink.size_bytes().await.unwrap();
    metrics.resume(&sink.reader(), bytes).await.unwrap();
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let says = |name: &str| value(&text, &format!("secateur_index_{name}"));
    assert_eq!(says("cursor"), 40);
    assert_eq!(says("sink_bytes"), i64::try_from(bytes).unwrap());
    let meta = sink.reader().meta().await.unwrap();
    assert_eq!(says("last_export_at"), i64::try_from(meta.last_ingest_at.unwrap()).unwrap());
    let day = sink.reader().days(None, 1).await.unwrap().remove(0);
    assert!(day.raw_bytes > 0 && day.growth_bytes > 0, "{day:?}");
    assert_eq!(says("raw_bytes_today"), i64::try_from(day.raw_bytes).unwrap());
    assert_eq!(says("sink_growth_bytes_today"), day.growth_bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_that_is_complete_says_so_from_the_start() {
    let history = History::new(&blocks(64));
    let room = Room::new();
    let sink = room.sink("index.sqlite");
    room.archive(history.source(), sink.clone()).await;
    let room = room.restarted();
    let mut registry = Registry::default();
    room.try_archive_with(history.source(), sink, &mut registry, |_| {}).await.unwrap();
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    assert_eq!(value(&text, "secateur_archive_last_verified_height"), 63);
    assert_eq!(value(&text, "secateur_archive_lag_blocks"), 0);
    assert_eq!(value(&text, "secateur_archive_uploads_total"), 0);
}
