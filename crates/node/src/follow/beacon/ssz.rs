//! The little of SSZ that a follower needs beside `blobs::header`: a header's bytes, and whether a
//! commitment is in the body that a header names.

use alloy_primitives::B256;
use bytes::Bytes;
use secateur_sidecar::Commitment;
use sha2::{Digest as _, Sha256};

use super::wire::{Header, SignedHeader};
use crate::blobs::header::{self, SIGNED_HEADER_LEN, ssz_number};

/// The hashes from a commitment up to the body's root, from Deneb to Fulu.
const BRANCH_LEN: usize = 17;
/// Where the list of commitments is among the body's fields.
const COMMITMENTS_FIELD: usize = 11;
/// The levels of a list of 4,096 commitments, with the one that mixes in its length.
const LIST_LEVELS: usize = 13;

/// The root of a header, which is its block's too.
pub(super) fn root(header: &Header) -> B256 {
    let fields = header::SignedHeader {
        slot: header.slot,
        proposer_index: header.proposer_index,
        parent_root: header.parent_root.0,
        state_root: header.state_root.0,
        body_root: header.body_root.0,
        // It is no part of the root.
        signature: [0; 96],
    };
    B256::new(fields.root())
}

/// A signed header as it is kept.
pub(super) fn signed_header(signed: &SignedHeader) -> Bytes {
    let header = &signed.message;
    let mut bytes = Vec::with_capacity(SIGNED_HEADER_LEN);
    bytes.extend_from_slice(&ssz_number(header.slot));
    bytes.extend_from_slice(&ssz_number(header.proposer_index));
    for root in [&header.parent_root, &header.state_root, &header.body_root] {
        bytes.extend_from_slice(root.as_slice());
    }
    bytes.extend_from_slice(signed.signature.as_slice());
    bytes.into()
}

/// The root of a header that was kept; none if it is not one.
pub(super) fn root_of_kept(bytes: &[u8]) -> Option<B256> {
    header::SignedHeader::read(bytes).map(|header| B256::new(header.root()))
}

fn node(left: &B256, right: &B256) -> B256 {
    let digest = Sha256::new().chain_update(left).chain_update(right).finalize();
    B256::new(digest.into())
}

/// A leaf: bytes, filled up with zeros.
fn leaf(bytes: &[u8]) -> B256 {
    B256::right_padding_from(bytes)
}

/// Whether a branch leads from a commitment to the root of a body.
pub(super) fn includes(
    body_root: &B256,
    commitment: &Commitment,
    index: usize,
    branch: &[B256],
) -> bool {
    let (first, last) = commitment.0.split_at(32);
    let mut hash = node(&leaf(first), &leaf(last));
    let place = (COMMITMENTS_FIELD << LIST_LEVELS) | index;
    if branch.len() != BRANCH_LEN || index >> (LIST_LEVELS - 1) != 0 {
        return false;
    }
    for (level, sibling) in branch.iter().enumerate() {
        hash = match (place >> level) & 1 {
            0 => node(&hash, sibling),
            _ => node(sibling, &hash),
        };
    }
    hash == *body_root
}

#[cfg(test)]
mod tests {
    use alloy_primitives::{FixedBytes, b256};

    use super::*;

    /// A header of a public chain (Gnosis), as its interface shows it.
    fn public() -> (Header, B256) {
        let header = Header {
            slot: 11_579_198,
            proposer_index: 787_092,
            parent_root: b256!(
                "0x0fc1061b0162ef708f446d24216df3b90908b82a59b3479decd8f23471ee34fd"
            ),
            state_root: b256!("0xa6f44f77854b5d8d37533eb845e7ef6423e2c3d5be0aa9a49d0cf1aba1007222"),
            body_root: b256!("0x31b9547ffed84b16030284d92363611fe9326c0a6b9593978c07667446d874fc"),
        };
        (header, b256!("0x4f289577b582ac7584c11c9ad8411734441685c64d19988b899af678ef2178f9"))
    }

    #[test]
    fn the_root_of_a_public_header_is_the_public_one() {
        let (header, stated) = public();
        assert_eq!(root(&header), stated);
    }

    #[test]
    fn a_kept_header_has_the_root_that_it_had() {
        let (message, stated) = public();
        let kept = signed_header(&SignedHeader { message, signature: FixedBytes::repeat_byte(7) });
        assert_eq!(kept.len(), SIGNED_HEADER_LEN);
        assert_eq!(root_of_kept(&kept), Some(stated));
        assert_eq!(root_of_kept(&kept[1..]), None);
    }

    #[test]
    fn a_branch_holds_for_its_commitment_at_its_place_alone() {
        let commitment = Commitment([9; 48]);
        let branch: Vec<B256> = (0..17u8).map(B256::repeat_byte).collect();
        let mut hash = node(&leaf(&[9; 32]), &leaf(&[9; 16]));
        // The third commitment of the twelfth field: 0b10110000000000010 from the leaf up.
        for (level, right) in "01000000000001101".chars().enumerate() {
            let (own, other) = (hash, B256::repeat_byte(u8::try_from(level).unwrap()));
            hash = if right == '1' { node(&other, &own) } else { node(&own, &other) };
        }
        assert!(includes(&hash, &commitment, 2, &branch));
        assert!(!includes(&hash, &commitment, 3, &branch));
        assert!(!includes(&hash, &Commitment([8; 48]), 2, &branch));
        assert!(!includes(&hash, &commitment, 2, &branch[..16]));
        assert!(!includes(&hash, &commitment, 2 + 8192, &branch));
    }
}
