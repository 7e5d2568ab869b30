//! What the Candid interface speaks of. The names are those of every other interface.

mod part;
mod policy;
mod status;

use candid::{CandidType, Deserialize, Principal};
use secateur_core as core;
use secateur_core::{BlockHash, ExportError, LookupError, TxId};
use secateur_store::{Queued as StoreQueued, StoreError};
use serde_bytes::{ByteArray, ByteBuf};

pub use part::ArchivePart;
pub use policy::{ClockSource, PrunePolicy, Trigger};
pub(crate) use policy::{MAX_MILLIS, MAX_TICK_OPS, TICK_OPS};
pub use status::{Cause, Hold, Plan, PruneOutcome, PruneStatus, StopReason, Totals};

/// What a canister is installed with.
#[derive(Debug, Clone, Default, CandidType, Deserialize)]
pub struct InitArgs {
    /// The chain whose history this will be.
    pub chain_id: u64,
    /// The policy to begin with.
    pub policy: Option<PrunePolicy>,
    /// The kill switch; off unless it is said otherwise.
    pub pruning_enabled: Option<bool>,
    /// Whether nothing is cut that is in no acknowledged archive part; off unless it is said otherwise.
    pub archive_hold: Option<bool>,
    /// Who may acknowledge besides controllers; nobody unless it is said otherwise.
    pub consumer_principals: Option<Vec<Principal>>,
    /// How bytes are laid into regions: packed unless it is said otherwise. It is fixed from then on.
    pub layout: Option<Layout>,
    /// Final blocks stay held so many blocks longer; 0 unless it is said otherwise.
    pub challenge_blocks: Option<u64>,
    /// Final blocks stay held so many seconds longer; 0 unless it is said otherwise.
    pub challenge_seconds: Option<u64>,
    /// A soft consumer that acknowledges nothing for so many blocks no longer holds; 50,000 unless it
    /// is said otherwise.
    pub consumer_expiry_blocks: Option<u64>,
    /// What the filters of pruned blocks may take, so that their ids answer `Pruned`; 64 MiB unless it
    /// is said otherwise, and with a budget never more than a hundredth of it.
    pub tombstone_bytes: Option<u64>,
}

/// How bytes are laid into regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, CandidType, Deserialize)]
pub enum Layout {
    /// Blocks end to end in regions of one size.
    Packed,
    /// Each block in its own regions, by size class.
    PerBlock,
}

/// Why a call has nothing to return. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, CandidType, Deserialize)]
pub enum Error {
    /// It was here and was cut.
    Pruned {
        /// The boundary: everything at or below it is gone.
        pruned_before_block: u64,
    },
    /// A transaction that is queued and in no block yet.
    Pending,
    /// Not known to this store.
    NotFound {
        /// The lowest height that the search covered.
        searched_from: Option<u64>,
    },
    /// The cursor names a place that cannot exist.
    InvalidCursor {
        /// What is wrong with it.
        reason: String,
    },
    /// More than a reply can carry, or a budget that cannot be served.
    Limit {
        /// What is wrong with it.
        reason: String,
    },
    /// A block that does not follow the head.
    Gap {
        /// The height that would fit.
        expected: u64,
        /// The height that came.
        got: u64,
    },
    /// A block whose parent is not the block below it.
    WrongParent {
        /// The block.
        height: u64,
        /// The hash of the block below it.
        expected: ByteArray<32>,
        /// The parent that it names.
        got: ByteArray<32>,
    },
    /// Another block at a height that is taken.
    Conflict {
        /// The height.
        height: u64,
    },
    /// Input that is refused as it stands.
    Invalid {
        /// What is wrong with it.
        reason: String,
    },
    /// A request that the store's state or a hold forbids.
    Refused {
        /// What was asked.
        what: String,
        /// Why not.
        reason: String,
    },
    /// No stable memory for it.
    Full {
        /// What needed it.
        reason: String,
    },
    /// The caller may not.
    Forbidden {
        /// Why not.
        reason: String,
    },
    /// The store cannot go on: its bytes are damaged, or another program's.
    Broken {
        /// What is wrong.
        reason: String,
    },
}

