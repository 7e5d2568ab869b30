//! The followed source as interfaces and commands show it.

use secateur_core::Height;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::Node;

/// A followed source at this moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourceNow {
    /// Without anything secret.
    pub(crate) address: String,
    pub(crate) head: Option<Height>,
    /// How long ago it said so.
    pub(crate) head_age_seconds: Option<u64>,
    pub(crate) caught_up: bool,
    pub(crate) lag_blocks: Option<u64>,
    pub(crate) ends_below_final: bool,
    pub(crate) trouble: Option<String>,
    pub(crate) refused_block: Option<Height>,
}

impl Node {
    /// The source that is followed, if one is.
    pub(crate) fn source_now(&self) -> Option<SourceNow> {
        let standing = self.standing.borrow().clone();
        let now = Instant::now();
        Some(SourceNow {
            head: standing.source_head,
            head_age_seconds: standing.head_age(now).map(|age| age.as_secs()),
            caught_up: standing.is_caught_up(now),
            lag_blocks: standing.lag(self.store.head(), now),
            ends_below_final: standing.source_is_behind,
            refused_block: standing.refused.map(|block| block.height),
            trouble: standing.trouble,
            address: standing.source?,
        })
    }
}
