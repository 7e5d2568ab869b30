//! Archiving beside an index, and an index built again from the archive alone.

use std::collections::BTreeMap;
use std::path::PathBuf;
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
use secateur_index::{ErrorClass, IndexError, LogFilter, PartRow};
use tokio::sync::watch;

use crate::chain::{CHAIN_ID, History, StoreSource, blocks, dump, options, run};

pub struct Room {
    pub dir: tempfile::TempDir,
    pub archive: Archive,
}

impl Room {
    pub fn new() -> Self {
        Self::over(tempfile::tempdir().unwrap())
    }

    pub fn over(dir: tempfile::TempDir) -> Self {
        let place = dir.path().join("archive");
        let url: ArchiveUrl = place.to_str().unwrap().parse().unwrap();
        let archive = Archive::create(&url, &Settings::default()).unwrap();
        Self { dir, archive }
    }

    /// As after a restart: nothing was counted yet.
    pub fn restarted(self) -> Self {
        Self::over(self.dir)
    }

    pub fn sink(&self, name: &str) -> SqliteSink {
        SqliteSink::open(&self.dir.path().join(name)).unwrap()
    }

    pub async fn archive(&self, source: StoreSource, sink: SqliteSink) -> End {
        self.try_archive(source, sink).await.unwrap()
    }

    pub async fn try_archive(
        &self,
        source: StoreSource,
        sink: SqliteSink,
    ) -> Result<End, IndexError> {
        self.try_archive_with(source, sink, &mut Registry::default(), |_| {}).await
    }

