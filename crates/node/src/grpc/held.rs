//! Long answers on their way out. Their memory is counted until the client has taken them, and a
//! client that does not take them in time loses its connection: it may answer pings for ever.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use prost::Message;
use tokio::task::AbortHandle;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::{Response, Status};

use super::connections::Peer;
use crate::service::{ApiError, Room, Rooms};

/// A message with the room that it takes.
pub(super) fn held<T: Message>(rooms: &Rooms, message: T) -> Result<Response<T>, ApiError> {
    within(rooms.empty(), message)
}

/// A message with its room, which may be large enough already.
pub(super) fn within<T: Message>(mut room: Room, message: T) -> Result<Response<T>, ApiError> {
    room.grow(message.encoded_len())?;
    let mut response = Response::new(message);
    response.extensions_mut().insert(Arc::new(room));
    Ok(response)
}

/// Keeps the room of an answer until its body has ended, and its client from waiting for ever.
pub(super) fn keep(
    mut answer: http::Response<Body>,
    peer: Option<Peer>,
    longest: Duration,
) -> http::Response<Body> {
    let Some(room) = answer.extensions_mut().remove::<Arc<Room>>() else { return answer };
    let watch = peer.map(|peer| {
        let watch = tokio::spawn(async move {
            tokio::time::sleep(longest).await;
            tracing::debug!(peer = %peer.0, "a client does not take its answer");
            peer.hang_up();
        });
        watch.abort_handle()
    });
    let keeper = Arc::new(Keeper { _room: room, watch });
    answer.map(|body| Body::new(Kept { body, keeper }))
}

/// What is held until the last byte is sent.
struct Keeper {
    _room: Arc<Room>,
    watch: Option<AbortHandle>,
}

/// A body whose pieces hold the keeper: they wait for the client longer than the body does.
struct Kept {
    body: Body,
    keeper: Arc<Keeper>,
}

struct Piece {
    bytes: Bytes,
    _keeper: Arc<Keeper>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}

impl hyper::body::Body for Kept {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let keep = |bytes| Piece { bytes, _keeper: Arc::clone(&self.keeper) };
        polled.map_ok(|frame| frame.map_data(|bytes| Bytes::from_owner(keep(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
