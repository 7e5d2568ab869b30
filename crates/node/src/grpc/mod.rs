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
mod walk;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use secateur_proto::DESCRIPTORS;
use secateur_proto::export::v1::export_server::{self as export_v1_server};
use secateur_proto::export::v2::export_server::{self as export_v2_server};
use secateur_proto::history::v1::{admin_server, history_server};
use secateur_proto::sidecar::v1::{gossip_server, sidecar_server};
use tokio::sync::watch;
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::config::TlsFiles;
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
const SERVICES: [&str; 7] = [
    "",
    export_v1_server::SERVICE_NAME,
    export_v2_server::SERVICE_NAME,
    history_server::SERVICE_NAME,
    admin_server::SERVICE_NAME,
    sidecar_server::SERVICE_NAME,
    gossip_server::SERVICE_NAME,
];
const WITHOUT_BLOBS: usize = 5;

/// Serves until the node stops.
pub(crate) fn serve(
    node: &Arc<Node>,
    guard: &Arc<Guard>,
    socket: TcpListener,
    tls: Option<&TlsFiles>,
) -> Result<impl Future<Output = Result<(), anyhow::Error>> + Send + 'static, anyhow::Error> {
    let mut server = Server::builder()
        .http2_keepalive_interval(Some(PING))
        .http2_keepalive_timeout(Some(PONG))
        .max_concurrent_streams(CALLS_PER_CONNECTION)
        .initial_stream_window_size(CALL_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_max_header_list_size(HEADERS);
    if let Some(files) = tls {
        server = tls::secure(server, files)?;
    }
    let (reporter, health) = tonic_health::server::health_reporter();
    let most = node.limits.message_bytes;
    let question = QUESTION.min(most);
    let router = server
        .layer(gate::Gate::new(node, guard))
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
        )
        .add_optional_service(sidecar::Sidecar::new(node, guard).map(|sidecar| {
            sidecar_server::SidecarServer::new(sidecar)
                .max_decoding_message_size(question)
                .max_encoding_message_size(most)
        }))
        .add_optional_service(node.blobs.as_ref().map(|blobs| blobs.gossip()))
        .add_service(health.max_decoding_message_size(question))
        .add_service(reflection().build_v1()?.max_decoding_message_size(question))
        .add_service(reflection().build_v1alpha()?.max_decoding_message_size(question));
    let incoming = connections::incoming(socket)?;
    let stopping = node.stopping.clone();
    let served = if node.blobs.is_some() { SERVICES.len() } else { WITHOUT_BLOBS };
    let names = SERVICES.get(..served).unwrap_or_default();
    Ok(async move {
        say(&reporter, names, ServingStatus::Serving).await;
        let retired = retire(reporter.clone(), names, stopping.clone());
        let served = router.serve_with_incoming_shutdown(incoming, retired);
        tokio::select! {
            served = served => served.context("serving gRPC"),
            // Whoever still holds on is let go of with the threads that serve.
            () = part(reporter, names, stopping) => Ok(()),
        }
    })
}

/// What tools can ask about the services: ours, and those that every node of gRPC has.
fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
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
