//! What a part says of its blocks' bytes, and how far a block is checked.

use std::fmt;

use secateur_core::{Block, MAX_SEGMENT_LEN};
use serde::{Deserialize, Serialize};

use crate::ArchiveError;

/// How the blocks of a part are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// Ethereum blocks: hashes and roots are recomputed from the bytes.
    Evm,
    /// Bytes that are not looked into; blocks are linked by the hashes they came with.
    Opaque,
}

impl Codec {
    pub(crate) fn tag(self) -> u8 {
        match self {
            Self::Evm => 1,
            Self::Opaque => 2,
        }
    }

    pub(crate) fn from_tag(tag: u8) -> Option<Self> {
        match tag {
            1 => Some(Self::Evm),
            2 => Some(Self::Opaque),
            _ => None,
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Evm => "evm",
            Self::Opaque => "opaque",
        })
    }
}

/// How far a block is checked. That heights follow one another and parents link is always checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Check {
    /// Its payloads are framed as payloads are.
    Framing,
    /// And, for [`Codec::Evm`], its header hashes to the hash it came with.
    #[default]
    Hash,
    /// And everything that the header promises is recomputed, down to each signature.
    Full,
}

impl Check {
    /// Checks one block by itself.
    pub fn block(self, codec: Codec, chain_id: u64, block: &Block) -> Result<(), ArchiveError> {
        block.check(MAX_SEGMENT_LEN)?;
        let wrong =
            |source| ArchiveError::Block { height: block.meta.height, source: Box::new(source) };
        match (codec, self) {
            (Codec::Opaque, _) | (_, Self::Framing) => Ok(()),
            (Codec::Evm, Self::Hash) => secateur_evm::verify_header(block).map_err(wrong),
            (Codec::Evm, Self::Full) => {
                secateur_evm::verify_block(block, chain_id).map(|_| ()).map_err(wrong)
            }
        }
    }
}
