//! Groups on their way: submitted ahead, carried by workers or by whoever waits, durable in order,
//! bounded in number, and after a failure a prefix of what was submitted.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::*;
use crate::desk::{Call, Desk, DeskStore, desk_store};
use parking_lot::Mutex;
use secateur_core::{Block, PrunePolicy};
use secateur_sim::crash::images_of;
use secateur_sim::grounds::{Disk, GroundKind, Seams};
use secateur_sim::rng::Rng;
use secateur_sim::world::{Fault, Image, World};
use secateur_store::{Arena, Index, Sabotage, Settings, Store, StoreError, Ticket, Workers};

fn plain() -> (Arc<DeskStore>, Arc<Desk>) {
    desk_store(PrunePolicy::default(), Settings::default())
}

fn submit<A: Arena, I: Index>(store: &Store<A, I>, blocks: &[Block]) -> Vec<Ticket> {
    blocks.iter().map(|block| store.submit(std::slice::from_ref(block)).unwrap()).collect()
}

#[test]
fn groups_submitted_ahead_are_durable_in_order_and_never_before_their_bytes() {
    for workers in [false, true] {
        let (store, desk) = plain();
        let workers = workers.then(|| Workers::start(&store).unwrap());
        let blocks = blocks_after(&*store, 200, SHAPE, 0);
        for (part, nth) in blocks.chunks(10).zip(0u64..) {
            let tickets = submit(&*store, part);
            // Waiting for the last is waiting for all of them.
            let late = nth % 2 == 1;
            let ordered: Box<dyn Iterator<Item = _>> = if late {
                Box::new(tickets.into_iter().rev())
            } else {
                Box::new(tickets.into_iter())
            };
            for (ticket, at) in ordered.zip(1u64..) {
                store.wait(ticket).unwrap();
                let least = nth * 10 + if late { 10 } else { at };
                assert!(desk.committed() >= least && store.head() >= Some(9 + least));
            }
        }
        drop(workers);
        let state = desk.state.lock();
        assert_eq!(state.committed, (10..210).collect::<Vec<_>>());
        assert_eq!((state.written, state.early.as_slice()), (200, &[][..]));
    }
}

/// How many groups can be on their way before somebody must wait, as a store without workers
/// shows: nothing is written before.
fn most_ahead() -> u64 {
    let (store, desk) = plain();
    let blocks = blocks_after(&*store, 100, SHAPE, 0);
    let mut most = 0;
    for (block, submitted) in blocks.iter().zip(1u64..) {
        let ticket = store.submit(std::slice::from_ref(block)).unwrap();
        drop(ticket);
        most = most.max(submitted - desk.committed());
    }
    assert!(desk.committed() > 0, "a hundred groups are on their way");
    most
}

#[test]
fn the_number_of_groups_on_their_way_is_bounded() {
    let most = most_ahead();
    assert!((2..=64).contains(&most), "{most}");
    let (store, desk) = plain();
    let workers = Workers::start(&store).unwrap();
    let blocks = blocks_after(&*store, 200, SHAPE, 0);
    let gate = desk.close();
    let (told, heard) = mpsc::channel();
    std::thread::scope(|scope| {
        let (store, desk) = (&store, &desk);
        scope.spawn(move || {
            for (block, submitted) in blocks.iter().zip(1u64..) {
                let ticket = store.submit(std::slice::from_ref(block)).unwrap();
                // At least this many were on their way when it was taken.
                told.send(submitted - desk.committed().min(submitted)).unwrap();
                if submitted == 200 {
                    store.wait(ticket).unwrap();
                }
            }
        });
        // The first ones come without a single write; then one write makes room for one more.
        for ahead in (0..most).map(|_| heard.recv().unwrap()) {
            assert!(ahead <= most);
        }
        assert_eq!(desk.committed(), 0, "the gate is closed");
        for _ in most..200 {
            desk.let_one_pass();
            let ahead = heard.recv().unwrap();
            assert!(ahead <= most, "{ahead} of {most}");
        }
        drop(gate);
    });
    drop(workers);
    assert_eq!((store.head(), desk.committed()), (Some(209), 200));
}

