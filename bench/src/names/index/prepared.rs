//! A node with a chain in it, and the same chain's rows in memory, in batches.

use std::path::Path;

use anyhow::Result;
use secateur_core::{Block, Cursor};
use secateur_evm::Verify;
use secateur_index::codec::{Codec as _, EvmCodec, OpaqueCodec};
use secateur_index::source::SourceBlock;
use secateur_index::{Batch, LogFilter, Rows};

use super::child::Codec;
use crate::chain::{CHAIN_ID, Chain, spec};
use crate::processes::node::Node;

const TRANSACTIONS: u32 = 100;
/// Rows of a batch: what a worker comes to.
const BATCH_ROWS: usize = 16_384;
/// Blocks of one append.
const GROUP: usize = 64;

/// Which rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Blocks and transactions of an EVM chain.
    Evm,
    /// And every log.
    EvmLogs,
    /// The same blocks as opaque bytes: ids and places only.
    Opaque,
}

impl Kind {
    /// In results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Evm => "evm",
            Self::EvmLogs => "evm+logs",
            Self::Opaque => "opaque",
        }
    }

    /// Its case in a database.
    pub fn case(self, database: &str) -> String {
        format!("{database}/{}", self.name())
    }

    /// The worker's codec for it.
    pub fn codec(self) -> Codec {
        if self == Self::Opaque { Codec::Opaque } else { Codec::Evm }
    }

    fn rows(self, block: &SourceBlock) -> Result<Rows> {
        Ok(match self {
            Self::Evm => EvmCodec::new(CHAIN_ID, Verify::Off, LogFilter::Off).rows(block)?,
            Self::EvmLogs => EvmCodec::new(CHAIN_ID, Verify::Off, LogFilter::All).rows(block)?,
            Self::Opaque => OpaqueCodec.rows(block)?,
        })
    }
}

/// A node with a chain, and its rows.
pub struct Prepared {
    /// Which rows.
    pub kind: Kind,
    /// The node.
    pub node: Node,
    /// The rows, in batches.
    pub batches: Vec<Batch>,
}

impl Prepared {
    /// Fills a node with so many blocks.
    pub async fn new(at: &Path, kind: Kind, blocks: u64) -> Result<Self> {
        let node = Node::start(at, &["--chain-id", &CHAIN_ID.to_string()])?;
        let mut admin = node.admin().await?;
        let mut chain = Chain::new(spec(TRANSACTIONS))?;
        let (mut group, mut batches, mut rows) = (Vec::<Block>::new(), Vec::new(), Rows::default());
        for height in 0..blocks {
            let block = chain.next()?;
            let (meta, payloads) = (Some(block.meta.clone()), block.payloads.clone());
            rows.append(kind.rows(&SourceBlock { height, meta, payloads })?);
            group.push(block);
            let end = height + 1 == blocks;
            if group.len() == GROUP || end {
                admin.append(&group).await?;
                group.clear();
            }
            if rows.len() >= BATCH_ROWS || end {
                let next = Cursor::at_block(height + 1);
                let (rows, raw_bytes) = (std::mem::take(&mut rows), Vec::new());
                batches.push(Batch { rows, next, raw_bytes, head: None, at: 1_790_000_000 });
            }
        }
        Ok(Self { kind, node, batches })
    }

    /// All rows.
    pub fn rows(&self) -> u64 {
        self.batches.iter().map(|batch| batch.rows.len() as u64).sum()
    }

    /// The first block behind each batch.
    pub fn bounds(&self) -> Vec<u64> {
        self.batches.iter().map(|batch| batch.next.block_number).collect()
    }

    /// The last block.
    pub fn last(&self) -> u64 {
        self.bounds().last().copied().unwrap_or(1).saturating_sub(1)
    }
}
