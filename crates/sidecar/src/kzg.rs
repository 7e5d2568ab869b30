//! KZG, through `c-kzg`: whether a blob is what its commitment says, and what names it.
//!
//! The trusted setup is the library's own, loaded when it is first needed and kept. What was
//! verified is remembered for a while, because a value that is not decided in one round is often
//! proposed again in the next. Nothing here knows where blobs come from.

use std::collections::{HashSet, VecDeque};
use std::sync::LazyLock;

use c_kzg::{Blob, Bytes48, KzgSettings, ethereum_kzg_settings};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::error::SidecarError;
use crate::types::{BlobKeccak, Commitment, Proof, Sidecar, VersionedHash};

/// The first byte of a versioned hash of a KZG commitment.
const VERSION_KZG: u8 = 1;
/// Blobs that are verified together: the library wants them end to end in memory.
const BATCH: usize = 16;
/// Blobs that are remembered as verified.
const REMEMBERED: usize = 4_096;

fn setup() -> &'static KzgSettings {
    // 0: what is precomputed speeds up cell proofs only, which nobody asks for here.
    ethereum_kzg_settings(0)
}

/// What a transaction names a blob by.
pub fn versioned_hash(commitment: &Commitment) -> VersionedHash {
    let mut hash: [u8; 32] = Sha256::digest(commitment.0).into();
    let [version, ..] = &mut hash;
    *version = VERSION_KZG;
    VersionedHash(hash)
}

/// Whether a proof says nothing, as sources after Fulu send it.
pub fn is_absent(proof: Option<&Proof>) -> bool {
    proof.is_none_or(|proof| proof.0 == [0; 48])
}

/// What was verified lately: digests of commitment, proof and the blob's hash.
#[derive(Default)]
struct Memory {
    known: HashSet<[u8; 32]>,
    order: VecDeque<[u8; 32]>,
}

static MEMORY: LazyLock<Mutex<Memory>> = LazyLock::new(Mutex::default);