#[test]
fn dropping_the_workers_finishes_what_is_on_its_way() {
    let (store, desk) = plain();
    let workers = Workers::start(&store).unwrap();
    let blocks = blocks_after(&*store, 12, SHAPE, 0);
    let gate = desk.close();
    let tickets = submit(&*store, &blocks[..10]);
    assert_eq!(store.head(), None);
    std::thread::scope(|scope| {
        let (told, heard) = mpsc::channel();
        scope.spawn(move || {
            told.send(()).unwrap();
            drop(workers);
        });
        heard.recv().unwrap();
        drop(gate);
    });
    assert_eq!((store.head(), desk.committed()), (Some(19), 10), "nobody has waited for them");
    for ticket in tickets {
        store.wait(ticket).unwrap();
    }
    // Callers carry their own groups from now on.
    let tickets = submit(&*store, &blocks[10..]);
    assert_eq!(desk.committed(), 10);
    for ticket in tickets {
        store.wait(ticket).unwrap();
    }
    assert_eq!(store.head(), Some(21));
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
}

#[test]
fn a_drain_ends_with_everything_free_whether_groups_come_by_or_not() {
    let policy = PrunePolicy { retain_blocks: 5, max_ops_per_tick: 1, ..PrunePolicy::default() };
    for (workers, on_their_way) in [(false, false), (true, false), (false, true), (true, true)] {
        let (store, _) = desk_store(policy.clone(), Settings::default());
        store.set_pruning_enabled(true).unwrap();
        let workers = workers.then(|| Workers::start(&store).unwrap());
        let blocks = blocks_after(&*store, 40, SHAPE, 0);
        let (now, later) = blocks.split_at(if on_their_way { 30 } else { 40 });
        store.append_group(now).unwrap();
        let tickets = submit(&*store, later);
        let mut status;
        loop {
            // One tick of one block, as it is retention.
            store.drain(|_| true).unwrap();
            status = store.get_prune_status().unwrap();
            let left = (status.quarantined_bytes, status.journal_entries);
            assert_eq!(left, (0, 0), "{on_their_way}");
            if status.pruned_before_block >= Some(34) {
                break;
            }
        }
        for ticket in tickets {
            store.wait(ticket).unwrap();
        }
        drop(workers);
        assert_eq!(store.head(), Some(49));
    }
}

#[test]
fn a_store_has_one_set_of_workers_at_a_time() {
    let store = Arc::new(store());
    let workers = Workers::start(&store).unwrap();
    assert!(matches!(Workers::start(&store), Err(StoreError::Refused { .. })));
    append(&*store, 3);
    drop(workers);
    let again = Workers::start(&store).unwrap();
    append(&*store, 3);
    drop(again);
    assert_eq!(append(&*store, 3).last().unwrap().meta.height, 18);
}

#[test]
fn a_group_that_comes_again_while_it_is_on_its_way_is_waited_for_and_not_written_twice() {
    for workers in [false, true] {
        let (store, desk) = plain();
        let blocks = blocks_after(&*store, 4, SHAPE, 0);
        let workers = workers.then(|| Workers::start(&store).unwrap());
        let gate = desk.close();
        let first = submit(&*store, &blocks[..3]);
        let again = store.submit(&blocks[1..3]).unwrap();
        let longer = store.submit(&blocks[2..]).unwrap();
        assert_eq!(desk.committed(), 0);
        drop(gate);
        let again = store.wait(again).unwrap();
        assert_eq!((again.written, again.head), (0, 12));
        assert!(desk.committed() >= 3 && store.head() >= Some(12));
        assert_eq!(store.wait(longer).unwrap().written, 1);
        assert_eq!((desk.committed(), store.head()), (4, Some(13)));
        for ticket in first {
            assert_eq!(store.wait(ticket).unwrap().written, 1);
        }
        drop(workers);
        assert_eq!(desk.state.lock().written, 4);
        assert_eq!(store.get_block(12).unwrap(), blocks[2]);
    }
}

