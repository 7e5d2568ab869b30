//! `/healthz`, `/readyz` and `/metrics` of the UTXO service, on a socket of its own that asks for no
//! token and so listens on this machine only.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use parking_lot::Mutex;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use secateur_utxo::Standing;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::http::metrics::Metrics;

const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// How old the counts of a scrape may be.
const FRESH: Duration = Duration::from_secs(5);
/// A scrape waits no longer for new ones.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the routes share: the service, once its records are open. Until then they tell that it lives and
/// what it waits for, so that nobody ends it for being patient.
#[derive(Default)]
pub(super) struct Board {
    up: OnceLock<Shown>,
    waits_for: Mutex<Option<String>>,
}

impl Board {
    /// Says what is waited for.
    pub(super) fn wait(&self, reason: String) {
        *self.waits_for.lock() = Some(reason);
    }

    /// From now on the service is shown.
    pub(super) fn show(&self, shown: Shown) {
        // It comes up once.
        drop(self.up.set(shown));
    }
}

/// A service that is up.
pub(super) struct Shown {
    pub(super) standing: watch::Receiver<Standing>,
    pub(super) registry: Registry,
    pub(super) calls: Arc<Metrics>,
    pub(super) refresh: Box<dyn Fn() -> Refreshing + Send + Sync>,
    pub(super) refreshed: Mutex<Option<Instant>>,
}

type Refreshing = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// Opens the socket.
pub(super) async fn listen(
    address: SocketAddr,
) -> Result<(TcpListener, SocketAddr), anyhow::Error> {
    let socket = TcpListener::bind(address)
        .await
        .with_context(|| format!("utxo.http = {address} cannot be listened on"))?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

/// Serves until it is told to stop.
pub(super) async fn serve(
    socket: TcpListener,
    board: Arc<Board>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), anyhow::Error> {
    let routes = Router::new()
        .route("/healthz", get(live))
        .route("/readyz", get(ready))
        .route("/metrics", get(scrape))
        .with_state(board);
    let stopped = async move {
        drop(stop.wait_for(|stop| *stop).await);
    };
    let served = axum::serve(socket, routes).with_graceful_shutdown(stopped).await;
    served.context("serving the UTXO service's HTTP")
}

async fn live() -> Response {
    let version = env!("CARGO_PKG_VERSION");
    Json(serde_json::json!({ "alive": true, "version": version })).into_response()
}

async fn ready(State(board): State<Arc<Board>>) -> Response {
    let standing = match board.up.get() {
        Some(shown) => shown.standing.borrow().clone(),
        None => Standing { not_ready: Some(starting(&board)), ..Standing::default() },
    };
    let Standing { head, persisted, processed, not_ready, .. } = standing;
    let status = if not_ready.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let reasons: Vec<String> = not_ready.into_iter().collect();
    let answer = serde_json::json!({
        "ready": reasons.is_empty(),
        "reasons": reasons,
        "head": head,
        "persisted": persisted,
        "processed": processed,
    });
    (status, Json(answer)).into_response()
}

/// Why nothing is shown yet.
fn starting(board: &Board) -> String {
    match &*board.waits_for.lock() {
        Some(reason) => format!("the UTXO records are waited for: {reason}"),
        None => "the UTXO records are being opened".into(),
    }
}

async fn scrape(State(board): State<Arc<Board>>) -> Response {
    let Some(shown) = board.up.get() else {
        return (StatusCode::SERVICE_UNAVAILABLE, starting(&board)).into_response();
    };
    let stale = {
        let mut refreshed = shown.refreshed.lock();
        let stale = refreshed.is_none_or(|at| at.elapsed() >= FRESH);
        if stale {
            // Whoever scrapes meanwhile is told what is known.
            *refreshed = Some(Instant::now());
        }
        stale
    };
    if stale && timeout(PATIENCE, (shown.refresh)()).await.is_err() {
        tracing::debug!("counting UTXO records takes long; the last counts are told");
    }
    let mut body = String::new();
    let written =
        shown.calls.write(&mut body).and_then(|()| text::encode(&mut body, &shown.registry));
    match written {
        Ok(()) => ([(CONTENT_TYPE, KIND)], body).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
