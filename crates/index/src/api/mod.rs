//! A read-only HTTP view of an index: blocks, transactions, address histories, logs, parts, gaps and
//! what the worker says of itself. Everything is `GET` and JSON; lists come page by page, by key
//! (`docs/index.md` shows the shapes). Each answer is complete, or an error that names what is covered:
//! `coverage` decides.
//!
//! What deliberately does not live here: sockets, TLS, tokens and limits on connections, which are
//! those of whoever serves the router; and payloads, which the index does not hold.

mod answers;
mod coverage;
#[cfg(test)]
mod coverage_tests;
mod openapi;
mod params;
mod routes;
#[cfg(test)]
mod tests;
mod views;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use prometheus_client::registry::Registry;

use crate::IndexReader;
use crate::worker::Metrics;

/// What the API needs beside the index.
#[derive(Debug, Clone, Default)]
pub struct ApiOptions {
    /// What `/metrics` shows.
    pub registry: Option<Arc<Registry>>,
    /// What `/readyz` and `/v1/meta` say of the worker; without it, `/readyz` says yes as long as the
    /// index can be read.
    pub worker: Option<Arc<Metrics>>,
}

/// What the routes share.
struct App<R> {
    index: R,
    options: ApiOptions,
}

/// The routes over an index.
pub fn router<R: IndexReader>(index: R, options: ApiOptions) -> Router {
    let app = Arc::new(App { index, options });
    Router::new()
        .route("/healthz", get(routes::live))
        .route("/readyz", get(routes::ready::<R>))
        .route("/metrics", get(routes::metrics::<R>))
        .route("/openapi.json", get(routes::openapi))
        .route("/v1/meta", get(routes::meta::<R>))
        .route("/v1/blocks", get(routes::blocks::<R>))
        .route("/v1/blocks/{block}", get(routes::block::<R>))
        .route("/v1/blocks/{block}/txs", get(routes::block_txs::<R>))
        .route("/v1/txs/{hash}", get(routes::tx::<R>))
        .route("/v1/addresses/{address}/txs", get(routes::address_txs::<R>))
        .route("/v1/logs", get(routes::logs::<R>))
        .route("/v1/parts", get(routes::parts::<R>))
        .route("/v1/gaps", get(routes::gaps::<R>))
        .route("/v1/days", get(routes::days::<R>))
        .fallback(routes::no_route)
        .with_state(app)
}
