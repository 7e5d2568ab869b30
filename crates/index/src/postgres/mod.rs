//! The index in PostgreSQL: for users who outgrow one machine.
//!
//! What lives here: the schema and its versions, writes by binary COPY, reads, leases for several
//! workers that share a backfill, and moving an index here from SQLite. The big tables are cut into
//! ranges of [`RANGE_BLOCKS`] blocks; a range is made before its first block and dropped as a whole.
//! What deliberately does not: SQL that `pg_cron` needs too; it is in `migrations/postgres` as
//! functions, which the worker calls as well.

mod address;
mod backfill;
mod decode;
mod encode;
mod failure;
mod lease;
mod leased;
mod migrate;
mod notes;
mod numeric;
mod promote;
mod read;
mod tally;
mod tls;
mod write;

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{
    Client, Hook, HookError, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime,
};
use parking_lot::Mutex;
use secateur_core::{Cursor, Height};
use tokio_postgres::config::SslMode;

pub use address::Address;
pub use backfill::{Backfilled, backfill};
pub use lease::{Backlog, LEASE_BLOCKS, Lease, LeaseQueue};
pub use leased::LeasedSink;
pub use promote::{PromotePhase, PromoteProgress, Promoted, promote};

use crate::sink::{Identity, Note, Retained, Sink};
use crate::{Batch, BlockRow, GapRow, IndexError, PartRow};
use failure::{Told as _, no_connection};
use write::Fence;

/// Blocks in a range of the big tables. The migrations say it too.
pub const RANGE_BLOCKS: u64 = 100_000;
/// Ranges that are made ahead of the cursor.
const RANGES_AHEAD: u64 = 1;

/// How a PostgreSQL index is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostgresOptions {
    /// Connections at most.
    pub connections: usize,
    /// How long one statement may take.
    pub statement_timeout: Duration,
    /// How long to wait for a connection.
    pub connection_timeout: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            connections: 8,
            statement_timeout: Duration::from_mins(2),
            connection_timeout: Duration::from_secs(30),
        }
    }
}

/// An index in PostgreSQL. Clones share its connections.
#[derive(Clone)]
pub struct PostgresSink(Arc<Inner>);

struct Inner {
    pool: Pool,
    shown: String,
    /// The heights whose ranges are known to be there.
    made: Mutex<(Height, Height)>,
}

impl std::fmt::Debug for PostgresSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PostgresSink").field(&self.0.shown).finish()
    }
}

/// What every connection begins with. Times are limited so that nothing waits for ever. A plan is made
/// for the values at hand: one for any values cannot know that an address is rare and a topic is not.
fn greeting(options: PostgresOptions) -> String {
    format!(
        "set statement_timeout = {}; set lock_timeout = '10s'; \
         set idle_in_transaction_session_timeout = '120s'; set timezone = 'UTC'; \
         set client_min_messages = warning; set plan_cache_mode = force_custom_plan; \
         set default_transaction_isolation = 'read committed'",
        options.statement_timeout.as_millis()
    )
}

impl PostgresSink {
    /// Opens an index to write to, and brings its schema up to date.
    pub async fn open(address: &Address, options: PostgresOptions) -> Result<Self, IndexError> {
        let sink = Self::pool(address, options)?;
        let mut client = sink.client().await?;
        migrate::migrate(&mut client).await?;
        Ok(sink)
    }

    /// Opens an index that is there already, without changing anything: for readers.
    pub async fn open_existing(
        address: &Address,
        options: PostgresOptions,
    ) -> Result<Self, IndexError> {
        let sink = Self::pool(address, options)?;
        migrate::check(&sink.client().await?).await?;
        Ok(sink)
    }

    /// Refuses an index that `promote` has not moved here in full.
    pub async fn check_whole(&self) -> Result<(), IndexError> {
        promote::refuse_half(&self.client().await?).await
    }

    fn pool(address: &Address, options: PostgresOptions) -> Result<Self, IndexError> {
        let encrypted = address.config.get_ssl_mode() != SslMode::Disable;
        let tls = tls::Tls::new(encrypted, address.roots.as_deref())?;
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(address.config.clone(), tls, recycling);
        let greeting: Arc<str> = greeting(options).into();
        let pool = Pool::builder(manager)
            .max_size(options.connections.max(1))
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(options.connection_timeout))
            .create_timeout(Some(options.connection_timeout))
            .recycle_timeout(Some(options.connection_timeout))
            .post_create(Hook::async_fn(move |client, _| {
                let greeting = Arc::clone(&greeting);
                Box::pin(async move {
                    client.batch_execute(&greeting).await.map_err(HookError::Backend)
                })
            }))
            .build()
            .map_err(|error| IndexError::sink(format!("PostgreSQL: {error}")))?;
        let shown = address.to_string();
        Ok(Self(Arc::new(Inner { pool, shown, made: Mutex::new((0, 0)) })))
    }

    /// A connection; it goes back by itself.
    async fn client(&self) -> Result<Client, IndexError> {
        self.0.pool.get().await.map_err(|error| no_connection(&self.0.shown, error))
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
