//! The situation: what holds, what retention asks for, at one moment. The trigger, the plan, the
//! status and the real run all start from this one value.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use secateur_core::{
    ClockSource, Height, Hold, HoldKind, Holds, MAX_AHEAD_SECONDS, PrunePolicy, Selection, Strength,
};

use super::control::{Consumer, export_head};
use super::record::BlockRecord;
use super::state::{POLICY_KEY, SETTINGS_KEY, Settings, State, load_document, parse_document};
use super::store::Store;
use crate::StoreError;
use crate::class::ClassTable;
use crate::ground::{Arena, Index, Snapshot, Table};
use crate::rows::Rows;

/// Everything that decides what may be cut and what is due.
#[derive(Debug, Clone)]
pub(crate) struct Situation {
    pub policy: PrunePolicy,
    pub holds: Holds,
    /// The lowest height that retention keeps, if retention is on.
    pub retain_min: Option<Height>,
}

impl Situation {
    pub(crate) fn gather(
        rows: &impl Snapshot,
        state: &State,
        policy: &PrunePolicy,
        settings: &Settings,
        wall: u64,
    ) -> Result<Self, StoreError> {
        let policy = policy.clone();
        let (Some(head), Some(oldest)) = (state.head, state.oldest_kept()) else {
            return Ok(Self { policy, holds: Holds::default(), retain_min: None });
        };
        let now = match policy.clock {
            // One bogus timestamp must not prune a chain.
            ClockSource::Chain => head.max_timestamp.min(wall.saturating_add(MAX_AHEAD_SECONDS)),
            ClockSource::Wall => wall,
        };
        let retain_min = retain_min(rows, &policy, oldest, head.height, now)?;
        let final_limit = final_limit(rows, state, settings, oldest, head.height, now)?;
        let mut holds = vec![
            hold(HoldKind::Finalized, Strength::Hard, final_limit),
            hold(
                HoldKind::MinKeep,
                Strength::Hard,
                head.height.checked_sub(policy.min_keep_blocks),
            ),
        ];
        if let Some(min) = retain_min {
            holds.push(hold(HoldKind::Retention, Strength::Soft, min.checked_sub(1)));
        }
        if settings.archive_hold {
            holds.push(hold(HoldKind::Archive, Strength::Hard, state.archived));
        }
        for (name, consumer) in consumers(rows)? {
            let silent = head.height.saturating_sub(consumer.head_at_ack.unwrap_or(oldest));
            let expired =
                consumer.strength == Strength::Soft && silent > settings.consumer_expiry_blocks;
            holds.push(Hold {
                kind: HoldKind::Export(name),
                strength: consumer.strength,
                limit: consumer.acked,
                active: !expired,
            });
        }
        Ok(Self { policy, holds: Holds::new(holds), retain_min })
    }

    /// A selection over this situation.
    pub(crate) fn select(&self, state: &State, table: &ClassTable, max_ops: u64) -> Selection<'_> {
        Selection::new(
            &self.holds,
            self.policy.water_marks(),
            self.retain_min,
            max_ops,
            state.used_bytes(table),
            state.pressure,
        )
    }

    /// The hold that binds now.
    pub(crate) fn binding(&self, draining: bool) -> Option<String> {
        self.holds.binding(draining).map(|hold| hold.kind.to_string())
    }
}

fn hold(kind: HoldKind, strength: Strength, limit: Option<Height>) -> Hold {
    Hold { kind, strength, limit, active: true }
}

/// The lowest height that either retention keeps; the more aggressive of the two wins.
fn retain_min(
    rows: &impl Snapshot,
    policy: &PrunePolicy,
    oldest: Height,
    head: Height,
    now: u64,
) -> Result<Option<Height>, StoreError> {
    let by_blocks =
        (policy.retain_blocks > 0).then(|| (head + 1).saturating_sub(policy.retain_blocks));
    let by_days = match policy.retain_seconds() {
        Some(seconds) => {
            let cutoff = now.saturating_sub(seconds);
            Some(first_since(rows, oldest, head, cutoff)?)
        }
        None => None,
    };
    Ok(by_blocks.max(by_days))
}

/// The highest height that finality and the challenge window allow to be cut.
fn final_limit(
    rows: &impl Snapshot,
    state: &State,
    settings: &Settings,
    oldest: Height,
    head: Height,
    now: u64,
) -> Result<Option<Height>, StoreError> {
    let newest_final = export_head(state, settings);
    let by_blocks = newest_final.and_then(|height| height.checked_sub(settings.challenge_blocks));
    if settings.challenge_seconds == 0 {
        return Ok(by_blocks);
    }
    let Some(window_start) = now.checked_sub(settings.challenge_seconds) else {
        return Ok(None);
    };
    let by_seconds = first_since(rows, oldest, head, window_start + 1)?.checked_sub(1);
    Ok(by_blocks.min(by_seconds))
}

/// The first kept height whose running timestamp is `cutoff` or later; one past the head if none
/// is. A binary search, because the running maximum never falls.
fn first_since(
    rows: &impl Snapshot,
    oldest: Height,
    head: Height,
    cutoff: u64,
) -> Result<Height, StoreError> {
    let (mut low, mut high) = (oldest, head + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        if BlockRecord::load(rows, middle)?.max_timestamp >= cutoff {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(low)
}

fn consumers(rows: &impl Snapshot) -> Result<BTreeMap<String, Consumer>, StoreError> {
    let mut found = BTreeMap::new();
    rows.rows(Table::Consumers, &[], |key, body| {
        let name = std::str::from_utf8(key)
            .map_err(|_| StoreError::corrupt("consumers", "a name is not text"))?;
        found.insert(name.to_owned(), parse_document(Table::Consumers, body)?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

impl<A: Arena, I: Index> Store<A, I> {
    /// The registered consumers.
    pub fn consumers(&self) -> Result<BTreeMap<String, Consumer>, StoreError> {
        consumers(&self.index.snapshot()?)
    }

    /// The situation behind a snapshot, for readers. Policy and settings are rows like any
    /// other, so they are of the same moment as the heights.
    pub(crate) fn situation_of(
        &self,
        rows: &impl Snapshot,
        state: &State,
    ) -> Result<Situation, StoreError> {
        let policy = policy_of(rows)?;
        let settings = settings_of(rows)?;
        Situation::gather(rows, state, &policy, &settings, self.clock.now_seconds())
    }
}

/// The settings behind a snapshot.
pub(crate) fn settings_of(rows: &impl Snapshot) -> Result<Settings, StoreError> {
    document(rows, SETTINGS_KEY)
}

fn document<T: for<'de> serde::Deserialize<'de>>(
    rows: &impl Snapshot,
    key: &[u8],
) -> Result<T, StoreError> {
    load_document(rows, Table::Meta, key)?
        .ok_or_else(|| StoreError::corrupt("meta", "the policy or settings row is missing"))
}

/// The policy behind a snapshot.
pub(crate) fn policy_of(rows: &impl Snapshot) -> Result<PrunePolicy, StoreError> {
    document(rows, POLICY_KEY)
}
