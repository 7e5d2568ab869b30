//! Places of external files that fail, or are not the right ones.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use prometheus_client::registry::Registry;
use secateur_utxo::{
    Event, ExternalFiles, FileKind, Following, Heard, Kept, Metrics, Outcome, Rules, Service,
    Settings, UtxoError, UtxoStore,
};
use tokio::sync::watch;

use super::broke::place;
use super::bucket::Bucket;
use super::prunes::{at, go, pruner, run, settings};
use super::rig::{Faulty, Home, RULES, When, add, coins, external, id, is_here, mine, pays};

pub async fn a_record_stays_while_its_file_cannot_be_removed<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 2).await;
    add(store, 6, vec![external(pays(2, &[(1, 0)], 0)), pays(3, &[(1, 1)], 0)]).await;
    mine(store, 7, &[2, 3]).await;
    let bucket = Arc::new(Bucket::default());
    bucket.stuck.lock().push(String::new());
    let pruner = pruner(store, Some(bucket.files()), settings());
    for _ in 0..2 {
        let job = run(&pruner, at(17)).await;
        assert_eq!(job.done.kept.get(&Kept::FileStays), Some(&1), "{job:?}");
        assert!(is_here(store, 2).await, "its file may still be there");
        assert_eq!(store.counts(17).await.unwrap().past_due(), 1, "and that is past due");
    }
    assert!(!is_here(store, 3).await, "what has no file went");
    bucket.stuck.lock().clear();
    let job = run(&pruner, at(17)).await;
    assert_eq!((job.done.deleted, job.done.files_deleted), (1, 1));
    assert!(!is_here(store, 2).await);
}

pub async fn files_that_stay_do_not_keep_others_from_going<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    let all: Vec<u64> = (2..14).collect();
    coins(store, 12).await;
    for (n, output) in all.iter().zip(0..) {
        add(store, 6, vec![external(pays(*n, &[(1, output)], 0))]).await;
    }
    mine(store, 7, &all).await;
    let bucket = Arc::new(Bucket::default());
    bucket.stuck.lock().push(String::new());
    let settings = Settings { chunk_size: 2, ..settings() };
    let pruner = pruner(store, Some(bucket.files()), settings);
    let job = run(&pruner, at(17)).await;
    assert_eq!(job.done.kept.get(&Kept::FileStays), Some(&12), "all are cut, and stay: {job:?}");
    // More than a page of them goes on failing.
    *bucket.stuck.lock() = [3, 4, 5].map(|n| id(n).to_string()).into();
    let job = run(&pruner, at(17)).await;
    assert_eq!((job.done.deleted, job.done.files_deleted), (9, 9), "{job:?}");
    assert_eq!(job.done.kept.get(&Kept::FileStays), Some(&3), "{job:?}");
    for n in all {
        assert_eq!(is_here(store, n).await, (3..=5).contains(&n), "{n}");
    }
}

pub async fn a_place_that_answers_to_no_removal_has_its_part_of_a_run_and_no_more<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    // However many are tried side by side.
    for chunk_size in [10, 1] {
        let home = open(RULES).await;
        let store = &home.store;
        coins(store, 70).await;
        let with_file = |n: u32| !n.is_multiple_of(7);
        let txs = (0..70).map(|n| (n, pays(100 + u64::from(n), &[(1, n)], 0)));
        let txs = txs.map(|(n, tx)| if with_file(n) { external(tx) } else { tx });
        add(store, 6, txs.collect()).await;
        mine(store, 7, &(100..170).collect::<Vec<_>>()).await;
        let bucket = Arc::new(Bucket::default());
        bucket.is_silent.store(true, Ordering::Relaxed);
        // A twentieth of a run's time is for files that answer to nothing.
        let job_timeout = Duration::from_secs(40);
        let settings = Settings { chunk_size, chunk_group_limit: 1, job_timeout, ..settings() };
        let pruner = pruner(store, Some(bucket.files()), settings);
        // In the second run those that the first one left are tried, and then others.
        for (deleted, tries) in [(11, 1), (0, 2)] {
            let asked = bucket.asked.load(Ordering::Relaxed);
            let job = run(&pruner, at(17)).await;
            assert_eq!(job.outcome, Outcome::Completed, "{job:?}");
            assert_eq!(job.done.deleted, deleted, "what has no file goes: {job:?}");
            assert_eq!(job.done.kept, [(Kept::FileStays, 60)].into());
            let asked = bucket.asked.load(Ordering::Relaxed) - asked;
            assert!((1..=tries * chunk_size).contains(&asked), "{asked} of {chunk_size}");
        }
        bucket.is_silent.store(false, Ordering::Relaxed);
        let job = run(&pruner, at(17)).await;
        assert_eq!((job.done.deleted, job.done.files_deleted), (60, 60), "{job:?}");
    }
}

