//! Planted bugs. They exist so that the reliability programme can show that it would notice; the
//! feature `sabotage` arms them and nothing but `secateur-sim` asks for it.

/// One planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sabotage {
    /// No bug.
    #[default]
    None,
    /// Acknowledge a block whose bytes were not synced.
    SkipArenaSync,
    /// Acknowledge a batch that was not synced.
    SkipIndexSync,
    /// Commit the free before the cut.
    FreeBeforeCut,
    /// Hand out a region that is still quarantined.
    ReuseQuarantined,
    /// Reuse a region without raising its generation.
    KeepGeneration,
    /// Return bytes whose checksum does not match.
    IgnoreChecksum,
    /// Leave the journal alone when opening.
    SkipRecoveryFree,
    /// Cut one block more after low water was reached.
    PruneBelowLowWater,
    /// Commit a run whose bytes were not synced.
    SealBeforeSync,
}

impl Sabotage {
    /// Every bug.
    pub const ALL: [Self; 9] = [
        Self::SkipArenaSync,
        Self::SkipIndexSync,
        Self::FreeBeforeCut,
        Self::ReuseQuarantined,
        Self::KeepGeneration,
        Self::IgnoreChecksum,
        Self::SkipRecoveryFree,
        Self::PruneBelowLowWater,
        Self::SealBeforeSync,
    ];

    /// Whether `bug` is armed. Without the feature this is always false and costs nothing.
    pub(crate) fn is(self, bug: Self) -> bool {
        cfg!(feature = "sabotage") && self == bug
    }
}
