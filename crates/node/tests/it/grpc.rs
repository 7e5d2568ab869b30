//! What the gRPC tests share: a node with clients, small synthetic chains, and the reading of
//! details out of a status.

use std::collections::BTreeMap;
use std::path::Path;

use prost::Message;
use secateur_core::{Block, BlockHash, BlockMeta, Payloads, TxId, TxIndexEntry};
use secateur_core::{push_receipt, push_tx_index};
use secateur_proto::ERROR_TRAILER;
use secateur_proto::export::v1::export_client::ExportClient as ExportV1;
use secateur_proto::export::v1::{self as v1, ExportError, export_error};
use secateur_proto::export::v2::export_client::ExportClient as ExportV2;
use secateur_proto::history::v1::admin_client::AdminClient;
use secateur_proto::history::v1::history_client::HistoryClient;
use secateur_proto::history::v1::{self as pb, HistoryError, history_error};
use tempfile::TempDir;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::node::Node;

/// The largest message that the clients take.
const MESSAGE: usize = 64 << 20;

/// Shows a token with every call.
#[derive(Debug, Clone)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Bearer {
    /// One that shows this token; an empty one is not shown.
    pub fn showing(token: &str) -> Self {
        Self((!token.is_empty()).then(|| format!("Bearer {token}").parse().unwrap()))
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

pub type Secured = InterceptedService<Channel, Bearer>;

/// A client of every service, on one connection.
#[derive(Debug, Clone)]
pub struct Clients {
    pub export: ExportV1<Secured>,
    pub stream: ExportV2<Secured>,
    pub history: HistoryClient<Secured>,
    pub admin: AdminClient<Secured>,
    pub plain: Secured,
}

impl Clients {
    /// Over a channel, with a token or without.
    pub fn over(channel: Channel, token: Option<&str>) -> Self {
        let bearer = Bearer(token.map(|token| format!("Bearer {token}").parse().unwrap()));
        let plain = InterceptedService::new(channel, bearer);
        Self {
            export: ExportV1::new(plain.clone()).max_decoding_message_size(MESSAGE),
            stream: ExportV2::new(plain.clone()).max_decoding_message_size(MESSAGE),
            history: HistoryClient::new(plain.clone()).max_decoding_message_size(MESSAGE),
            admin: AdminClient::new(plain.clone()).max_encoding_message_size(MESSAGE),
            plain,
        }
    }

    /// To a node, with a token or without, on a connection of its own.
    pub async fn to(node: &Node, token: Option<&str>) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{}", node.grpc)).unwrap();
        Self::over(endpoint.connect().await.unwrap(), token)
    }

    /// Appends blocks, as many at once as a message takes.
    pub async fn append(&self, blocks: &[Block]) {
        let mut admin = self.admin.clone();
        let mut rest = blocks;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |block: &&Block| {
                bytes += block.payloads.total_len();
                bytes <= 24 << 20
            };
            let count = rest.iter().take(1_000).take_while(fits).count().max(1);
            let (now, later) = rest.split_at(count);
            let answer = admin.append(append_request(now)).await.unwrap().into_inner();
            assert_eq!(answer.head, now.last().unwrap().meta.height);
            rest = later;
        }
    }

    /// Sets policy keys.
    pub async fn policy(&self, changes: &[(&str, &str)]) {
        let changes = changes.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        self.admin.clone().set_policy(pb::SetPolicyRequest { changes }).await.unwrap();
    }

    /// Cuts everything but the newest `keep` blocks; the boundary is the answer.
    pub async fn prune_to(&self, keep: u64) -> u64 {
        let mut admin = self.admin.clone();
        admin.set_pruning(pb::SetPruningRequest { enabled: false }).await.unwrap();
        self.policy(&[("retain_blocks", &keep.to_string())]).await;
        while admin
            .prune(pb::PruneRequest { max_ops: 0, to: None })
            .await
            .unwrap()
            .into_inner()
            .more
        {}
        self.status().await.pruned_before_block.unwrap()
    }

    pub async fn status(&self) -> pb::GetStatusResponse {
        self.history.clone().get_status(pb::GetStatusRequest {}).await.unwrap().into_inner()
    }

    /// One pull of v1.
    pub async fn pull(
        &self,
        cursor: Option<v1::Cursor>,
        max_bytes: Option<u32>,
    ) -> Result<v1::ExportBlocksResponse, Status> {
        let request = v1::ExportBlocksRequest { cursor, max_bytes };
        Ok(self.export.clone().export_blocks(request).await?.into_inner())
    }
}

/// A node on a directory of its own, and clients that may do everything.
#[derive(Debug)]
pub struct Rig {
    pub node: Node,
    pub clients: Clients,
    pub place: TempDir,
}

impl Rig {
    pub async fn start(words: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let node = Node::start(&place.path().join("data"), words);
        let clients = Clients::to(&node, Some(&node.token)).await;
        Self { node, clients, place }
    }

