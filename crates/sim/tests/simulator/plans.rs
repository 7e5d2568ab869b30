//! A plan and the run after it: block for block the same, also where ids must be sealed before blocks
//! are cut, and a plan that was agreed to is a limit.

use crate::common::*;
use crate::runs::{assert_answer, assert_found, id_use};
use proptest::prelude::*;
use secateur_core::{LookupError, Plan, PrunePolicy, StopReason};
use secateur_sim::chain::{self, Shape};
use secateur_store::{Finality, Settings, Store};

const MANY: Shape = Shape { block_len: 2000, transactions: 60, receipt_len: 20 };

fn with_budget(target_bytes: u64) -> PrunePolicy {
    PrunePolicy { target_bytes, ..PrunePolicy::default() }
}

/// Ticks as long as there is more, and what they did together.
fn run(store: &TestStore, max_ops: u64) -> (u64, Option<u64>, StopReason) {
    let (mut blocks, mut last) = (0, None);
    loop {
        let outcome = store.prune_now(max_ops).unwrap();
        blocks += outcome.totals.blocks;
        last = outcome.totals.last.or(last);
        if !outcome.more() {
            return (blocks, last, outcome.stop);
        }
    }
}

fn promised(plan: &Plan) -> (u64, Option<u64>, StopReason) {
    (plan.totals.blocks, plan.totals.last, plan.stop.clone())
}

#[test]
fn a_drain_that_must_seal_ids_first_cuts_what_its_plan_said_and_ends_at_low_water() {
    for max_ops in [1_000, u64::MAX] {
        // Everything is in the open epoch, as after a restore.
        let store = store();
        let blocks = append_shaped(&store, 400, MANY);
        assert_eq!(id_use(&store).runs, 0);
        let used = store.get_prune_status().unwrap().used_bytes;
        store.set_prune_policy(with_budget(used)).unwrap();
        let plan = store.prune_plan().unwrap();
        assert!(store.verify(|_, _| {}).unwrap().is_clean());
        assert_eq!(id_use(&store).runs, 0, "a plan changes nothing");
        assert_eq!(run(&store, max_ops), promised(&plan), "ticks of {max_ops}");
        let status = store.get_prune_status().unwrap();
        assert_eq!(plan.stop, StopReason::Done);
        assert_eq!(status.used_bytes, plan.used_after);
        assert!(status.used_bytes <= status.low_water_bytes.unwrap(), "{status:?}");
        assert!(!status.pressure.draining && !status.need.need_prune, "{status:?}");
        let cut = usize::try_from(plan.totals.blocks).unwrap();
        let pruned_before_block = plan.totals.last.unwrap();
        assert_answer(&store, &blocks[..cut], LookupError::Pruned { pruned_before_block });
        assert_found(&store, &blocks[cut..]);
        store.settle().unwrap();
        assert!(store.verify(|_, _| {}).unwrap().is_clean());
    }
}

#[test]
fn a_plan_that_was_agreed_to_is_a_limit_whatever_came_meanwhile() {
    let store = store_with(
        PrunePolicy { retain_blocks: 10, ..PrunePolicy::default() },
        Settings::default(),
    );
    append(&store, 40);
    let plan = store.prune_plan().unwrap();
    assert_eq!(plan.totals.last, Some(39));
    append(&store, 30);
    let outcome = store.prune_blocks(plan.totals.last.unwrap(), u64::MAX).unwrap();
    assert_eq!((outcome.totals, outcome.stop), (plan.totals, StopReason::Limit));
    assert_eq!(store.prune_now(u64::MAX).unwrap().totals.last, Some(69), "the rest is due still");
}

