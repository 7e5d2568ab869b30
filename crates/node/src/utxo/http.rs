//! `/healthz`, `/readyz` and `/metrics` of the UTXO service, through the doors and gates of a node's HTTP. And the open
//! health: an address of its own where health answers without TLS and token, over HTTP and gRPC, and nothing else does.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use secateur_proto::teranode::pruner::pruner_api_server::{PrunerApi, PrunerApiServer};
use secateur_proto::teranode::pruner::{EmptyMessage, HealthResponse};
use secateur_utxo::Standing;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::{Code, Status};
use tonic_health::server::HealthReporter;

use super::board::Board;
use crate::config::Config;
use crate::grpc::utxo::say_not_serving;
use crate::http::metrics::Metrics;
use crate::http::{Access, Doors, Protocols, Table, about, metrics_page, most_connections, tls};
use crate::security::{Caller, Guard, Role};

/// A question about health is no longer.
const MAX_QUESTION_BYTES: usize = 1_024;
/// What is said to those who may not read why.
pub(crate) const NOT_READY: &str = "it is not ready; its log and `secateur utxo status` say why, and so does this call with a token";
/// What is said at the address that never gives the cause.
const NOT_READY_IN_THE_CLEAR: &str =
    "it is not ready; its log, `secateur utxo status` and /readyz at utxo.http say why";

/// What the servers of HTTP need.
pub(super) struct HttpServers<'a> {
    pub(super) config: &'a Config,
    pub(super) guard: &'a Arc<Guard>,
    pub(super) calls: &'a Arc<Metrics>,
    pub(super) board: &'a Arc<Board>,
    pub(super) stopping: watch::Receiver<bool>,
}

/// An open socket.
pub(super) struct HttpSocket {
    listener: TcpListener,
    pub(super) address: SocketAddr,
}

impl HttpSocket {
    /// Listens on the address of a key.
    pub(super) async fn open(key: &str, address: SocketAddr) -> Result<Self, anyhow::Error> {
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("{key} = {address} cannot be listened on"))?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }
}

impl HttpServers<'_> {
    fn access(&self, address: SocketAddr) -> Arc<Access> {
        let Self { config, guard, calls, .. } = self;
        let origins = config.cors_origins.clone();
        Arc::new(Access::new(address, guard, calls, &config.limits, origins))
    }

    fn doors(&self, router: Router, tls: Option<tls::Tls>) -> Doors {
        let most = most_connections(&self.config.limits);
        Doors::new(Arc::clone(self.calls), self.stopping.clone(), router, tls, most)
    }

    /// `utxo.http`, until the service stops.
    pub(super) fn http(
        &self,
        socket: HttpSocket,
    ) -> Result<impl Future<Output = Result<(), anyhow::Error>> + Send + 'static, anyhow::Error>
    {
        let tls = self.config.tls.as_ref().map(tls::read).transpose()?;
        let routes = Table::default()
            .get("/healthz", Role::Open, about::ALIVE, live)
            .get("/readyz", Role::Open, about::READY, ready)
            .get("/metrics", Role::Read, about::METRICS, scrape);
        let doors = self.doors(routes.router(&self.access(socket.address), self.board), tls);
        Ok(async move {
            doors.serve(socket.listener).await;
            Ok(())
        })
    }

    /// `utxo.open_health`, until the service stops, and the reporter of the health of gRPC's services. Until that
    /// reports, none serves.
    pub(super) async fn open_health(
        &self,
        socket: HttpSocket,
    ) -> (impl Future<Output = Result<(), anyhow::Error>> + Send + 'static, HealthReporter) {
        let routes = Table::default().get("/healthz", Role::Open, about::ALIVE, live).get(
            "/readyz",
            Role::Open,
            about::READY,
            ready_in_the_clear,
        );
        let (reporter, health) = tonic_health::server::health_reporter();
        // It begins with a whole that serves.
        say_not_serving(&reporter).await;
        let pruner = PrunerApiServer::new(OpenHealth(Arc::clone(self.board)));
        let calls = Router::new()
            .route_service(
                "/pruner.PrunerAPI/{method}",
                pruner.max_decoding_message_size(MAX_QUESTION_BYTES),
            )
            .route_service(
                "/grpc.health.v1.Health/{method}",
                health.max_decoding_message_size(MAX_QUESTION_BYTES),
            )
            .route_layer(from_fn_with_state(Arc::clone(self.calls), count));
        let router = routes.router(&self.access(socket.address), self.board).merge(calls);
        let doors = self.doors(router, None).speaking(Protocols::Both);
        let served = async move {
            doors.serve(socket.listener).await;
            Ok(())
        };
        (served, reporter)
    }
}

/// Counts a call of gRPC. How many there may be is limited by connections alone, as wherever health is asked for.
async fn count(State(calls): State<Arc<Metrics>>, request: Request, next: Next) -> Response {
    let (began, path) = (Instant::now(), request.uri().path().to_owned());
    let response = next.run(request).await;
    let code = Status::from_header_map(response.headers()).map_or(Code::Ok, |status| status.code());
    calls.grpc(&path, code, began.elapsed().as_secs_f64());
    response
}

async fn live() -> Response {
    let version = env!("CARGO_PKG_VERSION");
    Json(serde_json::json!({ "alive": true, "version": version })).into_response()
}

/// Whether the service is ready. Why it is not may name files and addresses.
async fn ready(State(board): State<Arc<Board>>, Extension(caller): Extension<Caller>) -> Response {
    readiness(board.standing(), |reason| {
        if caller.may_read_causes() { reason } else { NOT_READY.to_owned() }
    })
}

/// The same where the cause is never given, wherever the caller is and whatever token it shows.
async fn ready_in_the_clear(State(board): State<Arc<Board>>) -> Response {
    readiness(board.standing(), |_| NOT_READY_IN_THE_CLEAR.to_owned())
}

fn readiness(standing: Standing, shown: impl FnOnce(String) -> String) -> Response {
    let Standing { head, persisted, processed, not_ready, .. } = standing;
    let status = if not_ready.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let reasons: Vec<String> = not_ready.map(shown).into_iter().collect();
    let answer = serde_json::json!({
        "ready": reasons.is_empty(),
        "reasons": reasons,
        "head": head,
        "persisted": persisted,
        "processed": processed,
    });
    (status, Json(answer)).into_response()
}

async fn scrape(State(board): State<Arc<Board>>, headers: HeaderMap) -> Response {
    match board.page().await {
        Some(Ok(page)) => metrics_page(page, &headers),
        Some(Err(_)) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, board.starting()).into_response(),
    }
}

/// `HealthGRPC` where everybody may ask it.
struct OpenHealth(Arc<Board>);

#[tonic::async_trait]
impl PrunerApi for OpenHealth {
    async fn health_grpc(
        &self,
        _: tonic::Request<EmptyMessage>,
    ) -> Result<tonic::Response<HealthResponse>, Status> {
        let ok = self.0.standing().not_ready.is_none();
        let details = if ok { "it keeps up" } else { NOT_READY_IN_THE_CLEAR };
        Ok(tonic::Response::new(HealthResponse { ok, details: details.to_owned() }))
    }
}
