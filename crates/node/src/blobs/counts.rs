//! What is counted of a node's blobs: the family's own counters, and those of ingest and gossip.

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use secateur_sidecar::gossip::GossipCounts;
use secateur_sidecar::metrics::SidecarMetrics;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// Reasons that are there from the start: a counter that appears late hides its first step.
const REASONS: [&str; 11] = [
    "bad_blob",
    "bad_commitment",
    "bad_proof",
    "bad_round",
    "decided_otherwise",
    "disk_full",
    "malformed",
    "round_conflict",
    "too_many_blobs",
    "wrong_index",
    "wrong_length",
];

/// The counters, in a registry of their own.
#[derive(Debug)]
pub(super) struct Counts {
    registry: Registry,
    refused: Family<ReasonLabel, Counter>,
}

impl Counts {
    /// Makes them, with those of the family.
    pub(super) fn new() -> (Self, SidecarMetrics) {
        let mut registry = Registry::default();
        let metrics = SidecarMetrics::new(&mut registry);
        let refused = Family::default();
        for reason in REASONS {
            drop(refused.get_or_create(&ReasonLabel { reason }));
        }
        registry.register(
            "secateur_blob_refused",
            "Proposals, decisions and other changes of blobs that were refused",
            refused.clone(),
        );
        (Self { registry, refused }, metrics)
    }

    /// Something was refused.
    pub(super) fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Writes everything, and what gossip has counted so far.
    pub(super) fn write(&self, gossip: GossipCounts, to: &mut String) -> std::fmt::Result {
        let mut now = Registry::default();
        let counted = [
            ("sent", "Messages that were sent to peers", gossip.sent),
            ("taken", "Messages of peers that were new", gossip.taken),
            ("duplicate", "Messages of peers that came again", gossip.duplicates),
            ("later", "Messages of peers that came too early", gossip.later),
            ("refused", "Messages of peers that were wrong", gossip.refused),
            ("limited", "Requests of peers that were too many", gossip.limited),
            ("unanswered", "Answers that a peer did not give in time", gossip.unanswered),
        ];
        for (name, help, value) in counted {
            now.register(format!("secateur_gossip_{name}"), help, ConstCounter::new(value));
        }
        text::encode_registry(to, &self.registry)?;
        text::encode_registry(to, &now)
    }
}
