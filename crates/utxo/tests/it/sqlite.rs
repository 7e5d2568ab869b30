//! The suite of every backend, on one file; and what only a file with one writer has to promise.

use std::sync::Arc;

use parking_lot::Mutex;
use secateur_utxo::{
    Event, Fate, Following, Heard, Metrics, Outcome, Rules, Service, Settings, SqliteStore, Sweep,
    UtxoError, UtxoStore as _,
};

use crate::conformance::broke::place;
use crate::conformance::conformance;
use crate::conformance::prunes::{at, go, pruner, settings};
use crate::conformance::rig::{
    Faulty, Home, RULES, When, add, block, coinbase, coins, delete, external, finish, id, mine,
    pays, try_add,
};

async fn open(rules: Rules) -> Home<SqliteStore> {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&dir.path().join("utxo.sqlite"), rules).unwrap();
    Home { store, _keeps: Box::new(dir) }
}

conformance!(open);

#[tokio::test]
async fn a_file_from_before_coinbases_were_remembered_is_brought_up_to_date() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("utxo.sqlite");
    let sweep = Sweep { height: 17, external: true };
    {
        let store = SqliteStore::open(&path, RULES).unwrap();
        let txs = vec![coinbase(1, 1, block(1, 1)), external(coinbase(3, 1, block(1, 1)))];
        add(&store, 1, txs).await;
        add(&store, 6, vec![pays(4, &[(3, 0)], 1)]).await;
        mine(&store, 7, &[4]).await;
        let keys = store.due(17, None, 10).await.unwrap().items;
        let fates = delete(&store, keys, sweep).await;
        assert!(matches!(fates.as_slice(), [Fate::Cut(_)]), "{fates:?}");
    }
    let before = "DROP TABLE pruned;
        UPDATE meta SET value = '2' WHERE key = 'schema_version'";
    rusqlite::Connection::open(&path).unwrap().execute_batch(before).unwrap();
    let store = SqliteStore::open(&path, RULES).unwrap();
    add(&store, 6, vec![pays(2, &[(1, 0)], 1)]).await;
    mine(&store, 7, &[2]).await;
    let keys = store.due(17, None, 10).await.unwrap().items;
    delete(&store, keys, sweep).await;
    assert_eq!(store.pruned_at(id(1)).await.unwrap(), Some(17));
    // What the older version had cut is removed without another look.
    let doomed = store.doomed(None, 10).await.unwrap().items;
    finish(&store, doomed.into_iter().map(|one| one.key).collect()).await;
    let refused = try_add(&store, 18, external(coinbase(3, 1, block(1, 1)))).await.unwrap_err();
    assert!(matches!(refused, UtxoError::Pruned { .. }), "{refused}");
}

#[tokio::test]
async fn a_page_of_old_transactions_with_very_many_parents_ends_early_and_goes_on() {
    let home = open(RULES).await;
    let store = &home.store;
    let inputs = 50_000;
    coins(store, 2 * inputs).await;
    for n in 0..2 {
        let all: Vec<(u64, u32)> = (n * inputs..(n + 1) * inputs).map(|place| (1, place)).collect();
        add(store, 6, vec![pays(2 + u64::from(n), &all, 1)]).await;
    }
    let first = store.old_unmined(10, None, 100).await.unwrap();
    assert_eq!((first.items.len(), first.next.is_some()), (1, true));
    let second = store.old_unmined(10, first.next, 100).await.unwrap();
    assert_eq!((second.items.len(), second.items[0].txid), (1, id(3)));
}

/// Somebody else has the file, so that no step ends before all have asked for their turn.
struct Gate(rusqlite::Connection);

impl Gate {
    fn shut(store: &SqliteStore) -> Self {
        let gate = rusqlite::Connection::open(store.address()).unwrap();
        gate.execute_batch("BEGIN IMMEDIATE").unwrap();
        Self(gate)
    }

