//! The pruner: lets the engine cut what nothing holds any more, and under `trust = fetch` makes sure
//! first that an archived copy is really there.
//!
//! What holds a blob is the engine's knowledge alone; nothing here can make it cut more. The order
//! is that of heights. Copies are fetched beside one another, and a height goes as soon as its own
//! are there: one that cannot be fetched holds its height and is tried again later, ever less often;
//! it holds up nobody else's.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use secateur_core::Height;
use secateur_store::{Arena, Index};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::blocking::{blocking, told};
use crate::copies::{Copies, Looked};
use crate::engine::{BlobKey, FetchDue, PruneReport, SidecarStore};
use crate::sabotage::Sabotage;
use crate::{SidecarError, Trust};

/// Blobs that the engine is asked for at a time.
const PAGE: usize = 64;
/// Blobs that are fetched at once.
const AT_ONCE: usize = 8;
/// How long looking for one blob may take, all of its places together.
const PATIENCE: Duration = Duration::from_mins(5);
/// How often everything is looked at from the start. What is told in between is looked for above what
/// was seen.
const LOOK: Duration = Duration::from_secs(5);
/// How long a blob is left alone that could not be fetched: so long at first,
const FIRST_PAUSE: Duration = Duration::from_secs(4);
/// and twice as long each time, up to this.
const MAX_PAUSE: Duration = Duration::from_secs(64);

/// Who hears what was pruned.
pub trait PrunerObserver: Send + Sync + 'static {
    /// A step was taken.
    fn pruned(&self, report: &PruneReport);
    /// No copy of a blob could be fetched, so its height stays.
    fn not_fetched(&self, due: &FetchDue);
    /// Every copy of a blob that was signed for was looked for, and none is there.
    fn not_there(&self, _due: &FetchDue) {}
    /// No copy of a blob was found, and a locator of it cannot be read here. Its signer is not at fault.
    fn unreadable(&self, _due: &FetchDue) {}
}

/// Prunes.
pub struct Pruner<A, I> {
    store: Arc<SidecarStore<A, I>>,
    copies: Copies,
    observer: Arc<dyn PrunerObserver>,
    wake: Arc<Notify>,
}

impl<A, I> std::fmt::Debug for Pruner<A, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pruner").field("copies", &self.copies).finish_non_exhaustive()
    }
}

impl<A: Arena, I: Index> Pruner<A, I> {
    /// A pruner; nothing happens before it runs. `wake` is rung when something may be prunable.
    pub fn new(
        store: Arc<SidecarStore<A, I>>,
        copies: Copies,
        observer: Arc<dyn PrunerObserver>,
        wake: Arc<Notify>,
    ) -> Self {
        Self { store, copies, observer, wake }
    }

    /// Works until it is stopped, or the store fails.
    pub async fn run(&self, stop: watch::Receiver<bool>) -> Result<(), SidecarError> {
        let mut stopped = stop;
        let mut course = Course::new();
        let mut fetches = FuturesUnordered::new();
        loop {
            self.prune(&mut course, &stopped).await?;
            self.begin(&mut course, &mut fetches).await?;
            tokio::select! {
                biased;
                () = told(&mut stopped) => return Ok(()),
                Some((due, looked)) = fetches.next() => {
                    self.settle(&mut course, due, &looked).await?;
                }
                () = self.wake.notified() => {}
                () = tokio::time::sleep_until(course.ends) => course.start_over(),
            }
        }
    }

    /// Prunes whatever can be pruned.
    async fn prune(
        &self,
        course: &mut Course,
        stop: &watch::Receiver<bool>,
    ) -> Result<(), SidecarError> {
        let fetching = self.store.config().trust == Trust::Fetch;
        let summary = blocking(&self.store, SidecarStore::summary).await?;
        let retained = self.store.config().retain_blocks;
        let limit = summary.finalized.and_then(|finalized| finalized.checked_sub(retained));
        let Some(limit) = limit else { return Ok(()) };
        let mut from = course.held;
        while !*stop.borrow() {
            let report = self.step(from, Height::MAX).await?;
            let Some(last) = report.last.filter(|_| report.more) else { break };
            from = last.saturating_add(1);
        }
        // What is left waits for its copies, and `settle` sees to those. Where notices decide, they
        // may come for any height.
        course.held = if fetching { limit.saturating_add(1) } else { 0 };
        Ok(())
    }

    async fn step(&self, from: Height, before: Height) -> Result<PruneReport, SidecarError> {
        let step = move |store: &SidecarStore<A, I>| store.prune_step_from(from, before);
        let report = blocking(&self.store, step).await?;
        if report.heights > 0 || report.failures > 0 {
            self.observer.pruned(&report);
        }
        Ok(report)
    }

