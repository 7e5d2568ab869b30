//! Whether the place of external files is the one that the store's files are in.
//!
//! A wrong prefix, another bucket or a disk that is not mounted has none of the files that must be there,
//! and every one of them would count as gone. So a place carries a mark that the store knows: whatever
//! does not carry it is not the place, whatever else is there. And where it does, at least one of some
//! files that must be there is.
//!
//! The mark begins with an id of the store. Two stores that share a place would remove files that the other
//! one needs, so the second is refused.

use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, SystemTime};

use secateur_core::{Height, format_duration};
use tokio::time::{Instant, timeout};

use super::Pruner;
use crate::UtxoError;
use crate::files::ExternalFiles;
use crate::store::UtxoStore;

/// Records with external files of which at least one must be where it should be.
const SAMPLE: usize = 16;
/// Under this name the store keeps the mark of its place.
const MARK: &str = "files_mark";
/// Under this one, what its marks begin with.
const STORE: &str = "store_id";
/// How long a bucket that was seen to be the right one is believed to be, for new files. A directory is
/// looked at each time: its disk can go at any moment, and a look costs nothing.
const BELIEVED: Duration = Duration::from_secs(1);
/// How long it is left alone by whoever only looks.
const LOOK: Duration = Duration::from_secs(10);

/// Half a mark, unlike any other: the store's id, and then the place's.
fn chance() -> String {
    format!("{:016x}", RandomState::new().hash_one(SystemTime::now()))
}

impl<S: UtxoStore> Pruner<S> {
    /// Looks whether new files may go to the place: now for a directory, and once in a while for a bucket.
    pub(crate) async fn look_at_place(&self) -> Result<(), UtxoError> {
        let recently = || self.place_seen.lock().is_some_and(|at| at.elapsed() < LOOK);
        match &self.files {
            Some(files) if files.is_directory() || !recently() => self.check_place().await,
            _ => Ok(()),
        }
    }

    /// Refuses a place where new files must not go: it is not the one that the others are in.
    pub async fn check_place(&self) -> Result<(), UtxoError> {
        let Some(files) = &self.files else { return Ok(()) };
        let believed = || self.place_seen.lock().is_some_and(|at| at.elapsed() < BELIEVED);
        if !files.is_directory() && believed() {
            return Ok(());
        }
        if self.is_marked(files).await? {
            *self.place_seen.lock() = Some(Instant::now());
            return Ok(());
        }
        Err(unmarked(files))
    }

    /// Whether this can be the place, for those who leave things as they are: nothing is marked.
    pub async fn peek_at_place(&self) -> Result<(), UtxoError> {
        let Some(files) = &self.files else {
            let with_files = self.store.external_sample(None, 1).await?;
            return if with_files.is_empty() { Ok(()) } else { Err(no_place()) };
        };
        match (self.store.note(MARK).await?, files.mark().await?) {
            (Some(known), Some(carried)) if known == carried => Ok(()),
            (None, Some(carried)) => match self.store.note(STORE).await? {
                Some(store) if carried.starts_with(&store) => Ok(()),
                _ => Err(another_stores(files)),
            },
            (None, None) if self.is_proved(files, None).await? => Ok(()),
            _ => Err(unmarked(files)),
        }
    }