    /// The same, with metrics in a registry and other options.
    pub async fn try_archive_with(
        &self,
        source: StoreSource,
        sink: SqliteSink,
        registry: &mut Registry,
        change: impl FnOnce(&mut ArchivingOptions),
    ) -> Result<End, IndexError> {
        let stage = self.dir.path().join("stage");
        let mut options = ArchivingOptions::new(CHAIN_ID, PartCodec::Evm, stage);
        options.grain = Grain { max_blocks: Some(16), ..Grain::default() };
        options.follow = false;
        change(&mut options);
        let archiving = Archiving {
            source: Arc::new(source),
            sink: Arc::new(sink),
            archive: self.archive.clone(),
            codec: Arc::new(EvmCodec::new(CHAIN_ID, Verify::Off, LogFilter::Off)),
            options,
            metrics: Arc::new(ArchiveMetrics::new(registry)),
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

impl Room {
    /// Removes one part from the archive; what of it is for the caller to say.
    pub fn remove(&self, row: &PartRow, endings: &[&str]) {
        let object = self.dir.path().join("archive").join(&row.object_key);
        for ending in endings {
            std::fs::remove_file(object.with_extension(ending)).unwrap();
        }
    }

    /// Archives, and gives how many blocks are said to be in no part below the last one.
    async fn gaps_after(&self, source: StoreSource, sink: &SqliteSink) -> u64 {
        let mut registry = Registry::default();
        let end = self.try_archive_with(source, sink.clone(), &mut registry, |_| {});
        assert_eq!(end.await.unwrap(), End::CaughtUp);
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        let value = page.lines().find_map(|line| line.strip_prefix("secateur_archive_gap_blocks "));
        value.unwrap_or_else(|| panic!("no gap_blocks in {page}")).parse().unwrap()
    }

    /// Archives with so many blocks to a part, up to a block.
    pub async fn with_grain(
        &self,
        source: StoreSource,
        sink: &SqliteSink,
        max_blocks: u64,
        until: Option<u64>,
    ) -> Result<End, IndexError> {
        let change = |options: &mut ArchivingOptions| {
            options.grain.max_blocks = Some(max_blocks);
            options.until = until;
        };
        self.try_archive_with(source, sink.clone(), &mut Registry::default(), change).await
    }

    /// How many finished parts wait in the stage.
    pub fn staged(&self) -> usize {
        let files = std::fs::read_dir(self.dir.path().join("stage")).unwrap();
        let names = files.map(|entry| entry.unwrap().path());
        names.filter(|path| path.extension().is_some_and(|ending| ending == "part")).count()
    }

    /// Every file of the archive with its bytes.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let (mut files, mut folders) = (BTreeMap::new(), vec![self.dir.path().join("archive")]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.insert(path.clone(), std::fs::read(path).unwrap());
                }
            }
        }
        files
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_part_is_missing_comes_back_with_the_same_bytes_whether_the_index_knew_it_or_not()
{
    let history = History::new(&blocks(100));
    let room = Room::new();
    let known = room.sink("known.sqlite");
    room.archive(history.source(), known.clone()).await;
    let (parts, files) = (known.parts(0, 100).await.unwrap(), room.files());
    assert_eq!(parts.len(), 6);
    let endings: [&[&str]; 3] = [&["zst", "json"], &["json"], &["zst"]];
    for (round, gone) in [vec![0], vec![2], vec![5], vec![0, 1, 3], vec![4, 5]].iter().enumerate() {
        for (way, endings) in endings.iter().enumerate() {
            for fresh in [false, true] {
                for part in gone {
                    room.remove(&parts[*part], endings);
                }
                let name = format!("{round}-{way}.sqlite");
                let sink = if fresh { room.sink(&name) } else { known.clone() };
                let end = room.archive(history.source(), sink.clone()).await;
                assert_eq!(end, End::CaughtUp);
                assert_eq!(room.files(), files, "parts {gone:?} without {endings:?}");
                assert_eq!(sink.parts(0, 100).await.unwrap(), parts);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gap_that_the_source_has_cut_stays_and_the_archive_goes_on() {
    let chain = blocks(100);
    let history = History::new(&chain[..70]);
    let room = Room::new();
    let sink = room.sink("index.sqlite");
    room.archive(history.source(), sink.clone()).await;
    let parts = sink.parts(0, 100).await.unwrap();
    room.remove(&parts[1], &["zst", "json"]);
    let cut = history.source().beginning_at(40);
    history.append(&chain[70..]);
    assert_eq!(room.gaps_after(cut, &sink).await, 16);
    let ends = |parts: Vec<PartRow>| -> Vec<_> { parts.iter().map(|part| part.block_to).collect() };
    // What the index noted of the missing one stays: nobody else knows how it was cut.
    assert_eq!(ends(sink.parts(0, 100).await.unwrap()), [15, 31, 47, 63, 79, 95]);
    // Whoever has the blocks fills it.
    assert_eq!(room.gaps_after(history.source(), &sink).await, 0);
    assert_eq!(ends(sink.parts(0, 100).await.unwrap()), [15, 31, 47, 63, 79, 95]);
    // The first one is as good a gap as any: what it lacks is told by the others.
    room.remove(&parts[0], &["zst", "json"]);
    assert_eq!(room.gaps_after(history.source().beginning_at(40), &sink).await, 16);
    assert_eq!(room.gaps_after(history.source(), &sink).await, 0);
    assert_eq!(sink.parts(0, 4).await.unwrap(), parts[..4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_of_one_archive_that_is_given_another_one_fills_that_and_notes_its_parts() {
    let history = History::new(&blocks(40));
    let mut room = Room::new();
    let sink = room.sink("index.sqlite");
    room.archive(history.source(), sink.clone()).await;
    let url: ArchiveUrl = room.dir.path().join("other").to_str().unwrap().parse().unwrap();
    room.archive = Archive::create(&url, &Settings::default()).unwrap();
    room.archive(history.source(), sink.clone()).await;
    let parts = sink.parts(0, 10).await.unwrap();
    assert_eq!(parts.len(), 2);
    assert!(parts.iter().all(|part| part.provider == room.archive.provider()), "{parts:?}");
    assert_eq!(room.archive.ends(CHAIN_ID).await.unwrap(), Some((0, 31)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_block_above_the_last_wanted_one_is_archived() {
    let history = History::new(&blocks(100));
    let room = Room::new();
    let sink = room.sink("index.sqlite");
    for (until, last) in [(30, 15), (30, 15), (31, 31), (10, 31), (99, 95)] {
        let mut registry = Registry::default();
        let change = |options: &mut ArchivingOptions| {
            (options.until, options.follow) = (Some(until), true);
        };
        let end = room.try_archive_with(history.source(), sink.clone(), &mut registry, change);
        assert_eq!(end.await.unwrap(), End::Until);
        let part = sink.last_part().await.unwrap().unwrap();
        assert_eq!(part.block_to, last, "up to block {until}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hole_in_an_archive_that_is_a_source_is_told_as_what_it_is() {
    let history = History::new(&blocks(64));
    let room = Room::new();
    let sink = room.sink("parts.sqlite");
    room.archive(history.source(), sink.clone()).await;
    let parts = sink.parts(0, 10).await.unwrap();
    room.remove(&parts[1], &["zst", "json"]);
    let source = ArchiveSource::new(room.archive.clone(), CHAIN_ID, Check::Hash);
    let error = run(source, room.sink("again.sqlite"), options()).await.unwrap_err();
    assert_eq!(error, IndexError::Pruned { wanted: 16, pruned_before_block: 31 });
    let error = error.to_string();
    // It has 0 to 15, and it is an archive already.
    assert!(
        !error.contains("nothing at or below") && !error.contains("from an archive"),
        "{error}"
    );
    assert!(error.contains("no block from there up to 31"), "{error}");
}

/// An archive whose grain was changed, of a node that knows all of it: four parts of 16 blocks, then
/// three of 24.
pub async fn regrained(room: &Room) -> (History, SqliteSink, Vec<PartRow>) {
    let history = History::new(&blocks(140));
    let sink = room.sink("known.sqlite");
    let node = || history.source().keeping_parts();
    room.with_grain(node(), &sink, 16, Some(63)).await.unwrap();
    room.with_grain(node(), &sink, 24, None).await.unwrap();
    let parts = sink.parts(0, 100).await.unwrap();
    let ends: Vec<_> = parts.iter().map(|part| part.block_to).collect();
    assert_eq!(ends, [15, 31, 47, 63, 87, 111, 135]);
    (history, sink, parts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gap_across_a_change_of_grain_comes_back_as_it_was_and_the_node_takes_it() {
    let room = Room::new();
    let (history, sink, parts) = regrained(&room).await;
    let files = room.files();
    for gone in [vec![2, 3], vec![3], vec![3, 4], vec![4, 5], vec![5, 6], vec![6], vec![1, 2, 5, 6]]
    {
        for part in &gone {
            room.remove(&parts[*part], &["zst", "json"]);
        }
        let node = history.source().keeping_parts();
        assert_eq!(room.with_grain(node, &sink, 10, None).await.unwrap(), End::CaughtUp);
        assert_eq!(room.files(), files, "without the parts {gone:?}");
        assert_eq!(sink.parts(0, 100).await.unwrap(), parts);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_part_says_how_it_was_cut_and_becomes_whole_without_a_second_one_beside_it() {
    let room = Room::new();
    let (history, _, parts) = regrained(&room).await;
    let files = room.files();
    let gone: [&[usize]; 5] = [&[2, 3], &[3, 4], &[5, 6], &[6], &[0, 2, 4, 6]];
    for (round, gone) in gone.iter().enumerate() {
        for half in ["json", "zst"] {
            for part in *gone {
                room.remove(&parts[*part], &[half]);
            }
            // Nobody remembers: the index is another one, and the source does not know parts.
            let sink = room.sink(&format!("{round}-{half}.sqlite"));
            room.with_grain(history.source(), &sink, 10, None).await.unwrap();
            assert_eq!(room.files(), files, "without the {half} of {gone:?}");
            assert_eq!(sink.parts(0, 100).await.unwrap(), parts);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_that_the_node_knows_in_other_parts_of_the_archive_do_not_stop_it() {
    let room = Room::new();
    let (history, _, parts) = regrained(&room).await;
    for part in [2, 3, 5, 6] {
        room.remove(&parts[part], &["zst", "json"]);
    }
    // An index that does not remember how they were cut.
    let sink = room.sink("fresh.sqlite");
    for _ in 0..2 {
        let node = history.source().keeping_parts();
        assert_eq!(room.with_grain(node, &sink, 10, None).await.unwrap(), End::CaughtUp);
        assert_eq!(room.staged(), 0);
    }
    let ends: Vec<_> = sink.parts(0, 100).await.unwrap().iter().map(|part| part.block_to).collect();
    // The gap is cut as the part above it; at the end a part ends where what the node knows does.
    assert_eq!(ends, [15, 31, 55, 63, 87, 97, 107, 117, 135]);
    assert_eq!(room.archive.gaps(CHAIN_ID, Some(135)).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_of_another_archive_that_waits_in_the_stage_does_not_stop_the_first_one() {
    let history = History::new(&blocks(70));
    let mut room = Room::new();
    let sink = room.sink("index.sqlite");
    let node = || history.source().keeping_parts();
    room.archive(node(), sink.clone()).await;
    let (parts, files) = (sink.parts(0, 10).await.unwrap(), room.files());
    let url: ArchiveUrl = room.dir.path().join("other").to_str().unwrap().parse().unwrap();
    let other = Archive::create(&url, &Settings::default()).unwrap();
    let first = std::mem::replace(&mut room.archive, other);
    let error = room.with_grain(node(), &sink, 32, None).await.unwrap_err().to_string();
    for told in [first.provider(), room.archive.provider(), "archive.acknowledge = false"] {
        assert!(error.contains(told), "no {told} in {error}");
    }
    assert_eq!(room.staged(), 1, "it was not acknowledged");
    room.archive = first;
    assert_eq!(room.archive(node(), sink.clone()).await, End::CaughtUp);
    assert_eq!((room.staged(), room.files()), (0, files));
    assert_eq!(sink.parts(0, 10).await.unwrap(), parts);
}

/// A day of this chain has 7,200 blocks and a GiB is far away: a part that waited for its end would keep the
/// store from cutting anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_is_closed_early_where_a_budget_that_drains_waits_for_it() {
    const BUDGET: u64 = 4 << 20;
    let history = History::with_budget(BUDGET);
    let (room, chain) = (Room::new(), blocks(1_500));
    let sink = room.sink("index.sqlite");
    let source = history.source().of_chain(CHAIN_ID).keeping_parts();
    let mut most = 0;
    for group in chain.chunks(20) {
        history.append(group);
        history.store.drain(|_| true).unwrap();
        let daily = |options: &mut ArchivingOptions| options.grain = Grain::default();
        let (source, sink) = (source.clone(), sink.clone());
        room.try_archive_with(source, sink, &mut Registry::default(), daily).await.unwrap();
        history.store.drain(|_| true).unwrap();
        most = most.max(history.store.get_prune_status().unwrap().used_bytes);
    }
    let status = history.store.get_prune_status().unwrap();
    assert!(most <= BUDGET, "{most} bytes were used");
    assert!(status.pruned_before_block > Some(500), "{status:?}");
    let parts = sink.parts(0, 1_000).await.unwrap();
    assert!((3..40).contains(&parts.len()), "{} parts", parts.len());
    for (one, next) in parts.iter().zip(&parts[1..]) {
        assert_eq!(one.last_hash, next.parent_hash);
    }
    assert!(status.pruned_before_block <= parts.last().map(|part| part.block_to));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_nothing_waits_for_is_not_closed_before_its_end() {
    let history = History::with_budget(64 << 20);
    let (room, chain) = (Room::new(), blocks(100));
    history.append(&chain);
    let sink = room.sink("index.sqlite");
    let daily = |options: &mut ArchivingOptions| options.grain = Grain::default();
    let source = history.source().of_chain(CHAIN_ID).keeping_parts();
    room.try_archive_with(source, sink.clone(), &mut Registry::default(), daily).await.unwrap();
    assert_eq!(sink.parts(0, 10).await.unwrap(), []);
}
