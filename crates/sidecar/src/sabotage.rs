//! Planted bugs. They exist so that the simulation can show that it would notice; the feature `sim`
//! arms them and nothing but `secateur-sim` asks for it.

/// One planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sabotage {
    /// No bug.
    #[default]
    None,
    /// Record and prune on the strength of a copy that nobody has read back.
    PruneBeforeReadBack,
    /// Believe any validator's notice, whoever proposed.
    AcceptAnySigner,
    /// Take a blob's hash from the notice instead of from its bytes.
    LearnHash,
    /// Sign and send what is not durable yet.
    SignBeforeDurable,
}

impl Sabotage {
    /// Every bug.
    pub const ALL: [Self; 4] = [
        Self::PruneBeforeReadBack,
        Self::AcceptAnySigner,
        Self::LearnHash,
        Self::SignBeforeDurable,
    ];

    /// Whether `bug` is armed. Without the feature this is always false and costs nothing.
    pub(crate) fn is(self, bug: Self) -> bool {
        cfg!(feature = "sim") && self == bug
    }
}
