//! Gossip: how notices get to other nodes and from them.
//!
//! What lives here: the seam [`Gossip`], messages' bytes ([`Message`]), and ways to carry them:
//! within a process ([`InProcess`]), between configured peers over gRPC ([`Mesh`]), on an embedder's
//! own channel ([`Handoff`]), and with the feature `libp2p` by gossipsub. What deliberately does not:
//! what a notice says and whether it is right, which is asked of a [`NoticeBook`]; and when something
//! is said again, which is the archiver's business.
//!
//! Nothing here blocks on a peer or on a reader: queues are bounded, what does not fit is dropped
//! and counted, and what was dropped is asked for later.

mod envelope;
mod handoff;
mod in_process;
mod intake;
mod mesh;
mod seen;
#[cfg(feature = "libp2p")]
mod swarm;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::future::BoxFuture;
use secateur_archive::ArchiveError;
use secateur_core::Height;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

pub use envelope::{
    ENVELOPE_HEAD_LEN, EnvelopeError, Kind, MAX_MESSAGE_LEN, Message, check_proposal_part,
};
pub use handoff::Handoff;
pub use in_process::{InProcess, InProcessNode};
pub use intake::GossipCounts;
pub use mesh::{GossipService, Limits, Mesh, MeshOptions, Peer, PeerState, ServeOptions};

#[cfg(feature = "libp2p")]
pub use swarm::{Swarm, SwarmOptions};

use self::intake::Counts;
use crate::SidecarError;

/// What carries messages between nodes.
pub trait Gossip: Send + Sync {
    /// Sends a message to every peer. The answer comes in bounded time and says which of them have
    /// it; the others are tried again by sending it again.
    fn broadcast(&self, message: Message) -> BoxFuture<'_, Result<Delivery, GossipError>>;

    /// What comes from peers from now on and was not here before. Who reads too slowly loses the
    /// oldest; nobody else waits for it.
    fn subscribe(&self) -> Subscription;

    /// Asks the peers that can be reached for the notices that are lacking here. Answers how many
    /// were new.
    fn catch_up(&self) -> BoxFuture<'_, usize>;

    /// What was counted so far.
    fn counts(&self) -> GossipCounts;
}

/// What is asked of the node that gossips: the sync engine behind it.
pub trait NoticeBook: Send + Sync + 'static {
    /// Notices of a height that are held here, in a fixed order, without the first `skip` ones; at
    /// most `max`.
    fn notices_for(
        &self,
        height: Height,
        skip: usize,
        max: usize,
    ) -> Result<Vec<Bytes>, SidecarError>;

    /// Heights from `from` on that lack a notice, ascending; at most `max`.
    fn lacking(&self, from: Height, max: usize) -> Result<Vec<Height>, SidecarError>;

    /// Verifies a notice and keeps it.
    fn take(&self, notice: &Bytes) -> Verdict;
}

/// What becomes of a message where it arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It was taken.
    New,
    /// It was here already.
    Known,
    /// It cannot be judged yet; it may be said again. The reason is a short label.
    Later(String),
    /// It is wrong. The reason is a short label.
    Refused(String),
}

impl Verdict {
    /// Whether the message need not be sent again because it is there.
    pub fn is_acked(&self) -> bool {
        matches!(self, Self::New | Self::Known)
    }
}

/// What is known of a message after it was sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delivery {
    /// Peers that have it.
    pub acked: Vec<String>,
    /// Peers that refuse it, and why.
    pub refused: Vec<(String, String)>,
    /// Peers that did not say: they are down, slow, or cannot judge it yet.
    pub waiting: Vec<String>,
    /// Whether peers answer at all. Over a channel where they do not, nothing more can be known.
    pub confirms: bool,
}

impl Delivery {
    /// Whether every peer has answered for good, so that it need not be sent again.
    pub fn is_settled(&self) -> bool {
        self.confirms && self.waiting.is_empty()
    }

    fn add(&mut self, peer: String, verdict: Option<Verdict>) {
        match verdict {
            Some(Verdict::New | Verdict::Known) => self.acked.push(peer),
            Some(Verdict::Refused(reason)) => self.refused.push((peer, reason)),
            Some(Verdict::Later(_)) | None => self.waiting.push(peer),
        }
    }
}

/// A message that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// From where, as far as that is known; it is not proved.
    pub from: Option<String>,
    /// The message.
    pub message: Message,
}

/// What comes, for one reader.
pub struct Subscription {
    receiver: broadcast::Receiver<Received>,
    counts: Arc<Counts>,
    lost: u64,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("lost", &self.lost).finish_non_exhaustive()
    }
}

impl Subscription {
    /// The next message; none when the gossip has ended.
    pub async fn next(&mut self) -> Option<Received> {
        loop {
            match self.receiver.recv().await {
                Ok(received) => return Some(received),
                Err(RecvError::Lagged(lost)) => self.lose(lost),
                Err(RecvError::Closed) => return None,
            }
        }
    }

    /// The next message, if one is there.
    pub fn try_next(&mut self) -> Option<Received> {
        loop {
            match self.receiver.try_recv() {
                Ok(received) => return Some(received),
                Err(TryRecvError::Lagged(lost)) => self.lose(lost),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return None,
            }
        }
    }

    /// Messages that this reader lost because it was too slow.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The same as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Received> + Send + Unpin {
        Box::pin(futures_util::stream::unfold(self, |mut subscription| async move {
            subscription.next().await.map(|received| (received, subscription))
        }))
    }

    fn lose(&mut self, lost: u64) {
        self.lost = self.lost.saturating_add(lost);
        self.counts.lost(lost);
    }
}

/// What went wrong with gossip.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GossipError {
    /// A message that cannot be sent.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// A setting that is refused as it stands.
    #[error("{what} refused: {reason}; nothing was started")]
    Invalid {
        /// Which.
        what: String,
        /// Why.
        reason: String,
    },
    /// A file with a secret that cannot be used.
    #[error(transparent)]
    Secret(#[from] ArchiveError),
    /// It has ended.
    #[error("the gossip was stopped; nothing was sent")]
    Stopped,
}

impl GossipError {
    fn invalid(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), reason: reason.into() }
    }

    /// Whether the same call may succeed later without anybody's help.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Secret(error) if error.is_retryable())
    }
}
