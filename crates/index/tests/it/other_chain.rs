//! Archives of another chain with the same number: they are refused before anything is changed.

use prometheus_client::registry::Registry;
use secateur_archive::{Archive, ArchiveUrl, Settings};
use secateur_core::Block;
use secateur_evm::{ChainSpec, Generator};
use secateur_index::ErrorClass;
use secateur_index::archiving::ArchivingOptions;
use secateur_index::sink::Sink as _;

use crate::archive::Room;
use crate::chain::{History, blocks, options, run};

fn other_blocks(count: usize) -> Vec<Block> {
    let spec = ChainSpec { seed: 99, ..ChainSpec::default() };
    Generator::new(spec).unwrap().blocks().take(count).map(Result::unwrap).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_of_another_chain_is_refused_by_whoever_has_a_block_and_nothing_changes() {
    // As long as this chain, longer, and shorter; by an index that is ahead of its node, and by one
    // that has nothing yet.
    for (count, acknowledge, indexed) in
        [(40, true, true), (120, false, true), (120, true, false), (20, false, true)]
    {
        let mut room = Room::new();
        let history = History::new(&blocks(100));
        let sink = room.sink("index.sqlite");
        room.archive(history.source().keeping_parts(), sink.clone()).await;
        let before = sink.parts(0, 100).await.unwrap();
        let fresh = room.sink("fresh.sqlite");
        if indexed {
            run(history.source(), sink.clone(), options()).await.unwrap();
        }
        let url: ArchiveUrl = room.dir.path().join("other").to_str().unwrap().parse().unwrap();
        room.archive = Archive::create(&url, &Settings::default()).unwrap();
        let theirs = History::new(&other_blocks(count));
        room.archive(theirs.source(), room.sink("theirs.sqlite")).await;
        let files = |room: &Room| std::fs::read_dir(room.dir.path().join("stage")).unwrap().count();
        let staged = files(&room);
        let sink = if indexed { sink } else { fresh };
        let change = |options: &mut ArchivingOptions| options.ack = acknowledge;
        let source = history.source().keeping_parts();
        let refused =
            room.try_archive_with(source, sink.clone(), &mut Registry::default(), change).await;
        let error = refused.unwrap_err();
        assert_eq!(error.class(), ErrorClass::ArchiveIo);
        let told = error.to_string();
        for part in [room.archive.provider(), "another chain with the same number"] {
            assert!(told.contains(part), "no {part} in {told}");
        }
        let rows = sink.parts(0, 100).await.unwrap();
        assert_eq!(rows, if indexed { before } else { vec![] }, "{count} blocks");
        assert_eq!(files(&room), staged);
    }
}
