//! What the four verbs answer: status, plan, explain. (The report is in `report.rs`.)
//! The field names are the JSON names of every interface.

use serde::{Deserialize, Serialize};

use crate::{
    BlockMeta, Cause, ClassBytes, Height, HoldKind, Holds, Locator, LookupError, Pressure, Report,
    StopReason, Strength, Totals, TxId,
};

/// How the regions of one size class are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassUse {
    /// The class, in bytes.
    pub class: u32,
    /// Regions that hold data.
    pub used: u64,
    /// Regions that were cut and may not be reused yet.
    pub quarantine: u64,
    /// Regions that are free for reuse.
    pub free: u64,
    /// How many of the free ones were given back to the file system.
    pub punched: u64,
}

/// Where transaction ids and block hashes are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct IdUse {
    /// Sealed runs that answer.
    pub runs: u64,
    /// Ids in them.
    pub sealed_ids: u64,
    /// Filters of pruned blocks, so that their ids answer `Pruned`.
    pub tombstones: u64,
    /// What those filters take.
    pub tombstone_bytes: u64,
    /// Everything from here on is known, be it only as pruned.
    pub searched_from: Option<Height>,
    /// Memory of filters and of the open epoch; 0 before the first lookup or append.
    pub memory_bytes: u64,
}

/// Whether a prune is due, and why or why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneNeed {
    /// Whether a prune is due. It ignores the kill switch: it is for alarms.
    pub need_prune: bool,
    /// Why it is due.
    pub cause: Option<Cause>,
    /// What would stop it before its first block, if anything.
    pub blocked_by: Option<StopReason>,
}

/// What pruning gets done beside what comes in. Under retention a trigger is one tick, so what a tick
/// cuts must be more than what is appended between two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pace {
    /// Blocks that a tick cuts at most, of such as came last. None while there are none.
    #[serde(default)]
    pub blocks_per_tick: Option<u64>,
    /// Blocks that are appended between two ticks. None where only time passes between them and the
    /// chain's pace is not known.
    #[serde(default)]
    pub blocks_between_ticks: Option<u64>,
}

/// The state of the history family in one value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneStatus {
    /// The newest block.
    pub head: Option<Height>,
    /// The newest block that consumers may export.
    pub export_head: Option<Height>,
    /// The newest block that is final.
    pub finalized: Option<Height>,
    /// Everything up to here that was not cut before is in verified archive parts, whether or not
    /// pruning waits for that.
    #[serde(default)]
    pub archived: Option<Height>,
    /// The boundary, inclusive: everything at or below it is gone.
    pub pruned_before_block: Option<Height>,
    /// The oldest block that is here.
    pub oldest_kept_block: Option<Height>,
    /// Its timestamp.
    pub oldest_kept_timestamp: Option<u64>,
    /// Bytes of all regions that are used or quarantined.
    pub estimated_kept_bytes: u64,
    /// The bytes that triggers and stops decide on: without the quarantined ones.
    pub used_bytes: u64,
    /// Bytes of quarantined regions.
    pub quarantined_bytes: u64,
    /// The arena's length.
    pub arena_bytes: u64,
    /// What the file system has given the arena.
    pub disk_bytes: u64,
    /// What the index takes.
    pub index_bytes: u64,
    /// What the file system can still give, beside the reserve; none where that cannot be known.
    #[serde(default)]
    pub free_bytes: Option<u64>,
    /// Whether blocks are refused for want of space.
    #[serde(default)]
    pub disk_full: bool,
    /// The smallest budget that this store can have.
    #[serde(default)]
    pub least_target_bytes: u64,
    /// The regions by class.
    pub classes: Vec<ClassUse>,
    /// How bytes are laid into regions.
    pub layout: String,
    /// Where ids are found.
    pub ids: IdUse,
    /// The budget, 0 without one.
    pub target_bytes: u64,
    /// Over this, draining begins.
    pub high_water_bytes: Option<u64>,
    /// Draining ends here.
    pub low_water_bytes: Option<u64>,
    /// Over this, it is an emergency.
    pub hard_water_bytes: Option<u64>,
    /// Whether the budget is draining, and whether it is an emergency.
    #[serde(flatten)]
    pub pressure: Pressure,
    /// The kill switch.
    pub pruning_enabled: bool,
    /// Whether a prune is running now.
    pub prune_running: bool,
    /// Whether a prune is due, and why.
    #[serde(flatten)]
    pub need: PruneNeed,
    /// Every hold.
    pub holds: Holds,
    /// The hold that binds now.
    pub binding_hold: Option<String>,
    /// When the last prune ran, in seconds since 1970.
    pub last_prune_at: Option<u64>,
    /// What it did.
    pub last_report: Option<Report>,
    /// Mean bytes of a kept block.
    pub bytes_per_block: u64,
    /// Blocks that the budget holds at that rate.
    pub budget_blocks: Option<u64>,
    /// Seconds of chain time that the budget holds at the present rate.
    pub budget_seconds: Option<u64>,
    /// Seconds until high water at the present rate.
    pub seconds_to_high_water: Option<u64>,
    /// What a tick cuts, beside what is appended between two of them.
    #[serde(flatten)]
    pub pace: Pace,
    /// Blocks that retention does not keep and that are still here. None without a retention.
    #[serde(default)]
    pub retention_behind_blocks: Option<u64>,
    /// Transactions that are queued.
    pub queued_transactions: u64,
    /// Journal entries that wait to be freed.
    pub journal_entries: u64,
    /// How many cuts ago the oldest reader began, 0 without one.
    pub oldest_pin_age: u64,
    /// Blocks whose timestamp was lower than their parent's.
    pub decreasing_timestamps: u64,
    /// Blocks whose timestamp was too far ahead to be believed.
    pub implausible_timestamps: u64,
    /// Ticks whose one block was larger than the tick's operations.
    pub overruns: u64,
    /// What an operator should look at, in plain words.
    pub alarms: Vec<String>,
}

