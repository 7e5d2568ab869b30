//! HTTP: who is let in, which routes there are, and what they answer.
//!
//! What lives here: the sockets ([`connections`]), the one table of routes with their roles
//! ([`routes`]), what every request passes on its way ([`gate`]), the routes themselves, the
//! counters and TLS. What deliberately does not: JSON-RPC, which has a room of its own and is only
//! carried here.

mod about;
mod answers;
mod beacon;
mod blobs;
mod connections;
mod errors;
mod events;
mod gate;
mod health;
mod hosts;
mod lookups;
pub(crate) mod metrics;
mod openapi;
mod patience;
mod routes;
mod schemas;
mod scrape;
pub(crate) mod tls;
mod v1;

use std::net::TcpListener;
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use tokio::sync::watch;

use crate::security::Guard;
use crate::service::Node;
use connections::Doors;
use events::Events;
use health::Progress;
use hosts::Hosts;
use scrape::PastDue;

/// What the routes share.
#[derive(Debug)]
pub(crate) struct App {
    node: Arc<Node>,
    guard: Arc<Guard>,
    /// The names by which this node is called; none where any name will do.
    hosts: Option<Hosts>,
    events: Events,
    progress: Progress,
    past_due: PastDue,
    /// `/openapi.json`, made from the table of routes.
    openapi: Bytes,
}

/// Serves until the node stops.
pub(crate) fn serve(
    node: &Arc<Node>,
    guard: &Arc<Guard>,
    socket: TcpListener,
    tls: Option<tls::Tls>,
) -> Result<impl Future<Output = Result<(), anyhow::Error>> + Send + 'static, anyhow::Error> {
    let address = socket.local_addr().context("asking the HTTP socket for its address")?;
    let listener = tokio::net::TcpListener::from_std(socket).context("opening the HTTP socket")?;
    let table = routes::table();
    let most = connections::most(&node.limits);
    let app = Arc::new(App {
        node: Arc::clone(node),
        guard: Arc::clone(guard),
        hosts: Hosts::to_check(address, guard),
        events: Events::new(most),
        progress: Progress::default(),
        past_due: PastDue::default(),
        openapi: openapi::document(&table, tls.is_some())?,
    });
    let doors = Doors::new(Arc::clone(node), table.router(&app), tls, most);
    Ok(async move {
        tokio::join!(doors.serve(listener), app.events.run(&app.node));
        Ok(())
    })
}

/// Returns when the node is to stop.
async fn told_to_stop(mut stopping: watch::Receiver<bool>) {
    // Whoever could say so has gone: that is a stop too.
    stopping.wait_for(|stop| *stop).await.map(drop).unwrap_or_default();
}
