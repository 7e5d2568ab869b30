//! Leases: how several workers, in one process or in many, share a backfill without doing a block
//! twice, and how one of them is chosen to follow the head.
//!
//! A lease is a range of at most [`LEASE_BLOCKS`] blocks. Whoever takes it gets a new epoch with it;
//! every commit into the range checks that the epoch is still the same, in the commit's own
//! transaction. A worker that is slow or was believed dead is refused there, whatever it thinks of
//! its clock: only the database's clock counts. What deliberately does not live here: how blocks are
//! pulled.

use std::time::Duration;

use secateur_core::Height;
use secateur_sql::postgres::Told as _;

use super::PostgresSink;
use super::write::bigint;
use crate::IndexError;

/// Blocks in a lease at most. The migrations say it too.
pub const LEASE_BLOCKS: u64 = 1_000;
/// Leases that one plan makes at most.
const MOST_PLANNED: i32 = 10_000;
/// How long a lease is held without being renewed, unless something else is chosen.
const HELD: Duration = Duration::from_mins(1);
/// A worker's name is cut here.
const MAX_OWNER: usize = 200;

/// A range of blocks that one worker holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Its first block.
    pub first: Height,
    /// The first block behind it.
    pub past: Height,
    /// Where to go on: blocks below it are committed.
    pub next: Height,
    /// What tells this holder from all before it.
    pub epoch: i64,
}

/// What is left of a backfill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backlog {
    /// Leases that are not done.
    pub open: u64,
    /// How long until the first of those that are held expires by itself.
    pub expires_in: Option<Duration>,
}

/// The leases of an index, as one worker sees them.
#[derive(Debug, Clone)]
pub struct LeaseQueue {
    pub(super) sink: PostgresSink,
    owner: String,
    held: Duration,
}

const DOING: &str = "working on leases";

fn height(value: i64) -> Result<Height, IndexError> {
    u64::try_from(value).map_err(|_| IndexError::sink("a lease holds a negative block number"))
}

impl LeaseQueue {
    /// The leases of an index, for a worker of this name. The name is for people; it need not be
    /// the only one.
    pub fn new(sink: &PostgresSink, owner: &str) -> Self {
        let owner = owner.chars().take(MAX_OWNER).collect();
        Self { sink: sink.clone(), owner, held: HELD }
    }

    /// The same with another time that a lease is held without being renewed.
    pub fn held_for(mut self, held: Duration) -> Self {
        self.held = held;
        self
    }

    /// How long a lease is held without being renewed.
    pub fn held(&self) -> Duration {
        self.held
    }

    pub(super) fn seconds(&self) -> f64 {
        self.held.as_secs_f64()
    }

    /// Makes leases up to below `target`, from where the last one ends or the cursor is; an index
    /// without a cursor begins at `start`. Gives back how many are new; at 10,000 there may be more.
    pub async fn plan(&self, start: Height, target: Height) -> Result<u64, IndexError> {
        let (start, target) = (bigint(start)?, bigint(target)?);
        let client = self.sink.client().await?;
        let sql = "select secateur_plan_leases($1, $2, $3)";
        let row = client.query_one(sql, &[&start, &target, &MOST_PLANNED]).await.told(DOING)?;
        height(row.try_get(0).told(DOING)?)
    }