    /// With a configuration file.
    pub async fn configured(text: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let node = Node::start(&place.path().join("data"), &config(place.path(), text));
        let clients = Clients::to(&node, Some(&node.token)).await;
        Self { node, clients, place }
    }

    /// Asks it to stop while its clients are still there, and waits for a clean end.
    pub async fn stop(self) {
        let node = self.node;
        tokio::task::spawn_blocking(|| node.stop()).await.unwrap();
    }

    /// With these blocks in it.
    pub async fn with(blocks: &[Block]) -> Self {
        let rig = Self::start("").await;
        rig.clients.append(blocks).await;
        rig
    }
}

/// Writes a configuration file; the flag that names it is the answer.
pub fn config(place: &Path, text: &str) -> String {
    let path = place.join("secateur.toml");
    std::fs::write(&path, text).unwrap();
    format!("--config {}", path.display())
}

/// A small stream of numbers that a seed decides.
#[derive(Debug, Clone)]
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.roll().to_be_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

/// The hash of a block by its height and its branch.
pub fn hash_of(height: u64, branch: u8) -> BlockHash {
    let mut hash = [branch; 32];
    hash[..8].copy_from_slice(&height.to_be_bytes());
    BlockHash(hash)
}

/// The id of a transaction by its block and place.
pub fn tx_of(height: u64, index: u32) -> TxId {
    let mut id = [0xee; 32];
    id[..8].copy_from_slice(&height.to_be_bytes());
    id[8..12].copy_from_slice(&index.to_be_bytes());
    TxId(id)
}

/// A block with so many bytes of its own and so many transactions, each with a receipt.
pub fn block(height: u64, len: usize, txs: u32) -> Block {
    let mut dice = Dice(height ^ 0xb10c);
    let mut payloads = Payloads { block: dice.bytes(len), ..Payloads::default() };
    for index in 0..txs {
        let id = tx_of(height, index);
        let receipt_len = usize::try_from(dice.below(200)).unwrap();
        let receipt = dice.bytes(receipt_len);
        push_receipt(&mut payloads.receipts, &id, &receipt).unwrap();
        push_tx_index(&mut payloads.tx_index, &TxIndexEntry { tx_id: id, height, index });
    }
    let parent_hash = height.checked_sub(1).map_or(BlockHash([0; 32]), |below| hash_of(below, 0));
    let meta = BlockMeta {
        height,
        hash: hash_of(height, 0),
        parent_hash,
        timestamp: 1_700_000_000 + height * 12,
    };
    Block { meta, payloads }
}

/// Blocks of one size.
pub fn chain(heights: std::ops::RangeInclusive<u64>, len: usize, txs: u32) -> Vec<Block> {
    heights.map(|height| block(height, len, txs)).collect()
}

pub fn append_request(blocks: &[Block]) -> pb::AppendRequest {
    pb::AppendRequest { blocks: blocks.iter().map(wire).collect() }
}

pub fn wire(block: &Block) -> pb::Block {
    let Payloads { block: own, receipts, tx_index } = block.payloads.clone();
    pb::Block {
        meta: Some(pb::BlockMeta {
            number: block.meta.height,
            hash: block.meta.hash.0.to_vec().into(),
            parent_hash: block.meta.parent_hash.0.to_vec().into(),
            timestamp: block.meta.timestamp,
        }),
        payloads: Some(pb::Payloads {
            block: own.into(),
            receipts: receipts.into(),
            tx_index: tx_index.into(),
        }),
    }
}

pub fn cursor(block_number: u64, segment: u32, byte_offset: u32) -> v1::Cursor {
    v1::Cursor { block_number, segment, byte_offset }
}

/// The payloads of blocks by height.
pub type Whole = BTreeMap<u64, [Vec<u8>; 3]>;

pub fn whole(blocks: &[Block]) -> Whole {
    let payloads = |b: &Block| {
        let Payloads { block, receipts, tx_index } = b.payloads.clone();
        [block, receipts, tx_index]
    };
    blocks.iter().map(|block| (block.meta.height, payloads(block))).collect()
}

/// The details of an export's error.
#[track_caller]
pub fn export_reason(status: &Status) -> export_error::Reason {
    ExportError::decode(&*details(status)).unwrap().reason.unwrap()
}

/// The details of a history's error.
#[track_caller]
pub fn history_reason(status: &Status) -> history_error::Reason {
    HistoryError::decode(&*details(status)).unwrap().reason.unwrap()
}

#[track_caller]
fn details(status: &Status) -> Vec<u8> {
    let trailer = status.metadata().get_bin(ERROR_TRAILER);
    let trailer = trailer.unwrap_or_else(|| panic!("no details in {status:?}"));
    trailer.to_bytes().unwrap().to_vec()
}

/// Asserts that an export says pruned; the boundary is the answer.
#[track_caller]
pub fn pruned_export(status: &Status) -> u64 {
    assert_eq!(status.code(), tonic::Code::OutOfRange, "{status:?}");
    match export_reason(status) {
        export_error::Reason::Pruned(pruned) => pruned.pruned_before_block,
        other => panic!("{other:?}"),
    }
}
