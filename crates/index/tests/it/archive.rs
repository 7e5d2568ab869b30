//! Archiving beside an index, and an index built again from the archive alone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use prometheus_client::registry::Registry;
use secateur_archive::{Archive, ArchiveUrl, Check, Codec as PartCodec, Grain, Settings};
use secateur_evm::Verify;
use secateur_index::archiving::{ArchiveMetrics, Archiving, ArchivingOptions};
use secateur_index::codec::EvmCodec;
use secateur_index::sink::Sink as _;
use secateur_index::sink::sqlite::SqliteSink;
use secateur_index::source::ArchiveSource;
use secateur_index::worker::End;
use secateur_index::{ErrorClass, IndexError, LogFilter};
use tokio::sync::watch;

use crate::chain::{CHAIN_ID, History, StoreSource, blocks, dump, options, run};

struct Room {
    dir: tempfile::TempDir,
    archive: Archive,
}

impl Room {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("archive");
        let url: ArchiveUrl = place.to_str().unwrap().parse().unwrap();
        let archive = Archive::create(&url, &Settings::default()).unwrap();
        Self { dir, archive }
    }

    fn sink(&self, name: &str) -> SqliteSink {
        SqliteSink::open(&self.dir.path().join(name)).unwrap()
    }

    async fn archive(&self, source: StoreSource, sink: SqliteSink) -> End {
        self.try_archive(source, sink).await.unwrap()
    }

    async fn try_archive(&self, source: StoreSource, sink: SqliteSink) -> Result<End, IndexError> {
        let stage = self.dir.path().join("stage");
        let mut options = ArchivingOptions::new(CHAIN_ID, PartCodec::Evm, stage);
        options.grain = Grain { max_blocks: Some(16), ..Grain::default() };
        options.follow = false;
        let archiving = Archiving {
            source: Arc::new(source),
            sink: Arc::new(sink),
            archive: self.archive.clone(),
            codec: Arc::new(EvmCodec::new(CHAIN_ID, Verify::Off, LogFilter::Off)),
            options,
            metrics: Arc::new(ArchiveMetrics::new(&mut Registry::default())),
            totals: None,
            observer: Arc::new(()),
        };
        let (_stop, stopping) = watch::channel(false);
        archiving.run(stopping).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_of_another_chain_is_not_archived() {
    let history = History::new(&blocks(40));
    let room = Room::new();
    let sink = room.sink("index.sqlite");
    let other = history.source().of_chain(CHAIN_ID + 1);
    let error = room.try_archive(other.clone(), sink.clone()).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Refused);
    assert!(error.to_string().contains("the source has chain 1338"), "{error}");
    assert_eq!(sink.parts(0, 10).await.unwrap(), []);
    let names = |path: &str| std::fs::read_dir(room.dir.path().join(path)).map(Iterator::count);
    assert_eq!(names("archive").unwrap(), 0, "nothing is in the archive");
    assert!(names("stage").is_err(), "nothing was staged");
    assert_eq!(other.pulls.load(Ordering::Relaxed), 0, "no block was asked for");
    let right = history.source().of_chain(CHAIN_ID);
    assert_eq!(room.archive(right, sink.clone()).await, End::CaughtUp);
    assert_eq!(sink.parts(0, 10).await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_follow_one_another_and_a_lost_table_is_filled_from_the_archive() {
    let chain = blocks(100);
    let history = History::new(&chain[..40]);
    let room = Room::new();
    let sink = room.sink("one.sqlite");
    assert_eq!(room.archive(history.source(), sink.clone()).await, End::CaughtUp);
    history.append(&chain[40..]);
    room.archive(history.source(), sink.clone()).await;
    let parts = sink.parts(0, 100).await.unwrap();
    let ends: Vec<_> = parts.iter().map(|part| (part.block_from, part.block_to)).collect();
    assert_eq!(ends, [(0, 15), (16, 31), (32, 47), (48, 63), (64, 79), (80, 95)]);
    for (one, next) in parts.iter().zip(&parts[1..]) {
        assert_eq!(one.last_hash, next.parent_hash);
    }
    // Another index knows nothing; the archive tells it, and nothing is written twice.
    let other = room.sink("two.sqlite");
    room.archive(history.source(), other.clone()).await;
    assert_eq!(other.parts(0, 100).await.unwrap(), parts);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_built_from_parts_equals_one_built_from_the_node() {
    let history = History::new(&blocks(64));
    let room = Room::new();
    room.archive(history.source(), room.sink("parts.sqlite")).await;
    run(history.source(), room.sink("node.sqlite"), options()).await.unwrap();
    let source = ArchiveSource::new(room.archive.clone(), CHAIN_ID, Check::Hash);
    run(source, room.sink("again.sqlite"), options()).await.unwrap();
    let path = |name: &str| room.dir.path().join(name);
    assert_eq!(dump(&path("again.sqlite")), dump(&path("node.sqlite")));
}
