//! The gate before all services: who may call what, how many at once, and for how long.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use secateur_proto::ERROR_TRAILER;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::body::Body;
use tonic::codegen::http::{Request, Response, header};
use tonic::transport::server::TcpConnectInfo;
use tonic::{Code, Status};
use tower::{Layer, Service};

use super::connections::Peer;
use super::{held, status};
use crate::config::Limits;
use crate::http::metrics::Metrics;
use crate::security::{Caller, Guard, Role, grpc_role};
use crate::service::ApiError;

/// Calls that take as long as they take: they read a whole store or a whole part, or prune.
const UNTIMED: [&str; 3] = [
    "/secateur.history.v1.Admin/Verify",
    "/secateur.history.v1.Admin/AckArchived",
    "/secateur.utxo.v1.Pruner/Prune",
];

/// A question to the store ends in time by itself; this is for requests that never become one.
const ALLOWANCE: Duration = Duration::from_secs(1);

/// What stands before every service.
#[derive(Debug, Clone)]
pub(super) struct Gate {
    metrics: Arc<Metrics>,
    guard: Arc<Guard>,
    calls: Arc<Semaphore>,
    timeout: Duration,
}

/// A service behind the gate.
#[derive(Debug, Clone)]
pub(super) struct Gated<S> {
    gate: Gate,
    inner: S,
}

impl Gate {
    pub(super) fn new(limits: &Limits, metrics: &Arc<Metrics>, guard: &Arc<Guard>) -> Self {
        let calls = limits.concurrency.saturating_add(limits.waiting).min(Semaphore::MAX_PERMITS);
        Self {
            metrics: Arc::clone(metrics),
            guard: Arc::clone(guard),
            calls: Arc::new(Semaphore::new(calls)),
            timeout: limits.timeout.saturating_add(ALLOWANCE),
        }
    }

    /// Lets a request in, or says why not. Whether the node lives is told however busy it is.
    fn admit(
        &self,
        request: &Request<Body>,
    ) -> Result<(Caller, Option<OwnedSemaphorePermit>), Status> {
        let path = request.uri().path();
        let role = grpc_role(path)
            .ok_or_else(|| Status::unimplemented("there is no such method on this node"))?;
        let authorization = request.headers().get(header::AUTHORIZATION);
        let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
        let caller = self
            .guard
            .admit(role, authorization.map(header::HeaderValue::as_bytes), peer)
            .map_err(|error| refuse(role, path, &error))?;
        let place = match role {
            Role::Open => None,
            Role::Read | Role::Consumer | Role::Peer | Role::Admin => Some(
                Arc::clone(&self.calls)
                    .try_acquire_owned()
                    .map_err(|_| status::plain(&ApiError::Overloaded))?,
            ),
        };
        Ok((caller, place))
    }
}

fn refuse(role: Role, path: &str, error: &ApiError) -> Status {
    if matches!(role, Role::Consumer | Role::Admin) {
        tracing::warn!(path, %error, "a call that changes things was refused");
    }
    status::plain(error)
}

/// A message that is too long is out of range to tonic. Here that code means pruned, and comes
/// with details.
fn is_oversize(status: &Status) -> bool {
    status.code() == Code::OutOfRange && status.metadata().get_bin(ERROR_TRAILER).is_none()
}

impl<S> Layer<S> for Gate {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated { gate: self.clone(), inner }
    }
}

impl<S> Service<Request<Body>> for Gated<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let (began, path) = (Instant::now(), request.uri().path().to_owned());
        let metrics = Arc::clone(&self.gate.metrics);
        let (caller, place) = match self.gate.admit(&request) {
            Ok(admitted) => admitted,
            Err(status) => {
                metrics.grpc(&path, status.code(), began.elapsed().as_secs_f64());
                return Box::pin(async move { Ok(status.into_http()) });
            }
        };
        let peer = request.extensions().get::<Peer>().cloned();
        // What was begun goes on, whoever has stopped waiting for it.
        let late = match grpc_role(&path) {
            Some(role) if role.changes() => ApiError::MayBeDone,
            _ => ApiError::Timeout,
        };
        let untimed = UNTIMED.contains(&path.as_str());
        if let Some(address) = caller.peer {
            // Where what carries notices looks for it.
            let remote_addr = Some(SocketAddr::new(address, 0));
            request.extensions_mut().insert(TcpConnectInfo { local_addr: None, remote_addr });
        }
        request.extensions_mut().insert(caller);
        let answer = self.inner.call(request);
        let timeout = self.gate.timeout;
        Box::pin(async move {
            // Until the answer begins: what a stream still has to say is bounded elsewhere.
            let _place = place;
            let answer = if untimed {
                answer.await?
            } else {
                let in_time = tokio::time::timeout(timeout, answer).await;
                in_time.unwrap_or_else(|_| Ok(status::plain(&late).into_http()))?
            };
            // A refusal is told in the headers, unless it comes in the middle of a stream.
            let refused = Status::from_header_map(answer.headers());
            let (answer, code) = match refused {
                Some(status) if is_oversize(&status) => {
                    let status = Status::resource_exhausted(status.message());
                    (status.into_http(), Code::ResourceExhausted)
                }
                refused => (answer, refused.map_or(Code::Ok, |status| status.code())),
            };
            metrics.grpc(&path, code, began.elapsed().as_secs_f64());
            Ok(held::keep(answer, peer, timeout))
        })
    }
}
