//! Our order of writes, tried on records in memory: the suite of every backend, random histories, and every
//! step cut off at every write.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

use crate::codec::pages;
use crate::conformance::conformance;
use crate::conformance::rig::{Home, RULES, block, coinbase, external, id, pays};
use crate::histories::{numbers, play, play_all, rules};
use crate::types::{Body, NewTx, Slot, TxId};
use crate::{
    Event, ExternalFiles, Fate, Following, Metrics, Pruner, Record, Room, Rules, Service, Settings,
    Sweep, UtxoError, UtxoStore,
};

use super::bins;
use super::memory::{Memory, Trouble};
use super::records::Name;
use super::{Engine, VERSION, read};

async fn open(rules: Rules) -> Home<Engine<Memory>> {
    let store = Engine::with(Memory::new(|_| None), rules).await.unwrap();
    Home { store, _keeps: Box::new(()) }
}

conformance!(open);

/// A history in which now and then somebody else is faster.
async fn history(seed: u64) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let url = dir.path().join("files").to_str().unwrap().parse().unwrap();
    let files = ExternalFiles::create(&url, &secateur_archive::Settings::default()).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let records = Memory::new(move |_| rng.next_u32().is_multiple_of(8).then_some(Trouble::Late));
    let store = Engine { records, rules: rules(&numbers(seed)) };
    let again = store.clone();
    Box::pin(play(seed, store, files, async || again.clone())).await
}

#[test]
fn five_hundred_random_histories_end_as_the_naive_model_says() {
    play_all(500, |_, seed| history(seed));
}

/// A transaction whose bytes do not fit its record.
fn long(n: u64, inputs: &[(u64, u32)], outputs: u32) -> NewTx {
    let body = Body::Inline(Bytes::from(vec![7; crate::MAX_BODY]));
    NewTx { body, ..pays(n, inputs, outputs) }
}

const STEPS: usize = 17;

/// One step of a story in which everything happens that happens to records.
async fn step(store: &Engine<Memory>, n: usize) -> Result<(), UtxoError> {
    let create = async |height, txs: Vec<NewTx>| {
        let created = store.create(txs, height).await?;
        created.into_iter().map(|one| one.map(drop)).collect::<Result<Vec<()>, _>>().map(drop)
    };
    let mine = async |height, txs: &[u64]| {
        let txs = txs.iter().map(|n| id(*n)).collect();
        store.set_mined(txs, block(height, height), height).await
    };
    let unmine = async |of, height, txs: &[u64]| {
        let txs = txs.iter().map(|n| id(*n)).collect();
        store.unset_mined(txs, block(of, of).id, height).await
    };
    match n {
        0 => create(1, vec![coinbase(1, 600, block(1, 1)), coinbase(20, 1, block(1, 1))]).await,
        1 => {
            let two = pays(2, &[(1, 0), (1, 300), (1, 599)], 2);
            let three = pays(3, &[(2, 0), (20, 0)], 1);
            create(6, vec![two, three, long(4, &[(1, 301)], 1)]).await
        }
        2 => {
            create(6, vec![pays(5, &[(2, 1), (1, 1)], 300), external(pays(6, &[(1, 2)], 1))]).await
        }
        3 => mine(7, &[2, 3, 5]).await,
        4 => create(7, vec![pays(7, &[(5, 0), (5, 299)], 1), pays(8, &[(4, 0)], 0)]).await,
        5 => unmine(7, 8, &[2, 3, 5]).await,
        6 => mine(9, &[2, 3, 4, 5, 6, 8]).await,
        7 => store.unspend(id(7), 9).await,
        8 => store.spend(id(7), 10).await,
        9 => store.set_conflicting(id(7), true, 10).await,
        10 => {
            let rest: Vec<(u64, u32)> = (0..300).map(|n| (5, n)).collect();
            create(11, vec![pays(9, &rest, 1), pays(10, &[(6, 0), (3, 0)], 0)]).await
        }
        11 => store.preserve(vec![id(3), id(5)], 14).await.map(drop),
        12 => mine(12, &[9]).await,
        13 => store.expire_preservations(14, 100).await.map(drop),
        14 => sweep(store, 20).await,
        15 => mine(21, &[10]).await,
        _ => sweep(store, 40).await,
    }
}

async fn sweep(store: &Engine<Memory>, height: u64) -> Result<(), UtxoError> {
    let due = store.due(height, None, 100).await?.items;
    let fates = store.delete(due, Sweep { height, external: true }).await?;
    drop::<Vec<Fate<TxId>>>(fates);
    for doomed in store.doomed(None, 100).await?.items {
        store.finish(vec![doomed.key]).await?;
    }
    Ok(())
}

async fn records(store: &Engine<Memory>) -> Vec<Option<Record>> {
    let mut records = Vec::new();
    for n in 1..=20 {
        records.push(store.get(id(n)).await.unwrap());
    }
    records
}