pub async fn a_run_that_is_stopped_among_files_keeps_and_counts_what_it_did<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 701).await;
    let txs = (0..700).map(|n| external(pays(1000 + u64::from(n), &[(1, n)], 0)));
    add(store, 6, txs.collect()).await;
    mine(store, 7, &(1000..1700).collect::<Vec<_>>()).await;
    let bucket = Arc::new(Bucket::default());
    let (stop, stopping) = watch::channel(false);
    *bucket.stops.lock() = Some((300, stop));
    // All of them are cut in one step.
    let settings = Settings { chunk_size: 1000, chunk_group_limit: 1, ..settings() };
    let pruner = pruner(store, Some(bucket.files()), settings);
    let (job, _) = pruner.run(at(17), stopping).await.unwrap();
    assert_eq!(job.outcome, Outcome::Cancelled, "{job:?}");
    assert!((1..700).contains(&job.done.deleted), "{job:?}");
    assert_eq!(job.done.files_deleted, job.done.deleted);
    let counts = store.counts(17).await.unwrap();
    assert_eq!(counts.cut, 700 - job.done.deleted, "{counts:?}");
    let rest = run(&pruner, at(17)).await;
    assert_eq!(rest.outcome, Outcome::Completed, "{rest:?}");
    assert_eq!(rest.done.deleted, 700 - job.done.deleted, "{rest:?}");
    assert_eq!(rest.done.files_missing, 0);
}

pub async fn what_stays_with_its_file_is_told_and_tried_again_at_the_same_height<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 1).await;
    add(store, 6, vec![external(pays(2, &[(1, 0)], 0))]).await;
    mine(store, 7, &[2]).await;
    let bucket = Arc::new(Bucket::default());
    bucket.stuck.lock().push(String::new());
    let pruner = pruner(store, Some(bucket.files()), settings());
    let metrics = Arc::new(Metrics::default());
    let service = Service::open(pruner, Following::default(), metrics).await.unwrap();
    let told = || service.hear(Event::Block { height: 17, mined_set: true });
    let Heard::Trigger(trigger) = told().await.unwrap() else { panic!("it sets a run off") };
    for _ in 0..2 {
        service.prune(trigger, go()).await.unwrap();
        assert!(is_here(store, 2).await);
        assert!(service.ready().unwrap_err().contains("1 due record stays"));
        assert!(matches!(told().await.unwrap(), Heard::Trigger(_)), "there is something left");
    }
    bucket.stuck.lock().clear();
    service.prune(trigger, go()).await.unwrap();
    assert!(!is_here(store, 2).await);
    assert_eq!(service.ready(), Ok(()));
    assert_eq!(told().await.unwrap(), Heard::Noted);
}

