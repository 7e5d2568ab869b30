//! Cases that broke others, each told by what stays and by what goes, so that none passes if the
//! pruner never ran.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use secateur_utxo::{
    Event, ExternalFiles, Fate, FileKind, Following, Heard, Kept, Metrics, Outcome, Pruner, Rules,
    Service, Settings, Slot, StalePersister, Sweep, Trigger, UtxoStore,
};

use super::prunes::{at, go, pruner, run, settings};
use super::rig::{
    Faulty, Home, RULES, add, block, coinbase, coins, delete, external, get, id, is_here, mine,
    pays, unmine,
};

pub async fn a_parent_stays_while_an_unmined_child_spends_it_whose_clock_a_reorganisation_restarted<
    S,
    F,
>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 2).await;
    add(store, 6, vec![pays(2, &[(1, 0)], 1), pays(3, &[(1, 1)], 1)]).await;
    add(store, 6, vec![pays(12, &[(2, 0)], 1), pays(13, &[(3, 0)], 1)]).await;
    mine(store, 7, &[2, 3, 12, 13]).await;
    // The child waits again, but since 16 only: at 17 it is not old, so nothing preserves its parent.
    unmine(store, 7, 16, &[12]).await;
    let pruner = pruner(store, None, settings());
    let job = run(&pruner, at(17)).await;
    assert_eq!((job.done.preserved, job.done.kept.get(&Kept::Held)), (0, Some(&1)));
    assert!(is_here(store, 2).await, "its unmined child needs it");
    assert!(!is_here(store, 3).await, "its mined child does not");
    mine(store, 18, &[12]).await;
    run(&pruner, at(18)).await;
    assert!(!is_here(store, 2).await, "nobody needs it any more");
}

pub async fn a_preservation_that_expires_over_a_live_coin_does_not_date_it<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 1).await;
    add(store, 1, vec![coinbase(4, 1, block(1, 1))]).await;
    add(store, 6, vec![pays(2, &[(1, 0)], 1), pays(5, &[(4, 0)], 1)]).await;
    let pruner = pruner(store, None, settings());
    assert_eq!(run(&pruner, at(10)).await.done.preserved, 2);
    // One lets its input go and is forgotten: the output is a coin again. The other is mined.
    store.unspend(id(2), 11).await.unwrap();
    store.set_conflicting(id(2), true, 11).await.unwrap();
    mine(store, 11, &[5]).await;
    for height in [29, 30, 31, 40, 60, 90] {
        run(&pruner, at(height)).await;
    }
    let coin = get(store, 1).await;
    assert_eq!(coin.outputs, vec![Slot::Unspent]);
    assert_eq!(coin.delete_at_height, None);
    assert!(!is_here(store, 4).await, "what was spent for good is gone");
    add(store, 91, vec![pays(3, &[(1, 0)], 1)]).await;
}

pub async fn a_stale_persister_is_told_and_the_past_due_records_are_counted<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 2).await;
    add(store, 6, vec![pays(2, &[(1, 0)], 0), pays(3, &[(1, 1)], 0)]).await;
    mine(store, 7, &[2]).await;
    mine(store, 8, &[3]).await;
    let metrics = Arc::new(Metrics::default());
    let pruner = Pruner::new(store.clone(), None, settings(), None, Arc::clone(&metrics)).unwrap();
    let following =
        Following { persister_stale_blocks: 50, max_lag_blocks: 40, ..Following::default() };
    let service = Service::open(pruner, following, metrics).await.unwrap();
    let persisted = service.hear(Event::Persisted { height: 17 }).await.unwrap();
    assert_eq!(persisted, Heard::Trigger(Trigger { height: 17, persisted: Some(17) }));
    service.prune(service.trigger_at(Some(17)).unwrap(), go()).await.unwrap();
    assert!(!is_here(store, 2).await && is_here(store, 3).await);
    // The persister stops; blocks go on. Nothing beyond it goes, and somebody is told.
    for height in 18..=67 {
        assert_eq!(
            service.hear(Event::Block { height, mined_set: true }).await.unwrap(),
            Heard::Noted
        );
    }
    assert_eq!(service.status().await.unwrap().stale_persister, None);
    service.hear(Event::Block { height: 68, mined_set: true }).await.unwrap();
    let status = service.status().await.unwrap();
    assert_eq!(status.stale_persister, Some(StalePersister { head: 68, persisted: 17 }));
    assert_eq!((status.processed, status.counts.due), (Some(17), 1), "counted from the head");
    let (job, _) = service.prune(service.trigger_at(Some(68)).unwrap(), go()).await.unwrap();
    assert_eq!((job.safe_height, job.done.deleted), (17, 0));
    assert!(is_here(store, 3).await);
    assert_eq!(service.status().await.unwrap().counts.due, 1, "it is past due at the head");
    // It comes back.
    service.hear(Event::Persisted { height: 68 }).await.unwrap();
    let (job, _) = service.prune(service.trigger_at(None).unwrap(), go()).await.unwrap();
    assert_eq!((job.safe_height, job.done.deleted), (68, 1));
    assert_eq!(service.status().await.unwrap().stale_persister, None);
    assert!(service.ready().is_ok());
}