/// What a deleting step would let go is spent as a whole, and by nobody who still waits; and what is here
/// has all that belongs to it.
fn is_safe(store: &Engine<Memory>) {
    let all = store.records.all();
    let main = |txid: TxId| Some(bins::decode(all.get(&Name::Tx(txid))?.clone()).unwrap());
    for name in all.keys() {
        let Name::Tx(txid) = name else { continue };
        let record = main(*txid).unwrap();
        let row = &record.row;
        if row.cut {
            continue;
        }
        let slots = (0..pages(row.outputs)).flat_map(|page| {
            let name = if page == 0 { name.clone() } else { Name::Page(*txid, page) };
            let stored = all.get(&name).unwrap_or_else(|| panic!("{name:?} is missing"));
            bins::decode_page(&stored.fields, row.outputs, page).unwrap().0.all().unwrap()
        });
        for part in 0..record.rest.parts {
            assert!(all.contains_key(&Name::Part(*txid, part)), "part {part} of {txid} is missing");
        }
        let held = bins::Reader(&record.stored.fields).int(bins::HELD).unwrap();
        if row.delete_at.is_none() || row.preserve_until.is_some() || held != Some(0) {
            continue;
        }
        for slot in slots {
            assert!(slot != Slot::Unspent || row.conflicting, "{txid} could go, and has a coin");
            if let Slot::Spent { by, .. } = slot {
                let waits = main(by).is_some_and(|by| by.row.spending && by.row.blocks.is_empty());
                assert!(!waits, "{txid} could go, and {by} needs it");
            }
        }
    }
}

/// Plays the story; a step that fails is told once more. Answers what was there after each step, and how
/// many writes there were.
async fn story(fails: Option<(usize, Trouble)>) -> (Vec<(Vec<Option<Record>>, Vec<Name>)>, usize) {
    let written = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&written);
    let memory = Memory::new(move |_| {
        let n = count.fetch_add(1, Ordering::Relaxed);
        fails.filter(|(at, _)| *at == n).map(|(_, trouble)| trouble)
    });
    let store = Engine { records: memory, rules: RULES };
    let mut after = Vec::new();
    for n in 0..STEPS {
        let mut done = step(&store, n).await;
        is_safe(&store);
        if done.as_ref().is_err_and(UtxoError::is_retryable) {
            done = step(&store, n).await;
            is_safe(&store);
        }
        done.unwrap_or_else(|error| panic!("step {n}, {fails:?}: {error}"));
        after.push((records(&store).await, store.records.all().into_keys().collect()));
    }
    (after, written.load(Ordering::Relaxed))
}

#[tokio::test]
async fn every_step_that_is_cut_off_at_any_write_is_finished_by_the_same_step() {
    let (whole, writes) = story(None).await;
    let here = |n: usize| whole[n].0.iter().filter(|record| record.is_some()).count();
    assert_eq!((here(13), here(14), here(16)), (11, 6, 2), "{writes} writes");
    for n in 0..writes {
        for trouble in [Trouble::Before, Trouble::After, Trouble::Late] {
            let (after, _) = story(Some((n, trouble))).await;
            for (step, (told, wanted)) in after.iter().zip(&whole).enumerate() {
                assert_eq!(told, wanted, "{trouble:?} at write {n}, after step {step}");
            }
        }
    }
}

#[tokio::test]
async fn a_slot_of_a_submission_that_was_cut_off_is_its_own_or_given_back() {
    for wins in [true, false] {
        let mut writes = 0;
        // The parents' slots are taken; then the power goes.
        let memory = Memory::new(move |_| {
            writes += 1;
            (writes == 4).then_some(Trouble::Before)
        });
        let store = Engine { records: memory, rules: RULES };
        let coins = vec![coinbase(1, 2, block(1, 1)), coinbase(2, 1, block(1, 1))];
        store.create(coins, 1).await.unwrap();
        let cut_off = pays(5, &[(1, 0)], 1);
        let lost = store.create(vec![pays(4, &[(2, 0)], 1), cut_off.clone()], 7).await;
        assert!(lost.unwrap_err().is_retryable());
        let parent = store.get(id(1)).await.unwrap().unwrap();
        let taken = parent.outputs.iter().filter(|slot| **slot != Slot::Unspent).count()
            + store.get(id(2)).await.unwrap().unwrap().spent();
        assert!(taken > 0 && store.get(id(5)).await.unwrap().is_none());
        let again = if wins { cut_off } else { pays(5, &[(1, 0), (1, 9)], 1) };
        let created = store.create(vec![again], 8).await.unwrap().remove(0);
        let parent = store.get(id(1)).await.unwrap().unwrap();
        if wins {
            created.unwrap();
            assert_eq!(parent.held_by, vec![id(5)]);
        } else {
            assert!(matches!(created, Err(UtxoError::MissingOutput { .. })));
            assert_eq!((parent.spent(), parent.held_by), (0, vec![]));
        }
    }
}