pub async fn what_was_tried_in_vain_is_not_tried_sooner_because_it_is_told_again<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 1).await;
    add(store, 6, vec![external(pays(2, &[(1, 0)], 0))]).await;
    mine(store, 7, &[2]).await;
    let bucket = Arc::new(Bucket::default());
    bucket.stuck.lock().push(String::new());
    let mut registry = Registry::default();
    let metrics = Arc::new(Metrics::new(&mut registry));
    let pruner = pruner(store, Some(bucket.files()), settings());
    let service = Service::open(pruner, Following::default(), metrics).await.unwrap();
    // Heights that were told in vain, and runs.
    let seen = async || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let replaced =
            text.split("pruner_replaced_total ").nth(1).and_then(|rest| rest.lines().next());
        (replaced.unwrap().parse::<u64>().unwrap(), store.jobs().await.unwrap().len())
    };
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn({
        let service = service.clone();
        async move { service.run(stopped).await }
    });
    let mut before = seen().await;
    for (height, expected) in [(17, (0, 1)), (17, (1, 1)), (16, (2, 1)), (17, (3, 1)), (18, (3, 2))]
    {
        service.hear(Event::Block { height, mined_set: true }).await.unwrap();
        let done = async {
            while seen().await == before {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), done).await.expect("nothing came of it");
        before = seen().await;
        assert_eq!(before, expected, "after {height}");
    }
    stop.send(true).unwrap();
    running.await.unwrap();
}

pub async fn what_stays_because_of_its_place_is_counted_and_outlives_a_restart<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    let dir = tempfile::tempdir().unwrap();
    let (here, away) = (dir.path().join("files"), dir.path().join("away"));
    let files = place(&here);
    let service = async || {
        let pruner = pruner(store, Some(files.clone()), settings());
        let metrics = Arc::new(Metrics::default());
        Service::open(pruner, Following::default(), metrics).await.unwrap()
    };
    coins(store, 2).await;
    for (n, output) in [(2, 0), (3, 1)] {
        files.put(id(n), FileKind::Tx, &Bytes::from_static(b"large")).await.unwrap();
        add(store, 6, vec![external(pays(n, &[(1, output)], 0))]).await;
    }
    mine(store, 7, &[2]).await;
    mine(store, 8, &[3]).await;
    // One is cut, and its file is gone.
    let faulty = Faulty::new(store.clone(), |name| (name == "finish").then_some(When::Before));
    run(&pruner(&faulty, Some(files.clone()), settings()), at(17)).await;
    assert_eq!(store.counts(17).await.unwrap().cut, 1);
    std::fs::rename(&here, &away).unwrap();
    let first = service().await;
    let (job, _) = first.prune(at(18), go()).await.unwrap();
    assert_eq!(job.done.kept.get(&Kept::FilesMissing), Some(&2), "{job:?}");
    for service in [first, service().await] {
        assert!(service.ready().unwrap_err().contains("2 due records stay"));
        // One that does not come so far knows only of what is cut.
        let (job, _) = service.prune(at(10), go()).await.unwrap();
        assert_eq!(job.done.kept.get(&Kept::FilesMissing), Some(&1), "{job:?}");
        assert!(service.ready().unwrap_err().contains("2 due records stay"));
    }
    std::fs::rename(&away, &here).unwrap();
    let last = service().await;
    assert!(last.ready().unwrap_err().contains("2 due records stay"));
    let (job, _) = last.prune(at(18), go()).await.unwrap();
    assert_eq!((job.done.deleted, job.done.files_deleted), (2, 1), "{job:?}");
    assert_eq!((last.ready(), service().await.ready()), (Ok(()), Ok(())));
}

