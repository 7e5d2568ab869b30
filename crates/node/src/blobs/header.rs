//! A signed beacon block header, as SSZ writes it: its fields, and the root that names the block.

use sha2::{Digest as _, Sha256};

/// The length of a signed header: two numbers, three roots, a signature.
pub(crate) const SIGNED_HEADER_LEN: usize = 208;
const ROOT: usize = 32;

/// The fields of a signed header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SignedHeader {
    pub(crate) slot: u64,
    pub(crate) proposer_index: u64,
    pub(crate) parent_root: [u8; ROOT],
    pub(crate) state_root: [u8; ROOT],
    pub(crate) body_root: [u8; ROOT],
    pub(crate) signature: [u8; 96],
}

/// A number as SSZ writes it.
#[expect(clippy::little_endian_bytes, reason = "SSZ is little-endian")]
pub(crate) fn ssz_number(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

#[expect(clippy::little_endian_bytes, reason = "SSZ is little-endian")]
fn take_number(bytes: [u8; 8]) -> u64 {
    u64::from_le_bytes(bytes)
}

impl SignedHeader {
    /// Reads one; none if it has another length.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != SIGNED_HEADER_LEN {
            return None;
        }
        let (slot, rest) = bytes.split_first_chunk::<8>()?;
        let (proposer_index, rest) = rest.split_first_chunk::<8>()?;
        let (parent_root, rest) = rest.split_first_chunk::<ROOT>()?;
        let (state_root, rest) = rest.split_first_chunk::<ROOT>()?;
        let (body_root, rest) = rest.split_first_chunk::<ROOT>()?;
        let (signature, _) = rest.split_first_chunk::<96>()?;
        Some(Self {
            slot: take_number(*slot),
            proposer_index: take_number(*proposer_index),
            parent_root: *parent_root,
            state_root: *state_root,
            body_root: *body_root,
            signature: *signature,
        })
    }

    /// The block's root: the Merkle root of the header's five fields, filled up to eight.
    pub(crate) fn root(&self) -> [u8; ROOT] {
        let number = |number: u64| {
            let mut leaf = [0; ROOT];
            leaf.iter_mut().zip(ssz_number(number)).for_each(|(to, byte)| *to = byte);
            leaf
        };
        let two = |a: [u8; ROOT], b: [u8; ROOT]| -> [u8; ROOT] {
            Sha256::new().chain_update(a).chain_update(b).finalize().into()
        };
        let empty = [0; ROOT];
        let left = two(
            two(number(self.slot), number(self.proposer_index)),
            two(self.parent_root, self.state_root),
        );
        two(left, two(two(self.body_root, empty), two(empty, empty)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_field_by_field_and_no_other_length_is_one() {
        let mut bytes = Vec::new();
        bytes.extend([0x39, 0x30, 0, 0, 0, 0, 0, 0]);
        bytes.extend([7, 0, 0, 0, 0, 0, 0, 0]);
        for fill in [1u8, 2, 3] {
            bytes.extend([fill; 32]);
        }
        bytes.extend([4; 96]);
        let header = SignedHeader::read(&bytes).unwrap();
        assert_eq!((header.slot, header.proposer_index), (12_345, 7));
        assert_eq!((header.parent_root, header.state_root), ([1; 32], [2; 32]));
        assert_eq!((header.body_root, header.signature), ([3; 32], [4; 96]));
        assert!(SignedHeader::read(&bytes[1..]).is_none());
        bytes.push(0);
        assert!(SignedHeader::read(&bytes).is_none());
    }

    #[test]
    fn the_root_of_a_header_of_zeros_is_the_known_one_of_eight_empty_leaves() {
        let header = SignedHeader::read(&[0; SIGNED_HEADER_LEN]).unwrap();
        let root = alloy_primitives::hex::encode(header.root());
        // The zero hash of depth three, as every SSZ library has it.
        assert_eq!(root, "c78009fdf07fc56a11f122370658a353aaa542ed63e44c4bc15ff4cd105ab33c");
    }
}
