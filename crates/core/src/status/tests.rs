//! What one side writes as JSON, the other side reads back: nothing is lost on the way.

use std::fmt::Debug;

use serde::de::DeserializeOwned;

use super::*;
use crate::{BlockHash, Hold, HoldKind, Strength};

#[track_caller]
fn comes_back<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) -> serde_json::Value {
    let text = serde_json::to_string(value).unwrap();
    assert_eq!(&serde_json::from_str::<T>(&text).unwrap(), value, "{text}");
    serde_json::from_str(&text).unwrap()
}

fn holds() -> Holds {
    let hold = |kind, strength, limit, active| Hold { kind, strength, limit, active };
    Holds::new(vec![
        hold(HoldKind::Finalized, Strength::Hard, Some(u64::MAX), true),
        hold(HoldKind::MinKeep, Strength::Hard, None, true),
        hold(HoldKind::Retention, Strength::Soft, Some(0), true),
        hold(HoldKind::Archive, Strength::Hard, Some(7), true),
        hold(HoldKind::Export("indexer-1.main_db".into()), Strength::Soft, Some(9), false),
    ])
}

fn stop() -> StopReason {
    StopReason::Hold { hold: "archive".into(), strength: Strength::Hard, limit: Some(7) }
}

fn report() -> Report {
    Report {
        seq: 3,
        at: 1_700_000_000,
        by: "daemon".into(),
        cause: Cause::Capacity,
        first: 1,
        last: 7,
        blocks: 7,
        transactions: 140,
        ops: 427,
        ticks: 1,
        overruns: 0,
        used_before: 900,
        used_after: 500,
        by_class: vec![ClassBytes { class: 4096, regions: 2, bytes: 8192 }],
        millis: 12,
        stop: StopReason::MaxOps,
    }
}

fn status() -> PruneStatus {
    PruneStatus {
        head: Some(20),
        export_head: Some(19),
        finalized: Some(19),
        archived: Some(9),
        pruned_before_block: Some(7),
        oldest_kept_block: Some(8),
        oldest_kept_timestamp: Some(1_700_000_000),
        estimated_kept_bytes: 1,
        used_bytes: 2,
        quarantined_bytes: 3,
        arena_bytes: 4,
        disk_bytes: 5,
        index_bytes: u64::MAX,
        free_bytes: Some(15),
        disk_full: true,
        least_target_bytes: 16,
        classes: vec![ClassUse { class: 4096, used: 1, quarantine: 2, free: 3, punched: 1 }],
        layout: "packed".into(),
        ids: IdUse { runs: 1, searched_from: Some(0), ..IdUse::default() },
        target_bytes: 100,
        high_water_bytes: Some(90),
        low_water_bytes: Some(80),
        hard_water_bytes: Some(110),
        pressure: Pressure { draining: true, emergency: false },
        pruning_enabled: true,
        prune_running: false,
        need: PruneNeed {
            need_prune: true,
            cause: Some(Cause::Capacity),
            blocked_by: Some(stop()),
        },
        holds: holds(),
        binding_hold: Some("export:indexer-1.main_db".into()),
        last_prune_at: Some(5),
        last_report: Some(report()),
        bytes_per_block: 6,
        budget_blocks: Some(7),
        budget_seconds: Some(8),
        seconds_to_high_water: None,
        pace: Pace { blocks_per_tick: Some(443), blocks_between_ticks: Some(84) },
        retention_behind_blocks: Some(84),
        queued_transactions: 9,
        journal_entries: 10,
        oldest_pin_age: 11,
        decreasing_timestamps: 12,
        implausible_timestamps: 13,
        overruns: 14,
        alarms: vec!["a prune is due, but pruning is off".into()],
    }
}

#[test]
fn a_status_comes_back_from_json_as_it_was() {
    let json = comes_back(&status());
    assert_eq!(json["draining"], true, "the pressure lies flat in the status");
    assert_eq!(json["need_prune"], true);
    assert_eq!(
        (&json["blocks_per_tick"], &json["blocks_between_ticks"]),
        (&443.into(), &84.into())
    );
    let empty = PruneStatus {
        head: None,
        last_report: None,
        classes: Vec::new(),
        holds: Holds::default(),
        need: PruneNeed { need_prune: false, cause: None, blocked_by: None },
        ..status()
    };
    comes_back(&empty);
}