#[test]
fn a_failure_ends_every_group_on_its_way_and_poisons_the_store() {
    for workers in [false, true] {
        for call in [Call::Write, Call::Sync, Call::Commit] {
            for before in [0, 2, 5] {
                fail_in_the_middle(workers, call, before);
            }
        }
    }
}

fn fail_in_the_middle(workers: bool, call: Call, before: u64) {
    let (store, desk) = plain();
    let blocks = blocks_after(&*store, 8, SHAPE, 0);
    store.append(&blocks[0]).unwrap();
    let workers = workers.then(|| Workers::start(&store).unwrap());
    let gate = desk.close();
    let mut tickets = submit(&*store, &blocks[1..7]);
    desk.fail(call, before);
    drop(gate);
    if call == Call::Commit {
        // Groups may share commits, so the planted one may never come but for more groups.
        let mut results = tickets.drain(..).map(|ticket| store.wait(ticket).is_ok());
        let went = results.by_ref().take_while(|ok| *ok).count();
        assert!(!results.any(|ok| ok), "a group was acknowledged after one that failed");
        if went == 6 {
            desk.fail(call, 0);
            store.append(&blocks[7]).unwrap_err();
        }
    } else {
        let results: Vec<_> = tickets.drain(..).map(|ticket| store.wait(ticket)).collect();
        let acked = results.iter().take_while(|result| result.is_ok()).count();
        assert!(acked <= usize::try_from(before).unwrap(), "{call:?} {before}: {acked}");
        let errors: Vec<_> = results.into_iter().skip(acked).map(Result::unwrap_err).collect();
        assert!(matches!(errors[0], StoreError::Io { .. }), "{}", errors[0]);
        let others = errors.iter().skip(1);
        assert!(others.clone().all(|error| matches!(error, StoreError::Poisoned(_))));
        assert_eq!(errors.len(), 6 - acked, "nothing after it is acknowledged");
    }
    assert!(store.poisoned().is_some_and(|cause| cause.contains("planted")));
    assert!(matches!(store.append(&blocks[7]), Err(StoreError::Poisoned(_))));
    assert!(matches!(store.submit(&blocks[1..2]), Err(StoreError::Poisoned(_))));
    assert!(matches!(store.settle(), Err(StoreError::Poisoned(_))));
    assert_eq!(store.get_block(10).unwrap(), blocks[0], "reads go on");
    let acked = store.head().unwrap();
    drop(workers);
    let ground = Arc::try_unwrap(store).unwrap().into_ground();
    let store = Store::open(ground, clock()).unwrap();
    assert_prefix(&store, &blocks, 1, acked - 9);
    let rest = usize::try_from(store.head().unwrap() - 9).unwrap();
    store.append_group(&blocks[rest..]).unwrap();
    assert_prefix(&store, &blocks, 1, 8);
}

#[test]
fn a_group_that_is_being_committed_when_another_fails_has_one_answer() {
    let (store, desk) = plain();
    let blocks = blocks_after(&*store, 2, SHAPE, 0);
    let workers = Workers::start(&store).unwrap();
    let (told, committing) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    desk.after_commits(move |_| {
        told.send(()).unwrap();
        released.lock().recv().unwrap_or_default();
    });
    let [early, late] = [0, 1].map(|_| store.submit(&blocks[..1]).unwrap());
    committing.recv().unwrap();
    desk.fail(Call::Write, 0);
    let failed = store.submit(&blocks[1..]).unwrap();
    let (said, answer) = mpsc::channel();
    std::thread::scope(|scope| {
        let store = &store;
        scope.spawn(move || said.send((store.wait(failed).is_ok(), store.wait(early).is_ok())));
        // Either it answers now, or it waits for the commit.
        let first = answer.recv_timeout(Duration::from_millis(300)).ok();
        drop(release);
        let first = first.unwrap_or_else(|| answer.recv().unwrap());
        drop(workers);
        assert_eq!(first, (false, store.wait(late).is_ok()));
    });
    assert_eq!(store.head(), Some(10));
    assert!(store.poisoned().is_some());
}

