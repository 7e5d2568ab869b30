//! The book of notices: what gossip asks of the engine. A notice that comes is verified against what
//! this node knows by itself and recorded; records are given out again as the notices they came from,
//! or, our own, as notices that are signed anew, which gives the same bytes each time.

use std::sync::Arc;

use bytes::Bytes;
use secateur_core::Height;
use secateur_core::notice::{
    ArchiveNotice, ArchiveNoticeV0, Notice, NoticeBody, NoticeBodyV0, Statement,
};
use secateur_store::{Arena, Index};

use crate::engine::{
    ArchiveRecord, BlobKey, BlobMeta, HeightRecord, Marked, RecordForm, SidecarStore,
};
use crate::gossip::{NoticeBook, Verdict};
use crate::notice::{Addition, Decided, DecidedBlob, Known, NoticeKey, Rejection, Verifier, sign};
use crate::sabotage::Sabotage;
use crate::{BlobKeccak, SidecarError, ValidatorId};

/// Who hears what became of notices.
pub trait BookObserver: Send + Sync + 'static {
    /// A notice was recorded: something may be prunable now.
    fn recorded(&self, key: BlobKey, record: &ArchiveRecord);
    /// A notice was not believed.
    fn rejected(&self, rejection: &Rejection);
}

/// The notices of a store.
pub struct Book<A, I> {
    store: Arc<SidecarStore<A, I>>,
    verifier: Arc<Verifier>,
    /// Signs our own records; a node that archives nothing has none.
    key: Option<Arc<NoticeKey>>,
    observer: Arc<dyn BookObserver>,
}

impl<A, I> std::fmt::Debug for Book<A, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Book").field("verifier", &self.verifier).finish_non_exhaustive()
    }
}

/// What the store knows, as the verifier asks it.
struct Here<'a, A, I>(&'a SidecarStore<A, I>, &'a [u8]);

impl<A: Arena, I: Index> Known for Here<'_, A, I> {
    type Bytes = Bytes;

    fn decided(&self, height: Height, index: u32) -> Result<Option<Decided>, SidecarError> {
        let Some(record) = self.0.height(height)? else { return Ok(None) };
        let blob = self.0.blob_meta(height, index)?;
        let (record, blob) = self.plant(record, blob);
        Ok(Some(Decided {
            proposer: record.proposer,
            round: record.round,
            blob_count: record.blob_count,
            blob: blob.map(|meta| DecidedBlob { commitment: meta.commitment, keccak: meta.keccak }),
        }))
    }

    fn bytes(&self, height: Height, index: u32) -> Result<Option<Bytes>, SidecarError> {
        match self.0.get_blob(height, index) {
            Ok(_) if self.0.config().sabotage.is(Sabotage::LearnHash) => Ok(None),
            Ok(stored) => Ok(Some(stored.blob)),
            Err(error) if error.is_gone() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn records(&self, height: Height, index: u32) -> Result<Vec<Statement>, SidecarError> {
        let Some(facts) = Facts::read(self.0, height, index)? else { return Ok(Vec::new()) };
        let records = self.0.records(height, index)?;
        Ok(records.iter().map(|kept| facts.statement(&kept.record)).collect())
    }
}

impl<A: Arena, I: Index> Here<'_, A, I> {
    /// What saboteurs make of what is known: what the notice says of itself.
    fn plant(
        &self,
        mut record: HeightRecord,
        mut blob: Option<BlobMeta>,
    ) -> (HeightRecord, Option<BlobMeta>) {
        let sabotage = self.0.config().sabotage;
        let any_signer = sabotage.is(Sabotage::AcceptAnySigner);
        if (any_signer || sabotage.is(Sabotage::LearnHash))
            && let Ok(notice) = Notice::decode(self.1)
        {
            let claim = notice.claim();
            match (&mut blob, ValidatorId::new(claim.archived_by)) {
                (_, Ok(signer)) if any_signer => record.proposer = signer,
                (Some(blob), _) => blob.keccak = BlobKeccak(*claim.blob_keccak),
                _ => {}
            }
        }
        (record, blob)
    }
}

/// What a notice says besides its record.
struct Facts {
    chain_id: u64,
    height: HeightRecord,
    blob: BlobMeta,
}

impl Facts {
    fn read<A: Arena, I: Index>(
        store: &SidecarStore<A, I>,
        height: Height,
        index: u32,
    ) -> Result<Option<Self>, SidecarError> {
        let chain_id = store.config().chain_id;
        let (record, blob) = (store.height(height)?, store.blob_meta(height, index)?);
        Ok(record.zip(blob).map(|(height, blob)| Self { chain_id, height, blob }))
    }

    fn body(&self, record: &ArchiveRecord) -> NoticeBody {
        NoticeBody {
            chain_id: self.chain_id,
            height: self.blob.height,
            round: self.height.round,
            blob_index: self.blob.index,
            kzg_commitment: self.blob.commitment.0,
            blob_keccak: self.blob.keccak.0,
            locators: record.locators.clone(),
            archived_by: record.signer.as_bytes().to_vec(),
            archived_at_height: record.archived_at_height,
        }
    }