impl From<LookupError> for Error {
    fn from(error: LookupError) -> Self {
        match error {
            LookupError::Pruned { pruned_before_block } => Self::Pruned { pruned_before_block },
            LookupError::Pending => Self::Pending,
            LookupError::NotFound { searched_from } => Self::NotFound { searched_from },
        }
    }
}

impl From<ExportError> for Error {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Pruned { pruned_before_block } => Self::Pruned { pruned_before_block },
            ExportError::InvalidCursor { reason } => Self::InvalidCursor { reason },
            ExportError::Limit { reason } => Self::Limit { reason },
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Lookup(error) => error.into(),
            StoreError::Export(error) => error.into(),
            StoreError::Invalid(error) => Self::Invalid { reason: error.to_string() },
            StoreError::Gap { expected, got } => Self::Gap { expected, got },
            StoreError::WrongParent { height, expected, got } => Self::WrongParent {
                height,
                expected: ByteArray::new(expected.0),
                got: ByteArray::new(got.0),
            },
            StoreError::Conflict { height } => Self::Conflict { height },
            StoreError::Refused { what, reason } => Self::Refused { what: what.into(), reason },
            StoreError::DiskFull { what, .. } => Self::Full { reason: what.into() },
            other => Self::Broken { reason: other.to_string() },
        }
    }
}

/// A place in the export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, CandidType, Deserialize)]
pub struct Cursor {
    /// The block.
    pub block_number: u64,
    /// 0 the block, 1 its receipts, 2 its transaction index.
    pub segment: u8,
    /// Bytes of the payload already taken.
    pub byte_offset: u32,
}

impl From<Cursor> for core::Cursor {
    fn from(cursor: Cursor) -> Self {
        let Cursor { block_number, segment, byte_offset } = cursor;
        Self { block_number, segment, byte_offset }
    }
}

impl From<core::Cursor> for Cursor {
    fn from(cursor: core::Cursor) -> Self {
        let core::Cursor { block_number, segment, byte_offset } = cursor;
        Self { block_number, segment, byte_offset }
    }
}

/// A piece of a payload.
#[derive(Debug, Clone, PartialEq, Eq, CandidType, Deserialize)]
pub struct Chunk {
    /// Which payload.
    pub segment: u8,
    /// Where in it the bytes start.
    pub start: u32,
    /// The bytes.
    pub bytes: ByteBuf,
    /// The payload's whole length.
    pub payload_len: u32,
}

/// What one export call returns.
#[derive(Debug, Clone, PartialEq, Eq, CandidType, Deserialize)]
pub struct ExportReply {
    /// The pieces, all of one block.
    pub chunks: Vec<Chunk>,
    /// Where to go on; none only when no cursor was given and nothing can be exported yet.
    pub next_cursor: Option<Cursor>,
}

impl From<core::ExportReply> for ExportReply {
    fn from(reply: core::ExportReply) -> Self {
        let chunks = reply.chunks.into_iter().map(|chunk| Chunk {
            segment: chunk.segment as u8,
            start: chunk.start,
            bytes: ByteBuf::from(chunk.bytes),
            payload_len: chunk.payload_len,
        });
        Self { chunks: chunks.collect(), next_cursor: reply.next_cursor.map(Into::into) }
    }
}

/// What names and places a block.
#[derive(Debug, Clone, PartialEq, Eq, CandidType, Deserialize)]
pub struct BlockMeta {
    /// The block's number.
    pub height: u64,
    /// The block's hash.
    pub hash: ByteArray<32>,
    /// The hash of the block below it.
    pub parent_hash: ByteArray<32>,
    /// Seconds since 1970, as the chain says.
    pub timestamp: u64,
}