#[test]
fn an_advised_budget_is_one_that_the_store_accepts() {
    let ask = |used_bytes, least_target_bytes| {
        PruneStatus { used_bytes, least_target_bytes, ..status() }.budget_that_prunes()
    };
    assert_eq!(ask(40 << 20, 8 << 20), Some(30 << 20));
    assert_eq!(ask((40 << 20) + 5, 32 << 20), Some(40 << 20));
    assert_eq!(ask((32 << 20) + 5000, (32 << 20) + 4096), Some((32 << 20) + 4096));
    assert_eq!(ask(24 << 20, 32 << 20), None, "no lower budget is accepted");
    assert_eq!(ask(0, 1), None);
    // The disk has 14 MiB in all, of which the budget must leave some.
    let small = PruneStatus {
        used_bytes: 13 << 20,
        disk_bytes: 12 << 20,
        index_bytes: 1 << 20,
        free_bytes: Some(1 << 20),
        least_target_bytes: 1 << 19,
        ..status()
    };
    assert_eq!(small.budget_that_prunes(), Some(9 << 20));
    let small = PruneStatus { used_bytes: 20 << 20, ..small };
    assert_eq!(small.budget_that_prunes(), Some(10 << 20));
}

#[test]
fn a_plan_comes_back_from_json_as_it_was() {
    let totals =
        Totals { first: Some(1), last: Some(7), blocks: 7, overrun: true, ..Totals::default() };
    for stop in [StopReason::Done, stop(), StopReason::Limit, StopReason::MaxOps, StopReason::Empty]
    {
        comes_back(&Plan {
            cause: Some(Cause::Emergency),
            totals,
            by_class: report().by_class,
            used_before: 2,
            used_after: 1,
            ticks: 3,
            pace: Pace { blocks_per_tick: Some(443), blocks_between_ticks: None },
            stop,
            holds: holds(),
            binding_hold: None,
        });
    }
}

#[test]
fn every_story_comes_back_from_json_as_it_was() {
    let meta = BlockMeta {
        height: 8,
        hash: BlockHash([1; 32]),
        parent_hash: BlockHash([2; 32]),
        timestamp: 3,
    };
    let kept = ExplainBlock::Kept {
        meta,
        tx_count: 4,
        payload_bytes: 5,
        region_bytes: 6,
        held_by: vec!["finalized".into()],
        due: Some(Cause::Retention),
    };
    let blocks = [
        kept.clone(),
        ExplainBlock::Pruned {
            pruned_before_block: 7,
            report: Some(report()),
            locator: Some(Locator { provider: "s3://bucket".into(), key: "part".into() }),
        },
        ExplainBlock::Pruned { pruned_before_block: 7, report: None, locator: None },
        ExplainBlock::NotYet { head: None },
        ExplainBlock::BeforeFirst { first: 1 },
    ];
    for block in &blocks {
        comes_back(block);
    }
    let tx_id = TxId([9; 32]);
    comes_back(&ExplainTx::Kept { tx_id, height: 8, index: 2, block: Box::new(kept) });
    for answer in [
        LookupError::Pruned { pruned_before_block: 7 },
        LookupError::Pending,
        LookupError::NotFound { searched_from: None },
        LookupError::NotFound { searched_from: Some(8) },
    ] {
        comes_back(&ExplainTx::Absent { tx_id, answer, cut: None });
    }
    let locators = vec![Locator { provider: "s3://bucket".into(), key: "part".into() }];
    let cut = CutTx { first: 1, last: 7, reports: vec![report()], locators };
    let answer = LookupError::Pruned { pruned_before_block: 7 };
    comes_back(&ExplainTx::Absent { tx_id, answer, cut: Some(Box::new(cut)) });
}

#[test]
fn a_hold_with_a_name_that_none_has_is_refused() {
    for name in ["", "export", "export:", "export:a b", "Finalized", "archive "] {
        let text = format!(r#"{{"name":"{name}","strength":"hard","limit":null,"active":true}}"#);
        assert!(serde_json::from_str::<Hold>(&text).is_err(), "{name}");
    }
}
