//! The real binary as a node, filled over its own interface or following a chain.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use secateur_core::Block;
use secateur_proto::history::v1 as proto;
use secateur_proto::history::v1::admin_client::AdminClient;
use tonic::Request;
use tonic::transport::Channel;

use super::{Kept, Start, told};

/// The largest message that is sent or taken.
pub const MAX_MESSAGE: usize = 64 << 20;

/// A running node.
pub struct Node {
    token: String,
    /// Where its gRPC listens.
    pub address: String,
    _process: Kept,
}

impl Node {
    /// Starts it on a new directory with further words, and waits until it listens.
    pub fn start(data: &Path, further: &[&str]) -> Result<Self> {
        let binary = told("BENCH_SECATEUR")?;
        std::fs::create_dir_all(data)?;
        let flags = ["node", "--log", "warn", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];
        let start = Start::new(data, binary).words(["--data".as_ref(), data.as_os_str()]);
        let process = Kept::start(start.words(flags).words(further))?;
        let find = |line: &str| {
            line.split_whitespace().find_map(|word| Some(word.strip_prefix("grpc=")?.to_owned()))
        };
        let address = process.line(Duration::from_secs(30), find).context("starting a node")?;
        let file: serde_json::Value =
            serde_json::from_slice(&std::fs::read(data.join("node.json"))?)?;
        let token = file.get("admin_token").and_then(|token| token.as_str());
        let token = token.context("node.json has no token")?.to_owned();
        Ok(Self { token, address, _process: process })
    }

    /// A client that may append.
    pub async fn admin(&self) -> Result<Admin> {
        let channel = connect(&self.address).await?;
        let client = AdminClient::new(channel).max_encoding_message_size(MAX_MESSAGE);
        Ok(Admin { client, token: self.token.clone() })
    }
}

/// Appends to a node.
pub struct Admin {
    client: AdminClient<Channel>,
    token: String,
}

impl Admin {
    /// Appends some blocks.
    pub async fn append(&mut self, group: &[Block]) -> Result<()> {
        let request = proto::AppendRequest { blocks: group.iter().map(message).collect() };
        let mut request = Request::new(request);
        let bearer = format!("Bearer {}", self.token).parse()?;
        request.metadata_mut().insert("authorization", bearer);
        let answer = self.client.append(request).await?.into_inner();
        ensure!(answer.written == group.len() as u64, "{answer:?}");
        Ok(())
    }
}

/// A connection to a gRPC address.
pub async fn connect(address: &str) -> Result<Channel> {
    let endpoint = Channel::from_shared(format!("http://{address}"))?;
    endpoint.connect().await.with_context(|| format!("connecting to {address}"))
}

fn message(block: &Block) -> proto::Block {
    let (meta, payloads) = (&block.meta, &block.payloads);
    proto::Block {
        meta: Some(proto::BlockMeta {
            number: meta.height,
            hash: meta.hash.0.to_vec().into(),
            parent_hash: meta.parent_hash.0.to_vec().into(),
            timestamp: meta.timestamp,
        }),
        payloads: Some(proto::Payloads {
            block: payloads.block.clone().into(),
            receipts: payloads.receipts.clone().into(),
            tx_index: payloads.tx_index.clone().into(),
        }),
    }
}
