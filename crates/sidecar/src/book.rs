//! The book of notices: what gossip asks of the engine. A notice that comes is verified against what
//! this node knows by itself and recorded; records are given out again as the notices they came from.
//! How our own are signed is in `own`.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use secateur_core::Height;
use secateur_core::notice::{
    ArchiveNotice, ArchiveNoticeV0, Notice, NoticeBody, NoticeBodyV0, Statement,
};
use secateur_store::{Arena, Index};

use crate::anteroom::Anteroom;
use crate::engine::{
    ArchiveRecord, BlobKey, BlobMeta, HeightRecord, Marked, RecordForm, SidecarStore,
};
use crate::gossip::{NoticeBook, Verdict};
use crate::notice::{Addition, Decided, DecidedBlob, Known, NoticeKey, Rejection, Verifier};
use crate::sabotage::Sabotage;
use crate::{BlobKeccak, SidecarError, ValidatorId};

/// Who hears what became of notices.
pub trait BookObserver: Send + Sync + 'static {
    /// Nobody had signed for a blob before.
    fn first_record(&self, _key: BlobKey) {}
    /// A notice was recorded: something may be prunable now.
    fn recorded(&self, key: BlobKey, record: &ArchiveRecord);
    /// A notice was not believed.
    fn rejected(&self, rejection: &Rejection);
    /// A notice came whose signer has signed another one for the blob, whatever became of it.
    fn equivocated(&self, _key: BlobKey, _signer: &ValidatorId) {}
    /// A notice came too early, and waits here until it can be judged.
    fn early(&self, _why: &Rejection) {}
}

