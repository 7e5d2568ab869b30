//! Whether a source is still of the chain that is here. A node behind an address can be replaced, or
//! made again from another genesis under the same chain id; while its newest block is below all that
//! is kept here, no block of it would disagree.
//!
//! Compared are the last final block here and the genesis block. The genesis block's hash is kept in
//! `source.toml`, because the block itself may be pruned or was never here.

use std::path::{Path, PathBuf};

use secateur_core::{BlockHash, Height};
use serde::{Deserialize, Serialize};

use super::FollowError;
use super::chain::probe;
use super::ours::Ours;
use super::source::Source;
use crate::durable;
use crate::error::NodeError;

const FILE: &str = "source.toml";

/// What the file says.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// The hash of block 0.
    genesis: BlockHash,
}

/// What comparing a source came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Compared {
    /// It has a block that is final here, or the same genesis block.
    Same,
    /// Neither could be compared: the source has them not, or nothing is known of them here.
    Unknown,
    /// It has another block where ours is never taken back.
    Other { height: Height, ours: BlockHash, theirs: BlockHash },
}

/// What is known of the chain's beginning.
#[derive(Debug)]
pub(super) struct Identity {
    directory: PathBuf,
    genesis: Option<BlockHash>,
}

impl Identity {
    /// Reads what a data directory knows.
    pub(super) fn open(directory: &Path) -> Result<Self, anyhow::Error> {
        let path = directory.join(FILE);
        let genesis = match durable::read(&path)? {
            None => None,
            Some(text) => {
                let kept: Kept = toml::from_str(&text).map_err(|error| NodeError::BadFile {
                    path,
                    reason: format!("{}; without it, the next start writes it", error.message()),
                })?;
                Some(kept.genesis)
            }
        };
        Ok(Self { directory: directory.to_path_buf(), genesis })
    }

    /// Compares a source whose newest block is `newest`.
    pub(super) async fn compare(
        &mut self,
        source: &Source,
        ours: &Ours,
        newest: Height,
    ) -> Result<Compared, FollowError> {
        if self.genesis.is_none()
            && let Some(genesis) = ours.hash_at(0).await?
        {
            self.keep(genesis);
        }
        let last_final = match ours.last_final().filter(|height| *height <= newest) {
            Some(height) => ours.hash_at(height).await?.map(|hash| (height, hash)),
            None => None,
        };
        let heights: Vec<Height> = [last_final.map_or(0, |(height, _)| height), 0].into();
        let found = probe(source, &heights).await?;
        let (theirs, genesis) = match found.as_slice() {
            [theirs, genesis] => (*theirs, *genesis),
            _ => (None, None),
        };
        let mut compared = Compared::Unknown;
        for (wanted, theirs) in
            [(last_final, theirs), (self.genesis.map(|genesis| (0, genesis)), genesis)]
        {
            let (Some((height, ours)), Some(theirs)) = (wanted, theirs) else { continue };
            if ours != theirs {
                return Ok(Compared::Other { height, ours, theirs });
            }
            compared = Compared::Same;
        }
        if compared == Compared::Same
            && self.genesis.is_none()
            && let Some(genesis) = genesis
        {
            // A block of its chain is final here, so its first block is ours.
            self.keep(genesis);
        }
        Ok(compared)
    }

    /// Keeps what block 0 is. A full disk must not keep a node from following: it is written the next
    /// time then.
    fn keep(&mut self, genesis: BlockHash) {
        self.genesis = Some(genesis);
        let kept = toml::to_string(&Kept { genesis });
        let written = kept.map_err(anyhow::Error::from).and_then(|text| {
            let text = format!("# Which chain is followed here: the hash of its block 0.\n{text}");
            durable::write(&self.directory, FILE, &text)
        });
        if let Err(error) = written {
            tracing::warn!(error = format!("{error:#}"), "the chain's first block is not noted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_genesis_block_is_known_after_a_restart_and_a_damaged_note_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let mut identity = Identity::open(place.path()).unwrap();
        assert_eq!(identity.genesis, None);
        identity.keep(BlockHash([7; 32]));
        assert_eq!(Identity::open(place.path()).unwrap().genesis, Some(BlockHash([7; 32])));
        std::fs::write(place.path().join(FILE), "genesis = 3").unwrap();
        let refused = Identity::open(place.path()).unwrap_err().to_string();
        assert!(refused.contains(FILE), "{refused}");
    }
}
