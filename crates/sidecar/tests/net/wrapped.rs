//! A provider and a gossip that do to a validator what real ones may: fail, lie, lose a reply, or
//! never answer. What they were asked is told, so that tests wait for it.

use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use secateur_sidecar::gossip::{
    Delivery, Gossip, GossipCounts, GossipError, Message, Subscription,
};
use secateur_sidecar::provider::{BlobTags, Provider, ProviderError};
use tokio::sync::watch;

use crate::validators::PATIENCE;

/// What a provider does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Does {
    Right,
    /// Answers nothing but errors.
    Down,
    /// Takes a height and never answers; other heights are fine.
    StuckAt(u64),
    /// Puts, and the answer never comes.
    StuckAfterPut,
    /// Puts, and the answer is lost.
    LosesReplies,
    /// Gives back other bytes.
    GivesOthers,
    /// Puts nothing and gives back what it was told to put.
    Pretends,
}

#[derive(Debug)]
pub struct Wrapped {
    inner: Arc<dyn Provider>,
    does: Mutex<Does>,
    told: Mutex<Bytes>,
    /// The height that is stuck.
    stuck: watch::Sender<u64>,
    pub puts: watch::Sender<u64>,
    pub gets: watch::Sender<u64>,
}

impl Wrapped {
    pub fn new(inner: Arc<dyn Provider>, does: Does) -> Arc<Self> {
        let (does, told) = (Mutex::new(does), Mutex::default());
        let (puts, gets) = (watch::Sender::new(0), watch::Sender::new(0));
        Arc::new(Self { inner, does, told, stuck: watch::Sender::new(0), puts, gets })
    }

    /// Waits until a height is stuck.
    pub async fn begun(&self, height: u64) {
        self.stuck.subscribe().wait_for(|stuck| *stuck == height).await.unwrap();
    }

    pub fn set(&self, does: Does) {
        *self.does.lock() = does;
    }

    fn now(&self) -> Does {
        *self.does.lock()
    }

    fn error(&self) -> ProviderError {
        ProviderError::Unreachable { provider: self.id().to_owned(), reason: "a test".to_owned() }
    }
}

/// Waits until something was done so often.
pub async fn reached(count: &watch::Sender<u64>, wanted: u64) {
    let mut count = count.subscribe();
    let waited = tokio::time::timeout(PATIENCE, count.wait_for(|count| *count >= wanted)).await;
    assert!(waited.is_ok(), "it was not done {wanted} times");
}

impl Provider for Wrapped {
    fn id(&self) -> &str {
        self.inner.id()
    }

    fn is_in_place(&self) -> bool {
        self.inner.is_in_place()
    }

    fn put<'a>(
        &'a self,
        tags: &'a BlobTags,
        blob: Bytes,
    ) -> BoxFuture<'a, Result<String, ProviderError>> {
        Box::pin(async move {
            let does = self.now();
            if does == Does::Down {
                return Err(self.error());
            }
            if does == Does::StuckAt(tags.height) {
                self.stuck.send_replace(tags.height);
                pending::<()>().await;
            }
            if does == Does::Pretends {
                *self.told.lock() = blob;
                return Ok(secateur_sidecar::provider::ObjectName::of(tags).to_string());
            }
            let put = self.inner.put(tags, blob).await;
            self.puts.send_modify(|puts| *puts += 1);
            match does {
                Does::StuckAfterPut => pending().await,
                Does::LosesReplies => Err(self.error()),
                _ => put,
            }
        })
    }

    fn get<'a>(
        &'a self,
        locator: &'a str,
        max_len: usize,
    ) -> BoxFuture<'a, Result<Bytes, ProviderError>> {
        Box::pin(async move {
            let got = match self.now() {
                Does::Down => Err(self.error()),
                Does::Pretends => Ok(self.told.lock().clone()),
                Does::GivesOthers => self.inner.get(locator, max_len).await.map(|bytes| {
                    let mut bytes = bytes.to_vec();
                    bytes[7] ^= 1;
                    bytes.into()
                }),
                _ => self.inner.get(locator, max_len).await,
            };
            self.gets.send_modify(|gets| *gets += 1);
            got
        })
    }

    fn find<'a>(
        &'a self,
        tags: &'a BlobTags,
    ) -> BoxFuture<'a, Result<Option<String>, ProviderError>> {
        self.inner.find(tags)
    }
}

/// Where notices stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    Nothing,
    /// It is signed and does not leave.
    BeforeSending,
    /// It has left, and its sender never hears of it.
    AfterSending,
}

/// What a validator says, over all of its lives.
pub struct Said {
    pub holds: Mutex<Holds>,
    pub notices: Mutex<Vec<Bytes>>,
    pub count: watch::Sender<u64>,
}

impl Said {
    pub fn new(holds: Holds) -> Arc<Self> {
        let (holds, notices) = (Mutex::new(holds), Mutex::default());
        Arc::new(Self { holds, notices, count: watch::Sender::new(0) })
    }

    /// Listens to a gossip.
    pub fn tap(self: &Arc<Self>, inner: Arc<dyn Gossip>) -> Arc<dyn Gossip> {
        Arc::new(Tap { inner, said: Arc::clone(self) })
    }
}

struct Tap {
    inner: Arc<dyn Gossip>,
    said: Arc<Said>,
}

impl Gossip for Tap {
    fn broadcast(&self, message: Message) -> BoxFuture<'_, Result<Delivery, GossipError>> {
        Box::pin(async move {
            let holds = *self.said.holds.lock();
            self.said.notices.lock().push(message.content().clone());
            if holds == Holds::BeforeSending {
                self.said.count.send_modify(|count| *count += 1);
                pending::<()>().await;
            }
            let sent = self.inner.broadcast(message).await;
            self.said.count.send_modify(|count| *count += 1);
            if holds == Holds::AfterSending {
                pending::<()>().await;
            }
            sent
        })
    }

    fn subscribe(&self) -> Subscription {
        self.inner.subscribe()
    }

    fn catch_up(&self) -> BoxFuture<'_, usize> {
        self.inner.catch_up()
    }

    fn counts(&self) -> GossipCounts {
        self.inner.counts()
    }
}