/// The notices of a store.
pub struct Book<A, I> {
    pub(crate) store: Arc<SidecarStore<A, I>>,
    pub(crate) verifier: Arc<Verifier>,
    /// Signs our own records; a node that archives nothing has none.
    pub(crate) key: Option<Arc<NoticeKey>>,
    observer: Arc<dyn BookObserver>,
    /// What came too early.
    early: Mutex<Anteroom>,
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
            // Damaged bytes say nothing, and a right copy of them is what is needed now.
            Err(error) if error.is_damage() => {
                tracing::warn!(%error, height, index, "a notice is judged by the stored hash alone");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn records(&self, height: Height, index: u32) -> Result<Vec<Statement>, SidecarError> {
        let Some(facts) = Facts::read(self.0, height, index)? else { return Ok(Vec::new()) };
        let records = self.0.records(height, index)?;
        Ok(records.iter().map(|kept| facts.statement(&kept.record)).collect())
    }

    fn doubted(&self, height: Height, index: u32) -> Result<bool, SidecarError> {
        Ok(self.0.is_doubted(BlobKey { height, index }))
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
pub(crate) struct Facts {
    chain_id: u64,
    height: HeightRecord,
    blob: BlobMeta,
}

impl Facts {
    pub(crate) fn read<A: Arena, I: Index>(
        store: &SidecarStore<A, I>,
        height: Height,
        index: u32,
    ) -> Result<Option<Self>, SidecarError> {
        let chain_id = store.config().chain_id;
        let (record, blob) = (store.height(height)?, store.blob_meta(height, index)?);
        Ok(record.zip(blob).map(|(height, blob)| Self { chain_id, height, blob }))
    }

    pub(crate) fn body(&self, record: &ArchiveRecord) -> NoticeBody {
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
        Self { store, verifier, key, observer, early: Mutex::default() }
    }

    /// The notice of a record, in its bytes. None for a record without a signature.
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
            (RecordForm::Own | RecordForm::V1, Some(signature)) => {
                let (body, archived_at) = (facts.body(record), record.archived_at);
                Notice::V1(ArchiveNotice { body, archived_at, signature })
            }
            (_, None) => return Ok(None),
        };
        Ok(Some(notice.encode()?.into()))
    }

    /// Verifies a notice and records it.
    pub fn accept(&self, bytes: &[u8]) -> Result<Addition, SidecarError> {
        // What nobody has signed costs no look into the store.
        let signed = self.verifier.authenticate(bytes)?;
        let accepted = self.verifier.judge(signed, self.head()?, &Here(&*self.store, bytes))?;
        let claim = accepted.notice.claim();
        let key = BlobKey { height: claim.height, index: claim.blob_index };
        let keccak = BlobKeccak(*claim.blob_keccak);
        if accepted.addition == Addition::Duplicate {
            return Ok(Addition::Duplicate);
        }
        let record = record_of(&accepted.notice, accepted.signer);
        // Another notice may have come first: the engine compares again, in its own batch.
        match self.store.mark_archived(key, &record, keccak) {
            Ok(new @ (Marked::New | Marked::Added)) => {
                if new == Marked::New {
                    self.observer.first_record(key);
                }
                self.observer.recorded(key, &record);
            }
            Ok(Marked::Known | Marked::Enough) => return Ok(Addition::Duplicate),
            Err(SidecarError::RecordConflict { height, index, signer }) => {
                return Err(Rejection::Conflict { height, index, signer }.into());
            }
            Err(error) => return Err(error),
        }
        if accepted.addition == Addition::Differs {
            self.observer.equivocated(key, &record.signer);
        }
        Ok(accepted.addition)
    }

    /// The newest decided height.
    pub(crate) fn head(&self) -> Result<Height, SidecarError> {
        Ok(self.store.head()?.unwrap_or(0))
    }

    /// Heights were decided here: what came too early for them is judged now.
    pub fn decided(&self, heights: &[Height]) -> Result<(), SidecarError> {
        let head = self.head()?;
        let called = self.early.lock().call(heights, head);
        for notice in called {
            // Each has been answered long ago; what becomes of it is counted and logged.
            drop(self.take(&notice));
        }
        Ok(())
    }

    fn reject(&self, notice: &[u8], rejection: &Rejection) -> Verdict {
        let label = rejection.label().to_owned();
        let may_come_again = match rejection {
            _ if rejection.is_retryable() => self.put_off(notice, rejection).map(|()| true),
            Rejection::Conflict { height, index, signer } => {
                let key = BlobKey { height: *height, index: *index };
                self.observer.rejected(rejection);
                self.observer.equivocated(key, signer);
                // It is heard if what was said first turns out to be false.
                self.store.is_unseen(key)
            }
            _ => {
                self.observer.rejected(rejection);
                Ok(false)
            }
        };
        match may_come_again {
            // Nobody is told that it is here: a crash may lose it before it is durable.
            Ok(true) => Verdict::Later(label),
            Ok(false) => Verdict::Refused(label),
            Err(error) => busy(&error),
        }
    }

    /// A notice that may be right later waits here, if there is room for it.
    fn put_off(&self, notice: &[u8], why: &Rejection) -> Result<(), SidecarError> {
        let head = self.head()?;
        let signer = Notice::decode(notice)
            .and_then(|notice| ValidatorId::new(notice.claim().archived_by))
            .map_err(Rejection::Malformed)?;
        if !self.early.lock().admit(notice, signer, why, head) {
            self.observer.rejected(why);
            return Ok(());
        }
        self.observer.early(why);
        // What it waits for may have come while it was judged, and nobody would call it then.
        match why {
            Rejection::NoMetadata { height } if self.store.height(*height)?.is_some() => {
                self.decided(&[*height])
            }
            Rejection::NotYetPermitted { from, .. } if self.head()? >= *from => self.decided(&[]),
            _ => Ok(()),
        }
    }
}

/// Our own trouble says nothing of a notice.
fn busy(error: &SidecarError) -> Verdict {
    tracing::warn!(%error, "a notice could not be judged");
    Verdict::Later("busy".to_owned())
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
            Ok(Addition::New | Addition::AddsLocators | Addition::Differs) => Verdict::New,
            Err(SidecarError::Rejected(rejection)) => self.reject(notice, &rejection),
            Err(error) => busy(&error),
        }
    }
}
