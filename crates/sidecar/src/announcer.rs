//! The announcer: tells peers of what this node has archived, and tells them again every so many
//! blocks until each of them has answered, or, where nobody ever answers, a few times. It tells only
//! what is durable, and so much in a turn: whatever waits, what is new is told first.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use secateur_core::Height;
use secateur_store::{Arena, Index};
use tokio::sync::{Notify, watch};

use crate::SidecarError;
use crate::blocking::{blocking, told};
use crate::book::Book;
use crate::engine::{Announcement, BlobKey, SidecarStore};
use crate::gossip::{Gossip, GossipError, Message};

/// Notices that are told together.
const PAGE: usize = 256;
/// Notices that are on their way together.
const AT_ONCE: usize = 16;
/// Notices that one turn tells, and how long it rests where there are more.
const TURN: usize = 1_024;
const PAUSE: Duration = Duration::from_secs(1);
/// How often a notice is told where peers do not answer: on a channel that confirms nothing.
const TELLINGS: u32 = 8;
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
            let more = tokio::select! {
                biased;
                () = told(&mut stopped) => return Ok(()),
                turned = self.turn() => turned?,
            };
            tokio::select! {
                biased;
                () = told(&mut stopped) => return Ok(()),
                () = self.wake.notified() => {}
                () = tokio::time::sleep(if more { PAUSE } else { LOOK }) => {}
            }
        }
    }

    /// Tells what is due, at most so many; whether more may be due is the answer.
    pub async fn turn(&self) -> Result<bool, SidecarError> {
        let mut left = TURN;
        while left > 0 {
            let most = PAGE.min(left);
            let (page, now) = blocking(&self.store, move |store| {
                let head = store.head()?.unwrap_or(0);
                Ok((store.announcements_due(head, most)?, head))
            })
            .await?;
            if page.is_empty() {
                return Ok(false);
            }
            left = left.saturating_sub(page.len());
            self.tell(&page, now).await?;
        }
        Ok(true)
    }

    async fn tell(&self, due: &[Announcement], now: Height) -> Result<(), SidecarError> {
        let (mut told, mut ended) = (Vec::new(), Vec::new());
        for some in due.chunks(AT_ONCE) {
            for done in join_all(some.iter().map(|one| self.tell_one(one))).await {
                let (key, is_over) = done?;
                told.push(key);
                if is_over {
                    ended.push(key);
                }
            }
        }
        let every = self.every;
        blocking(&self.store, move |store| {
            store.announced(&told, now, every)?;
            store.acknowledged(&ended)
        })
        .await
    }

    /// Tells one, and says whether it need not be told again. What could not be sent has had its
    /// turn too: the others are not to wait for it.
    async fn tell_one(&self, due: &Announcement) -> Result<(BlobKey, bool), SidecarError> {
        let (key, told, record) = (due.key, due.told, due.record.clone());
        let book = Arc::clone(&self.book);
        let made = blocking(&self.store, move |_| book.notice(key, &record)).await;
        let message = match made {
            Ok(Some(notice)) => {
                Message::notice(notice).map_err(|error| GossipError::from(error).into())
            }
            Ok(None) => return Ok((key, false)),
            Err(SidecarError::Store(error)) if !error.is_corruption() => return Err(error.into()),
            Err(error) => Err(error),
        };
        let sent = match message {
            Ok(message) => self.gossip.broadcast(message).await.map_err(SidecarError::from),
            Err(error) => Err(error),
        };
        match sent {
            Ok(delivery) => {
                for (peer, reason) in &delivery.refused {
                    tracing::warn!(peer, reason, %key, "a peer refuses our notice");
                }
                // Where nobody ever answers, telling it for ever would help nobody.
                let unheard = !delivery.confirms && told.saturating_add(1) >= TELLINGS;
                Ok((key, delivery.is_settled() || unheard))
            }
            Err(error) => {
                tracing::warn!(%error, %key, "a notice was not sent");
                Ok((key, false))
            }
        }
    }
}