#[tokio::test]
async fn records_of_another_version_are_refused() {
    let store = open(RULES).await.store;
    Engine::with(store.records.clone(), RULES).await.unwrap();
    let fields = [(read::NUMBER.to_owned(), (VERSION + 1).into())].into();
    let name = Name::Meta("schema_version".into());
    let change = super::Change::Put(fields);
    super::Records::write(&store.records, vec![super::Write { name, change }]).await.unwrap();
    let refused = Engine::with(store.records.clone(), RULES).await.unwrap_err();
    assert!(refused.to_string().contains("version 2"), "{refused}");
}

/// A payment whose outputs are spent and deep, so that it is due at 17.
async fn due_payment(store: &Engine<Memory>) {
    store.create(vec![coinbase(1, 1, block(1, 1))], 1).await.unwrap();
    store.create(vec![pays(2, &[(1, 0)], 1)], 6).await.unwrap();
    store.create(vec![pays(3, &[(2, 0)], 1)], 6).await.unwrap();
    store.set_mined(vec![id(2), id(3)], block(7, 7), 7).await.unwrap();
}

/// `status`, `plan` and the metric said 124 past due where there were 62: a record that goes at once keeps its
/// date when it is cut, so that the next run finds what a crash left, and then two indexes have it. What both
/// have is counted as cut alone.
#[tokio::test]
async fn a_record_that_a_crash_left_cut_is_past_due_once() {
    let cuts = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&cuts);
    let memory = Memory::new(move |write| {
        // All is done up to the deletion, which the power takes with it.
        let goes = matches!(&write.change, super::Change::Delete { guard: Some(_) });
        (goes && count.fetch_add(1, Ordering::Relaxed) == 0).then_some(Trouble::Before)
    });
    let store = Engine { records: memory, rules: RULES };
    due_payment(&store).await;
    let before = store.counts(17).await.unwrap();
    assert_eq!((before.due, before.cut), (2, 0));
    let due = store.due(17, None, 100).await.unwrap().items;
    let lost = store.delete(due, Sweep { height: 17, external: true }).await;
    assert!(lost.unwrap_err().is_retryable());
    let counts = store.counts(17).await.unwrap();
    assert_eq!((counts.due, counts.cut, counts.past_due()), (0, 2, 2), "{counts:?}");
    assert_eq!(store.counts(16).await.unwrap().due, 0, "not due yet at 16, and cut all the same");
    sweep(&store, 17).await.unwrap();
    assert_eq!(store.counts(17).await.unwrap().past_due(), 0);
}

/// With `stop_writes` a prune was refused (the cut is a write), the command ended with 7 and `/readyz` said ready.
/// A refused write is a full store now; the namespace's own numbers are looked at before.
#[tokio::test]
async fn a_full_namespace_is_an_alarm_before_and_refuses_a_prune_without_deleting() {
    let seen = Name::Meta("note/seen_height".into());
    let notes = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&notes);
    let memory = Memory::new(move |write| {
        count.fetch_add(usize::from(write.name == seen), Ordering::Relaxed);
        None
    });
    let room = Arc::clone(&memory.room);
    let store = Engine { records: memory, rules: RULES };
    due_payment(&store).await;
    let metrics = Arc::new(Metrics::default());
    let pruner =
        Pruner::new(store.clone(), None, Settings::default(), None, Arc::clone(&metrics)).unwrap();
    let service = Service::open(pruner, Following::default(), metrics).await.unwrap();
    service.hear(Event::Block { height: 17, mined_set: true }).await.unwrap();
    let status = service.status().await.unwrap();
    assert_eq!((status.room, status.counts.free_bytes), (Room::Enough, None));
    *room.lock() = Room::Low("data_used_pct=65".into());
    assert_eq!(service.status().await.unwrap().room, Room::Low("data_used_pct=65".into()));
    let full = service.ready().err().filter(|reason| reason.contains("takes no more writes"));
    assert_eq!(full, None, "it still takes writes");
    *room.lock() = Room::Full("stop_writes=true".into());
    service.status().await.unwrap();
    let reason = service.ready().unwrap_err();
    assert!(reason.contains("takes no more writes") && reason.contains("stop_writes"), "{reason}");
    let (_keep, stop) = tokio::sync::watch::channel(false);
    let trigger = service.trigger_at(Some(17)).unwrap();
    let (job, error) = service.prune(trigger, stop.clone()).await.unwrap();
    let error = error.unwrap();
    assert_eq!(job.done.deleted, 0);
    assert!(error.is_disk_full() && error.is_retryable(), "{error}");
    assert!(store.get(id(2)).await.unwrap().is_some_and(|record| !record.cut), "nothing was cut");
    assert_eq!(notes.load(Ordering::Relaxed), 0, "what would be refused is not tried");
    *room.lock() = Room::Enough;
    let (job, error) = service.prune(trigger, stop).await.unwrap();
    assert!(error.is_none() && job.done.deleted == 2, "{error:?} {job:?}");
    assert_eq!(notes.load(Ordering::Relaxed), 0, "it is not known yet that it takes writes");
    service.status().await.unwrap();
    assert!(!service.ready().is_err_and(|reason| reason.contains("writes")));
}
