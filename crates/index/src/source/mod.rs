//! Where blocks come from: a node over gRPC ([`GrpcSource`]), an archive, or a canister (feature `ic`).
//! Whoever speaks the export rules can be one.

mod archived;
mod assembler;
#[cfg(test)]
mod assembler_tests;
mod backed;
mod grpc;
#[cfg(feature = "ic")]
mod ic;
mod rights;
mod stream;
mod token;

use secateur_core::{BlockMeta, Height, Part, Payloads, Strength};

pub use archived::{ArchiveBlocks, ArchiveSource};
pub use assembler::Assembler;
pub use backed::{BackedBlocks, BackedSource};
pub use grpc::{GrpcOptions, GrpcSource};
#[cfg(feature = "ic")]
pub use ic::{IC_SCHEME, IC_URL, IcBlocks, IcOptions, IcSource};
pub use rights::Right;
pub use stream::GrpcBlocks;
pub use token::read_token;

use crate::IndexError;

/// A whole block as a source gives it. A source that speaks export v1 tells no meta.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceBlock {
    /// Its number.
    pub height: Height,
    /// What names it, if the source says so.
    pub meta: Option<BlockMeta>,
    /// What it holds.
    pub payloads: Payloads,
}

/// The hold of what is not archived yet, as sources name it.
const ARCHIVE_HOLD: &str = "archive";

/// What a source says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SourceStatus {
    /// The chain, if the source says so.
    pub chain_id: Option<u64>,
    /// The newest exportable block.
    pub head: Option<Height>,
    /// The oldest block that is still there.
    pub oldest: Option<Height>,
    /// The boundary: everything at or below it is gone.
    pub pruned_before: Option<Height>,
    /// Everything up to here is in parts that the source has verified.
    pub archived: Option<Height>,
    /// What tells the source's store from every other one, if it says so.
    pub store_id: Option<[u8; 16]>,
    /// Over so many bytes its budget drains, if it has one.
    pub high_water_bytes: Option<u64>,
    /// Its budget drains, and it waits for the archive.
    pub waits_for_archive: bool,
}

/// Where blocks come from.
pub trait Source: Clone + Send + Sync + 'static {
    /// Blocks in order.
    type Blocks: Blocks;

    /// The newest exportable block.
    fn head(&self) -> impl Future<Output = Result<Option<Height>, IndexError>> + Send;

    /// Blocks from a height on, or from the oldest exportable one on. Nothing is asked yet.
    /// `want_meta` asks for blocks with their meta, where the source has a way to tell it.
    fn blocks(&self, from: Option<Height>, want_meta: bool) -> Self::Blocks;

    /// What the source says of itself.
    fn status(&self) -> impl Future<Output = Result<SourceStatus, IndexError>> + Send;

    /// Refuses, naming each one, if the source would not let us do something that will be needed; it is
    /// asked for what changes nothing.
    fn check_rights(
        &self,
        _wanted: &[Right],
    ) -> impl Future<Output = Result<(), IndexError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Registers a consumer, so that nothing is cut before it has it.
    fn register(
        &self,
        consumer: &str,
        strength: Strength,
    ) -> impl Future<Output = Result<(), IndexError>> + Send;

    /// Tells that a registered consumer has everything up to a height.
    fn ack_exported(
        &self,
        consumer: &str,
        height: Height,
    ) -> impl Future<Output = Result<(), IndexError>> + Send;

    /// Tells of an archive part; how far everything is archived is the answer.
    fn ack_archived(
        &self,
        part: &Part,
    ) -> impl Future<Output = Result<Option<Height>, IndexError>> + Send;
}

/// What a source says of itself, if it knows the question. One that has another chain is refused: its
/// blocks would be told apart only where two of them meet.
pub async fn status_of<S: Source>(source: &S, chain_id: u64) -> Result<SourceStatus, IndexError> {
    let status = match source.status().await {
        // Whatever it is that is not allowed, pulling blocks meets it too, or can do without.
        Err(IndexError::Refused(_)) => return Ok(SourceStatus::default()),
        status => status?,
    };
    match status.chain_id {
        Some(other) if other != chain_id => Err(IndexError::Refused(format!(
            "the source has chain {other}, and chain {chain_id} is wanted: name another source, or \
             leave --chain-id out and use a fresh index"
        ))),
        _ => Ok(status),
    }
}

/// Blocks in order, without a gap.
pub trait Blocks: Send + 'static {
    /// The next block; none while there is no newer one. Ask again later then. After an error it
    /// is done for: take a new one from where this one came to.
    fn next(&mut self) -> impl Future<Output = Result<Option<SourceBlock>, IndexError>> + Send;
}
