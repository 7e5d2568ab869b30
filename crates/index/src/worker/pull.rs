//! Pulling and decoding: blocks come in order, are decoded side by side, and leave in order. What is
//! in flight is bounded in bytes, from the source to the written batch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use secateur_core::Height;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinHandle;

use super::backoff::Backoff;
use super::metrics::{Metrics, signed};
use super::{End, stopped, unix_now};
use crate::codec::Codec;
use crate::source::{Blocks, Source, SourceBlock};
use crate::{IndexError, Rows};

/// A group with so many payload bytes is decoded.
const GROUP_BYTES: u64 = 256 * 1024;
/// So is one with so many blocks,
const GROUP_BLOCKS: usize = 64;
/// and one that has waited so long.
const GROUP_AGE: Duration = Duration::from_millis(50);
/// Groups that wait to be written, at most: so many that their bytes are what bounds them.
pub(super) const GROUPS: usize = 1_024;
/// What a permit stands for.
const UNIT: u64 = 4_096;

/// One block's rows and payload bytes.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) rows: Rows,
    pub(super) raw_bytes: u64,
}

/// Blocks that are decoded, and the memory they take until they are written.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) blocks: Vec<Decoded>,
    pub(super) room: OwnedSemaphorePermit,
}

/// What goes from pulling to writing.
#[derive(Debug)]
pub(super) enum Step {
    /// Blocks that are being decoded.
    Group(JoinHandle<Result<Ready, IndexError>>),
    /// Nothing more is there now: what is pending may be written.
    CaughtUp,
}

/// The memory that blocks in flight may take.
pub(super) fn budget(bytes: u64) -> (Arc<Semaphore>, u32) {
    let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX / 2).max(1);
    (Arc::new(Semaphore::new(units as usize)), units)
}

/// The permits for so many bytes.
fn units_of(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).max(1)
}

/// A permit for no more than so many units; the rest is given back.
fn shrunk(mut permit: OwnedSemaphorePermit, units: u32) -> OwnedSemaphorePermit {
    let spare = permit.num_permits().saturating_sub(units as usize);
    drop(permit.split(spare));
    permit
}

/// The pulling half of a session.
pub(super) struct Puller<'a, S: Source> {
    pub(super) source: &'a S,
    pub(super) codec: Arc<dyn Codec>,
    pub(super) metrics: &'a Metrics,
    pub(super) budget: (Arc<Semaphore>, u32),
    /// Groups that are decoded side by side.
    pub(super) decoders: Arc<Semaphore>,
    /// True while there is no room for the next group: what waits to be written is in its way.
    pub(super) short: watch::Sender<bool>,
    pub(super) into: mpsc::Sender<Step>,
    pub(super) until: Option<Height>,
    pub(super) follow: bool,
    pub(super) stop: watch::Receiver<bool>,
}

#[derive(Debug, Default)]
struct Group {
    blocks: Vec<SourceBlock>,
    bytes: u64,
    since: Option<Instant>,
}

impl<S: Source> Puller<'_, S> {
    /// Pulls until there is a reason to end. An end without an error came after everything before
    /// it was handed on; so did an error.
    pub(super) async fn run(self, from: Option<Height>) -> Result<End, IndexError> {
        let mut blocks = self.source.blocks(from, self.codec.wants_meta());
        let mut group = Group::default();
        let mut idle = Backoff::new();
        loop {
            if let (Some(until), Some(from)) = (self.until, from)
                && from > until
            {
                return Ok(End::Until);
            }
            let next = tokio::select! {
                biased;
                () = stopped(self.stop.clone()) => {
                    return self.hand_on(&mut group).await.map(|_| End::Stopped);
                }
                next = blocks.next() => next,
            };
            match next {
                Ok(Some(block)) => {
                    let height = block.height;
                    // An index without a cursor begins at the oldest block, which may be above the
                    // last wanted one: then all that is wanted is cut.
                    if let Some(wanted) = self.until.filter(|until| height > *until) {
                        let pruned_before_block = height.saturating_sub(1);
                        return Err(IndexError::Pruned { wanted, pruned_before_block });
                    }
                    idle.reset();
                    self.metrics.live.pulled(height, Instant::now());
                    self.metrics.last_export_at.set(signed(unix_now()));
                    let last = self.until.is_some_and(|until| height >= until);
                    if !self.gather(&mut group, block, last).await? || last {
                        return Ok(End::Until);
                    }
                }
                Ok(None) => {
                    let wanted = self.hand_on(&mut group).await?
                        && self.into.send(Step::CaughtUp).await.is_ok();
                    if !wanted || !self.follow {
                        return Ok(End::CaughtUp);
                    }
                    self.wait(&mut idle).await;
                }
                Err(error) => {
                    self.hand_on(&mut group).await?;
                    return Err(error);
                }
            }
        }
    }

    async fn wait(&self, idle: &mut Backoff) {
        tokio::select! {
            () = stopped(self.stop.clone()) => {}
            () = self.into.closed() => {}
            () = tokio::time::sleep(idle.wait()) => {}
        }
    }

    /// Puts a block to its group; whether anybody still wants more is the answer.
    async fn gather(
        &self,
        group: &mut Group,
        block: SourceBlock,
        last: bool,
    ) -> Result<bool, IndexError> {
        group.bytes += block.payloads.total_len();
        group.blocks.push(block);
        let since = *group.since.get_or_insert_with(Instant::now);
        let full = group.bytes >= GROUP_BYTES
            || group.blocks.len() >= GROUP_BLOCKS
            || since.elapsed() >= GROUP_AGE;
        if full || last { self.hand_on(group).await } else { Ok(true) }
    }

    /// Has a group decoded; whether anybody still wants more is the answer.
    async fn hand_on(&self, group: &mut Group) -> Result<bool, IndexError> {
        let Group { blocks, bytes, .. } = std::mem::take(group);
        if blocks.is_empty() {
            return Ok(true);
        }
        let (room, most) = &self.budget;
        let units = units_of(bytes).min(*most);
        let permits = async {
            self.short.send_replace(room.available_permits() < units as usize);
            let room = Arc::clone(room).acquire_many_owned(units).await;
            self.short.send_replace(false);
            (room, Arc::clone(&self.decoders).acquire_owned().await)
        };
        let (room, decoder) = tokio::select! {
            permits = permits => permits,
            // Nobody writes any more.
            () = self.into.closed() => return Ok(false),
        };
        let closed = |error: AcquireError| IndexError::Net(error.to_string());
        let (room, decoder) = (room.map_err(closed)?, decoder.map_err(closed)?);
        let codec = Arc::clone(&self.codec);
        let decoding = tokio::task::spawn_blocking(move || {
            let _busy = decoder;
            let one = |block: SourceBlock| {
                let rows = codec.rows(&block)?;
                Ok(Decoded { rows, raw_bytes: block.payloads.total_len() })
            };
            let blocks = blocks.into_iter().map(one).collect::<Result<Vec<_>, IndexError>>()?;
            // The payloads are gone; what stays is rows.
            let weight = blocks.iter().map(|block| block.rows.weight()).sum();
            Ok(Ready { room: shrunk(room, units_of(weight)), blocks })
        });
        Ok(self.into.send(Step::Group(decoding)).await.is_ok())
    }
}
