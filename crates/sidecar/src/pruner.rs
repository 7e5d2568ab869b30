//! The pruner: lets the engine cut what nothing holds any more, and under `trust = fetch` makes sure
//! first that an archived copy is really there.
//!
//! What holds a blob is the engine's knowledge alone; nothing here can make it cut more. The order
//! is that of heights. A copy that cannot be fetched holds its height and the alarm, nothing else.

use std::sync::Arc;
use std::time::Duration;

use secateur_core::Height;
use secateur_store::{Arena, Index};
use tokio::sync::{Notify, watch};

use crate::blocking::{blocking, told};
use crate::copies::Copies;
use crate::engine::{BlobKey, FetchDue, PruneReport, SidecarStore};
use crate::sabotage::Sabotage;
use crate::{SidecarError, Trust};

/// Blobs that are fetched before the engine is asked again.
const FETCHES: usize = 64;
/// How long a pruner sleeps if nobody wakes it, and how long it leaves a blob alone that could not be
/// fetched.
const LOOK: Duration = Duration::from_secs(5);

/// Who hears what was pruned.
pub trait PrunerObserver: Send + Sync + 'static {
    /// A step was taken.
    fn pruned(&self, report: &PruneReport);
    /// No copy of a blob could be fetched, so its height stays.
    fn not_fetched(&self, due: &FetchDue);
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
        loop {
            self.turn(&stopped).await?;
            tokio::select! {
                biased;
                () = told(&mut stopped) => return Ok(()),
                () = self.wake.notified() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Fetches what is to be fetched, and prunes whatever can be pruned.
    pub async fn turn(&self, stop: &watch::Receiver<bool>) -> Result<(), SidecarError> {
        if self.store.config().trust == Trust::Fetch {
            self.fetch(stop).await?;
        }
        while !*stop.borrow() {
            let report = blocking(&self.store, |store| store.prune_step(Height::MAX)).await?;
            if report.heights > 0 || report.failures > 0 {
                self.observer.pruned(&report);
            }
            if !report.more {
                break;
            }
        }
        Ok(())
    }

    /// Fetches what keeps heights from being pruned. What cannot be fetched is passed over and
    /// comes again with the next turn.
    async fn fetch(&self, stop: &watch::Receiver<bool>) -> Result<(), SidecarError> {
        let mut from = BlobKey { height: 0, index: 0 };
        loop {
            let page = blocking(&self.store, move |store| store.fetch_due(from, FETCHES)).await?;
            let Some(last) = page.last().map(|due| due.meta.key()) else { return Ok(()) };
            for due in page {
                if *stop.borrow() {
                    return Ok(());
                }
                let blind = self.store.config().sabotage.is(Sabotage::PruneBeforeReadBack);
                if blind || self.copies.fetch(&due.meta, &due.locators).await.is_some() {
                    let (key, keccak) = (due.meta.key(), due.meta.keccak);
                    blocking(&self.store, move |store| store.set_fetched(key, keccak)).await?;
                } else {
                    self.observer.not_fetched(&due);
                }
            }
            from = BlobKey { index: last.index.saturating_add(1), ..last };
        }
    }
}
