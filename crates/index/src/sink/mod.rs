//! What a sink must be able to do: for a worker ([`Sink`]) and for readers ([`IndexReader`]).
//!
//! A sink is a cache of the chain: it can be dropped and built again. All its methods may be called
//! from any task; the writes take turns. What deliberately does not live here: anything that knows
//! SQL.
//!
//! Several workers that share a backfill do it through a sink of their own kind: `cursor` answers
//! where in its leased range it stands, `commit` writes rows and that place, and a worker with
//! `until` set ends at the end of the range.

pub mod sqlite;

use alloy_primitives::{Address, B256};
use secateur_core::{BlockHash, Cursor, Height, TxId};

use crate::{Batch, BlockRow, DailyRow, ErrorClass, GapRow, IndexError, LogRow, PartRow, TxRow};

/// Rows that one call of a reader answers at most.
pub const MAX_PAGE: usize = 1_000;

/// Whose rows an index holds. Written at first use; a worker of another chain is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The chain's id.
    pub chain_id: u64,
    /// The codec's name, `evm` or `opaque`.
    pub codec: String,
    /// Which logs are kept, as [`crate::LogFilter`] writes itself; `off` if none are.
    pub logs: String,
}

/// What a worker tells the index outside a batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Note {
    /// The source's newest exportable block.
    pub head: Option<Height>,
    /// What went wrong last. It stays until something else goes wrong, and counts to its day.
    pub error: Option<(ErrorClass, String)>,
    /// The worker's clock, in seconds since 1970.
    pub at: u64,
}

/// What a step of retention did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retained {
    /// Blocks whose rows went.
    pub blocks: u64,
    /// Rows of all tables that went, as far as the sink counts them.
    pub rows: u64,
    /// More is due: ask again.
    pub more: bool,
}

/// Refuses an index that is not of this identity.
pub(crate) fn is_of(
    wanted: &Identity,
    [chain_id, codec, logs]: [Option<String>; 3],
) -> Result<(), IndexError> {
    let Identity { chain_id: wanted_id, codec: wanted_codec, logs: wanted_logs } = wanted;
    for (what, wanted, known) in [
        ("chain", &wanted_id.to_string(), chain_id),
        ("codec", wanted_codec, codec),
        ("logs", wanted_logs, logs),
    ] {
        if known.as_ref() != Some(wanted) {
            let known = known.as_deref().unwrap_or("none");
            return Err(IndexError::Refused(format!(
                "the index has {what} {known}, and its blocks were to be filled with {what} {wanted}: its \
                 worker changes that"
            )));
        }
    }
    Ok(())
}

/// Refuses blocks that are the worker's: a refill ends at the cursor. Returns where it is.
pub(crate) fn below_cursor(
    cursor: Option<Cursor>,
    first: Height,
    past: Height,
) -> Result<Height, IndexError> {
    match cursor {
        Some(cursor) if past <= cursor.block_number => Ok(cursor.block_number),
        Some(cursor) => Err(IndexError::Refused(format!(
            "blocks {first} to {} were to be filled, and the index goes on at block {}: blocks from there \
             on are its worker's",
            past.saturating_sub(1),
            cursor.block_number
        ))),
        None => Err(IndexError::Refused("the index has no block yet: run its worker first".into())),
    }
}

/// Refuses a block of another chain than the one that is in the index at its height.
pub(crate) fn same_block(
    number: Height,
    ours: Option<BlockHash>,
    theirs: Option<BlockHash>,
) -> Result<(), IndexError> {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) if ours != theirs => Err(IndexError::Refused(format!(
            "block {number} of the source is {theirs}, and the index has {ours}: the chain was reorganised \
             below what was final, or the index is of another chain. Use another source, or a fresh index"
        ))),
        _ => Ok(()),
    }
}