pub fn place(path: &Path) -> ExternalFiles {
    let url = path.to_str().unwrap().parse().unwrap();
    ExternalFiles::create(&url, &secateur_archive::Settings::default()).unwrap()
}

pub async fn a_wrong_prefix_of_files_is_not_taken_for_files_that_are_gone<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    let dir = tempfile::tempdir().unwrap();
    let (right, wrong) = (place(&dir.path().join("right")), place(&dir.path().join("wrong")));
    coins(store, 4).await;
    let big = |n, output| external(pays(n, &[(1, output)], u32::from(n == 5)));
    for (n, tx) in [(2, big(2, 0)), (3, big(3, 1)), (5, big(5, 2))] {
        right.put(id(n), FileKind::Tx, &Bytes::from_static(b"large")).await.unwrap();
        add(store, 6, vec![tx]).await;
    }
    add(store, 6, vec![pays(4, &[(1, 3)], 0)]).await;
    mine(store, 7, &[2, 3, 4, 5]).await;
    // The file of 3 was removed by a run that was cut off.
    assert_eq!(right.remove(id(3), FileKind::Tx).await.unwrap(), secateur_utxo::Removed::Deleted);
    let job = run(&pruner(store, Some(wrong), settings()), at(17)).await;
    assert_eq!(job.outcome, Outcome::Completed);
    assert_eq!((job.done.deleted, job.done.files_missing), (2, 0), "1 and 4 have no file");
    assert_eq!(job.done.kept.get(&Kept::FilesMissing), Some(&2));
    assert!(is_here(store, 2).await && right.has(id(2), FileKind::Tx).await.unwrap());
    let job = run(&pruner(store, None, settings()), at(17)).await;
    assert_eq!(job.done.kept.get(&Kept::FilesMissing), Some(&2), "nor without any place");
    let job = run(&pruner(store, Some(right.clone()), settings()), at(17)).await;
    assert_eq!((job.done.deleted, job.done.files_deleted, job.done.files_missing), (2, 1, 1));
    assert!(!is_here(store, 2).await && !right.has(id(2), FileKind::Tx).await.unwrap());
    assert!(is_here(store, 5).await && right.has(id(5), FileKind::Tx).await.unwrap());
}