/// What appends need of a disk, and some more: a group of blocks, and the index's growth.
const ROOM_FOR_APPENDS: u64 = 4 << 20;

impl PruneStatus {
    /// A budget that this store accepts, that makes a prune due now, and that leaves the disk the room
    /// that appends need; if none does all of it, one that does the first two. None if there is none:
    /// what is used is less than the smallest budget, or nothing is used.
    pub fn budget_that_prunes(&self) -> Option<u64> {
        let used = self.used_bytes;
        let whole = |bytes: u64, unit: u64| bytes / unit * unit;
        let fits = |target: &u64| {
            // A budget of what is used now is over its own high water.
            *target > 0 && *target >= self.least_target_bytes
        };
        // Space over the budget is given back to the disk, index included.
        let disk = self.disk_bytes.saturating_add(self.index_bytes);
        let disk = disk.saturating_add(self.free_bytes.unwrap_or(0));
        let roomy = disk.saturating_sub(ROOM_FOR_APPENDS).min(used);
        let sizes = [
            (roomy.min(used - used / 4), 1 << 20),
            (roomy, 1 << 10),
            (used, 1 << 20),
            (used, 1 << 10),
            (used, 1),
        ];
        sizes.map(|(bytes, unit)| whole(bytes, unit)).into_iter().find(fits)
    }
}

/// What a prune would do now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Why the first block is due.
    pub cause: Option<Cause>,
    /// What it would take.
    #[serde(flatten)]
    pub totals: Totals,
    /// The bytes it would release, by class.
    pub by_class: Vec<ClassBytes>,
    /// Used bytes before.
    pub used_before: u64,
    /// Used bytes after.
    pub used_after: u64,
    /// Ticks that it would take.
    pub ticks: u64,
    /// What a tick cuts, beside what is appended between two of them.
    #[serde(flatten)]
    pub pace: Pace,
    /// Why it would stop.
    pub stop: StopReason,
    /// Every hold.
    pub holds: Holds,
    /// The hold that binds.
    pub binding_hold: Option<String>,
}

/// The story of a block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ExplainBlock {
    /// It is here.
    Kept {
        /// What names it.
        #[serde(flatten)]
        meta: BlockMeta,
        /// Its transactions.
        tx_count: u32,
        /// The bytes of its payloads.
        payload_bytes: u64,
        /// The bytes of its regions.
        region_bytes: u64,
        /// The holds that cover it.
        held_by: Vec<String>,
        /// Why it is due, if it is.
        due: Option<Cause>,
    },
    /// It was here and was cut.
    Pruned {
        /// The boundary.
        pruned_before_block: Height,
        /// The report of the prune that cut it, while the log still has it.
        report: Option<Report>,
        /// The archive part that holds it, if one is known to.
        #[serde(default)]
        locator: Option<Locator>,
    },
    /// It has not arrived yet.
    NotYet {
        /// The newest block.
        head: Option<Height>,
    },
    /// It is below the first block that this store ever held.
    BeforeFirst {
        /// That first block.
        first: Height,
    },
}

/// The story of a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ExplainTx {
    /// It is in a block that is here.
    Kept {
        /// The transaction.
        tx_id: TxId,
        /// Its block.
        height: Height,
        /// Its place in the block.
        index: u32,
        /// The block's story.
        block: Box<ExplainBlock>,
    },
    /// It is not.
    Absent {
        /// The transaction.
        tx_id: TxId,
        /// The honest answer.
        #[serde(flatten)]
        answer: LookupError,
        /// What is still known of when and where it went, if it was pruned.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cut: Option<Box<CutTx>>,
    },
}

/// When a pruned transaction was cut, why, and where it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutTx {
    /// The lowest block at which it may have been.
    pub first: Height,
    /// The highest one; the same where it is still known exactly.
    pub last: Height,
    /// The earliest and the latest of the prunes that may have cut it, as far as the log still has
    /// them; one where no other may.
    pub reports: Vec<Report>,
    /// The archive parts that may hold it, lowest first, as far as they are known.
    pub locators: Vec<Locator>,
}

impl CutTx {
    /// Whether a prune may have cut it whose report is no longer in the log.
    pub fn misses_reports(&self) -> bool {
        self.reports.first().is_none_or(|report| report.first > self.first)
    }
}

impl PruneStatus {
    /// The hold that stops a prune which is due, if that is worth a warning. A retention that waits
    /// for the chain itself is not: what is not final yet will be, and so will a challenge window end.
    pub fn blocking_hold(&self) -> Option<(&str, Strength)> {
        let Some(StopReason::Hold { hold, strength, .. }) = &self.need.blocked_by else {
            return None;
        };
        let is = |kind: HoldKind| *hold == kind.to_string();
        let is_chains_own = is(HoldKind::Finalized) || is(HoldKind::MinKeep);
        let waits = self.need.cause == Some(Cause::Retention) && is_chains_own;
        (!waits).then_some((hold.as_str(), *strength))
    }
}

#[cfg(test)]
mod tests;