    /// Takes the lowest lease that nobody holds, or whose holder is not heard of any more.
    pub async fn take(&self) -> Result<Option<Lease>, IndexError> {
        let client = self.sink.client().await?;
        let sql = "with free as (
                select first from leases
                where next < past and (expires_at is null or expires_at <= clock_timestamp())
                order by first limit 1 for update skip locked
            )
            update leases l set epoch = l.epoch + 1, owner = $1,
                expires_at = clock_timestamp() + make_interval(secs => $2)
            from free where l.first = free.first
            returning l.first, l.past, l.next, l.epoch";
        let take = client.prepare_cached(sql).await.told(DOING)?;
        let row = client.query_opt(&take, &[&self.owner, &self.seconds()]).await.told(DOING)?;
        let Some(row) = row else { return Ok(None) };
        let number = |at: usize| row.try_get::<_, i64>(at).told(DOING);
        Ok(Some(Lease {
            first: height(number(0)?)?,
            past: height(number(1)?)?,
            next: height(number(2)?)?,
            epoch: number(3)?,
        }))
    }

    /// Holds a lease for longer. False if it is not this worker's any more, or is done.
    pub async fn renew(&self, lease: &Lease) -> Result<bool, IndexError> {
        let client = self.sink.client().await?;
        let sql = "update leases set expires_at = clock_timestamp() + make_interval(secs => $3) \
            where first = $1 and epoch = $2";
        let renew = client.prepare_cached(sql).await.told(DOING)?;
        let first = bigint(lease.first)?;
        let renewed = client.execute(&renew, &[&first, &lease.epoch, &self.seconds()]).await;
        Ok(renewed.told(DOING)? > 0)
    }

    /// Gives a lease back before its time: another worker may take it at once.
    pub async fn release(&self, lease: &Lease) -> Result<(), IndexError> {
        let client = self.sink.client().await?;
        let sql = "update leases set expires_at = null, owner = null \
            where first = $1 and epoch = $2 and next < past";
        client.execute(sql, &[&bigint(lease.first)?, &lease.epoch]).await.told(DOING)?;
        Ok(())
    }

    /// Whether a lease is done, by whomever. The last commit into a range does what there is to do;
    /// this only looks.
    pub async fn is_complete(&self, lease: &Lease) -> Result<bool, IndexError> {
        let client = self.sink.client().await?;
        let sql = "select not exists (select from leases where first = $1 and next < past)";
        let row = client.query_one(sql, &[&bigint(lease.first)?]).await.told(DOING)?;
        Ok(row.try_get(0).told(DOING)?)
    }

    /// What is left to do.
    pub async fn backlog(&self) -> Result<Backlog, IndexError> {
        let client = self.sink.client().await?;
        let sql = "select count(*), \
            extract(epoch from min(expires_at) - clock_timestamp())::double precision \
            from leases where next < past";
        let row = client.query_one(sql, &[]).await.told(DOING)?;
        let left: Option<f64> = row.try_get(1).told(DOING)?;
        Ok(Backlog {
            open: height(row.try_get(0).told(DOING)?)?,
            expires_in: left.map(|left| Duration::try_from_secs_f64(left).unwrap_or_default()),
        })
    }

    /// Becomes the one who follows the head, or stays it; none if another worker is.
    pub async fn take_head(&self) -> Result<Option<i64>, IndexError> {
        let client = self.sink.client().await?;
        let sql = "update head_lease set epoch = epoch + 1, owner = $1, \
            expires_at = clock_timestamp() + make_interval(secs => $2) \
            where expires_at is null or expires_at <= clock_timestamp() returning epoch";
        let row = client.query_opt(sql, &[&self.owner, &self.seconds()]).await.told(DOING)?;
        Ok(row.map(|row| row.try_get(0)).transpose().told(DOING)?)
    }

    /// Goes on following the head. False if another worker does by now.
    pub async fn renew_head(&self, epoch: i64) -> Result<bool, IndexError> {
        let client = self.sink.client().await?;
        let sql = "update head_lease \
            set expires_at = clock_timestamp() + make_interval(secs => $2) where epoch = $1";
        let renewed = client.execute(sql, &[&epoch, &self.seconds()]).await.told(DOING)?;
        Ok(renewed > 0)
    }

    /// Lets another worker follow the head at once.
    pub async fn release_head(&self, epoch: i64) -> Result<(), IndexError> {
        let client = self.sink.client().await?;
        let sql = "update head_lease set expires_at = null, owner = null where epoch = $1";
        client.execute(sql, &[&epoch]).await.told(DOING)?;
        Ok(())
    }
}