impl From<BlockMeta> for core::BlockMeta {
    fn from(meta: BlockMeta) -> Self {
        Self {
            height: meta.height,
            hash: BlockHash(meta.hash.into_array()),
            parent_hash: BlockHash(meta.parent_hash.into_array()),
            timestamp: meta.timestamp,
        }
    }
}

impl From<core::BlockMeta> for BlockMeta {
    fn from(meta: core::BlockMeta) -> Self {
        Self {
            height: meta.height,
            hash: ByteArray::new(meta.hash.0),
            parent_hash: ByteArray::new(meta.parent_hash.0),
            timestamp: meta.timestamp,
        }
    }
}

/// A whole block that fits into one message.
#[derive(Debug, Clone, PartialEq, Eq, CandidType, Deserialize)]
pub struct Block {
    /// What names it.
    pub meta: BlockMeta,
    /// Its own bytes.
    pub block: ByteBuf,
    /// Its receipts.
    pub receipts: ByteBuf,
    /// Its transaction index.
    pub tx_index: ByteBuf,
}

impl From<Block> for core::Block {
    fn from(block: Block) -> Self {
        let payloads = core::Payloads {
            block: block.block.into_vec(),
            receipts: block.receipts.into_vec(),
            tx_index: block.tx_index.into_vec(),
        };
        Self { meta: block.meta.into(), payloads }
    }
}

/// A block that comes in pieces.
#[derive(Debug, Clone, PartialEq, Eq, CandidType, Deserialize)]
pub struct BlockHead {
    /// What names it.
    pub meta: BlockMeta,
    /// The length of its own bytes.
    pub block_len: u32,
    /// The length of its receipts.
    pub receipts_len: u32,
    /// The length of its transaction index.
    pub tx_index_len: u32,
}

/// A piece of such a block.
#[derive(Debug, Clone, PartialEq, Eq, CandidType, Deserialize)]
pub struct Piece {
    /// Which payload.
    pub segment: u8,
    /// Where in it the bytes start.
    pub start: u32,
    /// The bytes.
    pub bytes: ByteBuf,
}

/// What an append did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, CandidType, Deserialize)]
pub struct Appended {
    /// The newest block now.
    pub head: u64,
    /// How many of the blocks were new: 0 for one that was here already.
    pub written: u64,
}

/// A block that is here.
#[derive(Debug, Clone, PartialEq, Eq, CandidType, Deserialize)]
pub struct KeptBlock {
    /// What names it.
    pub meta: BlockMeta,
    /// Its transactions.
    pub tx_count: u32,
    /// The lengths of its payloads.
    pub payload_lens: [u32; 3],
    /// Its own bytes, unless they are longer than a reply: then `export_blocks` has them in pieces.
    pub block: Option<ByteBuf>,
}

/// What was found of a transaction that is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, CandidType, Deserialize)]
pub enum Queued {
    /// It is new.
    Added,
    /// It was queued already.
    Already,
    /// A block includes it.
    Included(u64),
}

impl From<StoreQueued> for Queued {
    fn from(queued: StoreQueued) -> Self {
        match queued {
            StoreQueued::Added => Self::Added,
            StoreQueued::Already => Self::Already,
            StoreQueued::Included(height) => Self::Included(height),
        }
    }
}

/// Whether a hold can give way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, CandidType, Deserialize)]
pub enum Strength {
    /// Never overridden.
    Hard,
    /// Gives way while the budget is draining.
    Soft,
}

impl From<Strength> for core::Strength {
    fn from(strength: Strength) -> Self {
        match strength {
            Strength::Hard => Self::Hard,
            Strength::Soft => Self::Soft,
        }
    }
}

impl From<core::Strength> for Strength {
    fn from(strength: core::Strength) -> Self {
        match strength {
            core::Strength::Hard => Self::Hard,
            core::Strength::Soft => Self::Soft,
        }
    }
}

/// A transaction's id as it comes.
pub(crate) fn tx_id(id: &ByteArray<32>) -> TxId {
    TxId(id.into_array())
}