impl Memory {
    fn remember(&mut self, digest: [u8; 32]) {
        if self.known.insert(digest) {
            self.order.push_back(digest);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

fn digest_of(sidecar: &Sidecar, keccak: &BlobKeccak) -> [u8; 32] {
    digest(&sidecar.commitment, sidecar.proof.as_ref(), keccak)
}

fn digest(commitment: &Commitment, proof: Option<&Proof>, keccak: &BlobKeccak) -> [u8; 32] {
    let proof = proof.map_or([0; 48], |proof| proof.0);
    let digest = Sha256::new().chain_update(commitment.0).chain_update(proof);
    digest.chain_update(keccak.0).finalize().into()
}

/// [`verify`], but for blobs that were verified lately. Each comes with the hash of its bytes,
/// which the caller has computed.
pub(crate) fn verify_unless_known(
    sidecars: &[Sidecar],
    keccaks: impl IntoIterator<Item = BlobKeccak>,
) -> Result<(), SidecarError> {
    let digests = sidecars
        .iter()
        .zip(keccaks)
        .map(|(sidecar, keccak)| (sidecar, digest_of(sidecar, &keccak)));
    let unknown: Vec<(&Sidecar, [u8; 32])> = {
        let memory = MEMORY.lock();
        digests.filter(|(_, digest)| !memory.known.contains(digest)).collect()
    };
    verify_some(unknown.iter().map(|(sidecar, _)| *sidecar))?;
    let mut memory = MEMORY.lock();
    for (_, digest) in unknown {
        memory.remember(digest);
    }
    Ok(())
}

/// Takes a blob as verified, without a look at it: tests and the simulator have no second for the
/// trusted setup. Compiled in only for them.
#[cfg(any(test, feature = "sim"))]
pub(crate) fn assume(sidecar: &Sidecar, keccak: &BlobKeccak) {
    MEMORY.lock().remember(digest_of(sidecar, keccak));
}

/// Verifies that each blob is the one its commitment says: by its proof where there is one, many
/// at a time, and else by computing the commitment, which costs about thirty times as much.
pub fn verify(sidecars: &[Sidecar]) -> Result<(), SidecarError> {
    verify_some(sidecars.iter())
}

fn verify_some<'s>(sidecars: impl Iterator<Item = &'s Sidecar>) -> Result<(), SidecarError> {
    let (absent, present): (Vec<_>, Vec<_>) =
        sidecars.partition(|sidecar| is_absent(sidecar.proof.as_ref()));
    for some in present.chunks(BATCH) {
        verify_batch(some)?;
    }
    for sidecar in absent {
        if commitment_at(sidecar)? != sidecar.commitment {
            return Err(SidecarError::BadCommitment { index: sidecar.index });
        }
    }
    Ok(())
}

fn verify_batch(sidecars: &[&Sidecar]) -> Result<(), SidecarError> {
    let mut blobs = Vec::with_capacity(sidecars.len());
    let mut commitments = Vec::with_capacity(sidecars.len());
    let mut proofs = Vec::with_capacity(sidecars.len());
    for sidecar in sidecars {
        blobs.push(blob_of(sidecar.index, &sidecar.blob)?);
        commitments.push(Bytes48::new(sidecar.commitment.0));
        proofs.push(Bytes48::new(sidecar.proof.map_or([0; 48], |proof| proof.0)));
    }
    if let Ok(true) = setup().verify_blob_kzg_proof_batch(&blobs, &commitments, &proofs) {
        return Ok(());
    }
    // Only the first bad one is named; finding it may cost a commitment.
    for (sidecar, blob) in sidecars.iter().zip(&blobs) {
        let (commitment, proof) = (sidecar.commitment.0, sidecar.proof.map_or([0; 48], |p| p.0));
        let held = setup().verify_blob_kzg_proof(blob, &commitment.into(), &proof.into());
        if !matches!(held, Ok(true)) {
            let index = sidecar.index;
            let right = commitment_at(sidecar)? == sidecar.commitment;
            let (proof, commitment) =
                (SidecarError::BadProof { index }, SidecarError::BadCommitment { index });
            return Err(if right { proof } else { commitment });
        }
    }
    // Each holds alone and all together do not: that cannot be, and is not believed.
    let index = sidecars.first().map_or(0, |sidecar| sidecar.index);
    Err(SidecarError::BadProof { index })
}

fn blob_of(index: u32, bytes: &[u8]) -> Result<Blob, SidecarError> {
    let wrong = |_| SidecarError::WrongLength { index, len: bytes.len() as u64 };
    Blob::from_bytes(bytes).map_err(wrong)
}

fn commitment_at(sidecar: &Sidecar) -> Result<Commitment, SidecarError> {
    compute_commitment(sidecar.index, &sidecar.blob)
}

/// The commitment to a blob of [`BLOB_LEN`](crate::BLOB_LEN) bytes. What was computed is verified: it
/// is remembered, and not computed again when the blob is stored.
pub fn commitment_of(blob: &[u8]) -> Result<Commitment, SidecarError> {
    let commitment = compute_commitment(0, blob)?;
    let keccak = BlobKeccak(alloy_primitives::keccak256(blob).0);
    MEMORY.lock().remember(digest(&commitment, None, &keccak));
    Ok(commitment)
}

fn compute_commitment(index: u32, bytes: &[u8]) -> Result<Commitment, SidecarError> {
    let blob = blob_of(index, bytes)?;
    let computed = setup().blob_to_kzg_commitment(&blob);
    let computed = computed.map_err(|_| SidecarError::BadBlob { index })?;
    Ok(Commitment(computed.to_bytes().into_inner()))
}

/// The proof that a blob is the one of its commitment, for endpoints that must show one.
pub fn proof_of(blob: &[u8], commitment: &Commitment) -> Result<Proof, SidecarError> {
    let blob = blob_of(0, blob)?;
    let computed = setup().compute_blob_kzg_proof(&blob, &Bytes48::new(commitment.0));
    let computed = computed.map_err(|_| SidecarError::BadCommitment { index: 0 })?;
    Ok(Proof(computed.to_bytes().into_inner()))
}
