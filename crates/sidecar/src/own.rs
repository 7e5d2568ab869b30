//! Own notices: for what this node may sign, and how its records are signed. The same rules hold for
//! them as for what comes from others, so nothing is archived, told or pruned here on the strength of
//! a notice that no peer would believe.
//!
//! A record is signed before it is stored and told after that: the signature is stored with it, so
//! what is told is the same bytes for ever, whatever key this node has later.

use secateur_core::Height;
use secateur_store::{Arena, Index};

use crate::book::{Book, Facts};
use crate::engine::{
    ArchiveRecord, BlobKey, BlobStatus, HeightRecord, Marked, RecordForm, Unpermitted,
};
use crate::notice::sign;
use crate::{SidecarError, ValidatorId};

impl<A: Arena, I: Index> Book<A, I> {
    /// Whether this node may sign for a height under this name, now: as a validator of the height,
    /// with the key of that term, as its proposer or once others may.
    pub fn may_sign(&self, signer: &ValidatorId, height: Height) -> Result<(), SidecarError> {
        let record = self.store.height(height)?.ok_or(SidecarError::Unknown(height))?;
        self.may_sign_for(signer, &record, self.head()?)
    }

    /// The same for what was decided at a height, with `head` the newest one.
    pub(crate) fn may_sign_for(
        &self,
        signer: &ValidatorId,
        record: &HeightRecord,
        head: Height,
    ) -> Result<(), SidecarError> {
        let height = record.height;
        let refuse = |why| Err(SidecarError::MayNotSign { height, signer: signer.clone(), why });
        let Some(key) = &self.key else { return refuse(Unpermitted::NoKey) };
        match self.verifier.validators.key_at(signer, height) {
            None => return refuse(Unpermitted::NotValidator),
            Some(there) if there != key.public_key() => return refuse(Unpermitted::OtherKey),
            Some(_) => {}
        }
        if record.proposer == *signer {
            return Ok(());
        }
        match self.verifier.signers.open_to_all_from(height) {
            None => refuse(Unpermitted::NotProposer),
            Some(from) if head < from => refuse(Unpermitted::NotYet),
            Some(_) => Ok(()),
        }
    }

    /// Queues a height's blobs to be archived again, due `now`, and answers how many. Where some of them are not
    /// archived by this node, and it may not sign for them or has no name to sign with, that is refused: nothing
    /// would ever take them out of the queue.
    pub fn queue_again(
        &self,
        us: Option<&ValidatorId>,
        height: Height,
        now: u64,
    ) -> Result<usize, SidecarError> {
        let status = self.store.status(height)?;
        let ours =
            |blob: &BlobStatus| blob.records.iter().any(|one| one.record.form == RecordForm::Own);
        if status.pruned.is_none() && !status.blobs.iter().all(ours) {
            match us {
                Some(us) => self.may_sign(us, height)?,
                None => return Err(SidecarError::NoIdentity { height }),
            }
        }
        self.store.enqueue(height, now)
    }

    /// Signs this node's records and stores them, in one commit. Each has an answer of its own, in
    /// their order.
    pub fn record_own(
        &self,
        records: &[(BlobKey, ArchiveRecord)],
    ) -> Result<Vec<Result<Marked, SidecarError>>, SidecarError> {
        let signed: Vec<Result<(BlobKey, ArchiveRecord), SidecarError>> =
            records.iter().map(|(key, record)| Ok((*key, self.signed(*key, record)?))).collect();
        let stored: Vec<(BlobKey, ArchiveRecord)> = signed.iter().flatten().cloned().collect();
        let mut marked = self.store.record_archived_all(&stored)?.into_iter();
        let answer = |one: Result<_, SidecarError>| {
            one.and_then(|_| marked.next().unwrap_or(Ok(Marked::Known)))
        };
        Ok(signed.into_iter().map(answer).collect())
    }

    /// A record with its signature. Of a blob for which there is a notice in this name nothing else
    /// is ever signed: the engine refuses what differs from it.
    fn signed(&self, key: BlobKey, record: &ArchiveRecord) -> Result<ArchiveRecord, SidecarError> {
        let BlobKey { height, index } = key;
        self.may_sign(&record.signer, height)?;
        let before =
            self.store.records(height, index)?.into_iter().find(|kept| {
                kept.record.signer == record.signer && kept.record.form.is_signed_v1()
            });
        let signature = match (before, &self.key) {
            (Some(kept), _) => kept.record.signature,
            (None, Some(signing)) => {
                let facts = Facts::read(&self.store, height, index)?;
                let body = facts.ok_or(SidecarError::Unknown(height))?.body(record);
                Some(sign(body, record.archived_at, signing)?.signature)
            }
            (None, None) => None,
        };
        Ok(ArchiveRecord { signature, ..record.clone() })
    }
}
