//! `secateur.export.v2.Export`: blocks as a stream.
//!
//! A stream is a task that takes turns: a batch of blocks is read on a thread that may block, one
//! block or at most 1 MiB of them under a pin, and then handed to the client through a short queue.
//! While a slow client lets the queue stand full, nothing is read and nothing is pinned. At most the
//! queue, one batch and one whole block are in memory.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use secateur_proto::export::v2::{StreamRequest, StreamResponse, export_server};
use tokio::sync::mpsc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Request, Response, Status};

use super::walk::{After, Walk};
use super::{ENVELOPE, status, stopped};
use crate::service::{ApiError, Node};

/// Responses that wait for a client: at most 4 MiB, since none is larger than 1 MiB.
const QUEUE: usize = 4;
/// How often a stream that has caught up looks for new blocks. It is one read of a lock.
const LOOK: Duration = Duration::from_millis(20);

/// The service.
#[derive(Debug)]
pub(super) struct Export {
    node: Arc<Node>,
    /// `limits.concurrency` streams of all clients at a time; more are refused, because those that
    /// are open may stay for ever.
    places: Arc<Semaphore>,
}

/// What goes through the queue.
enum Step {
    Some(StreamResponse),
    End(Result<(), Status>),
}

/// What a client is sent. A queue that closes without an end was cut short, and the client hears
/// so: it must never take half a stream for the whole.
#[derive(Debug)]
pub(super) struct Frames {
    queue: mpsc::Receiver<Step>,
    ended: bool,
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the payloads.
        f.write_str(if matches!(self, Self::Some(_)) { "Some" } else { "End" })
    }
}

impl Export {
    pub(super) fn new(node: &Arc<Node>) -> Self {
        let places = node.limits.concurrency.min(Semaphore::MAX_PERMITS);
        Self { node: Arc::clone(node), places: Arc::new(Semaphore::new(places)) }
    }
}

#[tonic::async_trait]
impl export_server::Export for Export {
    type StreamStream = Frames;

    async fn stream(&self, request: Request<StreamRequest>) -> Result<Response<Frames>, Status> {
        let request = request.into_inner();
        let follow = request.follow;
        let fits = self.node.limits.message_bytes.saturating_sub(ENVELOPE);
        let walk = Walk::new(&request, fits).map_err(|error| status::export(&error))?;
        let place = Arc::clone(&self.places)
            .try_acquire_owned()
            .map_err(|_| status::export(&ApiError::Overloaded))?;
        let (into, queue) = mpsc::channel(QUEUE);
        let pump = Pump { node: Arc::clone(&self.node), follow, into, _place: place };
        tokio::spawn(pump.run(walk));
        Ok(Response::new(Frames { queue, ended: false }))
    }
}

/// The task behind a stream.
struct Pump {
    node: Arc<Node>,
    follow: bool,
    into: mpsc::Sender<Step>,
    _place: OwnedSemaphorePermit,
}

impl Pump {
    async fn run(self, mut walk: Walk) {
        loop {
            let store = Arc::clone(&self.node.store);
            let reading = tokio::task::spawn_blocking(move || {
                let batch = walk.read(&store);
                (walk, batch)
            });
            let Ok((back, (responses, after))) = reading.await else {
                // The node is going down, or the reader broke; the closed queue says so.
                return;
            };
            walk = back;
            for response in responses {
                if !self.hand(Step::Some(response)).await {
                    return;
                }
            }
            let end = match after {
                Ok(After::More) => continue,
                Ok(After::CaughtUp) if self.follow => {
                    if !self.wait(&walk).await {
                        return;
                    }
                    continue;
                }
                Ok(After::CaughtUp | After::End) => Ok(()),
                Err(error) => Err(status::export(&error)),
            };
            self.hand(Step::End(end)).await;
            return;
        }
    }

    /// Puts a step into the queue; whether anybody still wants more is the answer.
    async fn hand(&self, step: Step) -> bool {
        tokio::select! {
            biased;
            () = stopped(self.node.stopping.clone()) => false,
            handed = self.into.send(step) => handed.is_ok(),
        }
    }

    /// Waits until there may be something to read; whether anybody still wants it is the answer.
    async fn wait(&self, walk: &Walk) -> bool {
        let news = async {
            while !walk.has_news(self.node.store.get_head()) {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            biased;
            () = stopped(self.node.stopping.clone()) => false,
            () = self.into.closed() => false,
            () = news => true,
        }
    }
}

impl Stream for Frames {
    type Item = Result<StreamResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.queue.poll_recv(cx).map(|step| match step {
            Some(Step::Some(response)) => Some(Ok(response)),
            Some(Step::End(end)) => {
                self.ended = true;
                end.err().map(Err)
            }
            None => {
                self.ended = true;
                Some(Err(status::stopping()))
            }
        })
    }
}