pub async fn a_place_that_lost_its_files_is_not_believed_when_every_record_is_due<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    let dir = tempfile::tempdir().unwrap();
    let (at_path, away) = (dir.path().join("files"), dir.path().join("away"));
    let files = place(&at_path);
    coins(store, 2).await;
    for (n, output) in [(2, 0), (3, 1)] {
        files.put(id(n), FileKind::Tx, &Bytes::from_static(b"large")).await.unwrap();
        add(store, 6, vec![external(pays(n, &[(1, output)], 0))]).await;
    }
    mine(store, 7, &[2]).await;
    mine(store, 8, &[3]).await;
    // The place is seen to be the right one; then its disk is gone and an empty directory is there.
    let pruner = pruner(store, Some(files.clone()), settings());
    assert_eq!(run(&pruner, at(16)).await.done.kept.get(&Kept::FilesMissing), None);
    std::fs::rename(&at_path, &away).unwrap();
    std::fs::create_dir(&at_path).unwrap();
    let job = run(&pruner, at(18)).await;
    assert_eq!((job.done.files_missing, job.done.kept.get(&Kept::FilesMissing)), (0, Some(&2)));
    std::fs::remove_dir(&at_path).unwrap();
    std::fs::rename(&away, &at_path).unwrap();
    let job = run(&pruner, at(18)).await;
    assert_eq!((job.done.files_deleted, job.done.files_missing), (2, 0));
    assert!(!is_here(store, 2).await && !is_here(store, 3).await);
}

pub async fn a_cut_record_is_not_finished_by_a_place_that_never_had_its_file<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    let dir = tempfile::tempdir().unwrap();
    let (right, wrong) = (place(&dir.path().join("right")), place(&dir.path().join("wrong")));
    coins(store, 2).await;
    right.put(id(2), FileKind::Tx, &Bytes::from_static(b"large")).await.unwrap();
    add(store, 6, vec![external(pays(2, &[(1, 0)], 0))]).await;
    mine(store, 7, &[2]).await;
    // A run ended right after the cut, and no other record has a file.
    let keys = store.due(17, None, 10).await.unwrap().items;
    delete(store, keys, Sweep { height: 17, external: true }).await;
    let job = run(&pruner(store, Some(wrong), settings()), at(17)).await;
    assert_eq!((job.done.deleted, job.done.files_missing), (0, 0), "{job:?}");
    assert!(is_here(store, 2).await && right.has(id(2), FileKind::Tx).await.unwrap());
    let job = run(&pruner(store, Some(right.clone()), settings()), at(17)).await;
    assert_eq!((job.done.deleted, job.done.files_deleted), (1, 1), "{job:?}");
    assert!(!is_here(store, 2).await && !right.has(id(2), FileKind::Tx).await.unwrap());
}

pub async fn a_reorganisation_between_listing_and_deleting_is_seen<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    coins(&home.store, 3).await;
    add(&home.store, 6, vec![pays(2, &[(1, 0)], 0), pays(3, &[(1, 1)], 1)]).await;
    add(&home.store, 6, vec![pays(13, &[(3, 0)], 1), pays(4, &[(1, 2)], 0)]).await;
    mine(&home.store, 7, &[2, 3, 13, 4]).await;
    let (inner, handle) = (home.store.clone(), tokio::runtime::Handle::current());
    // Everything is listed; then, before anything is deleted, the chain changes.
    let faulty = Faulty::new(home.store.clone(), move |name| {
        if name == "delete" {
            let inner = inner.clone();
            tokio::task::block_in_place(|| {
                handle.block_on(async { unmine(&inner, 7, 17, &[2, 13]).await });
            });
        }
        None
    });
    let job = run(&pruner(&faulty, None, Settings { chunk_size: 100, ..settings() }), at(17)).await;
    assert_eq!(job.done.kept.get(&Kept::NotDue), Some(&1), "{job:?}");
    assert_eq!(job.done.kept.get(&Kept::Held), Some(&2), "{job:?}");
    assert!(is_here(&home.store, 2).await && is_here(&home.store, 3).await);
    assert!(!is_here(&home.store, 4).await, "what nothing changed for went");
}

