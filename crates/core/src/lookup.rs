//! The three honest answers of a lookup that has nothing to give.

use serde::{Deserialize, Serialize};

use crate::Height;

/// Why a lookup has nothing to return. These are answers, not failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum LookupError {
    /// It was here and was cut.
    #[error("pruned: everything at or below block {pruned_before_block} is gone from this store")]
    Pruned {
        /// The boundary: everything at or below it is gone.
        pruned_before_block: Height,
    },
    /// A transaction that is queued and in no block yet.
    #[error("pending: the transaction is queued and in no block yet")]
    Pending,
    /// Not known to this store.
    #[error("not found{}", searched(*.searched_from))]
    NotFound {
        /// The lowest height that the search covered; nothing is known of what was below.
        searched_from: Option<Height>,
    },
}

fn searched(from: Option<Height>) -> String {
    from.map_or_else(String::new, |height| format!(" (searched from block {height} on)"))
}