#[test]
fn a_seal_with_a_cut_leaves_the_ids_above_it_where_they_are_found() {
    let settings = Settings { finality: Finality::Explicit, ..Settings::default() };
    let policy = PrunePolicy { retain_blocks: 1, ..PrunePolicy::default() };
    let store = store_with(policy, settings);
    let blocks = append(&store, 20);
    store.set_finalized(19).unwrap();
    assert_eq!(run(&store, u64::MAX).1, Some(19), "what is not final stays");
    assert_found(&store, &blocks[10..]);
    let more = append(&store, 5);
    assert_found(&store, &more);
    store.set_finalized(32).unwrap();
    assert_eq!(run(&store, 10).1, Some(32));
    assert_found(&store, &more[3..]);
    assert_answer(&store, &blocks, LookupError::Pruned { pruned_before_block: 32 });
    store.settle().unwrap();
    let reopened = Store::open(store.into_ground(), clock()).unwrap();
    assert!(reopened.verify(|_, _| {}).unwrap().is_clean());
    assert_found(&reopened, &more[3..]);
}

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<u16>),
    Finalize(u64),
    Ack(u64),
    Retain(u64),
    /// In hundredths of what is used.
    Budget(u64),
    Seal,
    Reopen,
    Prune(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::collection::vec(0u16..12_000, 1..12).prop_map(Step::Append),
        3 => (0u64..4).prop_map(Step::Finalize),
        1 => (0u64..4).prop_map(Step::Ack),
        1 => (1u64..20).prop_map(Step::Retain),
        3 => (60u64..140).prop_map(Step::Budget),
        1 => Just(Step::Seal),
        1 => Just(Step::Reopen),
        4 => (1u64..80).prop_map(Step::Prune),
    ]
}

fn apply(store: TestStore, acked: &mut bool, step: &Step) -> TestStore {
    match step {
        Step::Append(sizes) => {
            let (mut height, mut parent) =
                (store.head().map_or(10, |head| head + 1), store.head_hash().unwrap_or_default());
            for size in sizes {
                let shape = Shape {
                    block_len: usize::from(*size),
                    transactions: u32::from(*size % 23),
                    receipt_len: 30,
                };
                let block = chain::block(height, parent, shape, 1, 0);
                (height, parent) = (height + 1, block.meta.hash);
                store.append(&block).unwrap();
            }
        }
        Step::Finalize(back) => {
            let to = store.head().map(|head| head.saturating_sub(*back));
            // What is not here is refused.
            to.map_or(Ok(()), |to| store.set_finalized(to)).unwrap_or_default();
        }
        Step::Ack(back) => {
            let exported = store.get_head().map(|head| head.saturating_sub(*back));
            if let Some(to) = exported {
                *acked |= store.ack_exported("reader", to).is_ok();
            }
        }
        Step::Retain(blocks) => {
            let policy = PrunePolicy { retain_blocks: *blocks, ..store.policy() };
            store.set_prune_policy(policy).unwrap();
        }
        Step::Budget(percent) => {
            let used = store.get_prune_status().unwrap().used_bytes;
            let policy = PrunePolicy { target_bytes: used * percent / 100, ..store.policy() };
            // One that is too small is refused.
            store.set_prune_policy(policy).unwrap_or_default();
        }
        Step::Seal => drop(store.seal().unwrap()),
        Step::Reopen => return Store::open(store.into_ground(), clock()).unwrap(),
        Step::Prune(max_ops) => {
            let plan = store.prune_plan().unwrap();
            assert_eq!(run(&store, *max_ops), promised(&plan));
            let status = store.get_prune_status().unwrap();
            assert_eq!(status.used_bytes, plan.used_after);
            let low = status.low_water_bytes;
            assert!(
                plan.stop != StopReason::Done
                    || low.is_none_or(|low| !status.pressure.draining || status.used_bytes <= low),
                "{plan:?} {status:?}"
            );
            if plan.stop == StopReason::Done {
                assert!(!status.need.need_prune, "{plan:?} {status:?}");
            }
        }
    }
    store
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_plan_and_the_run_after_it_agree_block_for_block(
        steps in prop::collection::vec(step(), 1..30),
        epoch_ids in prop_oneof![Just(9u64), Just(60), Just(1 << 20)],
        explicit in any::<bool>(),
        held in any::<bool>(),
    ) {
        let finality = if explicit { Finality::Explicit } else { Finality::Instant };
        let settings = Settings { finality, epoch_ids, max_runs: 3, ..Settings::default() };
        let mut store = store_with(PrunePolicy::default(), settings);
        if held {
            store.register_consumer("reader", secateur_core::Strength::Soft).unwrap();
        }
        let mut acked = false;
        for step in &steps {
            store = apply(store, &mut acked, step);
        }
        store = apply(store, &mut acked, &Step::Prune(1_000));
        store.settle().unwrap();
        let report = store.verify(|_, _| {}).unwrap();
        prop_assert!(report.is_clean(), "{:?}", report);
    }
}