    /// Whether records with external files may go: this is the place of their files.
    pub(super) async fn is_right_place(&self, height: Height) -> Result<bool, UtxoError> {
        let Some(files) = &self.files else { return Ok(false) };
        let right = async {
            Ok::<_, UtxoError>(
                self.is_marked(files).await? && self.is_proved(files, Some(height)).await?,
            )
        };
        let patience = self.settings.files_patience();
        let right = timeout(patience, right).await.unwrap_or_else(|_| {
            let (place, reason) =
                (files.address(), format!("nothing came within {}", format_duration(patience)));
            Err(UtxoError::NoAnswer { place: place.to_owned(), reason })
        });
        match right {
            Ok(true) => Ok(true),
            Ok(false) => {
                tracing::error!(
                    place = files.address(),
                    "this is not where the external files are; records with external files stay. {ADVICE}"
                );
                Ok(false)
            }
            // What has no file goes all the same.
            Err(
                error @ (UtxoError::Files(_) | UtxoError::File { .. } | UtxoError::NoAnswer { .. }),
            ) => {
                tracing::warn!(%error, "records with external files stay until their place answers");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the place carries the mark that the store knows. One is given to it the first time, if files
    /// that must be there are.
    pub(super) async fn is_marked(&self, files: &ExternalFiles) -> Result<bool, UtxoError> {
        let gone = self.settings.missing_files_are_gone;
        let known = self.store.note(MARK).await?;
        let carried = match files.mark().await {
            // Whose it is nobody can tell; a store that never had a place has no claim to it.
            Err(UtxoError::File { .. }) if gone && known.is_some() => {
                files.remove_mark().await?;
                None
            }
            carried => carried?,
        };
        if known.is_some() && known == carried {
            return Ok(true);
        }
        let store = self.store.claim_note(STORE, &chance()).await?;
        if carried.as_ref().is_some_and(|mark| !mark.starts_with(&store)) {
            return Err(another_stores(files));
        }
        let first = known.is_none() && self.is_proved(files, None).await?;
        if !first && !gone {
            return Ok(false);
        }
        // The place first: a mark that no store knows does no harm, one that no place carries does.
        let mark = match carried {
            Some(mark) => mark,
            None => files.set_mark(&format!("{store}{}", chance())).await?,
        };
        if !mark.starts_with(&store) {
            return Err(another_stores(files));
        }
        if known.is_none() {
            // Another service on the same store may have named another place meanwhile.
            return Ok(self.store.claim_note(MARK, &mark).await? == mark);
        }
        self.store.set_note(MARK, &mark).await?;
        Ok(true)
    }

    /// Whether at least one of some files that must be there is. Those of records that are not due must
    /// be; where there are none, those of any that are not cut; else those of what is cut, of which the
    /// last run may have removed every one.
    async fn is_proved(
        &self,
        files: &ExternalFiles,
        height: Option<Height>,
    ) -> Result<bool, UtxoError> {
        if self.settings.missing_files_are_gone {
            return Ok(true);
        }
        let mut sample = Vec::new();
        if height.is_some() {
            sample = self.store.external_sample(height, SAMPLE).await?;
        }
        if sample.is_empty() {
            // What is due and not cut has its file too.
            sample = self.store.external_sample(None, SAMPLE).await?;
        }
        if sample.is_empty() && height.is_none() {
            // Only what is cut has files, and this place never carried the mark.
            let doomed = self.store.doomed(None, self.settings.chunk_size).await?.items;
            let with_files = doomed.into_iter().filter_map(|one| Some((one.txid, one.external?)));
            sample = with_files.take(SAMPLE).collect();
        }
        if sample.is_empty() {
            return Ok(true);
        }
        files.prove(&sample).await
    }
}

fn no_place() -> UtxoError {
    UtxoError::File {
        name: "of some records".into(),
        reason: format!("there is no place of external files; {ADVICE}"),
    }
}

fn unmarked(files: &ExternalFiles) -> UtxoError {
    UtxoError::File {
        name: files.address().to_owned(),
        reason: format!("it does not carry the mark of this store's files; {ADVICE}"),
    }
}

fn another_stores(files: &ExternalFiles) -> UtxoError {
    UtxoError::File {
        name: files.address().to_owned(),
        reason: "it carries the mark of another store's files, which would be removed with this one's; give \
                 this store a place or a prefix of its own. If that store is gone for good, remove the \
                 object secateur-place"
            .into(),
    }
}

const ADVICE: &str = "check utxo.files and its prefix, and that the disk is mounted. If the files are \
    truly gone, set missing_files_are_gone";
