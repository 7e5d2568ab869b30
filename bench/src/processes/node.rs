//! The real binary, filled over its own interface.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use secateur_core::Block;
use secateur_proto::history::v1 as proto;
use secateur_proto::history::v1::admin_client::AdminClient;
use tonic::Request;

use super::{MAX_MESSAGE, connect};
use crate::workload::{Feed, Pool, Sizes};

const SEED: u64 = 20_260_801;
/// Blocks of one append.
const GROUP: usize = 64;

/// A running node.
pub struct Node {
    child: Child,
    token: String,
    /// Where its gRPC listens.
    pub address: String,
}

impl Node {
    /// Starts it on a new directory and waits until it listens.
    pub fn start(data: &Path) -> Result<Self> {
        let binary = std::env::var_os("BENCH_SECATEUR").map(PathBuf::from);
        let binary = binary.context("BENCH_SECATEUR is not set; start it with `bench/run`")?;
        let mut command = Command::new(binary);
        command.arg("--data").arg(data).args(["node", "--log", "warn"]);
        command.args(["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).spawn().context("starting a node")?;
        let mut line = String::new();
        let out = child.stdout.take().context("the node says nothing")?;
        BufReader::new(out).read_line(&mut line)?;
        let address = line.split_whitespace().find_map(|word| word.strip_prefix("grpc="));
        let address = address.with_context(|| format!("the node says {line}"))?.to_owned();
        let file: serde_json::Value =
            serde_json::from_slice(&std::fs::read(data.join("node.json"))?)?;
        let token = file.get("admin_token").and_then(|token| token.as_str());
        let token = token.context("node.json has no token")?.to_owned();
        Ok(Self { child, token, address })
    }

    /// Appends so many blocks.
    pub async fn fill(&self, sizes: Sizes, blocks: u64) -> Result<()> {
        let mut admin =
            AdminClient::new(connect(&self.address).await?).max_encoding_message_size(MAX_MESSAGE);
        let mut pool = Pool::new(sizes, GROUP, 1, SEED)?;
        let mut feed = Feed::new(SEED);
        let mut appended = 0;
        while appended < blocks {
            feed.prepare(&mut pool);
            let group: Vec<Block> = pool.groups().flatten().cloned().collect();
            let request = proto::AppendRequest { blocks: group.iter().map(message).collect() };
            let mut request = Request::new(request);
            let bearer = format!("Bearer {}", self.token).parse()?;
            request.metadata_mut().insert("authorization", bearer);
            let answer = admin.append(request).await?.into_inner();
            ensure!(answer.written == group.len() as u64, "{answer:?}");
            feed.appended(&pool, 1);
            appended += answer.written;
        }
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It is gone either way.
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
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