/// Refuses rows that do not lead to the block that is in the index behind them.
pub(crate) fn leads_to(rows: &[BlockRow], above: Option<&BlockRow>) -> Result<(), IndexError> {
    let (Some(last), Some(above)) = (rows.last(), above) else { return Ok(()) };
    match (last.hash, above.parent_hash) {
        (Some(last_hash), Some(parent)) if last_hash != parent => {
            Err(IndexError::Refused(format!(
                "block {} of the source is {last_hash}, and block {} of the index stands on {parent}: the index \
             is of another chain. Use another source, or a fresh index",
                last.number, above.number
            )))
        }
        _ => Ok(()),
    }
}

/// Where a worker writes.
pub trait Sink: Send + Sync + 'static {
    /// Notes whose index this is, or refuses (`Refused`) if it is another's. An index without its
    /// `logs` setting takes it over; another one than before is noted for blocks to come.
    fn bind(&self, identity: &Identity) -> impl Future<Output = Result<(), IndexError>> + Send;

    /// Refuses (`Refused`) if this is not that very index's, with those logs; nothing is written.
    fn check(&self, identity: &Identity) -> impl Future<Output = Result<(), IndexError>> + Send;

    /// Where to go on; none if nothing was ever written.
    fn cursor(&self) -> impl Future<Output = Result<Option<Cursor>, IndexError>> + Send;

    /// The block below the cursor, if it is known: the next block stands on it.
    fn tip(&self) -> impl Future<Output = Result<Option<BlockRow>, IndexError>> + Send;

    /// A block of a number, if its row is there: to compare it with the source's.
    fn row_at(
        &self,
        number: Height,
    ) -> impl Future<Output = Result<Option<BlockRow>, IndexError>> + Send;

    /// Writes a batch in one transaction: rows, cursor, `last_head`, `last_ingest_at` and the day's
    /// counts. A failure leaves everything where it was.
    fn commit(&self, batch: Batch) -> impl Future<Output = Result<(), IndexError>> + Send;

    /// Writes the rows of blocks below the cursor over what is there, and takes the blocks from `first` to
    /// below the batch's end out of `gaps`, in one transaction; the cursor stays. The batch may lack rows of
    /// blocks that are not to be kept. A block that is there under another hash is refused. Where the
    /// blocks are below all that the index has, those in between become a gap. How many blocks are new is
    /// the answer.
    fn refill(
        &self,
        first: Height,
        batch: Batch,
    ) -> impl Future<Output = Result<u64, IndexError>> + Send;

    /// Notes that all blocks from `first` to below `past` were filled with these logs: where they are the
    /// ones that the index keeps now and that reaches `logs_since`, it moves down.
    fn logs_filled(
        &self,
        logs: &str,
        first: Height,
        past: Height,
    ) -> impl Future<Output = Result<(), IndexError>> + Send;

    /// Notes a gap and moves the cursor behind it, in one transaction.
    fn record_gap(
        &self,
        gap: GapRow,
        next: Cursor,
    ) -> impl Future<Output = Result<(), IndexError>> + Send;

    /// Notes what is known of the source, and what went wrong.
    fn note(&self, note: Note) -> impl Future<Output = Result<(), IndexError>> + Send;

    /// Notes an archive part, and its bytes to the day of `at`. One that is there already changes
    /// nothing; another one of the same first block is refused.
    fn add_part(
        &self,
        part: PartRow,
        at: u64,
    ) -> impl Future<Output = Result<(), IndexError>> + Send;

    /// Forgets the part that begins at this block, if one is noted: the archive does not have it.
    fn forget_part(
        &self,
        block_from: Height,
    ) -> impl Future<Output = Result<(), IndexError>> + Send;

    /// Archive parts from a first block on, oldest first; at most [`MAX_PAGE`].
    fn parts(
        &self,
        from: Height,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<PartRow>, IndexError>> + Send;

    /// The archive part with the highest blocks.
    fn last_part(&self) -> impl Future<Output = Result<Option<PartRow>, IndexError>> + Send;

    /// Removes rows of blocks whose timestamp is below `cutoff`, oldest first, at most about
    /// `max_blocks` of them in one transaction. The newest block always stays.
    fn retain(
        &self,
        cutoff: u64,
        max_blocks: u32,
    ) -> impl Future<Output = Result<Retained, IndexError>> + Send;

    /// What is due from time to time: a checkpoint, partitions ahead of the cursor, the day's
    /// growth. `at` is the worker's clock.
    fn maintain(&self, at: u64) -> impl Future<Output = Result<(), IndexError>> + Send;

    /// The bytes that the sink takes.
    fn size_bytes(&self) -> impl Future<Output = Result<u64, IndexError>> + Send;
}