    /// To be polled after all others that are waited for together.
    fn opens(self) {
        self.0.execute_batch("ROLLBACK").unwrap();
    }
}

#[tokio::test]
async fn a_writer_waits_for_one_chunk_however_many_are_to_be_deleted() {
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 400).await;
    add(store, 6, (0..399).map(|n| pays(100 + u64::from(n), &[(1, n)], 0)).collect()).await;
    mine(store, 7, &(100..499).collect::<Vec<_>>()).await;
    let keys = store.due(17, None, 1000).await.unwrap().items;
    let sweep = Sweep { height: 17, external: false };
    let chunk = |n: usize| {
        let keys = keys.chunks(100).nth(n).unwrap().to_vec();
        store.delete(keys, sweep)
    };
    // All chunks ask for their turn before the writer does, which finds a record of the second one.
    let writes = store.set_mined(vec![id(250)], block(7, 7), 18);
    let gate = Gate::shut(store);
    let (one, two, three, four, written, ()) =
        tokio::join!(chunk(0), chunk(1), chunk(2), chunk(3), writes, async { gate.opens() });
    for fates in [one, two, three, four] {
        assert!(fates.unwrap().into_iter().all(|fate| fate == Fate::Deleted));
    }
    written.unwrap();
}

#[tokio::test]
async fn chunks_that_go_together_make_room_for_a_writer() {
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 5001).await;
    add(store, 6, (0..5000).map(|n| pays(100 + u64::from(n), &[(1, n)], 0)).collect()).await;
    mine(store, 7, &(100..5100).collect::<Vec<_>>()).await;
    let keys = store.due(17, None, 10_000).await.unwrap().items;
    let sweep = Sweep { height: 17, external: false };
    let deleting = async {
        let (mut left, mut steps) = (keys, 0);
        while !left.is_empty() {
            let fates = store.delete(left.clone(), sweep).await.unwrap();
            left.drain(..fates.len());
            assert!(fates.into_iter().all(|fate| fate == Fate::Deleted));
            steps += 1;
        }
        steps
    };
    // The writer finds the last record.
    let writes = store.set_mined(vec![id(5099)], block(7, 7), 18);
    let gate = Gate::shut(store);
    let (steps, written, ()) = tokio::join!(deleting, writes, async { gate.opens() });
    assert_eq!(steps, 2, "one until the writer waits, and one for the others");
    written.unwrap();
}

#[tokio::test]
async fn records_with_files_are_cut_a_chunk_at_a_time_however_many_go_together() {
    let home = open(RULES).await;
    coins(&home.store, 101).await;
    let txs = (0..100).map(|n| external(pays(100 + u64::from(n), &[(1, n)], 0)));
    add(&home.store, 6, txs.collect()).await;
    mine(&home.store, 7, &(100..200).collect::<Vec<_>>()).await;
    let steps = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&steps);
    let store = Faulty::new(home.store.clone(), move |name| {
        seen.lock().extend(["delete", "cut"].into_iter().filter(|step| *step == name));
        None
    });
    let dir = tempfile::tempdir().unwrap();
    let gone = Settings { chunk_size: 10, missing_files_are_gone: true, ..settings() };
    let pruner = pruner(&store, Some(place(&dir.path().join("files"))), gone);
    let (job, error) = pruner.run(at(17), go()).await.unwrap();
    assert_eq!((job.done.deleted, job.done.files_missing), (100, 100), "{error:?}");
    let mut wanted = vec!["delete"];
    wanted.resize(11, "cut");
    assert_eq!(*steps.lock(), wanted);
}