    /// Begins to fetch what keeps heights from being pruned, as far as there is room.
    async fn begin<'a>(
        &'a self,
        course: &mut Course,
        fetches: &mut FuturesUnordered<BoxFuture<'a, (FetchDue, Looked)>>,
    ) -> Result<(), SidecarError> {
        while self.store.config().trust == Trust::Fetch && fetches.len() < AT_ONCE {
            let from = course.next;
            let page = blocking(&self.store, move |store| store.fetch_due(from, PAGE)).await?;
            if page.is_empty() {
                return Ok(());
            }
            let now = Instant::now();
            for due in page {
                let key = due.meta.key();
                if fetches.len() >= AT_ONCE {
                    // The next one goes on here.
                    return Ok(());
                }
                course.next = BlobKey { index: key.index.saturating_add(1), ..key };
                if course.takes(&due, now) {
                    fetches.push(Box::pin(self.look(due, course.failed(key))));
                }
            }
        }
        Ok(())
    }

    /// Looks for a copy. Each time it begins with another place, so that one which never answers
    /// does not keep the others from being asked.
    async fn look(&self, mut due: FetchDue, failed: usize) -> (FetchDue, Looked) {
        if self.store.config().sabotage.is(Sabotage::PruneBeforeReadBack) {
            return (due, Looked::Found(Bytes::new()));
        }
        let places = due.locators.len().max(1);
        due.locators.rotate_left(failed % places);
        let looked = tokio::time::timeout(PATIENCE, self.copies.look(&due.meta, &due.locators));
        let looked = looked.await.unwrap_or(Looked::Unknown);
        (due, looked)
    }

    /// Writes down what became of a fetch. With the last blob of a height, the height goes.
    async fn settle(
        &self,
        course: &mut Course,
        due: FetchDue,
        looked: &Looked,
    ) -> Result<(), SidecarError> {
        let (key, keccak) = (due.meta.key(), due.meta.keccak);
        course.settle(&due, matches!(looked, Looked::Found(_)));
        if matches!(looked, Looked::Found(_)) {
            blocking(&self.store, move |store| store.set_fetched(key, keccak)).await?;
            self.step(key.height, key.height.saturating_add(1)).await?;
            return Ok(());
        }
        self.observer.not_fetched(&due);
        let doubted = match looked {
            Looked::NotThere => PrunerObserver::not_there,
            // Others are heard all the same: a signer that named a wrong place can name the right one.
            Looked::Unreadable => PrunerObserver::unreadable,
            Looked::Found(_) | Looked::Unknown => return Ok(()),
        };
        if blocking(&self.store, move |store| store.doubt(key)).await? {
            doubted(&*self.observer, &due);
        }
        Ok(())
    }
}

/// How far a pruner has looked, and what it waits for.
struct Course {
    /// Heights below are held: nothing but a fetch lets them go.
    held: Height,
    /// Blobs below were begun, or are left alone for a while.
    next: BlobKey,
    /// When everything is looked at again.
    ends: Instant,
    busy: HashSet<BlobKey>,
    failed: HashMap<BlobKey, Failed>,
}

/// A blob that could not be fetched.
struct Failed {
    times: u32,
    /// How many places there were.
    places: usize,
    until: Instant,
}

impl Course {
    fn new() -> Self {
        Self {
            held: 0,
            next: BlobKey { height: 0, index: 0 },
            ends: Instant::now() + LOOK,
            busy: HashSet::new(),
            failed: HashMap::new(),
        }
    }

    fn start_over(&mut self) {
        let now = Instant::now();
        (self.held, self.next, self.ends) = (0, BlobKey { height: 0, index: 0 }, now + LOOK);
        // What was not asked for again for so long is not due any more.
        self.failed.retain(|_, failed| failed.until + 4 * MAX_PAUSE > now);
    }

    /// Whether a blob is to be fetched now; then it is under way. New places are tried at once.
    fn takes(&mut self, due: &FetchDue, now: Instant) -> bool {
        let key = due.meta.key();
        let rests = self
            .failed
            .get(&key)
            .is_some_and(|failed| failed.until > now && failed.places == due.locators.len());
        !rests && self.busy.insert(key)
    }

    /// How often a blob could not be fetched.
    fn failed(&self, key: BlobKey) -> usize {
        self.failed.get(&key).map_or(0, |failed| failed.times as usize)
    }

    /// A fetch has ended.
    fn settle(&mut self, due: &FetchDue, found: bool) {
        let key = due.meta.key();
        self.busy.remove(&key);
        if found {
            self.failed.remove(&key);
            return;
        }
        let times = self.failed.get(&key).map_or(0, |failed| failed.times).saturating_add(1);
        let pause = FIRST_PAUSE * (1 << (times - 1).min(8));
        let until = Instant::now() + pause.min(MAX_PAUSE);
        self.failed.insert(key, Failed { times, places: due.locators.len(), until });
    }
}

#[cfg(test)]
mod tests {
    use secateur_core::Locator;

    use super::*;
    use crate::engine::BlobMeta;
    use crate::{BlobKeccak, Commitment, VersionedHash};

    fn due(places: usize) -> FetchDue {
        let meta = BlobMeta {
            height: 7,
            index: 0,
            commitment: Commitment([0; 48]),
            versioned_hash: VersionedHash([0; 32]),
            keccak: BlobKeccak([0; 32]),
            proof: None,
            inclusion: None,
        };
        FetchDue { meta, locators: vec![Locator::default(); places] }
    }

    #[tokio::test]
    async fn what_failed_is_left_alone_ever_longer_until_there_is_another_place() {
        let mut course = Course::new();
        let now = Instant::now;
        assert!(course.takes(&due(1), now()));
        assert!(!course.takes(&due(1), now()), "it is under way");
        for seconds in [4, 8, 16, 32, 64, 64, 64] {
            course.settle(&due(1), false);
            let pause = Duration::from_secs(seconds);
            assert!(!course.takes(&due(1), now() + pause - Duration::from_secs(1)), "{seconds}");
            assert!(course.takes(&due(1), now() + pause), "{seconds}");
        }
        course.settle(&due(1), false);
        assert_eq!(course.failed(due(1).meta.key()), 8);
        assert!(course.takes(&due(2), now()), "somebody names another place");
        course.settle(&due(2), true);
        assert!(course.takes(&due(2), now()));
    }
}
