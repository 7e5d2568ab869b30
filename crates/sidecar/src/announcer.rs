//! The announcer: tells peers of what this node has archived, and tells them again every so many
//! blocks until each of them has answered. It signs only what is durable.

use std::sync::Arc;
use std::time::Duration;

use secateur_core::Height;
use secateur_store::{Arena, Index};
use tokio::sync::{Notify, watch};

use crate::SidecarError;
use crate::blocking::{blocking, told};
use crate::book::Book;
use crate::engine::{Announcement, BlobKey, SidecarStore};
use crate::gossip::{Gossip, Message};

/// Notices that are told together.
const PAGE: usize = 256;
/// How long an announcer sleeps if nobody wakes it.
const LOOK: Duration = Duration::from_secs(5);

/// Announces.
pub struct Announcer<A, I> {
    store: Arc<SidecarStore<A, I>>,
    book: Arc<Book<A, I>>,
    gossip: Arc<dyn Gossip>,
    /// Blocks after which a notice that not everybody has is told again.
    every: u64,
    /// Rung when there is something to announce.
    wake: Arc<Notify>,
}

impl<A, I> std::fmt::Debug for Announcer<A, I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Announcer").field("every", &self.every).finish_non_exhaustive()
    }
}

impl<A: Arena, I: Index> Announcer<A, I> {
    /// An announcer; nothing happens before it runs.
    pub fn new(
        store: Arc<SidecarStore<A, I>>,
        book: Arc<Book<A, I>>,
        gossip: Arc<dyn Gossip>,
        every: u64,
        wake: Arc<Notify>,
    ) -> Self {
        Self { store, book, gossip, every, wake }
    }

    /// Works until it is stopped, or the store fails.
    pub async fn run(&self, stop: watch::Receiver<bool>) -> Result<(), SidecarError> {
        let mut stopped = stop;
        loop {
            tokio::select! {
                biased;
                () = told(&mut stopped) => return Ok(()),
                turned = self.turn(false) => turned?,
            }
            tokio::select! {
                biased;
                () = told(&mut stopped) => return Ok(()),
                () = self.wake.notified() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Tells whatever is due; with `all` also what was told just now.
    pub async fn turn(&self, all: bool) -> Result<(), SidecarError> {
        let mut from = BlobKey { height: 0, index: 0 };
        loop {
            let (page, now) = blocking(&self.store, move |store| {
                Ok((store.announcements(from, PAGE)?, store.summary()?.latest_decided))
            })
            .await?;
            let Some(last) = page.last().map(|announcement| announcement.key) else {
                return Ok(());
            };
            let due = page.into_iter().filter(|one| all || self.is_due(one, now.unwrap_or(0)));
            self.tell(due.collect(), now.unwrap_or(0)).await?;
            from = BlobKey { index: last.index.saturating_add(1), ..last };
        }
    }

    fn is_due(&self, announcement: &Announcement, now: Height) -> bool {
        announcement.broadcast_at.is_none_or(|at| now >= at.saturating_add(self.every.max(1)))
    }

    async fn tell(&self, due: Vec<Announcement>, now: Height) -> Result<(), SidecarError> {
        if due.is_empty() {
            return Ok(());
        }
        let (mut told, mut settled) = (Vec::new(), Vec::new());
        for Announcement { key, record, .. } in due {
            let book = Arc::clone(&self.book);
            let made = blocking(&self.store, move |_| book.notice(key, &record)).await?;
            let Some(notice) = made else { continue };
            let message = match Message::notice(notice) {
                Ok(message) => message,
                Err(error) => {
                    tracing::warn!(%error, ?key, "a notice cannot be sent");
                    continue;
                }
            };
            match self.gossip.broadcast(message).await {
                Ok(delivery) => {
                    for (peer, reason) in &delivery.refused {
                        tracing::warn!(peer, reason, ?key, "a peer refuses our notice");
                    }
                    told.push(key);
                    if delivery.is_settled() {
                        settled.push(key);
                    }
                }
                Err(error) => tracing::warn!(%error, ?key, "a notice was not sent"),
            }
        }
        blocking(&self.store, move |store| {
            store.announced(&told, now)?;
            store.acknowledged(&settled)
        })
        .await
    }
}
