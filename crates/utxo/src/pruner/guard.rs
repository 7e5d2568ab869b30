//! What must be true before a run begins: a node that assembles blocks must not be in the middle of a
//! reorganisation, and must have reached the run's height.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use secateur_core::Height;

use crate::UtxoError;

/// What a block assembly is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssemblyState {
    /// Whether it runs: no reorganisation or reset is under way.
    pub running: bool,
    /// The height that it has reached.
    pub height: Height,
}

/// Somebody who knows what block assembly is doing: a service that is asked, or the node itself.
pub trait Assembly: Debug + Send + Sync {
    /// Asks.
    fn state(&self) -> Pin<Box<dyn Future<Output = Result<AssemblyState, UtxoError>> + Send + '_>>;
}

/// Why a run did not begin. The names are labels of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Skip {
    /// Block assembly is not running.
    AssemblyNotRunning,
    /// Block assembly has not reached the height.
    AssemblyBehind,
    /// Block assembly does not answer.
    AssemblyUnreachable,
    /// The height was processed before.
    NotAhead,
    /// The height is further than a chain goes at once.
    TooFar,
    /// What the store knows of a persister could not be read.
    StoreUnreachable,
    /// Records wait for a persister, and none has ever reported.
    PersisterUnheard,
    /// The chain has a persister, or may have one, and nobody knows how far it is.
    PersisterInDoubt,
}

impl Skip {
    /// Whether the same run may begin later.
    pub const fn is_retryable(self) -> bool {
        !matches!(self, Self::NotAhead | Self::TooFar)
    }

    /// The label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AssemblyNotRunning => "assembly_not_running",
            Self::AssemblyBehind => "assembly_behind",
            Self::AssemblyUnreachable => "assembly_unreachable",
            Self::NotAhead => "not_ahead",
            Self::TooFar => "too_far",
            Self::StoreUnreachable => "store_unreachable",
            Self::PersisterUnheard => "persister_unheard",
            Self::PersisterInDoubt => "persister_in_doubt",
        }
    }
}

/// Whether a run at a height may begin.
pub(super) async fn check(assembly: Option<&dyn Assembly>, height: Height) -> Result<(), Skip> {
    let Some(assembly) = assembly else { return Ok(()) };
    match assembly.state().await {
        Err(error) => {
            tracing::warn!(%error, "block assembly does not answer; nothing is pruned without it");
            Err(Skip::AssemblyUnreachable)
        }
        Ok(state) if !state.running => Err(Skip::AssemblyNotRunning),
        Ok(state) if state.height < height => Err(Skip::AssemblyBehind),
        Ok(_) => Ok(()),
    }
}
