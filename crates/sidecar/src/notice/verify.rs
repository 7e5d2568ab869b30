//! The checks of a notice, in their order; the first that fails is the answer.
//!
//! Cheap and unauthenticated checks come first, then the signature, then what the engine knows,
//! and the hash of a blob's bytes as late as possible: only a notice that is right in everything
//! else makes this node read and hash 128 KiB, once, where they lie.

use alloy_primitives::keccak256;
use ed25519_dalek::Signature;
use secateur_core::Height;
use secateur_core::notice::{Claim, MAX_NOTICE_LEN, Notice, NoticeForm, Statement};

use crate::notice::{Rejection, Signers, Validators, digest};
use crate::{BlobKeccak, Commitment, Round, SidecarError, ValidatorId};

/// What is known here of a decided height, and of one blob in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// Who proposed what was decided.
    pub proposer: ValidatorId,
    /// The decided round.
    pub round: Round,
    /// How many blobs the height has.
    pub blob_count: u32,
    /// The blob; none if there is none with that index.
    pub blob: Option<DecidedBlob>,
}

/// What is kept for ever of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecidedBlob {
    /// The commitment to it.
    pub commitment: Commitment,
    /// The keccak of its bytes, computed here when they came.
    pub keccak: BlobKeccak,
}

/// What this node knows by itself. All answers of one verification should be of one snapshot.
pub trait Known {
    /// A blob's bytes, wherever they lie; they are hashed there and not copied.
    type Bytes: AsRef<[u8]>;

    /// What was decided at a height; none if nothing was, or not yet.
    fn decided(&self, height: Height, index: u32) -> Result<Option<Decided>, SidecarError>;

    /// The blob's bytes; none if they were pruned.
    fn bytes(&self, height: Height, index: u32) -> Result<Option<Self::Bytes>, SidecarError>;

    /// What was recorded about the blob, by whomever: this node's own record, signed or not yet,
    /// and every notice that was accepted.
    fn records(&self, height: Height, index: u32) -> Result<Vec<Statement>, SidecarError>;

    /// Whether every copy that those records name was looked for and none is there. Only then is
    /// something else of the same signer heard.
    fn doubted(&self, _height: Height, _index: u32) -> Result<bool, SidecarError> {
        Ok(false)
    }
}

/// What an accepted notice adds to what is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addition {
    /// It is the blob's first record.
    New,
    /// It says what its signer has said already; there is nothing to record.
    Duplicate,
    /// There are records of others, or a weaker one of its signer: it is recorded beside them.
    AddsLocators,
    /// Its signer has said something else, of which no copy is there: it is recorded beside that.
    Differs,
}

/// A notice that a validator of its height has signed, whatever it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authentic {
    notice: Notice,
    signer: ValidatorId,
}

/// A notice that passed every check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The notice.
    pub notice: Notice,
    /// Who signed it.
    pub signer: ValidatorId,
    /// What it adds.
    pub addition: Addition,
}

/// Verifies notices of one chain.
#[derive(Debug, Clone)]
pub struct Verifier {
    /// The chain.
    pub chain_id: u64,
    /// The validators by height.
    pub validators: Validators,
    /// Who of them may sign.
    pub signers: Signers,
    /// Whether notices in Ultramarine's form are read. They bind no chain; off by default.
    pub accept_v0: bool,
}

impl Verifier {
    /// Whether anybody's notice for a height of this proposer can ever be believed.
    pub fn has_signer(&self, proposer: &ValidatorId, height: Height) -> bool {
        let others = self.signers.open_to_all_from(height).is_some();
        self.validators.key_at(proposer, height).is_some()
            || (others && self.validators.at(height).next().is_some())
    }

    /// Checks a notice that came from anywhere. `head` is the newest decided height here; it
    /// decides when others than the proposer may sign.
    ///
    /// A notice that is not believed is [`SidecarError::Rejected`]; any other error is this
    /// node's own and says nothing about the notice. Between this answer and its record another
    /// notice may have been recorded: whoever records asks [`addition`] again in the same batch.
    pub fn verify<K: Known>(
        &self,
        bytes: &[u8],
        head: Height,
        known: &K,
    ) -> Result<Accepted, SidecarError> {
        self.judge(self.authenticate(bytes)?, head, known)
    }

    /// The checks that ask nothing of this node's store: the form, the chain, the validator and its
    /// signature.
    pub fn authenticate(&self, bytes: &[u8]) -> Result<Authentic, Rejection> {
        let notice = self.read(bytes)?;
        let signer = self.check_signature(&notice)?;
        Ok(Authentic { notice, signer })
    }

    /// The rest of them.
    pub fn judge<K: Known>(
        &self,
        signed: Authentic,
        head: Height,
        known: &K,
    ) -> Result<Accepted, SidecarError> {
        let Authentic { notice, signer } = signed;
        let claim = notice.claim();
        let blob = self.check_decided(&claim, &signer, head, known)?;
        let addition = check_content(&notice, &claim, &signer, &blob, known)?;
        Ok(Accepted { notice, signer, addition })
    }

