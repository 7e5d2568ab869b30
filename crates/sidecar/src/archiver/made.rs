//! What attempts made: copies that were read back, compared with the hashes that this node knows.
//!
//! They are compared when they are written down and not when they come: those of several attempts
//! are hashed together (`keccak`).

use bytes::Bytes;
use secateur_core::{Height, Locator};

use super::AttemptError;
use super::sent::Sent;
use crate::engine::{ArchiveRecord, BlobKey, Job, MAX_LOCATORS, RecordForm};
use crate::keccak::{BlobBytes, keccak_all};
use crate::{BlobKeccak, ValidatorId};

/// What one attempt made.
#[derive(Debug)]
pub(super) struct Made {
    /// In the order of the providers.
    pub(super) copies: Vec<Copied>,
    /// The hash that they must have.
    pub(super) keccak: BlobKeccak,
    /// The chain's height meanwhile.
    pub(super) at_height: Height,
    /// Why another provider has none.
    pub(super) failed: Option<AttemptError>,
}

/// A copy at a provider.
#[derive(Debug)]
pub(super) struct Copied {
    pub(super) locator: Locator,
    /// What was read back; none if it was compared at once.
    pub(super) back: Option<Bytes>,
}

impl Copied {
    /// The bytes to be hashed. What has another length is no copy, whatever it hashes to.
    fn blob(&self) -> Option<&BlobBytes> {
        self.back.as_ref()?.as_ref().try_into().ok()
    }
}

/// Under which conditions copies become a record, and whose it is.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) signer: ValidatorId,
    pub(super) min_copies: usize,
    /// Seconds since 1970.
    pub(super) now: u64,
}

/// A job, and the record that is to be signed for it.
pub(super) type Judged = (Job, Result<ArchiveRecord, AttemptError>);

/// Compares all copies.
pub(super) fn judge(made: Vec<(Job, Made)>, terms: &Terms, sent: &Sent) -> Vec<Judged> {
    let blobs: Vec<&BlobBytes> =
        made.iter().flat_map(|(_, made)| &made.copies).filter_map(Copied::blob).collect();
    let mut hashes = keccak_all(&blobs).into_iter();
    let mut is_right = |copied: &Copied, wanted| match (&copied.back, copied.blob()) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(_), Some(_)) => hashes.next() == Some(wanted),
    };
    let mut judged = Vec::with_capacity(made.len());
    for (job, made) in made {
        let keccak = made.keccak;
        let (right, wrong): (Vec<_>, Vec<_>) =
            made.copies.into_iter().partition(|copied| is_right(copied, keccak));
        let wrong = wrong.into_iter().map(|copied| no_copy(job.key, copied.locator, sent));
        let first = wrong.fold(made.failed, |first, error| first.or(Some(error)));
        let record = match first {
            Some(error) if right.len() < terms.min_copies => Err(error),
            _ => {
                sent.forget(job.key);
                let locators = right.into_iter().map(|copied| copied.locator);
                Ok(ArchiveRecord {
                    signer: terms.signer.clone(),
                    form: RecordForm::Own,
                    locators: locators.take(MAX_LOCATORS).collect(),
                    archived_at_height: made.at_height,
                    archived_at: terms.now,
                    signature: None,
                })
            }
        };
        judged.push((job, record));
    }
    judged
}

/// What is there is not the blob, and nothing to wait for.
fn no_copy(key: BlobKey, locator: Locator, sent: &Sent) -> AttemptError {
    let Locator { provider, key: place } = locator;
    sent.forget_place(key, &provider);
    let error = AttemptError::OtherBytes { provider, locator: place };
    tracing::warn!(%error, height = key.height, index = key.index, "a copy of a blob failed");
    error
}

#[cfg(test)]
mod tests {
    use alloy_primitives::keccak256;

    use super::*;
    use crate::BLOB_LEN;

    fn copied(provider: &str, back: Option<Bytes>) -> Copied {
        Copied { locator: Locator { provider: provider.into(), key: "x".into() }, back }
    }

    fn blob(byte: u8) -> Bytes {
        vec![byte; BLOB_LEN].into()
    }

    fn made(height: Height, copies: Vec<Copied>) -> (Job, Made) {
        let job = Job { key: BlobKey { height, index: 0 }, attempts: 0, due: 0, held: None };
        let keccak = BlobKeccak(keccak256(blob(u8::try_from(height).unwrap())).0);
        (job, Made { copies, keccak, at_height: 9, failed: None })
    }

    #[test]
    fn each_copy_is_compared_with_its_own_hash_and_a_wrong_one_harms_nobody_else() {
        let sent = Sent::default();
        for (height, provider) in [(1, "a"), (2, "a"), (2, "b"), (3, "a")] {
            sent.note(BlobKey { height, index: 0 }, provider, "x");
        }
        let all = vec![
            made(1, vec![copied("a", Some(blob(1)))]),
            // One of two is enough, wherever the wrong one stands.
            made(2, vec![copied("a", Some(blob(9))), copied("b", Some(blob(2)))]),
            made(3, vec![copied("a", Some(blob(3).slice(1..)))]),
            // It was compared when it was found.
            made(4, vec![copied("a", None)]),
            made(5, vec![copied("a", Some(blob(5)))]),
        ];
        let terms = Terms { signer: ValidatorId::new(&[1; 20]).unwrap(), min_copies: 1, now: 7 };
        let judged = judge(all, &terms, &sent);
        let names = |nth: usize| -> Vec<&str> {
            let record = judged[nth].1.as_ref().unwrap();
            assert_eq!((record.archived_at_height, record.archived_at), (9, 7));
            record.locators.iter().map(|locator| locator.provider.as_str()).collect()
        };
        assert_eq!(names(0), ["a"]);
        assert_eq!(names(1), ["b"]);
        assert!(matches!(judged[2].1, Err(AttemptError::OtherBytes { .. })));
        assert_eq!(names(3), ["a"]);
        assert_eq!(names(4), ["a"]);
        // What is archived, and what is no copy, is not looked for again.
        for height in 1..=3 {
            assert_eq!(sent.place(BlobKey { height, index: 0 }, "a"), None);
        }
    }

    #[test]
    fn fewer_right_copies_than_wanted_are_no_success_and_the_right_ones_are_remembered() {
        let sent = Sent::default();
        let key = BlobKey { height: 1, index: 0 };
        sent.note(key, "a", "x");
        sent.note(key, "b", "x");
        let one = made(1, vec![copied("a", Some(blob(1))), copied("b", Some(blob(2)))]);
        let terms = Terms { signer: ValidatorId::new(&[1; 20]).unwrap(), min_copies: 2, now: 7 };
        let judged = judge(vec![one], &terms, &sent);
        let error = judged[0].1.as_ref().unwrap_err().to_string();
        assert!(error.starts_with("b gives back other bytes"), "{error}");
        assert_eq!(sent.place(key, "a").as_deref(), Some("x"));
        assert_eq!(sent.place(key, "b"), None);
    }
}
