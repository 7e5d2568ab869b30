//! How a service stands: what it follows, what it keeps in mind, and what keeps it from being ready.

use secateur_core::Height;
use serde::Serialize;

use super::feed::Feed;
use super::room::RoomLog;
use super::trouble::Trouble;
use crate::events::{StalePersister, TriggerMode, Watch};
use crate::pruner::{Job, Outcome, Progress, Skip};
use crate::store::{Counts, Kept, Room};

/// A chain does not go back by more blocks than a coinbase needs to ripen.
pub(super) const DEEPEST: Height = 100;

/// How events are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Following {
    /// Whether events set prunes off at all.
    pub enabled: bool,
    /// Which events do.
    pub mode: TriggerMode,
    /// Whether there is no block persister.
    pub persister_absent: bool,
    /// Blocks behind the head after which a persister that reported once is an alarm.
    pub persister_stale_blocks: Height,
    /// Blocks behind the head after which the service is not ready.
    pub max_lag_blocks: Height,
    /// Blocks that a chain may be ahead of what was known; what is further is taken for a mistake. 0: any.
    pub max_jump_blocks: Height,
    /// Blocks of a subscribed chain that may pass while no record is fed; after that the service is not ready. 0: any.
    pub max_unfed_blocks: Height,
    /// Where a chain is subscribed to.
    pub subscribed: Subscribed,
}

/// Where a chain is subscribed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Subscribed {
    /// Nowhere: events are pushed.
    #[default]
    Nowhere,
    /// By whoever serves, and not here. Until the chain said whether it has a persister, records wait for one.
    Elsewhere,
    /// Here. Until it is heard, the service is not ready either.
    Here,
}

impl Default for Following {
    fn default() -> Self {
        Self {
            enabled: true,
            mode: TriggerMode::Auto,
            persister_absent: false,
            persister_stale_blocks: 100,
            max_lag_blocks: 144,
            max_jump_blocks: 10_000,
            max_unfed_blocks: 6,
            subscribed: Subscribed::Nowhere,
        }
    }
}

/// How a service stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// What the database is.
    pub store: String,
    /// The place of external files.
    pub files: Option<String>,
    /// Whether events set prunes off.
    pub enabled: bool,
    /// Which events do.
    pub mode: TriggerMode,
    /// The top of the chain, as far as it is known.
    pub head: Option<Height>,
    /// What a persister last reported.
    pub persisted: Option<Height>,
    /// The last height that is processed.
    pub processed: Option<Height>,
    /// Blocks between the two.
    pub lag_blocks: Option<Height>,
    /// A persister that has fallen behind.
    pub stale_persister: Option<StalePersister>,
    /// Why the last run did not begin.
    pub last_skip: Option<&'static str>,
    /// What failed last; nothing once a run completed.
    pub last_error: Option<String>,
    /// The run that is under way.
    pub running: Option<Progress>,
    /// Whether the store takes more writes.
    pub room: Room,
    /// What the store holds; due is what is past its delete-at-height at the head, also where a
    /// persister keeps it back.
    pub counts: Counts,
    /// What is wrong though the service is ready, or will make it not ready.
    pub warnings: Vec<String>,
}

/// Where a service stands towards its chain; whoever waits for a change holds on to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    /// The top of the chain, as far as it is known.
    pub head: Option<Height>,
    /// Whether anything was heard of the chain since the start: if not, its top may be higher by now.
    pub heard: bool,
    /// What a persister last reported.
    pub persisted: Option<Height>,
    /// The last height that is processed.
    pub processed: Option<Height>,
    /// Why it is not ready: its store does not answer, its chain was not heard, or it does not keep up.
    pub not_ready: Option<String>,
}

/// How a subscribed chain is heard.
#[derive(Debug, Default)]
pub(super) struct Hearing {
    /// Whether it said where it is, ever since the start.
    pub(super) once: bool,
    /// Why it does not now.
    pub(super) silence: Option<Silence>,
}

/// A subscribed chain that is not heard.
#[derive(Debug)]
pub(crate) struct Silence {
    pub(crate) why: String,
    /// Whether it has been so for long.
    pub(crate) is_long: bool,
}

/// What a service keeps in mind.
#[derive(Debug, Default)]
pub(super) struct State {
    /// What this service processed, and what was processed when it began.
    pub(super) processed: Option<Height>,
    /// What the store says: another service on it may be further.
    pub(super) stored: Option<Height>,
    /// Up to which height a completed run deleted: lower, where a persister was behind.
    pub(super) swept: Option<Height>,
    pub(super) last_skip: Option<Skip>,
    pub(super) last_error: Option<String>,
    /// Why the height that was told last is not believed.
    pub(super) doubted: Option<String>,
    /// Whether anything was heard of the chain since the start.
    pub(super) heard: bool,
    /// How a subscribed chain is heard.
    pub(super) chain: Hearing,
    /// Why the store did not answer when it was last looked at.
    pub(super) store_down: Option<String>,
    /// Whether the store takes more writes, what the log says of that, and that it is not known of all of it.
    pub(super) room: Room,
    pub(super) room_log: RoomLog,
    pub(super) room_unknown: Trouble,
    /// Why external files cannot be written, and whether anybody looked.
    pub(super) place_wrong: Option<String>,
    pub(super) place_seen: bool,
    /// Records that the last run left because their files were not where they should be.
    pub(super) misplaced: u64,
    /// Records that it left because their files could not be removed.
    pub(super) stuck: u64,
    /// Whether it left any of either: then the next run has something to do.
    pub(super) unfinished: bool,
    /// The height of the newest run that is noted.
    pub(super) ran: Option<Height>,
    /// How far the store says that the chain was seen.
    pub(super) seen: Option<Height>,
    /// What is known of the feeding of records.
    pub(super) feed: Feed,
}

