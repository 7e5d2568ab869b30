//! Gossip on an embedder's own channel: bytes to send are handed out, bytes that came are handed in.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{BoxFuture, ready};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::intake::Intake;
use super::{
    Delivery, Gossip, GossipCounts, GossipError, Message, NoticeBook, Subscription, Verdict,
};

/// Messages that wait to be sent.
const QUEUE: usize = 1_024;

/// Gossip on an embedder's own channel. The embedder sends what [`Outgoing::next`] gives to its
/// peers, as a message of its own kind, and hands what comes from them to [`Handoff::receive`].
pub struct Handoff {
    intake: Arc<Intake>,
    outgoing: broadcast::Sender<Bytes>,
}

impl fmt::Debug for Handoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handoff").finish_non_exhaustive()
    }
}

/// What an embedder is to send.
pub struct Outgoing {
    receiver: broadcast::Receiver<Bytes>,
    lost: u64,
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("lost", &self.lost).finish_non_exhaustive()
    }
}

impl Outgoing {
    /// The next message's bytes; none when the gossip has ended.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.receiver.recv().await {
                Ok(bytes) => return Some(bytes),
                Err(RecvError::Lagged(lost)) => self.lost = self.lost.saturating_add(lost),
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// Messages that were not sent because nobody took them for too long; the oldest go first.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl Handoff {
    /// A channel, and what is to be sent over it.
    pub fn new(book: Option<Arc<dyn NoticeBook>>) -> (Self, Outgoing) {
        let outgoing = broadcast::Sender::new(QUEUE);
        let receiver = outgoing.subscribe();
        (Self { intake: Intake::new(book), outgoing }, Outgoing { receiver, lost: 0 })
    }

    /// Bytes that came over the channel, as [`Message::encode`] makes them.
    pub async fn receive(&self, from: Option<String>, bytes: Bytes) -> Verdict {
        let verdicts = self.intake.take_all(from, vec![bytes]).await;
        verdicts.into_iter().next().unwrap_or_else(|| Verdict::Later("busy".to_owned()))
    }
}

impl Gossip for Handoff {
    fn broadcast(&self, message: Message) -> BoxFuture<'_, Result<Delivery, GossipError>> {
        let bytes = message.encode();
        self.intake.sends(&bytes);
        let sent = self.outgoing.send(bytes).map(|_| Delivery::default());
        Box::pin(ready(sent.map_err(|_| GossipError::Stopped)))
    }

    fn subscribe(&self) -> Subscription {
        self.intake.subscribe()
    }

    /// Nobody can be asked over a channel that only sends.
    fn catch_up(&self) -> BoxFuture<'_, usize> {
        Box::pin(ready(0))
    }

    fn counts(&self) -> GossipCounts {
        self.intake.counts()
    }
}
