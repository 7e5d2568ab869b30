//! A gRPC server that sends recorded messages from memory and does nothing else.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::pin::Pin;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use prost::Message;
use secateur_proto::export::v2::export_server::{Export, ExportServer};
use secateur_proto::export::v2::{StreamRequest, StreamResponse};
use tonic::{Request, Response, Status};

use super::StreamClient;

/// The word that makes this program the bare server.
pub const CHILD: &str = "--serve-bare";

/// Payload bytes of a message.
pub fn payload_bytes(message: &StreamResponse) -> u64 {
    message.frames.iter().map(|frame| frame.bytes.len() as u64).sum()
}

/// Writes every message of a stream into a file; their payload bytes are the answer.
pub async fn record(client: &mut StreamClient, path: &Path) -> Result<u64> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut messages = client.stream(StreamRequest::default()).await?.into_inner();
    let mut bytes = 0;
    while let Some(message) = messages.message().await? {
        bytes += payload_bytes(&message);
        file.write_all(&message.encode_length_delimited_to_vec())?;
    }
    file.flush()?;
    Ok(bytes)
}

/// The server as a process.
pub struct Server {
    child: Child,
    /// Where it listens.
    pub address: String,
}

impl Server {
    /// Starts it and waits until it listens.
    pub fn start(messages: &Path) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(CHILD).arg(messages).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("starting the bare server")?;
        let mut address = String::new();
        let out = child.stdout.take().context("the bare server says nothing")?;
        BufReader::new(out).read_line(&mut address)?;
        Ok(Self { child, address: address.trim().to_owned() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It is gone either way.
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

struct Replay {
    messages: Vec<StreamResponse>,
}

#[tonic::async_trait]
impl Export for Replay {
    type StreamStream =
        Pin<Box<dyn futures_util::Stream<Item = Result<StreamResponse, Status>> + Send>>;

    async fn stream(
        &self,
        _: Request<StreamRequest>,
    ) -> Result<Response<Self::StreamStream>, Status> {
        // Payloads are shared, not copied.
        let messages = self.messages.clone().into_iter().map(Ok);
        Ok(Response::new(Box::pin(futures_util::stream::iter(messages))))
    }
}

/// The server's life: it ends with its standard input.
pub fn answer(mut words: impl Iterator<Item = String>) -> Result<()> {
    let path = words.next().context("which messages?")?;
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    let mut rest = bytes::Bytes::from(bytes);
    let mut messages = Vec::new();
    while !rest.is_empty() {
        messages.push(StreamResponse::decode_length_delimited(&mut rest)?);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", socket.local_addr()?);
        let incoming = tonic::transport::server::TcpIncoming::from(socket).with_nodelay(Some(true));
        let server = tonic::transport::Server::builder();
        let mut server = server.initial_connection_window_size(16 << 20);
        server = server.initial_stream_window_size(16 << 20);
        server
            .add_service(ExportServer::new(Replay { messages }))
            .serve_with_incoming(incoming)
            .await?;
        Ok(())
    })
}