    /// What can be told from the bytes and the configuration.
    fn read(&self, bytes: &[u8]) -> Result<Notice, Rejection> {
        if bytes.len() > MAX_NOTICE_LEN {
            return Err(Rejection::Oversized { len: bytes.len() });
        }
        if NoticeForm::of(bytes) == Some(NoticeForm::V0) && !self.accept_v0 {
            return Err(Rejection::V0Disabled);
        }
        let notice = Notice::decode(bytes).map_err(Rejection::Malformed)?;
        match notice.claim().chain_id {
            Some(said) if said != self.chain_id => {
                Err(Rejection::WrongChain { said, here: self.chain_id })
            }
            _ => Ok(notice),
        }
    }

    /// A validator at that height, and its signature.
    fn check_signature(&self, notice: &Notice) -> Result<ValidatorId, Rejection> {
        let claim = notice.claim();
        let signer = ValidatorId::new(claim.archived_by).map_err(Rejection::Malformed)?;
        let height = claim.height;
        let Some(key) = self.validators.verifying_key(&signer, height) else {
            return Err(Rejection::UnknownValidator { signer, height });
        };
        let signature = Signature::from_bytes(notice.signature());
        match key.verify_strict(&digest(&notice.preimage()), &signature) {
            Ok(()) => Ok(signer),
            Err(_) => Err(Rejection::BadSignature { signer }),
        }
    }

    /// The height, the blob in it, and the right to sign for it.
    fn check_decided<K: Known>(
        &self,
        claim: &Claim<'_>,
        signer: &ValidatorId,
        head: Height,
        known: &K,
    ) -> Result<DecidedBlob, SidecarError> {
        let (height, index) = (claim.height, claim.blob_index);
        let Some(decided) = known.decided(height, index)? else {
            return Err(Rejection::NoMetadata { height }.into());
        };
        let Some(blob) = decided.blob else {
            let blob_count = decided.blob_count;
            return Err(Rejection::IndexOutOfRange { height, index, blob_count }.into());
        };
        if decided.proposer != *signer {
            let signer = signer.clone();
            match self.signers.open_to_all_from(height) {
                Some(from) if head >= from => {}
                Some(from) => {
                    return Err(Rejection::NotYetPermitted { height, signer, from }.into());
                }
                None => {
                    let proposer = decided.proposer;
                    return Err(Rejection::NotProposer { height, signer, proposer }.into());
                }
            }
        }
        if claim.round != decided.round {
            let (said, decided) = (claim.round, decided.round);
            return Err(Rejection::WrongRound { height, said, decided }.into());
        }
        Ok(blob)
    }
}

/// The commitment, the hash, and what its signer said before.
fn check_content<K: Known>(
    notice: &Notice,
    claim: &Claim<'_>,
    signer: &ValidatorId,
    blob: &DecidedBlob,
    known: &K,
) -> Result<Addition, SidecarError> {
    let (height, index) = (claim.height, claim.blob_index);
    if *claim.kzg_commitment != blob.commitment.0 {
        let said = Commitment(*claim.kzg_commitment);
        return Err(Rejection::CommitmentMismatch { said, here: blob.commitment }.into());
    }
    let said = BlobKeccak(*claim.blob_keccak);
    if said != blob.keccak {
        return Err(Rejection::KeccakMismatch { said, here: blob.keccak }.into());
    }
    let records = known.records(height, index)?;
    let addition = addition(&records, notice);
    // What was accepted before was compared with the bytes then; it is not hashed again and again
    // because somebody repeats it.
    if addition != Some(Addition::Duplicate)
        && let Some(bytes) = known.bytes(height, index)?
    {
        let here = BlobKeccak(keccak256(bytes.as_ref()).0);
        if said != here {
            return Err(Rejection::KeccakMismatch { said, here }.into());
        }
    }
    match addition {
        Some(addition) => Ok(addition),
        None if known.doubted(height, index)? => Ok(Addition::Differs),
        None => Err(Rejection::Conflict { height, index, signer: signer.clone() }.into()),
    }
}

/// What a notice adds to the records of its blob; none if its signer has said something else.
///
/// A signer's V0 notice never stands in the way of its v1 notice, because anybody can replay it
/// from another chain. A V0 notice whose locator the signer's v1 notice names too is a duplicate.
pub fn addition(records: &[Statement], notice: &Notice) -> Option<Addition> {
    let claim = notice.claim();
    let (mut repeated, mut differs) = (false, false);
    for record in records.iter().filter(|record| record.claim().archived_by == claim.archived_by) {
        let same = match (record.form(), notice.form()) {
            (NoticeForm::V0, NoticeForm::V1) => continue,
            (NoticeForm::V1, NoticeForm::V0) => {
                let named = record.claim().locators;
                claim.locators.iter().all(|locator| named.contains(locator))
            }
            _ => notice.says(record),
        };
        // A signer has two of them where the first one's copies were not there.
        repeated |= same;
        differs |= !same;
    }
    if differs && !repeated {
        return None;
    }
    Some(match records {
        _ if repeated => Addition::Duplicate,
        [] => Addition::New,
        _ => Addition::AddsLocators,
    })
}
