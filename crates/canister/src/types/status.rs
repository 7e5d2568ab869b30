//! Status, plan and what a prune did, as the interface has them.

use candid::{CandidType, Deserialize};
use secateur_core as core;

use super::{PrunePolicy, Strength};

/// Why a block is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, CandidType, Deserialize)]
pub enum Cause {
    /// Older than the retention asks for.
    Retention,
    /// The budget went over high water and is draining.
    Capacity,
    /// The budget went over hard water.
    Emergency,
}

impl From<core::Cause> for Cause {
    fn from(cause: core::Cause) -> Self {
        match cause {
            core::Cause::Retention => Self::Retention,
            core::Cause::Capacity => Self::Capacity,
            core::Cause::Emergency => Self::Emergency,
        }
    }
}

/// Why a prune stops.
#[derive(Debug, Clone, PartialEq, Eq, CandidType, Deserialize)]
pub enum StopReason {
    /// Nothing more is due.
    Done,
    /// A hold covers the next block.
    Hold {
        /// The hold's name.
        hold: String,
        /// Whether it can give way.
        strength: Strength,
        /// The highest height that it allows to be cut.
        limit: Option<u64>,
    },
    /// The caller asked for nothing above its limit.
    Limit,
    /// The operations of one message are spent; the next goes on.
    MaxOps,
    /// There is no block.
    Empty,
}

impl From<core::StopReason> for StopReason {
    fn from(stop: core::StopReason) -> Self {
        match stop {
            core::StopReason::Done => Self::Done,
            core::StopReason::Hold { hold, strength, limit } => {
                Self::Hold { hold, strength: strength.into(), limit }
            }
            core::StopReason::Limit => Self::Limit,
            core::StopReason::MaxOps => Self::MaxOps,
            core::StopReason::Empty => Self::Empty,
        }
    }
}

/// What a prune took or would take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, CandidType, Deserialize)]
pub struct Totals {
    /// The first height.
    pub first: Option<u64>,
    /// The last height.
    pub last: Option<u64>,
    /// Blocks.
    pub blocks: u64,
    /// Their transactions.
    pub transactions: u64,
    /// Nominal operations.
    pub ops: u64,
    /// Bytes that they release.
    pub bytes: u64,
}

impl From<core::Totals> for Totals {
    fn from(totals: core::Totals) -> Self {
        let core::Totals { first, last, blocks, transactions, ops, bytes, .. } = totals;
        Self { first, last, blocks, transactions, ops, bytes }
    }
}

/// What one message of pruning did.
#[derive(Debug, Clone, PartialEq, Eq, CandidType, Deserialize)]
pub struct PruneOutcome {
    /// What it took.
    pub totals: Totals,
    /// Why it stopped.
    pub stop: StopReason,
}

/// What a prune would do now, down to the last block.
#[derive(Debug, Clone, PartialEq, Eq, CandidType, Deserialize)]
pub struct Plan {
    /// Why the first block is due.
    pub cause: Option<Cause>,
    /// What it would take.
    pub totals: Totals,
    /// Used bytes before.
    pub used_before: u64,
    /// Used bytes after.
    pub used_after: u64,
    /// Messages that it would take.
    pub ticks: u64,
    /// Blocks that a message of pruning cuts at most, of such as came last.
    pub blocks_per_tick: Option<u64>,
    /// Blocks that are appended between two ticks, as far as the chain's pace is known.
    pub blocks_between_ticks: Option<u64>,
    /// Why it would stop.
    pub stop: StopReason,
    /// Every hold.
    pub holds: Vec<Hold>,
    /// The hold that binds.
    pub binding_hold: Option<String>,
}

impl From<core::Plan> for Plan {
    fn from(plan: core::Plan) -> Self {
        Self {
            cause: plan.cause.map(Into::into),
            totals: plan.totals.into(),
            used_before: plan.used_before,
            used_after: plan.used_after,
            ticks: plan.ticks,
            blocks_per_tick: plan.pace.blocks_per_tick,
            blocks_between_ticks: plan.pace.blocks_between_ticks,
            stop: plan.stop.into(),
            holds: plan.holds.iter().map(Into::into).collect(),
            binding_hold: plan.binding_hold,
        }
    }
}

/// A named reason that forbids cutting above a height.
#[derive(Debug, Clone, PartialEq, Eq, CandidType, Deserialize)]
pub struct Hold {
    /// Its name.
    pub name: String,
    /// Whether it can give way.
    pub strength: Strength,
    /// The highest height that it allows to be cut; none means nothing at all.
    pub limit: Option<u64>,
    /// Whether it counts.
    pub active: bool,
}

impl From<&core::Hold> for Hold {
    fn from(hold: &core::Hold) -> Self {
        Self {
            name: hold.kind.to_string(),
            strength: hold.strength.into(),
            limit: hold.limit,
            active: hold.active,
        }
    }
}

