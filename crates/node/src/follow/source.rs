//! A source: an EVM node that is asked in JSON-RPC, in batches where it takes them, again where it
//! did not answer, and smaller where it was too much.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _, stream};

use super::FollowError;
use super::backoff::Backoff;
use super::client::{Client, Failure};
use super::envelope::{self, Answer, Call, Kind, Nonsense, Refusal};
use super::teller::Teller;
use crate::config::Follow;

/// The first and the longest pause before a request is sent again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(8));
/// A request is sent so often before its block is given up for a while.
const ATTEMPTS: u32 = 6;

/// An EVM node.
#[derive(Debug)]
pub(crate) struct Source {
    client: Client,
    teller: Arc<Teller>,
    concurrency: usize,
    /// Calls that go into one request at most.
    most_calls: usize,
    /// Calls that go into one request now; 1 means that it takes no batches.
    per_request: AtomicUsize,
    /// Whether it has `eth_getBlockReceipts`.
    receipts_by_block: AtomicBool,
    /// Whether a request failed since this was last asked.
    interrupted: AtomicBool,
}

impl Source {
    /// The source that a configuration key names.
    pub(super) fn new(
        key: &str,
        config: &Follow,
        teller: Arc<Teller>,
    ) -> Result<Self, anyhow::Error> {
        // A block is two calls.
        let most_calls = config.batch.saturating_mul(2);
        Ok(Self {
            client: Client::new(key, config)?,
            teller,
            concurrency: config.concurrency,
            most_calls,
            per_request: AtomicUsize::new(most_calls),
            receipts_by_block: AtomicBool::new(true),
            interrupted: AtomicBool::new(false),
        })
    }

    /// Whether a request failed since this was asked last: what answers now may be another node.
    pub(super) fn was_interrupted(&self) -> bool {
        self.interrupted.swap(false, Ordering::Relaxed)
    }

    /// Its name for logs.
    pub(super) fn name(&self) -> &str {
        self.client.name()
    }

    /// Whether receipts can be asked for by block.
    pub(super) fn has_block_receipts(&self) -> bool {
        self.receipts_by_block.load(Ordering::Relaxed)
    }

    /// Receipts are asked for by transaction from now on.
    pub(super) fn lacks_block_receipts(&self) {
        if self.receipts_by_block.swap(false, Ordering::Relaxed) {
            let source = self.name();
            tracing::info!(source, "no eth_getBlockReceipts here; asking for each receipt");
        }
    }

    /// Asks one call.
    pub(super) async fn ask_one(&self, call: Call) -> Result<Answer, FollowError> {
        let mut answers = self.ask(&[call]).await?;
        answers.pop().ok_or_else(|| FollowError::trouble("no answer to one call"))
    }

    /// Asks calls, and asks again until each has an answer or patience is at its end.
    pub(super) async fn ask(&self, calls: &[Call]) -> Result<Vec<Answer>, FollowError> {
        let mut answers: Vec<Option<Answer>> = vec![None; calls.len()];
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        // Answers that are too long make this request smaller, and no other.
        let mut most = usize::MAX;
        loop {
            let open: Vec<usize> = missing(&answers);
            if open.is_empty() {
                self.teller.answered();
                return Ok(answers.into_iter().flatten().collect());
            }
            let size = self.per_request.load(Ordering::Relaxed).min(most).max(1);
            // Each in a box: what a closure over borrowed pieces returns is no sendable type.
            let trips: Vec<_> = open.chunks(size).map(|p| self.trip(calls, p).boxed()).collect();
            let ended: Vec<_> = stream::iter(trips).buffered(self.concurrency).collect().await;
            let mut failed = None;
            for (piece, ended) in open.chunks(size).zip(ended) {
                let ended = ended.map(|found| place(&mut answers, piece, found));
                match ended {
                    Ok(None) => {}
                    Ok(Some(Failure::TooLong { .. })) | Err(Failure::TooLong { .. })
                        if piece.len() > 1 =>
                    {
                        most = piece.len().div_ceil(2).min(most);
                    }
                    // The same would come again. What it means is for the caller to say.
                    Err(Failure::TooLong { limit }) => {
                        place(&mut answers, piece, vec![Err(Refusal::too_long(limit))]);
                    }
                    Err(Failure::Rejected { reason }) if piece.len() > 1 => {
                        self.shrink(piece.len(), &reason);
                    }
                    Ok(Some(failure)) | Err(failure) => failed = Some(failure),
                }
            }
            if let Some(failure) = failed {
                self.pause(failure, &mut backoff).await?;
            }
        }
    }