pub async fn a_reorganisation_between_deleting_and_cutting_is_seen<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 3).await;
    let spends = (2..5).zip(0..).map(|(n, coin)| external(pays(n, &[(1, coin)], 1)));
    add(store, 6, spends.collect()).await;
    add(store, 6, (2..5).map(|n| pays(10 + n, &[(n, 0)], 1)).collect()).await;
    mine(store, 7, &[2, 3, 4, 12, 13, 14]).await;
    let sweep = Sweep { height: 17, external: true };
    let keys = store.due(17, None, 10).await.unwrap().items;
    let fates = store.delete(keys.clone(), sweep).await.unwrap();
    let left = keys.into_iter().zip(&fates).filter(|(_, fate)| **fate == Fate::Left);
    let left: Vec<_> = left.map(|(key, _)| key).collect();
    // Aerospike cuts in the very step.
    assert!(left.len() == 3 || left.is_empty(), "{fates:?}");
    unmine(store, 7, 17, &[12]).await;
    store.preserve(vec![id(3)], 99).await.unwrap();
    let fates = store.cut(left.clone(), sweep).await.unwrap();
    let was_cut = fates.iter().filter(|fate| matches!(fate, Fate::Cut(_))).count();
    assert_eq!(was_cut, left.len() / 3, "only what nobody needs by now: {fates:?}");
    for n in [2, 3].into_iter().filter(|_| !left.is_empty()) {
        assert!(!get(store, n).await.cut, "{n}");
    }
}

pub async fn catching_up_with_a_small_retention_deletes_nothing_that_is_needed<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(Rules { block_height_retention: 1, coinbase_maturity: 0 }).await;
    let store = &home.store;
    let pruner = pruner(store, None, Settings { unmined_tx_retention: None, ..settings() });
    // A chain of payments, one for each block, pruned at every fifth: the pruner is always ahead of
    // what waits.
    coins(store, 2).await;
    add(store, 1, vec![pays(1000, &[(1, 1)], 1)]).await;
    let mut deleted = 0;
    for height in 2..=60_u64 {
        add(store, height, vec![pays(height, &[(height - 1, 0)], 1)]).await;
        mine(store, height, &[height]).await;
        if height % 5 == 0 {
            deleted += run(&pruner, at(height)).await.done.deleted;
        }
    }
    let mut here = Vec::new();
    for n in 1..=60 {
        if is_here(store, n).await {
            here.push(n);
        }
    }
    assert_eq!(deleted, 57, "{here:?}");
    assert_eq!(here, vec![1, 59, 60], "the coin, its parent, and the parent of what still waits");
    mine(store, 60, &[1000]).await;
    assert_eq!(get(store, 1).await.preserve_until, Some(80));
    for height in [80, 81, 82] {
        run(&pruner, at(height)).await;
    }
    assert!(!is_here(store, 1).await && !is_here(store, 59).await);
    assert!(is_here(store, 60).await && is_here(store, 1000).await, "coins stay");
}

pub async fn a_fan_out_of_many_children_does_not_stall_the_store<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    let wide = 5000_u32;
    coins(store, wide).await;
    // Every other child is of no use to anybody, and goes with its parent.
    let children = (0..wide).map(|n| pays(100 + u64::from(n), &[(1, n)], n % 2)).collect();
    add(store, 6, children).await;
    let all: Vec<u64> = (100..100 + u64::from(wide)).collect();
    mine(store, 7, &all).await;
    // Between any two steps of the run somebody writes, and is served. One chunk at a time: what another
    // one waits for would not go on meanwhile.
    let written = Arc::new(AtomicU64::new(0));
    let (writer, count) = (store.clone(), Arc::clone(&written));
    let handle = tokio::runtime::Handle::current();
    let busy = Faulty::new(store.clone(), move |_| {
        let n = 100_000 + count.fetch_add(1, Ordering::Relaxed);
        tokio::task::block_in_place(|| {
            handle.block_on(add(&writer, 18, vec![coinbase(n, 1, block(18, 18))]));
        });
        None
    });
    let defensive = Settings {
        defensive: true,
        defensive_batch_read: 64,
        chunk_size: 100,
        chunk_group_limit: 1,
        ..settings()
    };
    let job = run(&pruner(&busy, None, defensive), at(18)).await;
    assert_eq!((job.done.deleted, job.done.kept.len()), (2501, 0), "{job:?}");
    assert!(written.load(Ordering::Relaxed) > 26, "each of 26 chunks is a step of its own");
    assert!(!is_here(store, 1).await && !is_here(store, 100).await && is_here(store, 101).await);
}
