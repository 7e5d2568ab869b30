//! One attempt: a blob is put to every provider and read back from each. `made` compares.
//!
//! Putting costs, and what was put cannot always be taken back: whatever an earlier attempt may have
//! put is looked for first, and while nobody can say whether it is there the blob is not sent again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use secateur_core::Locator;
use secateur_store::{Arena, Index};

use super::made::{Copied, Made};
use super::sent::Sent;
use crate::blocking::blocking;
use crate::book::Book;
use crate::copies::is_blob;
use crate::engine::{BlobKey, Job, SidecarStore};
use crate::provider::{BlobTags, Provider, ProviderError};
use crate::sabotage::Sabotage;
use crate::{BLOB_LEN, SidecarError, ValidatorId};

/// Why a blob is not archived yet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttemptError {
    /// The bytes are not here any more, so there is nothing to archive.
    #[error("there are no bytes to archive: {0}")]
    Gone(SidecarError),
    /// The store did not give the blob.
    #[error(transparent)]
    Store(SidecarError),
    /// A provider failed.
    #[error("{provider}: {source}")]
    Provider {
        /// Which.
        provider: String,
        /// How.
        source: ProviderError,
    },
    /// What reads back is not what was put.
    #[error(
        "{provider} gives back other bytes than were put under {locator}; the blob is not archived"
    )]
    OtherBytes {
        /// Which.
        provider: String,
        /// Where.
        locator: String,
    },
    /// The copies are made, and the record of them was refused.
    #[error("the copies are made, but their record is refused: {0}")]
    NotRecorded(SidecarError),
}

/// Attempts after which something that should be at a provider, and is not, is sent again: with the
/// archiver's backoff an hour. Whoever waits longer waits for something that never comes.
const GIVEN_UP_AFTER: u32 = 64;

/// What an attempt needs.
pub(super) struct Attempt<A, I> {
    pub(super) book: Arc<Book<A, I>>,
    pub(super) signer: ValidatorId,
    pub(super) providers: Arc<[Arc<dyn Provider>]>,
    pub(super) sent: Arc<Sent>,
    pub(super) chain_id: u64,
    pub(super) min_copies: usize,
    pub(super) grace: Duration,
    /// Whether an earlier attempt may have put something.
    pub(super) again: bool,
}

impl<A: Arena, I: Index> Attempt<A, I> {
    /// Makes the copies. Enough of them are enough, whatever the other providers do: those have
    /// only a moment more.
    pub(super) async fn make(&self, job: &Job) -> Result<Made, AttemptError> {
        let (tags, blob, at_height) = self.read(job.key).await?;
        let copy = Copy {
            key: job.key,
            tags: &tags,
            blob: &blob,
            sent: &self.sent,
            again: self.again,
            overdue: job.attempts % GIVEN_UP_AFTER == GIVEN_UP_AFTER - 1,
            read_back: !self.book.store.config().sabotage.is(Sabotage::PruneBeforeReadBack),
        };
        let copy = &copy;
        let one = |(place, provider)| async move { (place, copy.make(provider).await) };
        let mut copies: FuturesUnordered<_> = self.providers.iter().enumerate().map(one).collect();
        let (mut made, mut failed) = (Vec::new(), None);
        let ends = tokio::time::sleep(self.grace);
        tokio::pin!(ends);
        loop {
            let enough = made.len() >= self.min_copies;
            let ended = tokio::select! {
                biased;
                ended = copies.next() => ended,
                () = &mut ends, if enough => None,
            };
            match ended {
                None => break,
                Some((place, Ok(copied))) => {
                    made.push((place, copied));
                    if made.len() == self.min_copies {
                        ends.as_mut().reset(tokio::time::Instant::now() + self.grace);
                    }
                }
                Some((_, Err(error))) => {
                    tracing::warn!(%error, height = job.key.height, index = job.key.index,
                        "a copy of a blob failed");
                    failed.get_or_insert(error);
                }
            }
        }
        match failed {
            Some(error) if made.len() < self.min_copies => Err(error),
            failed => {
                made.sort_by_key(|(place, _)| *place);
                let copies = made.into_iter().map(|(_, copied)| copied).collect();
                Ok(Made { copies, keccak: tags.blob_keccak, at_height, failed })
            }
        }
    }

    /// The blob, what it is told apart by, and the chain's height. What nobody would believe is not
    /// even put anywhere.
    async fn read(&self, key: BlobKey) -> Result<(BlobTags, Bytes, u64), AttemptError> {
        let (chain_id, book, signer) = (self.chain_id, Arc::clone(&self.book), self.signer.clone());
        let read = move |store: &SidecarStore<A, I>| {
            let (height, blob, head) = store.to_archive(key)?;
            book.may_sign_for(&signer, &height, head)?;
            let tags = BlobTags {
                chain_id,
                height: key.height,
                round: height.round,
                blob_index: key.index,
                kzg_commitment: blob.meta.commitment,
                versioned_hash: blob.meta.versioned_hash,
                proposer: height.proposer,
                blob_keccak: blob.meta.keccak,
            };
            Ok((tags, blob.blob, head))
        };
        blocking(&self.book.store, read).await.map_err(|error| {
            if error.is_gone() { AttemptError::Gone(error) } else { AttemptError::Store(error) }
        })
    }
}

/// One blob, on its way to providers.
struct Copy<'a> {
    key: BlobKey,
    tags: &'a BlobTags,
    blob: &'a Bytes,
    sent: &'a Sent,
    again: bool,
    /// What could not be read so long is not waited for any more.
    overdue: bool,
    read_back: bool,
}

impl Copy<'_> {
    /// Puts the blob to a provider, unless it is there, and reads it back.
    async fn make(&self, provider: &Arc<dyn Provider>) -> Result<Copied, AttemptError> {
        let id = provider.id();
        let failed = |source| AttemptError::Provider { provider: id.to_owned(), source };
        let copied = |key, back| Copied { locator: Locator { provider: id.to_owned(), key }, back };
        match self.find(provider).await {
            Ok(Some(key)) => return Ok(copied(key, None)),
            // It is nowhere, or something else is: putting it says what is wrong.
            Ok(None) => {}
            Err(ProviderError::Missing { .. }) if self.overdue || provider.is_in_place() => {}
            // It may be there. Better later than twice.
            Err(error) => return Err(failed(error)),
        }
        let key = provider.put(self.tags, self.blob.clone()).await.map_err(failed)?;
        if !self.read_back {
            return Ok(copied(key, None));
        }
        self.sent.note(self.key, id, &key);
        let back = provider.get(&key, BLOB_LEN).await.map_err(failed)?;
        Ok(copied(key, Some(back)))
    }

    /// Where an earlier attempt put the blob, read back and compared.
    async fn find(&self, provider: &Arc<dyn Provider>) -> Result<Option<String>, ProviderError> {
        if !self.again {
            return Ok(None);
        }
        let is_right = |bytes: &Bytes| is_blob(bytes, self.tags.blob_keccak);
        // What we know ourselves is asked first: not everybody can look things up.
        if let Some(key) = self.sent.place(self.key, provider.id()) {
            if is_right(&provider.get(&key, BLOB_LEN).await?) {
                return Ok(Some(key));
            }
            self.sent.forget_place(self.key, provider.id());
        }
        let Some(key) = provider.find(self.tags).await? else { return Ok(None) };
        let bytes = provider.get(&key, BLOB_LEN).await?;
        Ok(is_right(&bytes).then_some(key))
    }
}
