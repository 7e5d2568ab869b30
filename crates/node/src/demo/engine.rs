//! The thread that appends: takes groups from the feed, keeps the pace, acknowledges.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use secateur_core::{Block, HoldKind, StopReason};
use secateur_store::ground::disk::DiskStore;

use super::blobs::Blobs;
use super::feed::Feed;
use super::indexing::CONSUMER;
use super::tally::Tally;
use super::utxo::Utxo;

/// A stop is noticed at least this often while waiting.
const NAP: Duration = Duration::from_millis(20);

/// How many blocks go together and how often.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) group: u64,
    every: Option<Duration>,
}

impl Pace {
    /// As fast as it goes.
    pub(super) const fn unpaced(group: u64) -> Self {
        Self { group, every: None }
    }

    /// One group in each span.
    pub(super) const fn paced(group: u64, every: Duration) -> Self {
        let every = Some(every);
        Self { group, every }
    }
}

/// Prints each block as soon as it is acknowledged: the ledger that tests compare with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Acks {
    pub(super) json: bool,
}

impl Acks {
    fn print(self, group: &[Block]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        for block in group {
            let (height, hash) = (block.meta.height, block.meta.hash);
            if self.json {
                let line = serde_json::json!({ "event": "ack", "height": height, "hash": hash });
                writeln!(out, "{line}")?;
            } else {
                writeln!(out, "ack {height} {hash}")?;
            }
        }
        out.flush()
    }
}

/// What appending needs.
pub(super) struct Engine<'a> {
    pub(super) store: &'a Arc<DiskStore>,
    pub(super) tally: &'a Tally,
    pub(super) stop: &'a AtomicBool,
    pub(super) acks: Option<Acks>,
    /// The validators that hear of every block, if there are any.
    pub(super) blobs: Option<&'a Blobs>,
    /// The UTXO chain, which goes along, if there is one.
    pub(super) utxo: Option<&'a Utxo>,
}

impl Engine<'_> {
    /// Appends what the feed gives until it ends, a stop comes or the store refuses.
    pub(super) fn append_all(&self, feed: Feed, pace: &Pace) -> Result<(), anyhow::Error> {
        let mut due = Instant::now();
        while let Some(group) = feed.next() {
            let group = group?;
            if let Some(every) = pace.every {
                self.wait_until(due);
                // A late group does not make the next ones hurry.
                due = due.max(Instant::now()) + every;
            }
            if self.stop.load(Ordering::Acquire) {
                break;
            }
            self.wait_for_archive()?;
            self.store.append_group(&group)?;
            if let Some(acks) = self.acks {
                acks.print(&group)?;
            }
            self.tally.appended(&group, self.store)?;
            if let (Some(first), Some(last)) = (group.first(), group.last()) {
                let (first, last) = (first.meta.height, last.meta.height);
                if let Some(blobs) = self.blobs {
                    blobs.decide(first, last);
                }
                if let Some(utxo) = self.utxo {
                    utxo.decide(first, last);
                }
            }
        }
        drop(feed);
        Ok(())
    }

    /// A chain that outruns its archive or its index would outgrow its budget, because nothing is
    /// cut that they do not have. This chain is ours, so it waits.
    fn wait_for_archive(&self) -> Result<(), anyhow::Error> {
        while !self.stop.load(Ordering::Acquire) {
            let stopped_by = self.store.need_prune()?.blocked_by;
            let Some(StopReason::Hold { hold, .. }) = stopped_by else { return Ok(()) };
            let index = HoldKind::Export(CONSUMER.into());
            if ![HoldKind::Archive, index].iter().any(|kind| kind.to_string() == hold) {
                return Ok(());
            }
            std::thread::sleep(NAP);
        }
        Ok(())
    }

    fn wait_until(&self, due: Instant) {
        while !self.stop.load(Ordering::Acquire) {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(NAP));
        }
    }
}
