//! The doors: sockets are accepted, counted, wrapped in TLS and served, and all of that ends when
//! the node stops.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use super::metrics::Metrics;
use super::patience::Patience;
use super::{tls, told_to_stop};
use crate::config::Limits;

/// A TLS handshake takes no longer.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Headers arrive within this time, and a connection is idle no longer.
const HEADERS: Duration = Duration::from_secs(10);
/// A client that takes nothing for so long is cut off.
const STALLED: Duration = Duration::from_secs(20);
/// Requests that are under way at the end may take so long.
const GRACE: Duration = Duration::from_secs(8);
/// How long nothing is accepted after the system refused to.
const PAUSE: Duration = Duration::from_millis(100);
/// Headers of one request at most, and their bytes.
const MOST_HEADERS: usize = 64;
const HEADER_BYTES: usize = 64 * 1024;
/// Clients at once that are told that there are too many of them; more are not even told.
const MOST_REFUSALS: usize = 32;

/// What a client of HTTP/2 says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long is waited for more of the first bytes.
const PREFACE_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Requests of one connection of HTTP/2 at a time, and the bytes of their headers.
const MAX_H2_STREAMS: u32 = 16;
const H2_HEADER_BYTES: u32 = 16 * 1024;
/// How often a connection of HTTP/2 is asked whether it lives.
const H2_PING_INTERVAL: Duration = Duration::from_secs(20);

/// What is spoken behind a door.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Protocols {
    /// HTTP/1.
    #[default]
    One,
    /// HTTP/1, and HTTP/2 with clients that begin with it, as those of gRPC do.
    Both,
}

/// Where a request comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Connections at once: one for each request that may be answered or wait, as far as there are
/// files for them; the store and the other interface need some too.
pub(crate) fn most(limits: &Limits) -> usize {
    let wanted = limits.concurrency.saturating_add(limits.waiting);
    let files = getrlimit(Resource::Nofile).current.and_then(|files| usize::try_from(files).ok());
    wanted.min(files.map_or(usize::MAX, |files| files / 2)).clamp(1, Semaphore::MAX_PERMITS)
}

/// The listening side of HTTP.
pub(crate) struct Doors {
    metrics: Arc<Metrics>,
    stopping: watch::Receiver<bool>,
    router: Router,
    tls: Option<TlsAcceptor>,
    protocols: Protocols,
    places: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
}

impl Doors {
    pub(crate) fn new(
        metrics: Arc<Metrics>,
        stopping: watch::Receiver<bool>,
        router: Router,
        tls: Option<tls::Tls>,
        most: usize,
    ) -> Self {
        Self {
            metrics,
            stopping,
            router,
            tls: tls.map(TlsAcceptor::from),
            protocols: Protocols::One,
            places: Arc::new(Semaphore::new(most)),
            refusals: Arc::new(Semaphore::new(MOST_REFUSALS)),
        }
    }

    /// The same, where more is spoken. (With TLS it is HTTP/1 all the same.)
    pub(crate) fn speaking(self, protocols: Protocols) -> Self {
        Self { protocols, ..self }
    }

