//! gRPC: every service on one port, behind one gate.
//!
//! What lives here: the server with its limits ([`serve`]), the gate that asks who may call what
//! (`gate`), the services, and the one place where errors become statuses (`status`). What
//! deliberately does not: any rule about blocks, cursors or holds; those are the store's.

mod admin;
mod connections;
mod convert;
mod entry;
mod export_v1;
mod export_v2;
mod gate;
mod held;
mod history;
mod proposal;
mod sidecar;
mod status;
mod tls;
pub(crate) mod utxo;
mod walk;

use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use secateur_proto::DESCRIPTORS;
use secateur_proto::export::v1::export_server::{self as export_v1_server};
use secateur_proto::export::v2::export_server::{self as export_v2_server};
use secateur_proto::history::v1::{admin_server, history_server};
use secateur_proto::sidecar::v1::{gossip_server, sidecar_server};
use tokio::sync::watch;
use tonic::service::{Routes, RoutesBuilder};
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::config::{Limits, TlsFiles};
use crate::http::metrics::Metrics;
use crate::security::Guard;
use crate::service::Node;

/// What a message needs beside its payloads.
const ENVELOPE: usize = 4 * 1024;
/// Requests that only ask are small.
const QUESTION: usize = 256 * 1024;
/// How often a client is asked whether it lives, and how long it may take to answer.
const PING: Duration = Duration::from_secs(20);
const PONG: Duration = Duration::from_secs(20);
/// Calls of one connection at a time.
const CALLS_PER_CONNECTION: u32 = 256;
/// How much a client may send before it is read: of one call, and of all.
const CALL_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// Headers hold a token and little else.
const HEADERS: u32 = 16 * 1024;
/// How long those who watch the node's health have to hear that it stops.
const FAREWELL: Duration = Duration::from_millis(300);
/// How long connections have to end after that.
const PATIENCE: Duration = Duration::from_secs(3);

/// Whose health is told; the empty name is the whole node. The last two are served where blobs are
/// kept.
static SERVICES: [&str; 7] = [
    "",
    export_v1_server::SERVICE_NAME,
    export_v2_server::SERVICE_NAME,
    history_server::SERVICE_NAME,
    admin_server::SERVICE_NAME,
    sidecar_server::SERVICE_NAME,
    gossip_server::SERVICE_NAME,
];
const WITHOUT_BLOBS: usize = 5;

/// What is served wherever we serve gRPC.
const EVERYWHERE: [&str; 3] = [
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
];

/// Serving, until it ends.
pub(crate) type Served = Pin<Box<dyn Future<Output = Result<(), anyhow::Error>> + Send>>;

/// What stands before the services of one socket, and how it is served.
struct Door<'a> {
    limits: &'a Limits,
    metrics: &'a Arc<Metrics>,
    guard: &'a Arc<Guard>,
    tls: Option<&'a TlsFiles>,
    stopping: watch::Receiver<bool>,
}

impl Door<'_> {
    /// Serves until it stops. `names` are the services that have a health: `at_first` says how it begins, and `tell`
    /// reports it from then on.
    fn serve<T>(
        self,
        socket: TcpListener,
        routes: RoutesBuilder,
        names: &'static [&'static str],
        at_first: impl Fn(&str) -> ServingStatus + Send + 'static,
        tell: impl FnOnce(HealthReporter) -> T,
    ) -> Result<Served, anyhow::Error>
    where
        T: Future<Output = ()> + Send + 'static,
    {
        let mut server = Server::builder()
            .http2_keepalive_interval(Some(PING))
            .http2_keepalive_timeout(Some(PONG))
            .max_concurrent_streams(CALLS_PER_CONNECTION)
            .initial_stream_window_size(CALL_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .http2_max_header_list_size(HEADERS);
        if let Some(files) = self.tls {
            server = tls::secure(server, files)?;
        }
        let (reporter, health) = tonic_health::server::health_reporter();
        let question = QUESTION.min(self.limits.message_bytes);
        let mut routes = routes;
        routes
            .add_service(health.max_decoding_message_size(question))
            .add_service(reflection(names).build_v1()?.max_decoding_message_size(question))
            .add_service(reflection(names).build_v1alpha()?.max_decoding_message_size(question));
        let router = server
            .layer(gate::Gate::new(self.limits, self.metrics, self.guard))
            .add_routes(routes.routes());
        let incoming = connections::incoming(socket)?;
        let (stopping, telling) = (self.stopping, tell(reporter.clone()));
        Ok(Box::pin(async move {
            for name in names {
                let status = at_first(name);
                reporter.set_service_status(*name, status).await;
            }
            let retired = retire(reporter.clone(), names, stopping.clone());
            let served = router.serve_with_incoming_shutdown(incoming, retired);
            let telling = async {
                telling.await;
                std::future::pending::<()>().await;
            };
            tokio::select! {
                served = served => served.context("serving gRPC"),
                // Whoever still holds on is let go of with the threads that serve.
                () = part(reporter, names, stopping) => Ok(()),
                () = telling => Ok(()),
            }
        }))
    }
}

