//! The model test: a store against a `BTreeMap`, in any order of operations.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::*;
use proptest::prelude::*;
use secateur_core::{Block, LookupError, PrunePolicy, Strength};
use secateur_sim::chain::{self, Shape};
use secateur_store::{Finality, Settings, Store, StoreError};

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<u16>),
    Finalize(u64),
    Prune(u64),
    Settle,
    Rollback(u64),
    Ack(u64),
    Policy(u64),
    Reopen,
    Look(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop::collection::vec(0u16..20_000, 1..5).prop_map(Step::Append),
        2 => (0u64..6).prop_map(Step::Finalize),
        3 => (1u64..40).prop_map(Step::Prune),
        1 => Just(Step::Settle),
        1 => (0u64..5).prop_map(Step::Rollback),
        1 => (0u64..6).prop_map(Step::Ack),
        1 => (1u64..6).prop_map(Step::Policy),
        1 => Just(Step::Reopen),
        3 => (0u64..40).prop_map(Step::Look),
    ]
}

#[derive(Default)]
struct Model {
    blocks: BTreeMap<u64, Block>,
    boundary: Option<u64>,
    finalized: Option<u64>,
    acked: Option<u64>,
    retain: u64,
}

impl Model {
    fn head(&self) -> Option<u64> {
        self.blocks.keys().next_back().copied()
    }

    /// What a prune must cut: past retention, final, acknowledged, and never the last block.
    fn prune(&mut self, max_ops: u64) {
        let mut spent = 0;
        while let (Some((&oldest, block)), Some(head)) =
            (self.blocks.first_key_value(), self.head())
        {
            let transactions = block.payloads.tx_index.len() as u64 / 48;
            let ops = 1 + 3 * transactions;
            let held = self.finalized.is_none_or(|f| oldest > f)
                || self.acked.is_none_or(|a| oldest > a)
                || oldest >= head;
            if oldest >= (head + 1).saturating_sub(self.retain) || held {
                break;
            }
            if spent > 0 && spent + ops > max_ops {
                break;
            }
            spent += ops;
            self.blocks.remove(&oldest);
            self.boundary = Some(oldest);
        }
    }
}

fn apply(store: TestStore, model: &mut Model, step: &Step, salt: u64) -> TestStore {
    match step {
        Step::Append(sizes) => {
            let mut blocks = Vec::new();
            let mut height = model.head().map_or(10, |head| head + 1);
            let mut parent = store.head_hash().unwrap_or_default();
            for size in sizes {
                let (block_len, transactions) = (usize::from(*size), u32::from(*size % 4));
                let shape = Shape { block_len, transactions, receipt_len: 30 };
                let block = chain::block(height, parent, shape, 1, salt);
                (height, parent) = (height + 1, block.meta.hash);
                blocks.push(block);
            }
            store.append_group(&blocks).unwrap();
            model.blocks.extend(blocks.into_iter().map(|b| (b.meta.height, b)));
        }
        Step::Finalize(back) => {
            if let Some(to) = model.head().map(|head| head.saturating_sub(*back))
                && model.blocks.contains_key(&to)
            {
                store.set_finalized(to).unwrap();
                model.finalized = model.finalized.max(Some(to));
            }
        }
        Step::Prune(max_ops) => {
            let plan = store.prune_plan().unwrap();
            let outcome = store.prune_now(*max_ops).unwrap();
            model.prune(*max_ops);
            assert!(plan.totals.blocks >= outcome.totals.blocks);
            assert_eq!(plan.totals.first, outcome.totals.first);
        }
        Step::Settle => assert!(store.settle().unwrap()),
        Step::Rollback(back) => {
            if let Some(to) = model.head().and_then(|head| head.checked_sub(*back)) {
                let legal = model.finalized.is_none_or(|f| to >= f)
                    && (model.blocks.contains_key(&to) || *back == 0);
                match store.rollback(to) {
                    Ok(_) => model.blocks.retain(|height, _| *height <= to),
                    Err(StoreError::Refused { .. }) => assert!(!legal),
                    Err(error) => panic!("{error}"),
                }
            }
        }
        Step::Ack(back) => {
            if let Some(to) = model.finalized.map(|f| f.saturating_sub(*back)) {
                store.ack_exported("reader", to).unwrap();
                model.acked = model.acked.max(Some(to));
            }
        }
        Step::Policy(retain) => {
            let policy = PrunePolicy { retain_blocks: *retain, ..PrunePolicy::default() };
            store.set_prune_policy(policy).unwrap();
            model.retain = *retain;
        }
        Step::Reopen => return Store::open(store.into_ground(), clock()).unwrap(),
        Step::Look(height) => look(&store, model, 5 + height),
    }
    store
}

fn look(store: &TestStore, model: &Model, height: u64) {
    match store.get_block(height) {
        Ok(block) => assert_eq!(Some(&block), model.blocks.get(&height)),
        Err(StoreError::Lookup(LookupError::Pruned { pruned_before_block })) => {
            assert_eq!(Some(pruned_before_block), model.boundary);
            assert!(height <= pruned_before_block);
        }
        Err(StoreError::Lookup(LookupError::NotFound { .. })) => {
            assert!(!model.blocks.contains_key(&height));
            assert!(model.boundary.is_none_or(|b| height > b));
        }
        Err(error) => panic!("{error}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_store_is_a_map_with_a_boundary(steps in prop::collection::vec(step(), 1..25)) {
        let settings = Settings { finality: Finality::Explicit, ..Settings::default() };
        let policy = PrunePolicy { retain_blocks: 2, ..PrunePolicy::default() };
        let config = config(policy, settings);
        let mut store = Store::create(ground(), config, Arc::new(secateur_sim::SimClock::at(1_800_000_000))).unwrap();
        store.register_consumer("reader", Strength::Hard).unwrap();
        let mut model = Model { retain: 2, ..Model::default() };
        for (salt, step) in steps.iter().enumerate() {
            store = apply(store, &mut model, step, salt as u64);
            prop_assert_eq!(store.head(), model.head());
        }
        for height in 5..store.head().unwrap_or(10) + 3 {
            look(&store, &model, height);
        }
        store.settle().unwrap();
        let report = store.verify(|_, _| {}).unwrap();
        prop_assert!(report.is_clean(), "{:?}", report);
        prop_assert_eq!(report.blocks, model.blocks.len() as u64);
    }
}
