//! Ultramarine's form beside our own: what this node announces is told again as a V0 notice, for peers
//! that read no other. Off unless it is asked for; what is recorded, acknowledged and told again is
//! decided by the v1 notice alone.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use secateur_core::notice::{Notice, NoticeBodyV0};

use crate::gossip::{Delivery, Gossip, GossipCounts, GossipError, Kind, Message, Subscription};
use crate::notice::{sign, sign_v0};
use crate::service::Identity;

/// A gossip that also tells this node's own notices in the older form.
pub struct AlsoV0 {
    inner: Arc<dyn Gossip>,
    identity: Identity,
}

impl std::fmt::Debug for AlsoV0 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AlsoV0").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl AlsoV0 {
    /// Tells what `inner` is told, and what this node signed in both forms.
    pub fn new(inner: Arc<dyn Gossip>, identity: Identity) -> Self {
        Self { inner, identity }
    }

    /// The same notice in the older form: the first locator, and the time, which is signed there. Both
    /// are in the durable record that the notice was made of, so the bytes are the same each time.
    fn older(&self, message: &Message) -> Option<Message> {
        if message.kind() != Kind::Notice {
            return None;
        }
        let Ok(Notice::V1(notice)) = Notice::decode(message.content()) else { return None };
        let Identity { id, key } = &self.identity;
        // Whoever verifies takes the key of the height: only the one that signed will do.
        let again = sign(notice.body.clone(), notice.archived_at, key).ok()?;
        if notice.body.archived_by != id.as_bytes() || again.signature != notice.signature {
            return None;
        }
        let body = NoticeBodyV0 {
            height: notice.body.height,
            round: notice.body.round,
            blob_index: notice.body.blob_index,
            kzg_commitment: notice.body.kzg_commitment,
            blob_keccak: notice.body.blob_keccak,
            locator: notice.body.locators.first().cloned()?,
            archived_by: notice.body.archived_by,
            archived_at: notice.archived_at,
        };
        let older = sign_v0(body, key).ok()?;
        Message::notice(Notice::V0(older).encode().ok()?).ok()
    }
}

impl Gossip for AlsoV0 {
    fn broadcast(&self, message: Message) -> BoxFuture<'_, Result<Delivery, GossipError>> {
        Box::pin(async move {
            let older = self.older(&message);
            let told = self.inner.broadcast(message).await;
            if let Some(older) = older
                && let Err(error) = self.inner.broadcast(older).await
            {
                tracing::warn!(%error, "a notice was not sent in its older form");
            }
            told
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
