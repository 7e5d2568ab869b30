//! The read-only API over the index, on a socket of its own. It has no tokens, so it listens on
//! this machine only; whoever wants it elsewhere puts a proxy before it.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use prometheus_client::registry::Registry;
use secateur_index::IndexReader;
use secateur_index::api::{ApiOptions, router};
use secateur_index::worker::Metrics;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::error::NodeError;
use crate::http::{Origins, dress};
use crate::ui::log;

/// An open socket with its routes.
pub(super) struct Api {
    socket: TcpListener,
    address: SocketAddr,
    routes: Router,
}

/// Refuses an address that others can reach.
pub(crate) fn check_local(key: &str, address: SocketAddr) -> Result<(), NodeError> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    Err(NodeError::Refused(format!(
        "{key} = {address} is not on this machine, and what answers there asks for no token; listen on \
         127.0.0.1 and put a proxy before it"
    )))
}

impl Api {
    /// Opens the socket, where one is wanted.
    pub(super) async fn open<R: IndexReader>(
        address: Option<SocketAddr>,
        reader: R,
        registry: Registry,
        worker: &Arc<Metrics>,
        origins: Origins,
    ) -> Result<Option<Self>, anyhow::Error> {
        let Some(address) = address else { return Ok(None) };
        check_local("index.http", address)?;
        let socket = TcpListener::bind(address)
            .await
            .with_context(|| format!("index.http = {address} cannot be listened on"))?;
        let address = socket.local_addr()?;
        let options =
            ApiOptions { registry: Some(Arc::new(registry)), worker: Some(Arc::clone(worker)) };
        Ok(Some(Self { socket, address, routes: dress(router(reader, options), origins) }))
    }

    /// The line from which on it answers; JSON where the log is.
    pub(super) fn listening(&self) -> String {
        let address = self.address;
        if log::is_for_people() {
            return format!("listening index http={address}\n");
        }
        let line = serde_json::json!({ "event": "listening", "service": "index", "http": address });
        format!("{line}\n")
    }
}

/// Serves until it is told to stop; for ever where there is nothing to serve.
pub(super) async fn until(
    api: Option<Api>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), anyhow::Error> {
    let Some(api) = api else { return std::future::pending().await };
    let stopped = async move {
        drop(stop.wait_for(|stop| *stop).await);
    };
    axum::serve(api.socket, api.routes)
        .with_graceful_shutdown(stopped)
        .await
        .context("serving the index's API")?;
    // The others end by themselves.
    std::future::pending().await
}
