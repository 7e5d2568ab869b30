//! What is shown of blobs, as a directory or a node tells it. Only the fields that a text needs are
//! here; `--json` prints all of them as they came.

use secateur_core::{Height, Locator};
use serde::Deserialize;

use crate::ui::words::{moment, plural};

/// When a height's bytes went.
#[derive(Debug, Deserialize)]
pub(super) struct Pruned {
    pub(super) finalized: Height,
    pub(super) at: u64,
    pub(super) failures: u32,
}

/// Who signed for which copies.
#[derive(Debug, Deserialize)]
pub(super) struct Record {
    pub(super) signer: String,
    pub(super) form: String,
    pub(super) locators: Vec<Locator>,
    pub(super) archived_at_height: Height,
    pub(super) archived_at: u64,
    pub(super) verified_at: u64,
}

/// A blob that waits to be archived here.
#[derive(Debug, Deserialize)]
pub(super) struct Job {
    pub(super) attempts: u32,
    /// In milliseconds.
    pub(super) due: u64,
    /// Why this node may not sign for it.
    pub(super) held: Option<String>,
}

impl Job {
    /// The job in words.
    pub(super) fn words(&self) -> String {
        let attempts = plural(u64::from(self.attempts), "attempt");
        // What was never put off, or is asked for again, is due since ever.
        let due = if self.due == 0 { "now".to_owned() } else { moment(self.due / 1000) };
        let waits = self.held.as_deref().map_or_else(String::new, |why| {
            let why = match why {
                "no_key" => "it has no key (`sidecar.key_file`)",
                "not_validator" => "it is no validator at that height (`sidecar.validators`)",
                "other_key" => {
                    "its term at that height has another key than `sidecar.key_file`; put that key \
                     back to have it archived"
                }
                "not_proposer" => {
                    "another validator proposed it, and `sidecar.signers` lets only the proposer sign"
                }
                "not_yet" => "another validator proposed it, and it is too early for others",
                other => other,
            };
            format!("; it may not sign for it now: {why}")
        });
        format!("{attempts} so far, due {due}{waits}")
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Blob {
    pub(super) index: u32,
    pub(super) state: String,
    pub(super) commitment: String,
    pub(super) versioned_hash: String,
    pub(super) keccak: String,
    pub(super) records: Vec<Record>,
    pub(super) fetched_at: Option<u64>,
    pub(super) job: Option<Job>,
}

/// A height.
#[derive(Debug, Deserialize)]
pub(super) struct HeightView {
    pub(super) height: Height,
    pub(super) round: Option<i32>,
    pub(super) proposer: Option<String>,
    pub(super) undecided: Vec<i32>,
    pub(super) blobs: Vec<Blob>,
    pub(super) hold: Option<String>,
    pub(super) pruned: Option<Pruned>,
    /// Not said where the configuration is not the node's.
    #[serde(default)]
    pub(super) no_signer: bool,
}

/// The whole story of a blob.
#[derive(Debug, Deserialize)]
pub(super) struct Story {
    pub(super) height: Height,
    pub(super) round: i32,
    pub(super) proposer: String,
    pub(super) blob_count: u32,
    pub(super) stored_at: u64,
    pub(super) decided_at: u64,
    #[serde(flatten)]
    pub(super) blob: Blob,
    pub(super) here: bool,
    pub(super) hold: Option<String>,
    pub(super) pruned: Option<Pruned>,
    /// As above.
    #[serde(default)]
    pub(super) no_signer: bool,
}

/// The figures of all blobs.
#[derive(Debug, Deserialize)]
pub(super) struct Figures {
    pub(super) heights: u64,
    pub(super) pending: u64,
    pub(super) archived: u64,
    pub(super) pruned: u64,
    pub(super) prune_failures: u64,
    pub(super) rounds: u64,
    pub(super) latest_decided: Option<Height>,
    pub(super) latest_archived: Option<Height>,
    pub(super) finalized: Option<Height>,
    pub(super) oldest_unarchived: Option<Height>,
    pub(super) jobs: u64,
    pub(super) announcements: u64,
    pub(super) pruner_backlog: Option<Height>,
    pub(super) used_bytes: u64,
    pub(super) budget_bytes: u64,
    pub(super) disk_bytes: u64,
}

/// What a prune would do.
#[derive(Debug, Deserialize)]
pub(super) struct PlanView {
    pub(super) limit: Option<Height>,
    pub(super) heights: u64,
    pub(super) blobs: u64,
    pub(super) bytes: u64,
    pub(super) first: Option<Height>,
    pub(super) last: Option<Height>,
    pub(super) held: Option<(Height, String)>,
    pub(super) more: bool,
}

/// That nobody can sign, in words.
pub(super) fn no_signer(proposer: &str) -> String {
    format!(
        "nobody: {proposer} is no validator of this height in `sidecar.validators`, and nobody else \
         may sign for it; give it a term there"
    )
}

/// Why bytes stay, in words.
pub(super) fn hold(hold: &str) -> &str {
    match hold {
        "not_finalized" => "the height is not final yet",
        "retained" => "`sidecar.retain_blocks` keeps it for some blocks after it is final",
        "not_archived" => "not every blob of the height has a verified notice",
        "unbound_notice" => {
            "all it has is a notice of the compatibility form, which is not enough under \
             `sidecar.trust = signature`"
        }
        "not_fetched" => {
            "no copy was fetched and compared here yet, and `sidecar.trust = fetch` wants that; a \
             running node does it"
        }
        "unreadable" => "what would tell cannot be read here",
        other => other,
    }
}
