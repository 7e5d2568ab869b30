//! Records that are cut: their files go, then they.

use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use parking_lot::Mutex;
use secateur_core::format_duration;
use tokio::time::{Instant, timeout};

use super::{Ended, Limits, Pruner};
use crate::UtxoError;
use crate::files::Removed;
use crate::store::{Doomed, Kept, UtxoStore};

/// External files that are removed at the same time in one chunk.
const FILES_AT_ONCE: usize = 16;
/// Records whose files go before they do: so often what is done is kept, counted, and the run may end.
const GROUP: usize = 256;

/// How long files are tried in vain. A place that removes nothing, or takes for ever, is left alone then, so that
/// records without files have the rest of a run's time.
#[derive(Debug)]
pub(super) struct Patience {
    most: Duration,
    tries: Mutex<Tries>,
}

#[derive(Debug)]
struct Tries {
    under_way: usize,
    /// When it was last looked at.
    seen: Instant,
    /// How long files were tried since the last one went, however many side by side.
    in_vain: Duration,
    is_over: bool,
}

impl Patience {
    pub(super) fn new(most: Duration) -> Self {
        let (in_vain, is_over) = (Duration::ZERO, false);
        let tries = Tries { under_way: 0, seen: Instant::now(), in_vain, is_over };
        Self { most, tries: Mutex::new(tries) }
    }

    pub(super) fn is_over(&self) -> bool {
        self.look(|_| ())
    }

    /// Changes the tries, after what went by since the last look. Answers whether it is over, which it stays.
    fn look(&self, change: impl FnOnce(&mut Tries)) -> bool {
        let mut tries = self.tries.lock();
        let now = Instant::now();
        if tries.under_way > 0 {
            let more = now.saturating_duration_since(tries.seen);
            tries.in_vain = tries.in_vain.saturating_add(more);
        }
        tries.seen = now;
        change(&mut tries);
        tries.is_over |= tries.in_vain >= self.most;
        tries.is_over
    }

    /// Whether one more is tried.
    fn begin(&self) -> bool {
        let is_over = self.look(|tries| tries.under_way += 1);
        if is_over {
            self.end(false);
        }
        !is_over
    }

    /// A try has ended. Answers whether that was the last one.
    fn end(&self, went: bool) -> bool {
        self.look(|tries| {
            tries.under_way = tries.under_way.saturating_sub(1);
            if went {
                tries.in_vain = Duration::ZERO;
            }
        })
    }

    fn give_up(&self) {
        self.look(|tries| tries.is_over = true);
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
    /// Removes files, then the records whose files are gone, some at a time.
    pub(super) async fn remove(
        &self,
        doomed: Vec<Doomed<S::Key>>,
        patience: &Patience,
        limits: &Limits,
    ) -> Result<(), Ended> {
        let mut doomed = doomed.into_iter();
        while doomed.len() > 0 {
            self.remove_some(doomed.by_ref().take(GROUP).collect(), patience).await?;
            if doomed.len() > 0 {
                limits.check()?;
            }
        }
        Ok(())
    }

    async fn remove_some(
        &self,
        doomed: Vec<Doomed<S::Key>>,
        patience: &Patience,
    ) -> Result<(), UtxoError> {
        let seen: Vec<_> = stream::iter(doomed)
            .map(|record| async {
                let seen = self.remove_file(&record, patience).await;
                (record, seen)
            })
            .buffer_unordered(FILES_AT_ONCE)
            .collect()
            .await;
        let (mut gone, mut without_files) = (Vec::new(), Vec::new());
        let (mut stay, mut misplaced, mut first) = (0, 0, None);
        for (record, seen) in seen {
            match seen {
                Seen::Gone(Some(removed)) => gone.push((record, removed)),
                Seen::Gone(None) => without_files.push(record.key),
                Seen::Misplaced => misplaced += 1,
                Seen::Untried => stay += 1,
                Seen::Failed(error) => {
                    stay += 1;
                    first.get_or_insert((record.txid, error));
                }
            }
        }
        if let Some((record, _)) = gone.first()
            && let Err(error) = self.make_durable(patience).await
        {
            stay += gone.len() as u64;
            first.get_or_insert((record.txid, error));
            gone.clear();
        }
        if let Some((txid, error)) = first {
            let told = "external files could not be removed, so their records stay";
            tracing::warn!(staying = stay, %txid, %error, "{told}; one of them");
        }
        let deleted = gone.iter().filter(|(_, removed)| *removed == Removed::Deleted).count();
        self.board.count(|done| {
            done.files_deleted += deleted as u64;
            done.files_missing += (gone.len() - deleted) as u64;
            done.keep(Kept::FileStays, stay);
            done.keep(Kept::FilesMissing, misplaced);
        });
        without_files.extend(gone.into_iter().map(|(record, _)| record.key));
        self.finish(without_files).await
    }

    /// Removes records that are cut, step by step, and counts what went.
    async fn finish(&self, mut keys: Vec<S::Key>) -> Result<(), UtxoError> {
        while !keys.is_empty() {
            let done = self.store.finish(keys.clone()).await?.min(keys.len());
            if done == 0 {
                return Err(UtxoError::store("it removed nothing of what is cut"));
            }
            keys.drain(..done);
            self.board.count(|counts| counts.deleted += done as u64);
        }
        Ok(())
    }

    /// Files that are gone stay gone also when the power goes, before their records do.
    async fn make_durable(&self, patience: &Patience) -> Result<(), UtxoError> {
        let Some(files) = &self.files else { return Ok(()) };
        let synced = timeout(patience.most, files.sync_removals()).await;
        let synced = synced.unwrap_or_else(|_| {
            let reason =
                format!("a removal could not be synced within {}", format_duration(patience.most));
            Err(UtxoError::NoAnswer { place: files.address().to_owned(), reason })
        });
        synced.inspect_err(|_| patience.give_up())
    }

    async fn remove_file(&self, record: &Doomed<S::Key>, patience: &Patience) -> Seen {
        if record.external.is_none() {
            return Seen::Gone(None);
        }
        if !patience.begin() {
            return Seen::Untried;
        }
        let removed = timeout(patience.most, self.try_to_remove(record)).await;
        let seen = match removed {
            Ok(Ok(Some(removed))) => Seen::Gone(Some(removed)),
            Ok(Ok(None)) => Seen::Misplaced,
            Ok(Err(error)) => Seen::Failed(error),
            Err(_) => Seen::Failed(UtxoError::File {
                name: format!("of transaction {}", record.txid),
                reason: format!(
                    "it could not be removed within {}",
                    format_duration(patience.most)
                ),
            }),
        };
        if patience.end(matches!(seen, Seen::Gone(_))) && matches!(seen, Seen::Failed(_)) {
            tracing::warn!("external files do not go, and are left alone until the next run");
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
        // Its own, so that files which never go keep those of this run from nothing.
        let patience = Patience::new(self.settings.files_patience());
        let mut after = None;
        loop {
            limits.check()?;
            let page = self.store.doomed(after, self.settings.chunk_size).await?;
            let may_go = |record: &Doomed<_>| external || record.external.is_none();
            let (go, stay): (Vec<_>, Vec<_>) = page.items.into_iter().partition(may_go);
            self.board.count(|done| done.keep(Kept::FilesMissing, stay.len() as u64));
            self.remove(go, &patience, limits).await?;
            // What cannot be removed now is passed over, and tried again by the next run.
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }
}