    /// One request for some of the calls.
    async fn trip(&self, calls: &[Call], piece: &[usize]) -> Result<Vec<Answer>, Failure> {
        let batched = piece.len() > 1;
        let asked: Vec<&Call> = piece.iter().filter_map(|index| calls.get(*index)).collect();
        let request = envelope::request(&asked, batched);
        let body = match self.client.post(request.clone()).await {
            // A single answer that is long gets all the room there is.
            Err(Failure::TooLong { .. }) if !batched => self.client.post_large(request).await?,
            body => body?,
        };
        let count = asked.len();
        match take_apart(body, count, batched).await? {
            Ok(answers) => Ok(answers),
            Err(Nonsense::Batch(refusal)) => match refusal.kind() {
                Kind::TooOften | Kind::TooSlow => Err(Failure::transient(refusal.to_string())),
                _ => Err(Failure::Rejected { reason: refusal.to_string() }),
            },
            Err(nonsense) => Err(Failure::transient(nonsense.to_string())),
        }
    }

    /// The source takes no batch of this size.
    fn shrink(&self, size: usize, reason: &str) {
        let smaller = size / 2;
        if self.per_request.fetch_min(smaller.max(1), Ordering::Relaxed) > smaller {
            let source = self.name();
            tracing::info!(source, size, smaller, reason, "the source refuses a batch");
        }
    }

    /// Waits before the next attempt, unless there were enough.
    async fn pause(&self, failure: Failure, backoff: &mut Backoff) -> Result<(), FollowError> {
        self.interrupted.store(true, Ordering::Relaxed);
        let (reason, pause) = match failure {
            Failure::Transient { reason, pause } => (reason, pause),
            Failure::TooLong { limit } => (Refusal::too_long(limit).to_string(), None),
            Failure::Rejected { reason } => {
                // A single call is refused as well, so that the batch was not at fault.
                self.per_request.store(self.most_calls, Ordering::Relaxed);
                (reason, None)
            }
        };
        let text = format!("the source {} does not answer: {reason}", self.name());
        self.teller.source_trouble(&text);
        let wait = backoff.next_wait().max(pause.unwrap_or_default());
        if backoff.failures() >= ATTEMPTS {
            return Err(FollowError::Trouble(text));
        }
        tokio::time::sleep(wait).await;
        Ok(())
    }
}

fn missing(answers: &[Option<Answer>]) -> Vec<usize> {
    let open = answers.iter().enumerate().filter(|(_, answer)| answer.is_none());
    open.map(|(index, _)| index).collect()
}

/// Puts answers in their places. Calls that were refused for now stay open, and why is returned.
fn place(answers: &mut [Option<Answer>], piece: &[usize], found: Vec<Answer>) -> Option<Failure> {
    let mut failed = None;
    for (index, answer) in piece.iter().zip(found) {
        if let Err(refusal) = &answer {
            match refusal.kind() {
                Kind::TooMuch | Kind::TooSlow if piece.len() > 1 => {
                    failed = failed.or(Some(Failure::TooLong { limit: 0 }));
                    continue;
                }
                Kind::TooOften | Kind::TooSlow => {
                    failed = Some(Failure::transient(refusal.to_string()));
                    continue;
                }
                _ => {}
            }
        }
        if let Some(place) = answers.get_mut(*index) {
            *place = Some(answer);
        }
    }
    failed
}

/// Long answers are taken apart beside the threads that serve sockets.
async fn take_apart(
    body: Bytes,
    count: usize,
    batched: bool,
) -> Result<Result<Vec<Answer>, Nonsense>, Failure> {
    let read = move || envelope::answers(&body, count, batched);
    tokio::task::spawn_blocking(read).await.map_err(|error| Failure::transient(error.to_string()))
}
