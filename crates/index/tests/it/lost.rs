//! Parts that are lost, and sources that are behind the archive: what is remembered from one run to
//! the next.

use std::time::{Duration, Instant};

use prometheus_client::registry::Registry;
use secateur_index::archiving::ArchivingOptions;
use secateur_index::sink::Sink as _;
use secateur_index::worker::End;

use crate::archive::{Room, regrained};
use crate::chain::{History, blocks};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_part_comes_back_as_it_was_after_runs_that_ended_before_they_came_to_it() {
    let room = Room::new();
    let (history, sink, parts) = regrained(&room).await;
    let files = room.files();
    let node = || history.source().keeping_parts();
    for gone in [vec![3], vec![4, 5], vec![6], vec![2, 3, 5, 6]] {
        for part in &gone {
            room.remove(&parts[*part], &["zst", "json"]);
        }
        // Neither comes so far; both see that something is missing.
        for until in [10, 20] {
            assert_eq!(room.with_grain(node(), &sink, 10, Some(until)).await.unwrap(), End::Until);
            assert_eq!(sink.parts(0, 100).await.unwrap(), parts, "without the parts {gone:?}");
        }
        assert_eq!(room.with_grain(node(), &sink, 10, None).await.unwrap(), End::CaughtUp);
        assert_eq!(room.files(), files, "without the parts {gone:?}");
        assert_eq!(sink.parts(0, 100).await.unwrap(), parts);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_a_lost_part_goes_once_another_part_is_listed_in_its_place() {
    let room = Room::new();
    let (history, sink, parts) = regrained(&room).await;
    for part in [3, 4] {
        room.remove(&parts[part], &["zst", "json"]);
    }
    // Somebody else fills the gap, and does not know how it was cut: 48 to 71, 72 to 87.
    room.with_grain(history.source(), &room.sink("other.sqlite"), 10, None).await.unwrap();
    room.with_grain(history.source().keeping_parts(), &sink, 10, None).await.unwrap();
    let ends: Vec<_> = sink.parts(0, 100).await.unwrap().iter().map(|part| part.block_to).collect();
    assert_eq!(ends, [15, 31, 47, 71, 87, 111, 135]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_that_was_emptied_begins_where_its_node_does() {
    let room = Room::new();
    let (history, sink, parts) = regrained(&room).await;
    for part in &parts {
        room.remove(part, &["zst", "json"]);
    }
    let node = history.source().beginning_at(48);
    assert_eq!(room.with_grain(node, &sink, 10, None).await.unwrap(), End::CaughtUp);
    assert_eq!(room.archive.ends(crate::chain::CHAIN_ID).await.unwrap(), Some((48, 135)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_behind_the_archive_is_told_of_the_parts_that_it_has_and_of_the_rest_later()
 {
    let (chain, room) = (blocks(100), Room::new());
    room.archive(History::new(&chain).source(), room.sink("before.sqlite")).await;
    // Restored, or still catching up.
    let node = History::new(&chain[..40]);
    let sink = room.sink("index.sqlite");
    let archived = || node.store.get_prune_status().unwrap().archived;
    let once = room.try_archive(node.source().keeping_parts(), sink.clone()).await;
    assert_eq!(once.unwrap(), End::CaughtUp);
    assert_eq!((archived(), sink.parts(0, 9).await.unwrap().len()), (Some(31), 6));
    let mut registry = Registry::default();
    let follow = |options: &mut ArchivingOptions| options.follow = true;
    let source = node.source().keeping_parts();
    let running = room.try_archive_with(source, sink.clone(), &mut registry, follow);
    let growing = async {
        for (group, reached) in chain[40..].chunks(20).zip([47, 79, 95]) {
            node.append(group);
            let begun = Instant::now();
            while archived() != Some(reached) {
                assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", archived());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    tokio::select! {
        ended = running => panic!("{ended:?}"),
        () = growing => {}
    }
}
