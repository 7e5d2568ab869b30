//! The cheap part of the check: that a block's header is the one its hash names.
//!
//! Nothing below the header is looked at. [`crate::verify_block`] does that.

use alloy_consensus::Header;
use alloy_primitives::keccak256;
use alloy_rlp::Decodable;
use secateur_core::{Block, BlockHash};

use crate::EvmError;
use crate::verify::agree;

/// Recomputes a block's hash from its header's bytes and compares what its meta says.
pub fn verify_header(block: &Block) -> Result<(), EvmError> {
    let mut rest = block.payloads.block.as_slice();
    let list = alloy_rlp::Header::decode(&mut rest).map_err(EvmError::BlockRlp)?;
    if !list.list || list.payload_length != rest.len() {
        return Err(EvmError::BlockRlp(alloy_rlp::Error::UnexpectedLength));
    }
    let before = rest;
    let header = Header::decode(&mut rest).map_err(EvmError::BlockRlp)?;
    // What was read: the header is the first item, and its hash is that of these bytes.
    let bytes = before.get(..before.len() - rest.len()).unwrap_or_default();
    let meta = &block.meta;
    agree("block hash", &meta.hash, &BlockHash(keccak256(bytes).0))?;
    agree("parent hash", &meta.parent_hash, &BlockHash(header.parent_hash.0))?;
    agree("block number", &meta.height, &header.number)?;
    agree("timestamp", &meta.timestamp, &header.timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChainSpec, Generator};

    #[test]
    fn a_flipped_byte_in_the_header_or_the_meta_is_found() {
        let generator = Generator::new(ChainSpec::default()).unwrap();
        let block = generator.block(0, BlockHash::default()).unwrap();
        verify_header(&block).unwrap();
        // The list's own head, then the header's head and its first bytes.
        for at in 0..200 {
            let mut wrong = block.clone();
            wrong.payloads.block[at] ^= 1;
            assert!(verify_header(&wrong).is_err(), "byte {at}");
        }
        for cut in 0..block.payloads.block.len() {
            let mut wrong = block.clone();
            wrong.payloads.block.truncate(cut);
            assert!(verify_header(&wrong).is_err(), "cut at {cut}");
        }
        let mut wrong = block.clone();
        wrong.meta.timestamp += 1;
        assert!(verify_header(&wrong).is_err());
        let mut wrong = block;
        wrong.meta.height += 1;
        assert!(verify_header(&wrong).is_err());
    }
}
