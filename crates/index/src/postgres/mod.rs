//! The index in PostgreSQL: for users who outgrow one machine.
//!
//! What lives here: the schema's versions, writes by binary COPY, reads, leases for several workers
//! that share a backfill, and moving an index here from SQLite. The big tables are cut into ranges of
//! [`RANGE_BLOCKS`] blocks; a range is made before its first block and dropped as a whole. What
//! deliberately does not: SQL that `pg_cron` needs too, which is in `migrations/postgres` as functions
//! that the worker calls as well; connections, and how a schema is brought up to date
//! (`secateur-sql`).

mod backfill;
mod decode;
mod encode;
mod lease;
mod leased;
mod notes;
mod numeric;
mod promote;
mod read;
mod refill;
mod schema;
mod tally;
mod write;

use std::sync::Arc;

use parking_lot::Mutex;
use secateur_core::{Cursor, Height};
pub use secateur_sql::postgres::{Address, PostgresOptions};
use secateur_sql::postgres::{Client, Postgres, Told as _};

pub use backfill::{Backfilled, backfill};
pub use lease::{Backlog, LEASE_BLOCKS, Lease, LeaseQueue};
pub use leased::LeasedSink;
pub use promote::{PromotePhase, PromoteProgress, Promoted, promote};

use crate::sink::{Identity, Note, Retained, Sink, is_of};
use crate::{Batch, BlockRow, GapRow, IndexError, PartRow};
use schema::{SCHEMA, SETTINGS};
use write::Fence;

/// Blocks in a range of the big tables. The migrations say it too.
pub const RANGE_BLOCKS: u64 = 100_000;
/// Ranges that are made ahead of the cursor.
const RANGES_AHEAD: u64 = 1;

/// An index in PostgreSQL. Clones share its connections.
#[derive(Debug, Clone)]
pub struct PostgresSink(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    database: Postgres,
    /// The heights whose ranges are known to be there.
    made: Mutex<(Height, Height)>,
}

impl PostgresSink {
    /// Opens an index to write to, and brings its schema up to date.
    pub async fn open(address: &Address, options: PostgresOptions) -> Result<Self, IndexError> {
        let options = PostgresOptions { settings: SETTINGS, ..options };
        Ok(Self::new(Postgres::open(address, options, &SCHEMA).await?))
    }

    /// Opens an index that is there already, without changing anything: for readers.
    pub async fn open_existing(
        address: &Address,
        options: PostgresOptions,
    ) -> Result<Self, IndexError> {
        let options = PostgresOptions { settings: SETTINGS, ..options };
        Ok(Self::new(Postgres::open_existing(address, options, &SCHEMA).await?))
    }

    fn new(database: Postgres) -> Self {
        Self(Arc::new(Inner { database, made: Mutex::new((0, 0)) }))
    }

    /// Refuses an index that `promote` has not moved here in full.
    pub async fn check_whole(&self) -> Result<(), IndexError> {
        promote::refuse_half(&self.client().await?).await
    }

    async fn client(&self) -> Result<Client, IndexError> {
        Ok(self.0.database.client().await?)
    }

    /// Makes the ranges that these blocks are in, and the next one.
    async fn make_ranges(&self, first: Height, past: Height) -> Result<(), IndexError> {
        let (from, to) = *self.0.made.lock();
        if from <= first && past <= to {
            return Ok(());
        }
        let wanted = past.saturating_add(RANGES_AHEAD * RANGE_BLOCKS);
        let (low, high) = (write::bigint(first)?, write::bigint(wanted)?);
        let client = self.client().await?;
        let make = client.prepare_cached("select secateur_make_partitions($1, $2)").await;
        let make = make.told("making ranges")?;
        client.query_one(&make, &[&low, &high]).await.told("making ranges")?;
        let below = first / RANGE_BLOCKS * RANGE_BLOCKS;
        let above = wanted.div_ceil(RANGE_BLOCKS).saturating_mul(RANGE_BLOCKS);
        *self.0.made.lock() = (below, above);
        Ok(())
    }

    /// Forgets which ranges are there: somebody dropped one.
    fn forget_ranges(&self) {
        *self.0.made.lock() = (0, 0);
    }
}

impl Sink for PostgresSink {
    async fn bind(&self, identity: &Identity) -> Result<(), IndexError> {
        notes::bind(&mut self.client().await?, identity).await
    }

    async fn check(&self, identity: &Identity) -> Result<(), IndexError> {
        let meta = read::meta_in(&self.client().await?).await?;
        is_of(identity, [meta.chain_id.map(|id| id.to_string()), meta.codec, meta.logs])
    }

    async fn cursor(&self) -> Result<Option<Cursor>, IndexError> {
        read::cursor(&self.client().await?).await
    }

    async fn tip(&self) -> Result<Option<BlockRow>, IndexError> {
        let client = self.client().await?;
        match read::cursor(&client).await? {
            Some(cursor) => read::block_below(&client, cursor.block_number).await,
            None => Ok(None),
        }
    }

    async fn row_at(&self, number: Height) -> Result<Option<BlockRow>, IndexError> {
        read::block_at(&self.client().await?, number).await
    }

    async fn commit(&self, batch: Batch) -> Result<(), IndexError> {
        write::commit(self, &batch, &Fence::Cursor).await
    }

    async fn refill(&self, first: Height, batch: Batch) -> Result<u64, IndexError> {
        refill::refill(self, first, &batch).await
    }

    async fn logs_filled(&self, logs: &str, first: Height, past: Height) -> Result<(), IndexError> {
        refill::logs_filled(&mut self.client().await?, logs, first, past).await
    }

    async fn record_gap(&self, gap: GapRow, next: Cursor) -> Result<(), IndexError> {
        notes::record_gap(self, &gap, next, &Fence::Cursor).await
    }

    async fn note(&self, note: Note) -> Result<(), IndexError> {
        notes::note(&mut self.client().await?, &note).await
    }

    async fn add_part(&self, part: PartRow, at: u64) -> Result<(), IndexError> {
        notes::add_part(&mut self.client().await?, &part, at).await
    }

    async fn forget_part(&self, block_from: Height) -> Result<(), IndexError> {
        notes::forget_part(&self.client().await?, block_from).await
    }

    async fn parts(&self, from: Height, limit: usize) -> Result<Vec<PartRow>, IndexError> {
        read::parts(&self.client().await?, from, limit).await
    }

    async fn last_part(&self) -> Result<Option<PartRow>, IndexError> {
        read::last_part(&self.client().await?).await
    }

    async fn retain(&self, cutoff: u64, _max_blocks: u32) -> Result<Retained, IndexError> {
        // Whole ranges go, however many blocks they hold: that is one step whatever its size.
        let retained = notes::retain(&self.client().await?, cutoff).await?;
        if retained.rows > 0 {
            self.forget_ranges();
        }
        Ok(retained)
    }

    async fn maintain(&self, at: u64) -> Result<(), IndexError> {
        notes::maintain(&self.client().await?, at).await
    }

    async fn size_bytes(&self) -> Result<u64, IndexError> {
        read::size_bytes(&self.client().await?).await
    }
}