/// What `meta` says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IndexMeta {
    /// The schema's version.
    pub schema_version: u32,
    /// The chain's id; absent before first use.
    pub chain_id: Option<u64>,
    /// The codec.
    pub codec: Option<String>,
    /// Which logs are kept.
    pub logs: Option<String>,
    /// The first block whose logs were chosen so. Blocks below it have what was chosen before.
    pub logs_since: Option<Height>,
    /// The first block that retention has left: nothing below it is promised. None if there is no block.
    pub kept_from: Option<Height>,
    /// Where the worker goes on.
    pub cursor: Option<Cursor>,
    /// The source's newest exportable block, when it was last asked.
    pub last_head: Option<Height>,
    /// When a batch was last written, in seconds since 1970.
    pub last_ingest_at: Option<u64>,
    /// What went wrong last, as JSON `{"at","class","message"}`.
    pub last_error: Option<String>,
}

/// Which block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKey {
    /// By its number.
    Number(Height),
    /// By its hash.
    Hash(BlockHash),
}

/// In which role an address is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// As sender, receiver or created contract.
    #[default]
    Any,
    /// As sender.
    From,
    /// As receiver, or as the contract that was created.
    To,
}

/// A place in the chain inside a block: of a transaction, or of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The block.
    pub block_number: Height,
    /// The transaction's or log's place in it.
    pub index: u32,
}

/// Which logs. At least one of address and topic is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogQuery {
    /// Of this contract.
    pub address: Option<Address>,
    /// With this first topic.
    pub topic0: Option<B256>,
    /// Not below this block.
    pub from_block: Option<Height>,
    /// Not above this block.
    pub to_block: Option<Height>,
}

/// Reads of an index, beside a worker that writes. All listings are by key, never by offset, and
/// return at most `limit` and at most [`MAX_PAGE`] rows.
pub trait IndexReader: Send + Sync + 'static {
    /// What `meta` says.
    fn meta(&self) -> impl Future<Output = Result<IndexMeta, IndexError>> + Send;

    /// One block.
    fn block(
        &self,
        key: BlockKey,
    ) -> impl Future<Output = Result<Option<BlockRow>, IndexError>> + Send;

    /// Blocks below `before` (or from the newest on), newest first.
    fn blocks(
        &self,
        before: Option<Height>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<BlockRow>, IndexError>> + Send;

    /// Transactions of a block from a place on, in order.
    fn block_txs(
        &self,
        number: Height,
        from_index: u32,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<TxRow>, IndexError>> + Send;

    /// One transaction; the newest one where an id comes twice.
    fn tx(&self, hash: TxId) -> impl Future<Output = Result<Option<TxRow>, IndexError>> + Send;

    /// An address's transactions before a place (or from the newest on), newest first, each once.
    fn address_txs(
        &self,
        address: Address,
        role: Role,
        before: Option<Place>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<TxRow>, IndexError>> + Send;

    /// Logs before a place (or from the newest on), newest first.
    fn logs(
        &self,
        query: LogQuery,
        before: Option<Place>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<LogRow>, IndexError>> + Send;

    /// Archive parts from a first block on, oldest first.
    fn list_parts(
        &self,
        from: Height,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<PartRow>, IndexError>> + Send;

    /// Gaps that overlap the blocks from `first` to `last`, highest first.
    fn gaps_in(
        &self,
        first: Height,
        last: Height,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<GapRow>, IndexError>> + Send;

    /// Gaps from a first block on, oldest first.
    fn gaps(
        &self,
        from: Height,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<GapRow>, IndexError>> + Send;

    /// Days below `before` (or from the newest on), newest first.
    fn days(
        &self,
        before: Option<u32>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<DailyRow>, IndexError>> + Send;
}
