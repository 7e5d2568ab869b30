//! Blobs and what they are told apart by.

use alloy_primitives::keccak256;
use bytes::Bytes;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use secateur_sidecar::provider::BlobTags;
use secateur_sidecar::{BLOB_LEN, BlobKeccak, Commitment, ValidatorId, VersionedHash};

pub fn blob(seed: u64) -> Bytes {
    let mut bytes = vec![0; BLOB_LEN];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes.into()
}

pub fn tags(blob: &Bytes) -> BlobTags {
    BlobTags {
        chain_id: 7,
        height: 42,
        round: 1,
        blob_index: 3,
        kzg_commitment: Commitment([0xc0; 48]),
        versioned_hash: VersionedHash([1; 32]),
        proposer: ValidatorId::new(&[9; 20]).unwrap(),
        blob_keccak: BlobKeccak(keccak256(blob).0),
    }
}
