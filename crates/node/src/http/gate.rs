//! What every request passes: is it meant for us, may it, is it small and quick enough. What comes
//! back is counted.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use tokio::time::{Instant, timeout};

use super::access::Access;
use super::answers::{self, JSON};
use super::compress::compress;
use super::connections::Peer;
use super::errors::Refusal;
use crate::security::Role;
use crate::service::ApiError;

/// So much longer than what it asks for may a request take: whoever is asked answers for itself
/// that it took too long.
const SPARE: Duration = Duration::from_secs(1);

/// The gate of one route.
#[derive(Debug, Clone)]
pub(super) struct Gate {
    pub(super) access: Arc<Access>,
    pub(super) role: Role,
    /// The route's path, as it is counted.
    pub(super) route: &'static str,
    /// Whether the route reads a body, which is then JSON.
    pub(super) takes_body: bool,
}

/// The gate as axum sees it.
pub(super) async fn pass(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    gate.through(request, |request| next.run(request)).await
}

/// The answer where there is no route. It is not told to strangers.
pub(super) async fn no_route(access: Arc<Access>, request: Request) -> Response {
    let gate = Gate { access, role: Role::Read, route: "other", takes_body: false };
    gate.through(request, |_| async { Refusal::no_route().into_response() }).await
}

/// The answer where there is a route, but not for this method.
pub(super) async fn no_method(access: Arc<Access>, request: Request) -> Response {
    let gate = Gate { access, role: Role::Read, route: "other", takes_body: false };
    gate.through(request, |_| async { Refusal::no_method().into_response() }).await
}

impl Gate {
    async fn through<F: Future<Output = Response>>(
        &self,
        request: Request,
        answer: impl FnOnce(Request) -> F,
    ) -> Response {
        let begun = Instant::now();
        let Access { origins, metrics, limits, .. } = self.access.as_ref();
        let asked = request.headers().clone();
        let preflight = origins.preflight(request.method(), &asked);
        let mut response = match preflight {
            Some(preflight) => preflight,
            None => match self.admit(request).await {
                Ok(request) => {
                    let longest = limits.timeout.saturating_add(SPARE);
                    let answered = timeout(longest, answer(request)).await;
                    answered.unwrap_or_else(|_| Refusal::from(ApiError::Timeout).into_response())
                }
                Err(refusal) => refusal.into_response(),
            },
        };
        answers::protect(&mut response);
        origins.mark(&asked, &mut response);
        let response = compress(&asked, response).await;
        let (status, seconds) = (response.status().as_u16(), begun.elapsed().as_secs_f64());
        metrics.http(self.route, status, seconds);
        tracing::debug!(route = self.route, status, seconds, "HTTP");
        response
    }

    /// Lets a request in, with its whole body if the route reads one.
    async fn admit(&self, request: Request) -> Result<Request, Refusal> {
        let Access { guard, hosts, limits, .. } = self.access.as_ref();
        if let Some(hosts) = hosts {
            hosts.check(&request)?;
        }
        let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
        let authorization = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
        let caller = guard.admit(self.role, authorization, peer).map_err(|error| match error {
            ApiError::Overloaded => Refusal::too_often(),
            error => error.into(),
        })?;
        let told = request.headers().get(CONTENT_LENGTH).and_then(|len| len.to_str().ok());
        // What does not even fit a number is too large as well; hyper refuses what is no number.
        let told = told.map(|len| len.parse().unwrap_or(usize::MAX));
        if told.is_some_and(|len| len > limits.body_bytes) {
            return Err(Refusal::too_large(limits.body_bytes));
        }
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(caller);
        if !self.takes_body {
            return Ok(Request::from_parts(parts, Body::empty()));
        }
        let kind = parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.map(|kind| kind.split(';').next().unwrap_or_default().trim());
        if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case(JSON)) {
            return Err(Refusal::not_json());
        }
        let body = timeout(limits.timeout, read(body, limits.body_bytes)).await;
        let body = body.unwrap_or_else(|_| Err(Refusal::slow_body()))?;
        Ok(Request::from_parts(parts, body.into()))
    }
}

/// The whole of a body that is not over the limit.
async fn read(body: Body, limit: usize) -> Result<Bytes, Refusal> {
    let mut pieces = body.into_data_stream();
    let mut whole = BytesMut::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| Refusal::bad("the body ended before it was whole"))?;
        if piece.len() > limit.saturating_sub(whole.len()) {
            return Err(Refusal::too_large(limit));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}
