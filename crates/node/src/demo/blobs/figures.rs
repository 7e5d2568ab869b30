//! What became of a validator's blobs: counted by its own store, never here.

use secateur_core::{Height, format_bytes};
use secateur_sidecar::BLOB_LEN;
use secateur_sidecar::engine::Summary;
use serde::Serialize;

use crate::ui::words::{count, plural};

/// The figures of one validator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(in crate::demo) struct Figures {
    /// Which one, from 1 on.
    pub(in crate::demo) validator: u8,
    /// Heights that it has decided.
    heights: u64,
    /// Blobs of those heights.
    stored: u64,
    /// Of these, somebody has signed for a copy.
    archived: u64,
    /// Of these, the bytes are gone from here.
    pruned: u64,
    /// Blobs whose bytes are here.
    on_disk: u64,
    /// Of these, nobody has signed for a copy.
    waiting: u64,
    /// The newest decided height.
    decided: Option<Height>,
    /// What is final.
    finalized: Option<Height>,
}

impl Figures {
    pub(super) fn of(validator: u8, summary: &Summary) -> Self {
        let Summary { pending, archived, pruned, .. } = *summary;
        Self {
            validator,
            heights: summary.heights,
            stored: pending + archived + pruned,
            archived: archived + pruned,
            pruned,
            on_disk: pending + archived,
            waiting: pending,
            decided: summary.latest_decided,
            finalized: summary.finalized,
        }
    }

    /// Whether it has decided a height; it has decided all from its first one on.
    pub(in crate::demo) fn has(&self, height: Height) -> bool {
        self.decided.is_some_and(|newest| height <= newest && newest - height < self.heights)
    }

    /// What is final.
    pub(in crate::demo) fn finalized(&self) -> Option<Height> {
        self.finalized
    }

    /// In one line.
    pub(in crate::demo) fn line(&self) -> String {
        let Self { stored, archived, pruned, on_disk, waiting, .. } = self;
        let bytes = format_bytes(on_disk.saturating_mul(BLOB_LEN as u64));
        format!(
            "stored {}, archived {}, pruned {}, on disk {bytes}, waiting {}",
            count(*stored),
            count(*archived),
            count(*pruned),
            count(*waiting)
        )
    }

    /// In a few words, for a line of all of them.
    pub(in crate::demo) fn short(&self) -> String {
        let Self { validator, stored, archived, pruned, on_disk, waiting, .. } = self;
        format!("v{validator} {stored}/{archived}/{pruned}/{on_disk}/{waiting}")
    }
}

/// How the validators ended.
#[derive(Debug, Clone, Serialize)]
pub(in crate::demo) struct Ended {
    /// Every final height is archived and pruned on all of them.
    pub(in crate::demo) settled: bool,
    pub(in crate::demo) validators: Vec<Figures>,
}

impl Ended {
    /// What there is to say of all of them.
    pub(in crate::demo) fn line(&self) -> String {
        let all = plural(self.validators.len() as u64, "validator");
        if self.settled {
            return format!("{all}; every final height is archived and pruned on all");
        }
        format!("{all}; not every final height is archived and pruned yet: run again, it goes on")
    }
}

/// Whether every final height is archived and pruned.
pub(super) fn is_settled(summary: &Summary) -> bool {
    let final_at = summary.finalized;
    let unarchived = |at: Height| final_at.is_some_and(|final_at| at <= final_at);
    !summary.oldest_unarchived.is_some_and(unarchived) && summary.pruner_backlog.is_none()
}
