//! A record as the rows of a backend keep it, and what becomes of holds. What changes them is `slate`.

use std::collections::BTreeMap;

use secateur_core::Height;

use crate::UtxoError;
use crate::codec::{Input, Page};
use crate::rule::Facts;
use crate::types::{BlockRef, FileKind, TxId};

/// A record as rows keep it.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a column, and true or false by itself")]
pub(crate) struct Row {
    pub(crate) id: i64,
    pub(crate) txid: TxId,
    pub(crate) outputs: u32,
    pub(crate) spent: u32,
    /// Empty where only the outputs were asked for; they are never written again.
    pub(crate) inputs: Vec<Input>,
    /// The pages of spenders that were loaded.
    pub(crate) pages: BTreeMap<u32, Page>,
    pub(crate) blocks: Vec<BlockRef>,
    pub(crate) unmined_since: Option<Height>,
    pub(crate) delete_at: Option<Height>,
    pub(crate) preserve_until: Option<Height>,
    pub(crate) coinbase: bool,
    pub(crate) conflicting: bool,
    /// Whether its inputs are spent by it.
    pub(crate) spending: bool,
    pub(crate) external: Option<FileKind>,
    pub(crate) cut: bool,
}

impl Row {
    /// The height of the highest block that holds it.
    pub(crate) fn mined_at(&self) -> Option<Height> {
        self.blocks.iter().map(|block| block.height).max()
    }

    pub(crate) fn facts(&self) -> Facts {
        Facts {
            all_spent: self.spent == self.outputs,
            mined: !self.blocks.is_empty(),
            conflicting: self.conflicting,
            preserved: self.preserve_until.is_some(),
            delete_at: self.delete_at,
        }
    }

    pub(crate) fn not_now(&self, state: &'static str, advice: &'static str) -> UtxoError {
        UtxoError::NotNow { txid: self.txid, state, advice }
    }
}

/// A change of the holds that unmined transactions have on their parents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldChange {
    /// A child holds a parent.
    Take { parent: i64, child: i64 },
    /// A child lets all its parents go.
    Release { child: i64 },
}