    fn body_v0(&self, record: &ArchiveRecord) -> NoticeBodyV0 {
        NoticeBodyV0 {
            height: self.blob.height,
            round: self.height.round,
            blob_index: self.blob.index,
            kzg_commitment: self.blob.commitment.0,
            blob_keccak: self.blob.keccak.0,
            locator: record.locators.first().cloned().unwrap_or_default(),
            archived_by: record.signer.as_bytes().to_vec(),
            archived_at: record.archived_at,
        }
    }

    fn statement(&self, record: &ArchiveRecord) -> Statement {
        match record.form {
            RecordForm::Own | RecordForm::V1 => Statement::V1(self.body(record)),
            RecordForm::V0 => Statement::V0(self.body_v0(record)),
        }
    }
}

/// What is recorded of a notice.
fn record_of(notice: &Notice, signer: ValidatorId) -> ArchiveRecord {
    let locators = notice.claim().locators.to_vec();
    let (form, archived_at_height, archived_at) = match notice {
        Notice::V1(notice) => (RecordForm::V1, notice.body.archived_at_height, notice.archived_at),
        Notice::V0(notice) => (RecordForm::V0, 0, notice.body.archived_at),
    };
    let signature = Some(*notice.signature());
    ArchiveRecord { signer, form, locators, archived_at_height, archived_at, signature }
}

impl<A: Arena, I: Index> Book<A, I> {
    /// The book of a store.
    pub fn new(
        store: Arc<SidecarStore<A, I>>,
        verifier: Arc<Verifier>,
        key: Option<Arc<NoticeKey>>,
        observer: Arc<dyn BookObserver>,
    ) -> Self {
        Self { store, verifier, key, observer }
    }

    /// The notice of a record, in its bytes. None for a record of our own without a key to sign it.
    pub fn notice(
        &self,
        key: BlobKey,
        record: &ArchiveRecord,
    ) -> Result<Option<Bytes>, SidecarError> {
        let Some(facts) = Facts::read(&self.store, key.height, key.index)? else {
            return Err(SidecarError::Unknown(key.height));
        };
        let notice = match (record.form, record.signature) {
            (RecordForm::V0, Some(signature)) => {
                Notice::V0(ArchiveNoticeV0 { body: facts.body_v0(record), signature })
            }
            (RecordForm::V1, Some(signature)) => {
                let (body, archived_at) = (facts.body(record), record.archived_at);
                Notice::V1(ArchiveNotice { body, archived_at, signature })
            }
            _ => {
                let Some(signing) = &self.key else { return Ok(None) };
                Notice::V1(sign(facts.body(record), record.archived_at, signing)?)
            }
        };
        Ok(Some(notice.encode()?.into()))
    }

    /// Verifies a notice and records it.
    pub fn accept(&self, bytes: &[u8]) -> Result<Addition, SidecarError> {
        let head = self.store.summary()?.latest_decided.unwrap_or(0);
        let accepted = self.verifier.verify(bytes, head, &Here(&*self.store, bytes))?;
        let claim = accepted.notice.claim();
        let key = BlobKey { height: claim.height, index: claim.blob_index };
        let keccak = BlobKeccak(*claim.blob_keccak);
        if accepted.addition == Addition::Duplicate {
            return Ok(Addition::Duplicate);
        }
        let record = record_of(&accepted.notice, accepted.signer);
        // Another notice may have come first: the engine compares again, in its own batch.
        match self.store.mark_archived(key, &record, keccak)? {
            Marked::New | Marked::Added => self.observer.recorded(key, &record),
            Marked::Known | Marked::Enough => return Ok(Addition::Duplicate),
        }
        Ok(accepted.addition)
    }
}

impl<A: Arena, I: Index> NoticeBook for Book<A, I> {
    fn notices_for(
        &self,
        height: Height,
        skip: usize,
        max: usize,
    ) -> Result<Vec<Bytes>, SidecarError> {
        let Some(record) = self.store.height(height)? else { return Ok(Vec::new()) };
        let (mut skip, mut notices) = (skip, Vec::new());
        for index in 0..record.blob_count {
            for kept in self.store.records(height, index)? {
                if skip > 0 {
                    skip -= 1;
                    continue;
                }
                if notices.len() >= max {
                    return Ok(notices);
                }
                notices.extend(self.notice(BlobKey { height, index }, &kept.record)?);
            }
        }
        Ok(notices)
    }

    fn lacking(&self, from: Height, max: usize) -> Result<Vec<Height>, SidecarError> {
        self.store.heights_without_notice(from, max)
    }

    fn take(&self, notice: &Bytes) -> Verdict {
        match self.accept(notice) {
            Ok(Addition::Duplicate) => Verdict::Known,
            Ok(Addition::New | Addition::AddsLocators) => Verdict::New,
            Err(SidecarError::Rejected(rejection)) => {
                self.observer.rejected(&rejection);
                let label = rejection.label().to_owned();
                if rejection.is_retryable() {
                    Verdict::Later(label)
                } else {
                    Verdict::Refused(label)
                }
            }
            Err(error) => {
                // Our own trouble says nothing of the notice.
                tracing::warn!(%error, "a notice could not be judged");
                Verdict::Later("busy".to_owned())
            }
        }
    }
}