/// The state of the history in one value.
#[derive(Debug, Clone, PartialEq, Eq, CandidType, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "it is a status")]
pub struct PruneStatus {
    /// The chain.
    pub chain_id: u64,
    /// The newest block.
    pub head: Option<u64>,
    /// The newest block that consumers may export.
    pub export_head: Option<u64>,
    /// The boundary, inclusive: everything at or below it is gone.
    pub pruned_before_block: Option<u64>,
    /// Everything up to here is in acknowledged archive parts.
    pub archived: Option<u64>,
    /// The oldest block that is here.
    pub oldest_kept_block: Option<u64>,
    /// Its timestamp.
    pub oldest_kept_timestamp: Option<u64>,
    /// Bytes of all regions that are used or quarantined.
    pub estimated_kept_bytes: u64,
    /// The bytes that triggers and stops decide on.
    pub used_bytes: u64,
    /// Bytes of quarantined regions.
    pub quarantined_bytes: u64,
    /// The arena's end.
    pub arena_bytes: u64,
    /// Stable memory of the arena.
    pub arena_given_bytes: u64,
    /// Stable memory of the tables.
    pub index_bytes: u64,
    /// The policy.
    pub policy: PrunePolicy,
    /// Over this, draining begins.
    pub high_water_bytes: Option<u64>,
    /// Draining ends here.
    pub low_water_bytes: Option<u64>,
    /// Over this, it is an emergency.
    pub hard_water_bytes: Option<u64>,
    /// Whether the budget is draining.
    pub draining: bool,
    /// Whether it is an emergency.
    pub emergency: bool,
    /// The kill switch.
    pub pruning_enabled: bool,
    /// Whether a prune is due, be the kill switch as it may.
    pub need_prune: bool,
    /// Why it is due.
    pub cause: Option<Cause>,
    /// Every hold.
    pub holds: Vec<Hold>,
    /// The hold that binds now.
    pub binding_hold: Option<String>,
    /// When the last prune ran, in seconds since 1970.
    pub last_prune_at: Option<u64>,
    /// Mean bytes of a kept block.
    pub bytes_per_block: u64,
    /// Blocks that the budget holds at that rate.
    pub budget_blocks: Option<u64>,
    /// Seconds of chain time that the budget holds at the present rate.
    pub budget_seconds: Option<u64>,
    /// Seconds of chain time until high water at the present rate.
    pub seconds_to_high_water: Option<u64>,
    /// Blocks that a message of pruning cuts at most, of such as came last.
    pub blocks_per_tick: Option<u64>,
    /// Blocks that are appended between two ticks, as far as the chain's pace is known.
    pub blocks_between_ticks: Option<u64>,
    /// Blocks that retention does not keep and that are still here.
    pub retention_behind_blocks: Option<u64>,
    /// Transactions that are queued.
    pub queued_transactions: u64,
    /// Cuts that wait to be freed.
    pub journal_entries: u64,
    /// Messages of sealing and pruning that failed since the last upgrade.
    pub failed_steps: u64,
    /// What an operator should look at.
    pub alarms: Vec<String>,
}

impl PruneStatus {
    pub(crate) fn new(
        chain_id: u64,
        policy: core::PrunePolicy,
        failed_steps: u64,
        status: core::PruneStatus,
    ) -> Self {
        Self {
            chain_id,
            head: status.head,
            export_head: status.export_head,
            pruned_before_block: status.pruned_before_block,
            archived: status.archived,
            oldest_kept_block: status.oldest_kept_block,
            oldest_kept_timestamp: status.oldest_kept_timestamp,
            estimated_kept_bytes: status.estimated_kept_bytes,
            used_bytes: status.used_bytes,
            quarantined_bytes: status.quarantined_bytes,
            arena_bytes: status.arena_bytes,
            arena_given_bytes: status.disk_bytes,
            index_bytes: status.index_bytes,
            policy: policy.into(),
            high_water_bytes: status.high_water_bytes,
            low_water_bytes: status.low_water_bytes,
            hard_water_bytes: status.hard_water_bytes,
            draining: status.pressure.draining,
            emergency: status.pressure.emergency,
            pruning_enabled: status.pruning_enabled,
            need_prune: status.need.need_prune,
            cause: status.need.cause.map(Into::into),
            holds: status.holds.iter().map(Into::into).collect(),
            binding_hold: status.binding_hold,
            last_prune_at: status.last_prune_at,
            bytes_per_block: status.bytes_per_block,
            budget_blocks: status.budget_blocks,
            budget_seconds: status.budget_seconds,
            seconds_to_high_water: status.seconds_to_high_water,
            blocks_per_tick: status.pace.blocks_per_tick,
            blocks_between_ticks: status.pace.blocks_between_ticks,
            retention_behind_blocks: status.retention_behind_blocks,
            queued_transactions: status.queued_transactions,
            journal_entries: status.journal_entries,
            failed_steps,
            alarms: status.alarms,
        }
    }
}
