//! Connections of peers: so many at a time, each with the address it comes from.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::Connected;

use super::socket::Socket;

/// How long accepting rests after it failed: the process is out of files, most likely.
const REST: Duration = Duration::from_millis(100);

/// Where a request comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin(pub(super) IpAddr);

/// A connection's place, which is given back when it ends.
#[derive(Debug)]
pub(super) struct Place {
    from: Origin,
    _permit: OwnedSemaphorePermit,
}

impl Connected for Socket<Place> {
    type ConnectInfo = Origin;

    fn connect_info(&self) -> Origin {
        self.guard.from
    }
}

/// Everything that connects to a socket; more than `most` wait in the socket's own queue.
pub(super) fn incoming(
    listener: TcpListener,
    most: usize,
) -> impl Stream<Item = Result<Socket<Place>, io::Error>> + Send {
    let places = Arc::new(Semaphore::new(most.max(1)));
    futures_util::stream::unfold((listener, places), |(listener, places)| async move {
        let permit = Arc::clone(&places).acquire_owned().await.ok()?;
        let (stream, address) = accept(&listener).await;
        let place = Place { from: Origin(address.ip().to_canonical()), _permit: permit };
        Some((Ok(Socket::new(stream, place)), (listener, places)))
    })
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection of a peer cannot be accepted");
                tokio::time::sleep(REST).await;
            }
        }
    }
}
