//! Where messages come in, whatever carried them: bounded, told apart, judged, handed on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use secateur_core::Height;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Semaphore, broadcast};

use super::seen::{Hash, Seen};
use super::{Kind, Message, NoticeBook, Received, Subscription, Verdict};
use crate::SidecarError;

/// Messages that are remembered, at least.
const SEEN: usize = 16_384;
/// Messages that wait for a reader.
const QUEUE: usize = 1_024;
/// Batches that are judged at the same time.
const JUDGES: usize = 4;

/// What was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GossipCounts {
    /// Messages that were sent, each once however many peers there are.
    pub sent: u64,
    /// Messages that came and were new.
    pub taken: u64,
    /// Messages that came again.
    pub duplicates: u64,
    /// Messages that came too early.
    pub later: u64,
    /// Messages that came and were wrong.
    pub refused: u64,
    /// Messages that slow readers lost.
    pub lost: u64,
    /// Requests of peers that were turned away because they were too many.
    pub limited: u64,
    /// Answers that a peer did not give in time, or at all.
    pub unanswered: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    sent: AtomicU64,
    taken: AtomicU64,
    duplicates: AtomicU64,
    later: AtomicU64,
    refused: AtomicU64,
    lost: AtomicU64,
    limited: AtomicU64,
    unanswered: AtomicU64,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl Counts {
    pub(super) fn lost(&self, n: u64) {
        add(&self.lost, n);
    }

    pub(super) fn limited(&self) {
        add(&self.limited, 1);
    }

    pub(super) fn unanswered(&self, n: usize) {
        add(&self.unanswered, n as u64);
    }

    fn snapshot(&self) -> GossipCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        GossipCounts {
            sent: get(&self.sent),
            taken: get(&self.taken),
            duplicates: get(&self.duplicates),
            later: get(&self.later),
            refused: get(&self.refused),
            lost: get(&self.lost),
            limited: get(&self.limited),
            unanswered: get(&self.unanswered),
        }
    }
}

/// Where messages come in.
pub(super) struct Intake {
    book: Option<Arc<dyn NoticeBook>>,
    seen: Mutex<Seen>,
    readers: broadcast::Sender<Received>,
    judges: Semaphore,
    pub(super) counts: Arc<Counts>,
}

impl Intake {
    /// Without a book everything that is new is handed to readers unjudged.
    pub(super) fn new(book: Option<Arc<dyn NoticeBook>>) -> Arc<Self> {
        Arc::new(Self {
            book,
            seen: Mutex::new(Seen::new(SEEN)),
            readers: broadcast::Sender::new(QUEUE),
            judges: Semaphore::new(JUDGES),
            counts: Arc::default(),
        })
    }

    pub(super) fn subscribe(&self) -> Subscription {
        let counts = Arc::clone(&self.counts);
        Subscription { receiver: self.readers.subscribe(), counts, lost: 0 }
    }

    pub(super) fn counts(&self) -> GossipCounts {
        self.counts.snapshot()
    }

    /// A message of our own goes out: if it comes back it is known.
    pub(super) fn sends(&self, bytes: &Bytes) {
        add(&self.counts.sent, 1);
        self.seen.lock().put(hash(bytes), Verdict::Known);
    }

    /// A message comes in. The book may read and write its disk meanwhile.
    pub(super) fn take(&self, from: Option<&str>, bytes: &Bytes) -> Verdict {
        let message = match Message::decode_as(Kind::Notice, bytes) {
            Ok(message) => message,
            Err(error) => {
                add(&self.counts.refused, 1);
                return Verdict::Refused(error.label().to_owned());
            }
        };
        let hash = hash(bytes);
        if let Some(verdict) = self.seen.lock().get(&hash) {
            add(&self.counts.duplicates, 1);
            return verdict;
        }
        let verdict = match &self.book {
            Some(book) => book.take(message.content()),
            None => Verdict::New,
        };
        let (counter, remembered) = match &verdict {
            Verdict::New => (&self.counts.taken, Some(Verdict::Known)),
            Verdict::Known => (&self.counts.duplicates, Some(Verdict::Known)),
            Verdict::Refused(_) => (&self.counts.refused, Some(verdict.clone())),
            // It is judged anew when it comes again.
            Verdict::Later(_) => (&self.counts.later, None),
        };
        add(counter, 1);
        if let Some(remembered) = remembered {
            self.seen.lock().put(hash, remembered);
        }
        if verdict == Verdict::New {
            // Readers must not keep the buffer of a whole request for as long as they wait.
            let message = message.detached();
            let received = Received { from: from.map(str::to_owned), message };
            // An error says that nobody reads, which is fine.
            self.readers.send(received).map(drop).unwrap_or_default();
        }
        verdict
    }

    /// The same for several, away from the threads that must not block.
    pub(super) async fn take_all(
        self: &Arc<Self>,
        from: Option<String>,
        messages: Vec<Bytes>,
    ) -> Vec<Verdict> {
        let count = messages.len();
        // It is never closed.
        let _turn = self.judges.acquire().await;
        let intake = Arc::clone(self);
        let judged = tokio::task::spawn_blocking(move || {
            messages.iter().map(|bytes| intake.take(from.as_deref(), bytes)).collect()
        });
        judged.await.unwrap_or_else(|_| vec![Verdict::Later("busy".to_owned()); count])
    }

    /// Heights that lack a notice, ascending.
    pub(super) fn lacking(&self, from: Height, max: usize) -> Vec<Height> {
        let Some(book) = &self.book else { return Vec::new() };
        match book.lacking(from, max) {
            Ok(mut heights) => {
                heights.truncate(max);
                heights
            }
            Err(error) => {
                tracing::warn!(%error, "which notices are lacking cannot be told");
                Vec::new()
            }
        }
    }

    /// Messages with the notices of a height.
    pub(super) fn notices_for(
        &self,
        height: Height,
        skip: usize,
        max: usize,
    ) -> Result<Vec<Bytes>, SidecarError> {
        let Some(book) = &self.book else { return Ok(Vec::new()) };
        let notices = book.notices_for(height, skip, max)?;
        // One that is too long is none; the book verified them.
        Ok(notices
            .into_iter()
            .take(max)
            .filter_map(|notice| Message::notice(notice).ok())
            .map(|message| message.encode())
            .collect())
    }
}

fn hash(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}