impl Following {
    /// A watch that begins with what the store says. A chain has come as far as what is processed, unless that is so
    /// far above what is persisted that a wrong height may have been pruned.
    pub(super) fn watch(&self, persisted: Option<Height>, processed: Option<Height>) -> Watch {
        let absent = self.persister_absent;
        let watch = Watch::new(self.mode, absent, self.persister_stale_blocks, persisted);
        match (watch.head(), processed) {
            (Some(head), Some(done)) if !self.is_jump(head, done) => watch.that_reached(done),
            _ => watch,
        }
    }

    /// Whether a chain does not go so far at once.
    pub(super) const fn is_jump(&self, from: Height, to: Height) -> bool {
        self.max_jump_blocks > 0 && to.saturating_sub(from) > self.max_jump_blocks
    }

    /// Whether a height that is processed is so far above the chain's top that nothing is to be counted from it.
    pub(super) fn is_beyond(&self, head: Option<Height>, processed: Height) -> bool {
        head.is_some_and(|head| self.is_jump(head, processed))
    }

    /// Whether a chain is there to say whether it has a persister.
    pub(super) fn has_chain(&self) -> bool {
        self.subscribed != Subscribed::Nowhere
    }

    /// Whether a height that is processed cannot be the chain's: it is beyond its top, or further above one that a
    /// block told than a chain goes back.
    pub(super) fn is_above(&self, watch: &Watch, processed: Height) -> bool {
        let above = |top| processed.saturating_sub(top) > DEEPEST;
        self.is_beyond(watch.head(), processed) || watch.told().is_some_and(above)
    }
}

impl State {
    /// The last height that is processed, by whomever.
    pub(super) fn done(&self) -> Option<Height> {
        self.processed.max(self.stored)
    }

    /// What a run tells of how far records went, and of those that stay because of their files. One that did not
    /// end, or came less far than another, does not know of all of these.
    pub(super) fn learn(&mut self, job: &Job) {
        let completed = job.outcome == Outcome::Completed;
        if completed && Some(job.safe_height) >= self.swept {
            (self.misplaced, self.stuck, self.unfinished) = (0, 0, false);
        }
        self.misplaced = self.misplaced.max(job.done.stays(Kept::FilesMissing));
        self.stuck = self.stuck.max(job.done.stays(Kept::FileStays));
        self.unfinished |= job.done.left_by_files() > 0;
        if completed {
            self.swept = self.swept.max(Some(job.safe_height));
        }
    }

    /// What keeps a service from being ready.
    pub(super) fn not_ready(&self, following: &Following, watch: &Watch) -> Option<String> {
        if let Some(reason) = &self.store_down {
            return Some(format!("the store does not answer: {reason}"));
        }
        if let Room::Full(reason) = &self.room {
            return Some(format!(
                "the store takes no more writes, so nothing can be pruned either: {reason}"
            ));
        }
        if let Some(processed) = self.done().filter(|height| following.is_above(watch, *height)) {
            return Some(format!(
                "height {processed} is said to be processed, far above the head: a wrong height was \
                 pruned, and nothing goes on by itself. If no other service on this store is further, a prune by \
                 hand at the head begins from there"
            ));
        }
        if let Some(doubt) = &self.doubted {
            return Some(doubt.clone());
        }
        if let Some(reason) = &self.place_wrong {
            return Some(format!("external files cannot be written: {reason}"));
        }
        if self.misplaced > 0 {
            return Some(format!(
                "{}, because the place of external files does not answer, or is not the one that their \
                 files are in: check utxo.files, and that the disk is mounted",
                stay(self.misplaced)
            ));
        }
        if self.stuck > 0 {
            let then =
                if following.enabled { "it is tried again by itself" } else { "then prune again" };
            return Some(format!(
                "{}, because external files cannot be removed: see that utxo.files can be written to; {then}",
                stay(self.stuck)
            ));
        }
        if !following.enabled {
            return None;
        }
        let listens = following.subscribed == Subscribed::Here;
        if listens && !self.chain.once {
            let silent = self.chain.silence.as_ref();
            let why = silent.map_or_else(String::new, |silent| format!(": {}", silent.why));
            return Some(format!("nothing was heard of the chain since the start{why}"));
        }
        if let Some(Silence { why, is_long: true }) = &self.chain.silence {
            return Some(format!(
                "the chain has not been heard for long, and may be far ahead: {why}"
            ));
        }
        if listens && watch.is_in_doubt() {
            return Some(
                "the chain says that it has a block persister, and not how far that is: nothing is pruned until it \
                 does (utxo.persister_absent, if there is none)"
                    .into(),
            );
        }
        if let Some(unfed) = self.unfed(following, watch).filter(|unfed| unfed.is_long) {
            return Some(unfed.to_string());
        }
        let most = following.max_lag_blocks;
        let behind = lag(watch.head(), self.processed).filter(|behind| *behind > most)?;
        Some(format!("{behind} blocks behind the head; at most {most} are allowed"))
    }
}

fn stay(records: u64) -> String {
    if records == 1 { "1 due record stays".into() } else { format!("{records} due records stay") }
}

/// Blocks between the two.
pub(super) fn lag(head: Option<Height>, processed: Option<Height>) -> Option<Height> {
    // A chain's first block has height 0, so that nothing processed is one more.
    head.map(|head| processed.map_or(head.saturating_add(1), |done| head.saturating_sub(done)))
}