#[test]
fn a_worker_that_panics_leaves_nobody_waiting() {
    let (store, desk) = plain();
    let blocks = blocks_after(&*store, 4, SHAPE, 0);
    store.append(&blocks[0]).unwrap();
    let workers = Workers::start(&store).unwrap();
    let gate = desk.close();
    let tickets = submit(&*store, &blocks[1..]);
    desk.at_next_write(|| panic!("planted"));
    drop(gate);
    for ticket in tickets {
        assert!(matches!(store.wait(ticket), Err(StoreError::Poisoned(_))));
    }
    assert!(store.poisoned().is_some() && store.submit(&blocks[1..]).is_err());
    drop(workers);
    assert_eq!(store.get_block(10).unwrap(), blocks[0]);
    let ground = Arc::try_unwrap(store).unwrap().into_ground();
    assert_prefix(&Store::open(ground, clock()).unwrap(), &blocks, 1, 1);
}

/// The store holds the first blocks of the chain: whole groups, and at least so many.
fn assert_prefix<A: Arena, I: Index>(store: &Store<A, I>, chain: &[Block], group: u64, least: u64) {
    let held = store.head().map_or(0, |head| head - 9);
    assert!(held >= least && held.is_multiple_of(group), "{held} blocks, {least} acknowledged");
    for block in &chain[..usize::try_from(held).unwrap()] {
        assert_eq!(store.get_block(block.meta.height).unwrap(), *block);
        assert_eq!(store.get_block_by_hash(&block.meta.hash).unwrap(), *block);
    }
    let report = store.verify(|_, _| {}).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

const GROUP: usize = 3;

/// Fails the call `at` while groups are on their way, lets the machine go down, and looks at
/// everything that it may leave. Whether the call came is the answer.
fn go_down<G: GroundKind>(fault: Fault) -> bool {
    let world = World::default();
    let ground = G::open(&world, Sabotage::None).unwrap();
    let settings = Settings { epoch_ids: 15, ..Settings::default() };
    let store = Store::create(ground, config(PrunePolicy::default(), settings), clock()).unwrap();
    let store = Arc::new(store);
    let chain = blocks_after(&*store, 30, SHAPE, 0);
    let workers = Workers::start(&store).unwrap();
    world.set_fault(Some(fault));
    let submitted = chain.chunks(GROUP).map_while(|group| store.submit(group).ok());
    let mut acked = 0;
    let mut failed = false;
    for ticket in submitted.collect::<Vec<_>>() {
        let waited = store.wait(ticket);
        assert!(waited.is_err() || !failed, "a group was acknowledged after one that failed");
        failed |= waited.is_err();
        acked += u64::from(waited.is_ok()) * GROUP as u64;
    }
    let came = world.calls() >= fault.at;
    world.trace();
    drop(workers);
    drop(store);
    let points = world.take_trace();
    let check = |image: Image| {
        let world = World::boot(image);
        let store = Store::open(G::open(&world, Sabotage::None).unwrap(), clock()).unwrap();
        assert_prefix(&store, &chain, GROUP as u64, acked);
    };
    check(world.image());
    images_of(points.last().unwrap(), &mut Rng::new(fault.at, 9), check);
    came
}

#[test]
fn whatever_fails_while_groups_are_on_their_way_leaves_a_prefix_with_all_that_was_acknowledged() {
    for forever in [false, true] {
        let mut at = 1;
        while go_down::<Seams>(Fault { at, forever }) {
            at += 1;
        }
        assert!(at > 20, "the last call was {at}");
    }
    for at in (3..150).step_by(12) {
        go_down::<Disk>(Fault { at, forever: true });
    }
}
