//! KZG proofs of blobs whose source gave none, computed where somebody asks for them. One takes tens
//! of milliseconds of a core: they are computed one at a time, and remembered.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use secateur_sidecar::engine::StoredBlob;
use secateur_sidecar::{Commitment, Proof, kzg};
use tokio::sync::Semaphore;

use crate::service::ApiError;

/// Proofs of one generation; two are kept.
const MOST: usize = 4_096;

/// What was computed. A commitment names one blob, and a blob has one proof.
#[derive(Debug)]
pub(super) struct Proofs {
    known: Mutex<Generations>,
    turn: Semaphore,
}

impl Default for Proofs {
    fn default() -> Self {
        Self { known: Mutex::default(), turn: Semaphore::new(1) }
    }
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<[u8; 48], Proof>,
    old: HashMap<[u8; 48], Proof>,
}

impl Generations {
    fn get(&self, of: &Commitment) -> Option<Proof> {
        self.young.get(&of.0).or_else(|| self.old.get(&of.0)).copied()
    }

    fn put(&mut self, of: &Commitment, proof: Proof) {
        if self.young.len() >= MOST {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(of.0, proof);
    }
}

impl Proofs {
    /// A blob's proof.
    pub(super) async fn of(&self, one: &StoredBlob) -> Result<Proof, ApiError> {
        let (commitment, blob) = (one.meta.commitment, one.blob.clone());
        if let Some(proof) = self.known(&commitment) {
            return Ok(proof);
        }
        let _turn = self.turn.acquire().await.map_err(|_| ApiError::Overloaded)?;
        // Whoever had the turn before may have computed it.
        if let Some(proof) = self.known(&commitment) {
            return Ok(proof);
        }
        let computed = tokio::task::spawn_blocking(move || kzg::proof_of(&blob, &commitment)).await;
        let proof = computed.map_err(|error| ApiError::Internal(error.to_string()))??;
        self.known.lock().unwrap_or_else(PoisonError::into_inner).put(&commitment, proof);
        Ok(proof)
    }

    fn known(&self, of: &Commitment) -> Option<Proof> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use secateur_sidecar::engine::BlobMeta;
    use secateur_sidecar::testdata::pooled;
    use secateur_sidecar::{BlobKeccak, VersionedHash};

    #[tokio::test]
    async fn a_proof_is_computed_once_and_no_more_than_so_many_are_kept() {
        let (proofs, one) = (Proofs::default(), pooled(0));
        let meta = BlobMeta {
            height: 1,
            index: 0,
            commitment: one.commitment,
            versioned_hash: VersionedHash([1; 32]),
            keccak: BlobKeccak([0; 32]),
            proof: None,
            inclusion: None,
        };
        let mut stored = StoredBlob { meta, blob: one.blob.clone() };
        let proof = proofs.of(&stored).await.unwrap();
        assert_eq!(proof, one.proof);
        // Nothing is computed of these bytes, which are no blob.
        stored.blob = Bytes::new();
        assert_eq!(proofs.of(&stored).await.unwrap(), proof);
        let mut known = proofs.known.lock().unwrap();
        for n in 0..3 * MOST {
            let mut bytes = [0; 48];
            bytes.iter_mut().zip(n.to_be_bytes()).for_each(|(to, byte)| *to = byte);
            known.put(&Commitment(bytes), Proof([1; 48]));
        }
        assert!(known.young.len() + known.old.len() <= 2 * MOST);
        assert_eq!(known.get(&one.commitment), None);
    }
}