#[tokio::test]
async fn records_that_are_cut_are_counted_one_by_one_where_one_of_them_does_not_go() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("utxo.sqlite");
    let store = SqliteStore::open(&path, RULES).unwrap();
    coins(&store, 101).await;
    let txs = (0..100).map(|n| external(pays(100 + u64::from(n), &[(1, n)], 0)));
    add(&store, 6, txs.collect()).await;
    mine(&store, 7, &(100..200).collect::<Vec<_>>()).await;
    let refuse =
        "CREATE TRIGGER refuse BEFORE DELETE ON txs WHEN OLD.id = (SELECT max(id) FROM txs)
        BEGIN SELECT RAISE(ABORT, 'this one stays'); END";
    rusqlite::Connection::open(&path).unwrap().execute_batch(refuse).unwrap();
    let gone = Settings { chunk_size: 1000, missing_files_are_gone: true, ..settings() };
    let pruner = pruner(&store, Some(place(&dir.path().join("files"))), gone);
    let (over, is_over) = tokio::sync::watch::channel(false);
    // Somebody waits whenever it looks.
    let writes = async || {
        while !*is_over.borrow() {
            store.set_note("something", "else").await.unwrap();
        }
    };
    let pruning = async {
        let ran = pruner.run(at(17), go()).await.unwrap();
        over.send_replace(true);
        ran
    };
    let ((job, error), (), (), ()) = tokio::join!(pruning, writes(), writes(), writes());
    let left = store.counts(17).await.unwrap().cut;
    assert!((1..100).contains(&left), "{left}");
    assert_eq!(job.done.deleted, 100 - left, "{error:?}");
}

#[tokio::test]
async fn a_directory_that_does_not_answer_is_looked_at_once_at_a_time() {
    let home = open(RULES).await;
    let dir = tempfile::tempdir().unwrap();
    let mut looks = 0;
    let store = Faulty::new(home.store.clone(), move |name| {
        looks += u32::from(name == "note");
        // Four are of a service that begins; then it asks whether the store answers, how far records were
        // fed, and for the mark.
        (name == "note" && looks == 7).then(|| {
            tokio::time::pause();
            When::Keeps
        })
    });
    let pruner = pruner(&store, Some(place(&dir.path().join("files"))), settings());
    let metrics = Arc::new(Metrics::default());
    let service = Service::open(pruner, Following::default(), metrics).await.unwrap();
    let minutes = tokio::time::sleep(std::time::Duration::from_mins(2));
    let (_stop, stopping) = tokio::sync::watch::channel(false);
    tokio::select! {
        () = service.run(stopping) => panic!("nobody told it to stop"),
        () = minutes => {}
    }
    let why = service.ready().unwrap_err();
    assert!(why.contains("nothing came within 5 s"), "{why}");
}

/// What is logged, as text.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_run_that_takes_long_tells_how_far_it_is_until_its_time_is_over() {
    let home = open(RULES).await;
    coins(&home.store, 9).await;
    add(&home.store, 6, (0..9).map(|n| pays(100 + u64::from(n), &[(1, n)], 0)).collect()).await;
    mine(&home.store, 7, &(100..109).collect::<Vec<_>>()).await;
    let mut deletes = 0;
    let store = Faulty::new(home.store.clone(), move |name| {
        deletes += u32::from(name == "delete");
        // Time goes by itself from here on, since nothing else moves.
        (name == "delete" && deletes == 3).then(|| {
            tokio::time::pause();
            When::Keeps
        })
    });
    let pruner = pruner(&store.apart(), None, Settings { chunk_group_limit: 1, ..settings() });
    let logged = Logged::default();
    let writer = logged.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
    let logging = tracing::subscriber::set_default(subscriber.finish());
    let (job, _) = pruner.run(at(17), go()).await.unwrap();
    drop(logging);
    assert_eq!((job.outcome, job.done.deleted), (Outcome::TimedOut, 4));
    let text = String::from_utf8(logged.0.lock().clone()).unwrap();
    let told: Vec<&str> =
        text.lines().filter(|line| line.contains("pruning UTXO records")).collect();
    // Ten minutes, and half a one for a step that does not end.
    assert!((20..=21).contains(&told.len()), "{text}");
    for part in ["height=17", "phase=\"delete\"", "deleted=4", "due=10"] {
        assert!(told.iter().all(|line| line.contains(part)), "{part} {text}");
    }
}