pub async fn a_place_without_the_mark_takes_no_new_file_and_none_vouches_for_the_others<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    let dir = tempfile::tempdir().unwrap();
    let (here, away) = (dir.path().join("files"), dir.path().join("away"));
    let files = place(&here);
    let of = |files: &ExternalFiles| pruner(store, Some(files.clone()), settings());
    coins(store, 3).await;
    // The first file makes it the place.
    of(&files).check_place().await.unwrap();
    for (n, output) in [(2, 0), (3, 1)] {
        files.put(id(n), FileKind::Tx, &Bytes::from_static(b"large")).await.unwrap();
        add(store, 6, vec![external(pays(n, &[(1, output)], 0))]).await;
    }
    mine(store, 7, &[2, 3]).await;
    // Its disk is gone, with an empty directory or with none in its place.
    std::fs::rename(&here, &away).unwrap();
    for is_empty in [false, true] {
        if is_empty {
            std::fs::create_dir(&here).unwrap();
        }
        let refused = of(&files).check_place().await.unwrap_err();
        assert!(matches!(refused, UtxoError::File { .. }), "{refused}");
        assert_eq!(here.exists(), is_empty, "it is not made anew");
    }
    // Whoever put a file there all the same proves nothing by it.
    files.put(id(4), FileKind::Tx, &Bytes::from_static(b"large")).await.unwrap();
    add(store, 6, vec![external(pays(4, &[(1, 2)], 1))]).await;
    mine(store, 8, &[4]).await;
    let job = run(&of(&files), at(17)).await;
    assert_eq!((job.done.files_missing, job.done.kept.get(&Kept::FilesMissing)), (0, Some(&2)));
    std::fs::remove_dir_all(&here).unwrap();
    std::fs::rename(&away, &here).unwrap();
    of(&files).check_place().await.unwrap();
    files.put(id(4), FileKind::Tx, &Bytes::from_static(b"large")).await.unwrap();
    let job = run(&of(&files), at(17)).await;
    assert_eq!((job.done.files_deleted, job.done.files_missing), (2, 0), "{job:?}");
    // Files that are truly gone are said to be, whatever the mark is.
    std::fs::remove_dir_all(&here).unwrap();
    std::fs::create_dir(&here).unwrap();
    let gone = Settings { missing_files_are_gone: true, ..settings() };
    for damage in ["", "no mark", &"x".repeat(100)] {
        std::fs::write(here.join("secateur-place"), damage).unwrap();
        let refused = of(&files).check_place().await.unwrap_err();
        assert!(matches!(refused, UtxoError::File { .. }), "{refused}");
        pruner(store, Some(files.clone()), gone.clone()).check_place().await.unwrap();
        of(&files).check_place().await.unwrap();
    }
}

pub async fn a_place_that_goes_in_the_middle_of_a_run_takes_no_record_with_it<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    let dir = tempfile::tempdir().unwrap();
    let (here, away) = (dir.path().join("files"), dir.path().join("away"));
    let files = place(&here);
    coins(store, 4).await;
    for (n, output) in [(2, 0), (3, 1), (4, 2), (5, 3)] {
        files.put(id(n), FileKind::Tx, &Bytes::from_static(b"large")).await.unwrap();
        add(store, 6, vec![external(pays(n, &[(1, output)], 0))]).await;
    }
    mine(store, 7, &[2, 3, 4, 5]).await;
    // Its place is right when the run begins, and is gone before the first record is.
    let (from, to) = (here.clone(), away.clone());
    let faulty = Faulty::new(store.clone(), move |name| {
        if name == "delete" && !to.exists() {
            std::fs::rename(&from, &to).unwrap();
            std::fs::create_dir(&from).unwrap();
        }
        None
    });
    let job = run(&pruner(&faulty, Some(files.clone()), settings()), at(17)).await;
    assert_eq!(job.done.files_missing, 0, "{job:?}");
    assert_eq!(job.done.kept.get(&Kept::FilesMissing), Some(&4), "{job:?}");
    for n in 2..=5 {
        assert!(is_here(store, n).await, "{n}");
    }
    std::fs::remove_dir(&here).unwrap();
    std::fs::rename(&away, &here).unwrap();
    let job = run(&pruner(store, Some(files.clone()), settings()), at(17)).await;
    assert_eq!((job.done.files_deleted, job.done.files_missing), (4, 0), "{job:?}");
    for n in 2..=5 {
        let there = files.has(id(n), FileKind::Tx).await.unwrap();
        assert!(!is_here(store, n).await && !there, "{n}");
    }
}

