//! Connections: so many at a time, and none that stays silent for ever.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use anyhow::Context as _;
use futures_util::Stream;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, Sleep};
use tonic::transport::server::Connected;

/// Connections at a time; more wait in the socket's own queue.
const MOST: usize = 1_024;

/// A connection from which nothing comes for so long is closed. One that lives answers the
/// server's pings well before.
const SILENCE: Duration = Duration::from_mins(1);

/// The first words of HTTP/2, or of TLS before it, come within this time, however they trickle: no
/// ping is sent before them.
const GREETING: Duration = Duration::from_secs(10);
/// How long those words are.
const GREETING_BYTES: usize = 24;

/// How long accepting rests after it failed: the process is out of files, most likely.
const REST: Duration = Duration::from_millis(100);

/// Where a request comes from.
#[derive(Debug, Clone)]
pub(super) struct Peer(pub(super) IpAddr, Arc<Mutex<Option<oneshot::Sender<()>>>>);

impl Peer {
    /// Ends its connection.
    pub(super) fn hang_up(&self) {
        if let Some(end) = self.1.lock().take() {
            // It may have ended by itself.
            end.send(()).unwrap_or_default();
        }
    }
}

/// One connection. Its place is given back when it ends.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    peer: Peer,
    /// Says that it is to end.
    hung_up: Option<oneshot::Receiver<()>>,
    /// Bytes that came, until they are a greeting.
    heard: usize,
    silence: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

/// Everything that connects to a socket.
pub(super) fn incoming(
    socket: TcpListener,
) -> Result<impl Stream<Item = Result<Connection, io::Error>> + Send, anyhow::Error> {
    let listener = tokio::net::TcpListener::from_std(socket).context("listening for gRPC")?;
    let places = Arc::new(Semaphore::new(MOST));
    Ok(futures_util::stream::unfold((listener, places), |(listener, places)| async move {
        let place = Arc::clone(&places).acquire_owned().await.ok()?;
        let (stream, peer) = accept(&listener).await;
        Some((Ok(Connection::new(stream, peer, place)), (listener, places)))
    }))
}

async fn accept(listener: &tokio::net::TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "a gRPC connection cannot be accepted");
                tokio::time::sleep(REST).await;
            }
        }
    }
}

impl Connection {
    fn new(stream: TcpStream, peer: SocketAddr, place: OwnedSemaphorePermit) -> Self {
        // Without it answers are only later, not wrong.
        stream.set_nodelay(true).unwrap_or_default();
        let (end, hung_up) = oneshot::channel();
        Self {
            stream,
            peer: Peer(peer.ip().to_canonical(), Arc::new(Mutex::new(Some(end)))),
            hung_up: Some(hung_up),
            heard: 0,
            silence: Box::pin(tokio::time::sleep(GREETING)),
            _place: place,
        }
    }
}

impl Connection {
    fn is_hung_up(&mut self, cx: &mut Context<'_>) -> bool {
        let told = self.hung_up.as_mut().is_none_or(|told| Pin::new(told).poll(cx).is_ready());
        if told {
            // It must not be asked again.
            self.hung_up = None;
        }
        told
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, into) {
            Poll::Pending if self.is_hung_up(cx) => {
                Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()))
            }
            Poll::Pending => {
                ready!(self.silence.as_mut().poll(cx));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            read @ Poll::Ready(_) => {
                self.heard = self.heard.saturating_add(into.filled().len() - before);
                if self.heard >= GREETING_BYTES {
                    self.silence.as_mut().reset(Instant::now() + SILENCE);
                }
                read
            }
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