    /// Accepts until the node stops, then lets what is under way finish.
    pub(crate) async fn serve(self, listener: TcpListener) {
        let mut open = JoinSet::new();
        let stop = told_to_stop(self.stopping.clone());
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(_) = open.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => self.receive(stream, peer, &mut open),
                    // One client that went before it was there is its own business.
                    Err(error) if is_of_one_client(&error) => {}
                    Err(error) => {
                        tracing::warn!(%error, "no HTTP connection can be accepted for a moment");
                        tokio::time::sleep(PAUSE).await;
                    }
                },
            }
        }
        drop(listener);
        let finish = async { while open.join_next().await.is_some() {} };
        if timeout(GRACE, finish).await.is_err() {
            tracing::warn!(left = open.len(), "HTTP connections are cut off");
        }
    }

    fn receive(&self, stream: TcpStream, peer: SocketAddr, open: &mut JoinSet<()>) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            self.refuse(stream, open);
            return;
        };
        let peer = Peer(peer.ip().to_canonical());
        let (metrics, stopping) = (Arc::clone(&self.metrics), self.stopping.clone());
        let (router, tls, protocols) = (self.router.clone(), self.tls.clone(), self.protocols);
        open.spawn(async move {
            let _place = place;
            let _counted = metrics.connection();
            // Only a matter of speed.
            stream.set_nodelay(true).unwrap_or_default();
            let Some(tls) = tls else {
                if protocols == Protocols::Both {
                    let begins = tokio::select! {
                        begins = timeout(HEADERS, begins_with_preface(&stream)) => begins,
                        () = told_to_stop(stopping.clone()) => return,
                    };
                    match begins {
                        Ok(Ok(true)) => return converse_h2(stream, peer, router, stopping).await,
                        Ok(Ok(false)) => {}
                        Ok(Err(_)) | Err(_) => return,
                    }
                }
                return converse(stream, peer, router, stopping).await;
            };
            let shaken = tokio::select! {
                shaken = timeout(HANDSHAKE, tls.accept(stream)) => shaken,
                () = told_to_stop(stopping.clone()) => return,
            };
            match shaken {
                Ok(Ok(stream)) => converse(stream, peer, router, stopping).await,
                Ok(Err(error)) => tracing::debug!(peer = %peer.0, %error, "no TLS handshake"),
                Err(_) => tracing::debug!(peer = %peer.0, "the TLS handshake took too long"),
            }
        });
    }

    /// Says that there are too many connections, if that can be said quickly.
    fn refuse(&self, mut stream: TcpStream, open: &mut JoinSet<()>) {
        self.metrics.refused_connection();
        if self.tls.is_some() {
            return;
        }
        let Ok(place) = Arc::clone(&self.refusals).try_acquire_owned() else { return };
        open.spawn(async move {
            let _place = place;
            let say = async {
                stream.write_all(sorry().as_bytes()).await?;
                stream.shutdown().await?;
                // A socket that is closed with bytes unread takes the answer with it.
                let mut unread = [0; 1024];
                while stream.read(&mut unread).await? > 0 {}
                Ok::<_, std::io::Error>(())
            };
            // Said or not, it is over.
            drop(timeout(Duration::from_secs(1), say).await);
        });
    }
}

/// What a client reads that came when all places were taken.
fn sorry() -> String {
    let body =
        "{\"error\":\"too many connections are open; try again later\",\"code\":\"overloaded\"}\n";
    format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nretry-after: 1\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Serves one connection until it ends or the node stops.
async fn converse<S>(stream: S, peer: Peer, router: Router, stopping: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        router.clone().oneshot(request)
    });
    let stream = TokioIo::new(Patience::new(stream, STALLED));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_headers(MOST_HEADERS)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(stream, service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = told_to_stop(stopping) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(peer = %peer.0, %error, "an HTTP connection ended badly");
    }
}

/// Whether a client begins as one of HTTP/2. Nothing is taken from the stream.
async fn begins_with_preface(stream: &TcpStream) -> std::io::Result<bool> {
    let mut first = [0; PREFACE.len()];
    loop {
        let len = stream.peek(&mut first).await?;
        let seen = first.get(..len).unwrap_or_default();
        if len == 0 || !PREFACE.starts_with(seen) {
            return Ok(false);
        }
        if len == PREFACE.len() {
            return Ok(true);
        }
        tokio::time::sleep(PREFACE_POLL_INTERVAL).await;
    }
}

/// Serves one connection of HTTP/2 until it ends or the node stops.
async fn converse_h2(
    stream: TcpStream,
    peer: Peer,
    router: Router,
    stopping: watch::Receiver<bool>,
) {
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        router.clone().oneshot(request)
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(H2_PING_INTERVAL)
        .keep_alive_timeout(H2_PING_INTERVAL)
        .max_concurrent_streams(MAX_H2_STREAMS)
        .max_header_list_size(H2_HEADER_BYTES)
        .serve_connection(TokioIo::new(Patience::new(stream, STALLED)), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = told_to_stop(stopping) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(peer = %peer.0, %error, "a connection of HTTP/2 ended badly");
    }
}

/// Whether an accept failed for a reason that the next one does not share.
fn is_of_one_client(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
