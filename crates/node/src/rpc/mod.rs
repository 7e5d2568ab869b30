//! JSON-RPC: the read-only part of Ethereum's interface that a history can answer.
//!
//! What lives here: the envelope, the parameters, and answers built from stored blocks and
//! receipts as a real node gives them. What was cut is error 4444 and says from where on there is
//! something; what is queued or not known is `null`. What deliberately does not: sockets, tokens
//! and rate limits (those are `http`'s), and anything that needs state.

mod blobs;
mod blocks;
mod cache;
mod envelope;
mod errors;
mod fees;
mod logs;
mod methods;
mod params;
mod receipts;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_anvil;
#[cfg(test)]
mod tests_logs;
#[cfg(test)]
mod tests_support;

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

pub(crate) use cache::Cache;

use crate::service::{ApiError, Due, Node, Room, until};
use envelope::{Body, Frame};
use errors::RpcError;

/// One body's answer is no longer than this, however many calls it holds, nor than all answers under
/// way may be together. The receipts of the longest block there may be are about 256 MB of JSON: they
/// are asked for one by one.
const MAX_ANSWER_BYTES: usize = 160 << 20;

/// Answers the body of one POST: a call or a batch. None means that there is nothing to say.
pub(crate) async fn answer(node: &Arc<Node>, body: &[u8]) -> Option<Bytes> {
    answer_within(node, body, MAX_ANSWER_BYTES).await
}

async fn answer_within(node: &Arc<Node>, body: &[u8], most_bytes: usize) -> Option<Bytes> {
    let mut desk = Desk {
        node,
        due: Due::at(Instant::now() + node.limits.timeout),
        most_bytes: most_bytes.min(node.rooms.bytes()),
        full: false,
        room: node.rooms.empty(),
        out: Vec::new(),
    };
    match envelope::open(body, node.limits.batch) {
        Err(error) => return Some(envelope::refusal(error).into()),
        Ok(Body::TooLarge { id }) => return Some(envelope::batch_too_large(id).into()),
        Ok(Body::Single(frame)) => {
            desk.serve(frame).await;
        }
        Ok(Body::Batch(frames)) => {
            desk.out.push(b'[');
            for frame in frames {
                desk.serve(frame).await;
            }
            if desk.out.len() == 1 {
                return None;
            }
            desk.out.push(b']');
        }
    }
    let Desk { room, out, .. } = desk;
    (!out.is_empty()).then(|| room.around(out))
}

/// Answers the calls of one body in their order, inside one time and one size.
struct Desk<'a> {
    node: &'a Arc<Node>,
    due: Due,
    most_bytes: usize,
    /// An answer did not fit any more; no later one is tried.
    full: bool,
    /// The memory of what is said so far.
    room: Room,
    out: Vec<u8>,
}

impl Desk<'_> {
    async fn serve(&mut self, frame: Frame<'_>) {
        let (id, outcome) = match frame {
            Frame::Notification => return,
            Frame::Invalid { id, error } => (id, Err(error)),
            Frame::Call { id, method, params } => {
                let began = Instant::now();
                let outcome = match methods::read(&method, params) {
                    Ok(question) => self.answer(question).await,
                    Err(error) => Err(error),
                };
                let seconds = began.elapsed().as_secs_f64();
                self.node.metrics.rpc(&method, outcome.is_ok(), seconds);
                (id, outcome)
            }
        };
        if self.out.len() > 1 {
            self.out.push(b',');
        }
        envelope::write(&mut self.out, id, &outcome);
    }

    async fn answer(&mut self, question: methods::Question) -> Result<Vec<u8>, RpcError> {
        let (most, advice) = (self.most_bytes, question.advice());
        let space = Space {
            left: most.saturating_sub(self.out.len()),
            most,
            // A batch begins with its bracket.
            is_shared: self.out.len() > 1,
        };
        if self.full {
            return Err(space.too_long(advice));
        }
        let at = self.due.at;
        if Instant::now() >= at {
            return Err(ApiError::Timeout.into());
        }
        let answering = methods::answer(self.node, question, at, space);
        let answering = until(self.due.clone(), answering);
        let answer = match tokio::time::timeout_at(at, answering).await {
            Ok(answer) => answer?,
            Err(_) => return Err(ApiError::Timeout.into()),
        };
        self.full = answer.is_none();
        let answer = answer.ok_or_else(|| space.too_long(advice))?;
        self.room.grow(self.out.len().saturating_add(answer.len()))?;
        Ok(answer)
    }
}

/// How long an answer may be.
#[derive(Debug, Clone, Copy)]
struct Space {
    left: usize,
    /// All answers of a body together.
    most: usize,
    /// Whether other answers of the body took some of it.
    is_shared: bool,
}

impl Space {
    /// That an answer does not fit, and what would.
    fn too_long(self, advice: &str) -> RpcError {
        let most = self.most;
        RpcError::limit(if self.is_shared {
            format!(
                "with those before it the answer is longer than {most} bytes; send this call in a \
                 request of its own"
            )
        } else {
            format!("the answer is longer than {most} bytes; {advice}")
        })
    }
}
