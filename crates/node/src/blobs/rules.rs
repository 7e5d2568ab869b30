//! `sidecars/rules.toml`: what the node that ran last held blobs by. A command on the directory takes
//! the stricter of this and its own configuration, so that a prune with another configuration, or
//! from another working directory, is never laxer than the node. Nothing else is decided by it.

use std::path::Path;

use secateur_sidecar::Trust;
use serde::{Deserialize, Serialize};

use crate::config::BlobLimits;
use crate::durable;
use crate::error::NodeError;

const RULES_FILE: &str = "rules.toml";

/// What keeps blobs from being pruned, besides finality and notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rules {
    trust: Trust,
    retain_blocks: u64,
}

impl Rules {
    /// The stricter of both.
    pub(super) fn hold(self, limits: BlobLimits) -> BlobLimits {
        let trust = match (self.trust, limits.trust) {
            (Trust::Signature, Trust::Signature) => Trust::Signature,
            _ => Trust::Fetch,
        };
        let retain_blocks = self.retain_blocks.max(limits.retain_blocks);
        BlobLimits { retain_blocks, trust, ..limits }
    }
}

/// What a node left, if one ran here.
pub(super) fn read(place: &Path) -> Result<Option<Rules>, anyhow::Error> {
    let path = place.join(RULES_FILE);
    let Some(text) = durable::read(&path)? else { return Ok(None) };
    let rules = toml::from_str(&text).map_err(|error| NodeError::BadFile {
        path,
        reason: format!("{}; start the node once, which writes it anew", error.message()),
    })?;
    Ok(Some(rules))
}

/// Leaves what this node holds blobs by, unless that is what is there.
pub(super) fn keep(place: &Path, limits: &BlobLimits) -> Result<(), anyhow::Error> {
    let BlobLimits { trust, retain_blocks, .. } = *limits;
    let rules = Rules { trust, retain_blocks };
    // One that cannot be read is written anew, as its reader is told.
    if matches!(read(place), Ok(Some(there)) if there == rules) {
        return Ok(());
    }
    durable::write(place, RULES_FILE, &toml::to_string(&rules)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(trust: Trust, retain_blocks: u64) -> BlobLimits {
        let (max_blobs, max_undecided) = (64, 4_096);
        BlobLimits { budget_bytes: 0, retain_blocks, max_blobs, max_undecided, trust }
    }

    #[test]
    fn the_stricter_of_what_a_node_held_and_what_is_configured_now_holds() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(read(place.path()).unwrap(), None);
        for (node, now, both) in [
            ((Trust::Fetch, 5), (Trust::Signature, 0), (Trust::Fetch, 5)),
            ((Trust::Signature, 5), (Trust::Fetch, 9), (Trust::Fetch, 9)),
            ((Trust::Signature, 0), (Trust::Signature, 0), (Trust::Signature, 0)),
        ] {
            keep(place.path(), &limits(node.0, node.1)).unwrap();
            let rules = read(place.path()).unwrap().unwrap();
            assert_eq!(rules.hold(limits(now.0, now.1)), limits(both.0, both.1));
        }
    }

    #[test]
    fn a_damaged_file_is_refused_and_the_next_node_writes_it_anew() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join(RULES_FILE), "trust = \"nobody\"").unwrap();
        let error = read(place.path()).unwrap_err().to_string();
        assert!(error.contains("start the node once"), "{error}");
        keep(place.path(), &limits(Trust::Fetch, 1)).unwrap();
        assert!(read(place.path()).unwrap().is_some());
    }
}