#[tokio::test]
async fn what_went_before_a_step_that_fails_is_told_however_many_chunks_go_together() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("utxo.sqlite");
    let store = SqliteStore::open(&path, RULES).unwrap();
    coins(&store, 2001).await;
    add(&store, 6, (0..2000).map(|n| pays(100 + u64::from(n), &[(1, n)], 0)).collect()).await;
    mine(&store, 7, &(100..2100).collect::<Vec<_>>()).await;
    let refuse =
        "CREATE TRIGGER refuse BEFORE DELETE ON txs WHEN OLD.id = (SELECT max(id) FROM txs)
        BEGIN SELECT RAISE(ABORT, 'this one stays'); END";
    rusqlite::Connection::open(&path).unwrap().execute_batch(refuse).unwrap();
    let pruner = pruner(&store, None, Settings { chunk_size: 1000, ..settings() });
    let (over, is_over) = tokio::sync::watch::channel(false);
    // Somebody waits whenever it looks.
    let writes = async || {
        while !*is_over.borrow() {
            store.set_note("something", "else").await.unwrap();
        }
    };
    let pruning = async {
        let ran = pruner.run(at(17), go()).await.unwrap();
        over.send_replace(true);
        ran
    };
    let ((job, error), (), (), ()) = tokio::join!(pruning, writes(), writes(), writes());
    let gone = 2000 - store.counts(17).await.unwrap().due;
    assert!(gone >= 1000, "{gone}");
    assert_eq!(job.done.deleted, gone);
    let told = error.unwrap().to_string();
    assert!(told.contains(&format!("{gone} records were deleted before")), "{told}");
}

#[tokio::test]
async fn a_writer_waits_for_one_piece_of_a_record_with_many_outputs() {
    let home = open(RULES).await;
    let store = &home.store;
    let wide = 100_000;
    coins(store, 2).await;
    let all: Vec<(u64, u32)> = (0..wide).map(|n| (2, n)).collect();
    add(store, 6, vec![pays(2, &[(1, 0)], wide), pays(3, &all, 1)]).await;
    mine(store, 7, &[2, 3]).await;
    let keys = store.due(17, None, 10).await.unwrap().items;
    let fates = delete(store, keys, Sweep { height: 17, external: false }).await;
    let [Fate::Cut(doomed)] = fates.as_slice() else { panic!("{fates:?}") };
    // The writer finds what is left of it.
    let asks = store.set_mined(vec![id(2)], block(7, 7), 18);
    let gate = Gate::shut(store);
    let (removed, refused, ()) =
        tokio::join!(store.finish(vec![doomed.key]), asks, async { gate.opens() });
    removed.unwrap();
    let refused = refused.unwrap_err();
    assert!(matches!(refused, UtxoError::Pruned { .. }), "{refused}");
    assert!(store.get(id(2)).await.unwrap().is_none());
}

/// What this process holds in memory.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Whatever were kept of each height would show as dozens of mebibytes.
#[tokio::test]
async fn memory_is_flat_while_a_million_heights_wait_for_their_prune() {
    let home = open(RULES).await;
    let pruner = pruner(&home.store, None, settings());
    let following = Following::default();
    let service = Service::open(pruner, following, Arc::new(Metrics::default())).await.unwrap();
    let tell = async |heights: std::ops::RangeInclusive<u64>| {
        for height in heights {
            let heard = service.hear(Event::Block { height, mined_set: true }).await.unwrap();
            assert!(matches!(heard, Heard::Trigger(at) if at.height == height), "{heard:?}");
        }
    };
    tell(1..=10_000).await;
    let before = resident_kib();
    tell(10_001..=1_010_000).await;
    let after = resident_kib();
    assert!(after <= before + 4 * 1024, "{before} KiB, then {after} KiB");
}