/// Serves until the node stops.
pub(crate) fn serve(
    node: &Arc<Node>,
    guard: &Arc<Guard>,
    socket: TcpListener,
    tls: Option<&TlsFiles>,
) -> Result<Served, anyhow::Error> {
    let most = node.limits.message_bytes;
    let question = QUESTION.min(most);
    let mut routes = Routes::builder();
    routes
        .add_service(
            export_v1_server::ExportServer::new(export_v1::Export::new(node))
                .max_decoding_message_size(question)
                .max_encoding_message_size(most),
        )
        .add_service(
            export_v2_server::ExportServer::new(export_v2::Export::new(node))
                .max_decoding_message_size(question)
                .max_encoding_message_size(most),
        )
        .add_service(
            history_server::HistoryServer::new(history::History::new(node))
                .max_decoding_message_size(question)
                .max_encoding_message_size(most),
        )
        .add_service(
            admin_server::AdminServer::new(admin::Admin::new(node, guard))
                .max_decoding_message_size(most)
                .max_encoding_message_size(most),
        );
    if let Some(sidecar) = sidecar::Sidecar::new(node, guard) {
        let server = sidecar_server::SidecarServer::new(sidecar)
            .max_decoding_message_size(question)
            .max_encoding_message_size(most);
        routes.add_service(server);
    }
    if let Some(blobs) = &node.blobs {
        routes.add_service(blobs.gossip());
    }
    let served = if node.blobs.is_some() { SERVICES.len() } else { WITHOUT_BLOBS };
    let names = SERVICES.get(..served).unwrap_or_default();
    let door = Door {
        limits: &node.limits,
        metrics: &node.metrics,
        guard,
        tls,
        stopping: node.stopping.clone(),
    };
    // The node's health is that it is there.
    let at_first = |_: &str| ServingStatus::Serving;
    door.serve(socket, routes, names, at_first, |_| std::future::ready(()))
}

/// What tools can ask about the services: ours, and those that every node of gRPC has.
fn reflection(names: &[&str]) -> tonic_reflection::server::Builder<'static> {
    let builder = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
    let ours = names.iter().copied().filter(|name| !name.is_empty());
    ours.chain(EVERYWHERE).fold(builder, tonic_reflection::server::Builder::with_service_name)
}

/// Waits until the node is to stop.
async fn stopped(mut stopping: watch::Receiver<bool>) {
    // Whoever could say so is gone: that is the end too.
    stopping.wait_for(|stop| *stop).await.map(drop).unwrap_or_default();
}

async fn say(reporter: &HealthReporter, names: &[&str], status: ServingStatus) {
    for name in names {
        reporter.set_service_status(*name, status).await;
    }
}

/// Waits for the stop and says so to whoever asks for the node's health.
async fn retire(reporter: HealthReporter, names: &[&str], stopping: watch::Receiver<bool>) {
    stopped(stopping).await;
    say(&reporter, names, ServingStatus::NotServing).await;
}

/// After the stop: lets those who watch hear of it, ends their streams, and gives the rest some
/// time.
async fn part(mut reporter: HealthReporter, names: &[&str], stopping: watch::Receiver<bool>) {
    stopped(stopping).await;
    tokio::time::sleep(FAREWELL).await;
    for name in names {
        reporter.clear_service_status(name).await;
    }
    tokio::time::sleep(PATIENCE).await;
}
