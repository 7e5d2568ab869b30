//! The policy, as the interface has it.

use candid::{CandidType, Deserialize};
use secateur_core as core;
use secateur_core::{CoreError, Ratio};

/// Nominal operations of pruning that fit into a message, with what may have to be sealed and merged
/// before them (`docs/canister.md`).
pub(crate) const MAX_TICK_OPS: u64 = 20_000;

/// Nominal operations of a message where nobody names a policy.
pub(crate) const TICK_OPS: u64 = 5_000;

/// The longest time between two looks.
pub(crate) const MAX_MILLIS: u64 = 30 * 24 * 3600 * 1000;

/// When the canister looks whether a prune is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, CandidType, Deserialize)]
pub enum Trigger {
    /// After every so many appended blocks.
    EveryNBlocks(u32),
    /// After so many milliseconds.
    Timer(u64),
    /// Whichever of the two comes first.
    Both {
        /// Appended blocks.
        blocks: u32,
        /// Milliseconds.
        millis: u64,
    },
}

/// Whose time retention goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, CandidType, Deserialize)]
pub enum ClockSource {
    /// The head's timestamp.
    Chain,
    /// The time of the message.
    Wall,
}

/// What to keep. `target_bytes` outranks the two retentions.
#[derive(Debug, Clone, PartialEq, Eq, CandidType, Deserialize)]
pub struct PrunePolicy {
    /// The byte budget; 0 means none.
    pub target_bytes: u64,
    /// Keep this many days; 0 means off.
    pub retain_days: u32,
    /// Keep this many blocks; 0 means off.
    pub retain_blocks: u64,
    /// Share of the budget that is kept clear, in ten-thousandths.
    pub headroom_basis_points: u16,
    /// Share of the budget at which pruning becomes an emergency, in ten-thousandths.
    pub hard_emergency_basis_points: u16,
    /// Nominal operations that one message of pruning may cost, at most 20,000. In an emergency it is that.
    pub max_ops_per_tick: u64,
    /// When the canister looks.
    pub trigger: Trigger,
    /// Blocks that always stay; at least 1.
    pub min_keep_blocks: u64,
    /// Whose time retention goes by.
    pub clock: ClockSource,
}

impl PrunePolicy {
    /// What a canister cannot do whatever the store could.
    fn check(&self) -> Result<(), CoreError> {
        let refuse = |reason| Err(CoreError::InvalidInput { what: "policy", reason });
        if self.max_ops_per_tick > MAX_TICK_OPS {
            let ops = self.max_ops_per_tick;
            return refuse(format!(
                "max_ops_per_tick is {ops}, and a message has room for {MAX_TICK_OPS}"
            ));
        }
        match self.trigger {
            Trigger::Timer(millis) | Trigger::Both { millis, .. } if millis > MAX_MILLIS => refuse(
                format!("a timer of {millis} ms; at most {MAX_MILLIS}, 30 days, are allowed"),
            ),
            _ => Ok(()),
        }
    }
}

impl TryFrom<PrunePolicy> for core::PrunePolicy {
    type Error = CoreError;

    fn try_from(policy: PrunePolicy) -> Result<Self, CoreError> {
        policy.check()?;
        Ok(Self {
            target_bytes: policy.target_bytes,
            retain_days: policy.retain_days,
            retain_blocks: policy.retain_blocks,
            headroom_ratio: Ratio::from_basis_points(policy.headroom_basis_points)?,
            hard_emergency_ratio: Ratio::from_basis_points(policy.hard_emergency_basis_points)?,
            max_ops_per_tick: policy.max_ops_per_tick,
            trigger: match policy.trigger {
                Trigger::EveryNBlocks(blocks) => core::Trigger::EveryNBlocks(blocks),
                Trigger::Timer(millis) => core::Trigger::Timer(millis),
                Trigger::Both { blocks, millis } => core::Trigger::Both { blocks, millis },
            },
            min_keep_blocks: policy.min_keep_blocks,
            clock: match policy.clock {
                ClockSource::Chain => core::ClockSource::Chain,
                ClockSource::Wall => core::ClockSource::Wall,
            },
        })
    }
}

impl From<core::PrunePolicy> for PrunePolicy {
    fn from(policy: core::PrunePolicy) -> Self {
        Self {
            target_bytes: policy.target_bytes,
            retain_days: policy.retain_days,
            retain_blocks: policy.retain_blocks,
            headroom_basis_points: policy.headroom_ratio.basis_points(),
            hard_emergency_basis_points: policy.hard_emergency_ratio.basis_points(),
            max_ops_per_tick: policy.max_ops_per_tick,
            trigger: match policy.trigger {
                core::Trigger::EveryNBlocks(blocks) => Trigger::EveryNBlocks(blocks),
                core::Trigger::Timer(millis) => Trigger::Timer(millis),
                core::Trigger::Both { blocks, millis } => Trigger::Both { blocks, millis },
            },
            min_keep_blocks: policy.min_keep_blocks,
            clock: match policy.clock {
                core::ClockSource::Chain => ClockSource::Chain,
                core::ClockSource::Wall => ClockSource::Wall,
            },
        }
    }
}
