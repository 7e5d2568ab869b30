//! HTTP: who is let in, which routes there are, and what they answer.
//!
//! What lives here: the sockets ([`connections`]), the one table of routes with their roles
//! ([`routes`]), what every request passes on its way ([`gate`], [`access`], [`cors`], [`compress`]), the routes
//! themselves, the counters and TLS. The UTXO service serves its own routes through the same ([`routes::Table`]). What
//! deliberately does not: JSON-RPC, which has a room of its own and is only carried here.

pub(crate) mod about;
mod access;
mod answers;
mod beacon;
mod blobs;
mod compress;
mod connections;
mod cors;
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
use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use bytes::Bytes;
use tokio::sync::watch;

use crate::security::Guard;
use crate::service::Node;
pub(crate) use access::Access;
use compress::compress;
pub(crate) use connections::{Doors, Protocols, most as most_connections};
pub(crate) use cors::Origins;
use events::Events;
use health::Progress;
pub(crate) use routes::Table;
use scrape::PastDue;
pub(crate) use scrape::answer as metrics_page;

/// What the routes share.
#[derive(Debug)]
pub(crate) struct App {
    node: Arc<Node>,
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
    origins: Origins,
) -> Result<impl Future<Output = Result<(), anyhow::Error>> + Send + 'static, anyhow::Error> {
    let address = socket.local_addr().context("asking the HTTP socket for its address")?;
    let listener = tokio::net::TcpListener::from_std(socket).context("opening the HTTP socket")?;
    let table = routes::table();
    let most = most_connections(&node.limits);
    let access = Arc::new(Access::new(address, guard, &node.metrics, &node.limits, origins));
    let app = Arc::new(App {
        node: Arc::clone(node),
        events: Events::new(most),
        progress: Progress::default(),
        past_due: PastDue::default(),
        openapi: openapi::document(&table, address, tls.is_some())?,
    });
    let router = table.router(&access, &app);
    let (metrics, stopping) = (Arc::clone(&node.metrics), node.stopping.clone());
    let doors = Doors::new(metrics, stopping, router, tls, most);
    Ok(async move {
        tokio::join!(doors.serve(listener), app.events.run(&app.node));
        Ok(())
    })
}

/// Routes of another crate: their answers are made smaller, and pages of these origins may read them.
pub(crate) fn dress(routes: Router, origins: Origins) -> Router {
    let origins = Arc::new(origins);
    routes.layer(from_fn(move |request: Request, next: Next| {
        let origins = Arc::clone(&origins);
        async move {
            let asked = request.headers().clone();
            let mut response = match origins.preflight(request.method(), &asked) {
                Some(response) => response,
                None => next.run(request).await,
            };
            origins.mark(&asked, &mut response);
            compress(&asked, response).await
        }
    }))
}

/// Returns when the node is to stop.
async fn told_to_stop(mut stopping: watch::Receiver<bool>) {
    // Whoever could say so has gone: that is a stop too.
    stopping.wait_for(|stop| *stop).await.map(drop).unwrap_or_default();
}