pub async fn a_place_is_one_store_s_and_is_marked_for_it_also_after_a_crash<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let (home, other) = (open(RULES).await, open(RULES).await);
    let dir = tempfile::tempdir().unwrap();
    let files = place(&dir.path().join("files"));
    let mark = dir.path().join("files/secateur-place");
    let of = |store: &S| pruner(store, Some(files.clone()), settings());
    // It ends when the place is marked and the store does not know it yet.
    let mut notes = 0;
    let faulty = Faulty::new(home.store.clone(), move |name| {
        notes += u64::from(name == "claim_note");
        (name == "claim_note" && notes == 2).then_some(When::Before)
    });
    pruner(&faulty, Some(files.clone()), settings()).check_place().await.unwrap_err();
    assert!(mark.exists());
    of(&home.store).check_place().await.unwrap();
    // Another store with the same transaction would remove its file.
    for store in [&home.store, &other.store] {
        coins(store, 1).await;
        add(store, 6, vec![external(pays(2, &[(1, 0)], 0))]).await;
        mine(store, 7, &[2]).await;
    }
    files.put(id(2), FileKind::Tx, &Bytes::from_static(b"large")).await.unwrap();
    let gone = Settings { missing_files_are_gone: true, ..settings() };
    for settings in [settings(), gone] {
        let second = pruner(&other.store, Some(files.clone()), settings);
        let refused = second.check_place().await.unwrap_err();
        assert!(refused.to_string().contains("another store"), "{refused}");
        let job = run(&second, at(17)).await;
        assert_eq!((job.done.files_deleted, job.done.kept.get(&Kept::FilesMissing)), (0, Some(&1)));
    }
    assert!(files.has(id(2), FileKind::Tx).await.unwrap());
    assert_eq!(run(&of(&home.store), at(17)).await.done.files_deleted, 1);
    // The first one is gone for good, and its place is given to the second.
    std::fs::remove_file(&mark).unwrap();
    files.put(id(2), FileKind::Tx, &Bytes::from_static(b"large")).await.unwrap();
    of(&other.store).check_place().await.unwrap();
    assert!(of(&home.store).check_place().await.is_err());
}

pub async fn all_who_look_at_a_new_place_at_the_same_time_find_it_right<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    for _ in 0..8 {
        let home = open(RULES).await;
        let dir = tempfile::tempdir().unwrap();
        let files = place(&dir.path().join("files"));
        let looks = (0..8).map(|_| {
            let one = pruner(&home.store, Some(files.clone()), settings());
            tokio::spawn(async move { one.check_place().await })
        });
        for look in looks.collect::<Vec<_>>() {
            look.await.unwrap().unwrap();
        }
    }
}

pub async fn whoever_only_peeks_at_a_place_marks_nothing<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let (home, other) = (open(RULES).await, open(RULES).await);
    let dir = tempfile::tempdir().unwrap();
    let (path, away) = (dir.path().join("files"), dir.path().join("away"));
    let files = place(&path);
    let of = |store: &S| pruner(store, Some(files.clone()), settings());
    of(&home.store).peek_at_place().await.unwrap();
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
    for note in ["store_id", "files_mark"] {
        assert_eq!(home.store.note(note).await.unwrap(), None);
    }
    // Whatever may still become the place of a store with files does not have them.
    coins(&other.store, 1).await;
    add(&other.store, 6, vec![external(pays(2, &[(1, 0)], 0))]).await;
    of(&other.store).peek_at_place().await.unwrap_err();
    of(&home.store).check_place().await.unwrap();
    of(&home.store).peek_at_place().await.unwrap();
    let refused = of(&other.store).peek_at_place().await.unwrap_err();
    assert!(refused.to_string().contains("another store"), "{refused}");
    std::fs::rename(path.join("secateur-place"), &away).unwrap();
    let refused = of(&home.store).peek_at_place().await.unwrap_err();
    assert!(refused.to_string().contains("does not carry the mark"), "{refused}");
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
}
