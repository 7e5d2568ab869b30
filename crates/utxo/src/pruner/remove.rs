//! Records that are cut: their files go, then they.

use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::{Ended, Limits, Pruner};
use crate::UtxoError;
use crate::files::Removed;
use crate::store::{Doomed, Kept, UtxoStore};

/// External files that are removed at the same time in one chunk.
const FILES_AT_ONCE: u32 = 16;

/// How long files are tried in vain. A place that removes nothing, or takes for ever, is left alone then, so that
/// records without files have the rest of a run's time.
#[derive(Debug)]
pub(super) struct Patience {
    most: Duration,
    /// What was spent since the last file went.
    in_vain: Mutex<Duration>,
}

impl Patience {
    pub(super) fn new(most: Duration) -> Self {
        Self { most, in_vain: Mutex::default() }
    }

    /// Files are tried side by side, so each moment counts as often as files are tried in it.
    fn limit(&self) -> Duration {
        self.most.saturating_mul(FILES_AT_ONCE)
    }

    pub(super) fn is_over(&self) -> bool {
        *self.in_vain.lock() >= self.limit()
    }

    /// What a try took. Once it is over it stays so.
    fn note(&self, began: Instant, went: bool) {
        let mut in_vain = self.in_vain.lock();
        if *in_vain < self.limit() {
            *in_vain = if went { Duration::ZERO } else { in_vain.saturating_add(began.elapsed()) };
        }
    }

    fn end(&self) {
        *self.in_vain.lock() = Duration::MAX;
    }
}

/// What became of a record's file.
enum Seen {
    /// It is gone, by whomever; the record has none if there is no answer.
    Gone(Option<Removed>),
    /// The place is not the right one any more.
    Misplaced,
    /// It was not tried: the place is left alone.
    Untried,
    Failed(UtxoError),
}

impl<S: UtxoStore> Pruner<S> {
    /// Removes files, then the records whose files are gone.
    pub(super) async fn remove(
        &self,
        doomed: Vec<Doomed<S::Key>>,
        patience: &Patience,
    ) -> Result<(), UtxoError> {
        if doomed.is_empty() {
            return Ok(());
        }
        let seen: Vec<_> = stream::iter(doomed)
            .map(|record| async {
                let seen = self.remove_file(&record, patience).await;
                (record, seen)
            })
            .buffer_unordered(FILES_AT_ONCE as usize)
            .collect()
            .await;
        let (mut ready, mut without_files) = (Vec::new(), Vec::new());
        let (mut stay, mut misplaced, mut first) = (0, 0, None);
        for (record, seen) in seen {
            match seen {
                Seen::Gone(Some(removed)) => {
                    self.board.count(|done| match removed {
                        Removed::Deleted => done.files_deleted += 1,
                        Removed::Missing => done.files_missing += 1,
                    });
                    ready.push(record);
                }
                Seen::Gone(None) => without_files.push(record.key),
                Seen::Misplaced => misplaced += 1,
                Seen::Untried => stay += 1,
                Seen::Failed(error) => {
                    stay += 1;
                    first.get_or_insert((record.txid, error));
                }
            }
        }
        if let Some(record) = ready.first()
            && let Err(error) = self.make_durable(patience).await
        {
            stay += ready.len() as u64;
            first.get_or_insert((record.txid, error));
            ready.clear();
        }
        if let Some((txid, error)) = first {
            let told = "external files could not be removed, so their records stay";
            tracing::warn!(staying = stay, %txid, %error, "{told}; one of them");
        }
        without_files.extend(ready.into_iter().map(|record| record.key));
        let gone = without_files.len() as u64;
        self.store.finish(without_files).await?;
        self.board.count(|done| {
            done.deleted += gone;
            done.keep(Kept::FileStays, stay);
            done.keep(Kept::FilesMissing, misplaced);
        });
        Ok(())
    }

    /// Files that are gone stay gone also when the power goes, before their records do.
    async fn make_durable(&self, patience: &Patience) -> Result<(), UtxoError> {
        let Some(files) = &self.files else { return Ok(()) };
        let synced = timeout(patience.most, files.sync_removals()).await;
        let synced = synced.unwrap_or_else(|_| {
            let reason = format!("it could not be synced within {:?}", patience.most);
            Err(UtxoError::File { name: files.address().to_owned(), reason })
        });
        synced.inspect_err(|_| patience.end())
    }

    async fn remove_file(&self, record: &Doomed<S::Key>, patience: &Patience) -> Seen {
        if record.external.is_none() {
            return Seen::Gone(None);
        }
        if patience.is_over() {
            return Seen::Untried;
        }
        let began = Instant::now();
        let removed = timeout(patience.most, self.try_to_remove(record)).await;
        let seen = match removed {
            Ok(Ok(Some(removed))) => Seen::Gone(Some(removed)),
            Ok(Ok(None)) => Seen::Misplaced,
            Ok(Err(error)) => Seen::Failed(error),
            Err(_) => Seen::Failed(UtxoError::File {
                name: format!("of transaction {}", record.txid),
                reason: format!("it could not be removed within {:?}", patience.most),
            }),
        };
        patience.note(began, matches!(seen, Seen::Gone(_)));
        if matches!(seen, Seen::Failed(_)) && patience.is_over() {
            tracing::warn!("external files are left alone for the rest of this run");
        }
        seen
    }

    /// Removes the file of a record. Nothing is the answer where the place is not the right one any more: a file
    /// that is not there is believed only while the place carries the mark, and is looked for once more after that
    /// was seen.
    async fn try_to_remove(&self, record: &Doomed<S::Key>) -> Result<Option<Removed>, UtxoError> {
        let Some(kind) = record.external else { return Ok(None) };
        let none = || UtxoError::Setting("no place of external files is set".into());
        let files = self.files.as_ref().ok_or_else(none)?;
        if files.remove(record.txid, kind).await? == Removed::Deleted {
            return Ok(Some(Removed::Deleted));
        }
        if !self.is_marked(files).await? {
            return Ok(None);
        }
        files.remove(record.txid, kind).await.map(Some)
    }

    /// Goes on where a run was cut off between a record's cut and its end; what has a file only if its place is
    /// the right one.
    pub(super) async fn finish_doomed(&self, external: bool, limits: &Limits) -> Result<(), Ended> {
        let patience = Patience::new(self.settings.files_patience());
        let mut after = None;
        loop {
            limits.check()?;
            let page = self.store.doomed(after, self.settings.chunk_size).await?;
            let may_go = |record: &Doomed<_>| external || record.external.is_none();
            let (go, stay): (Vec<_>, Vec<_>) = page.items.into_iter().partition(may_go);
            self.board.count(|done| done.keep(Kept::FilesMissing, stay.len() as u64));
            self.remove(go, &patience).await?;
            // What cannot be removed now is passed over, and tried again by the next run.
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }
}
