//! The store's header and its state: one row each, rewritten whole.

use secateur_core::{BlockHash, CoreError, Height, Pressure, Reader, Writer};
use serde::{Deserialize, Serialize};

use super::place::{STREAMS, read_position};
use crate::class::{ClassTable, MAX_CLASSES};
use crate::error::row_error;
use crate::ground::{Family, Table};
use crate::regions::alloc::ClassCount;
use crate::regions::header::{ARENA_HEADER_LEN, arena_header};
use crate::rows::Rows;
use crate::{Snapshot, StoreError};

/// The newest format version that this code reads and writes.
pub const FORMAT_VERSION: u32 = 2;
/// The oldest format version that this code reads.
const OLDEST_FORMAT: u32 = 2;
/// No count that a store keeps ever comes near this.
const MAX_COUNT: u64 = 1 << 62;

const HEADER_MAGIC: [u8; 8] = *b"SECATEUR";

pub(crate) const HEADER_KEY: &[u8] = b"header";
pub(crate) const STATE_KEY: &[u8] = b"state";
pub(crate) const POLICY_KEY: &[u8] = b"policy";
pub(crate) const SETTINGS_KEY: &[u8] = b"settings";
pub(crate) const EMBEDDER_KEY: &[u8] = b"embedder";

/// How bytes are laid into regions; chosen at creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Each block in its own regions, by size class.
    PerBlock = 0,
    /// Blocks end to end in regions of the largest class.
    Packed = 1,
}

impl Layout {
    /// Its name in messages and configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PerBlock => "per-block",
            Self::Packed => "packed",
        }
    }
}

/// What never changes after creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Tells two stores apart; the arena carries it too.
    pub store_id: [u8; 16],
    /// The chain whose history this is.
    pub chain_id: u64,
    /// The layout.
    pub layout: Layout,
    /// The size classes.
    pub classes: ClassTable,
}

impl Header {
    /// How much of a packed stream one region holds.
    pub fn stretch_len(&self) -> u64 {
        u64::from(self.classes.largest())
    }

    /// Keeps one store's ids from colliding as another's do.
    pub(crate) fn hash_seed(&self) -> u64 {
        self.store_id.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.bytes(&HEADER_MAGIC).u32(FORMAT_VERSION).bytes(&self.store_id).u64(self.chain_id);
        out.u8(self.layout as u8);
        out.u8(u8::try_from(self.classes.classes().len()).unwrap_or(u8::MAX));
        self.classes.classes().iter().for_each(|class| {
            out.u32(*class);
        });
        out.finish()
    }

    /// Reads the header row; a newer format is its own error.
    pub fn decode(body: &[u8]) -> Result<Self, StoreError> {
        let mut from = Reader::new("header", body);
        let bad = row_error("header");
        if from.array::<8>().map_err(&bad)? != HEADER_MAGIC {
            return Err(StoreError::Foreign("the index has another program's header".into()));
        }
        let found = from.u32().map_err(&bad)?;
        if found < OLDEST_FORMAT {
            let detail = format!("format version {found} was never released");
            return Err(StoreError::corrupt("header", detail));
        }
        if found > FORMAT_VERSION {
            return Err(StoreError::NewerFormat { found, known: FORMAT_VERSION });
        }
        let header = Self::decode_body(&mut from).map_err(&bad)?;
        from.finish().map_err(&bad)?;
        Ok(header)
    }

    fn decode_body(from: &mut Reader<'_>) -> Result<Self, CoreError> {
        let (store_id, chain_id) = (from.array()?, from.u64()?);
        let layout = match from.u8()? {
            0 => Layout::PerBlock,
            1 => Layout::Packed,
            other => return Err(from.error(format!("{other} is not a layout"))),
        };
        let count = usize::from(from.u8()?).min(MAX_CLASSES + 1);
        let classes = (0..count).map(|_| from.u32()).collect::<Result<Vec<_>, _>>()?;
        let classes = ClassTable::explicit(classes).map_err(|e| from.error(e.to_string()))?;
        Ok(Self { store_id, chain_id, layout, classes })
    }

    /// The arena's first bytes.
    pub(crate) fn arena_header(&self) -> Vec<u8> {
        arena_header(Family::History, FORMAT_VERSION, &self.store_id)
    }
}

/// When a block counts as final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finality {
    /// As soon as it is appended: a sequencer's own chain.
    #[default]
    Instant,
    /// When `set_finalized` says so.
    Explicit,
}

/// What an operator may change besides the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// When a block counts as final.
    pub finality: Finality,
    /// Final blocks stay held this many blocks longer.
    pub challenge_blocks: u64,
    /// Final blocks stay held this many seconds longer.
    pub challenge_seconds: u64,
    /// A soft consumer that acknowledges nothing for this many blocks no longer holds.
    pub consumer_expiry_blocks: u64,
    /// Whether nothing may be cut that is in no verified archive part.
    pub archive_hold: bool,
    /// Ids that the open epoch gathers before it is sealed into a run.
    pub epoch_ids: u64,
    /// Runs that are live at most, at least 2: before one more is sealed, two neighbours become
    /// one, so that a lookup asks few filters.
    pub max_runs: u64,
    /// What the filters of pruned blocks may take, so that their ids answer `Pruned`. With a
    /// budget it is never more than a hundredth of the target.
    pub tombstone_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            finality: Finality::Instant,
            challenge_blocks: 0,
            challenge_seconds: 0,
            consumer_expiry_blocks: 50_000,
            archive_hold: false,
            epoch_ids: 1 << 20,
            max_runs: 64,
            tombstone_bytes: 64 << 20,
        }
    }
}

/// The newest block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tip {
    pub height: Height,
    pub hash: BlockHash,
    pub timestamp: u64,
    pub max_timestamp: u64,
}

/// What nobody but the operator needs to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counters {
    pub decreasing_timestamps: u64,
    pub implausible_timestamps: u64,
    pub overruns: u64,
}

/// Everything that changes and fits in one row. A commit writes it whole, so heights, counters
/// and flags can never disagree with each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub head: Option<Tip>,
    pub first: Option<Height>,
    pub boundary: Option<Height>,
    pub finalized: Option<Height>,
    pub archived: Option<Height>,
    pub arena_end: u64,
    pub journal_next: u64,
    pub report_next: u64,
    pub run_next: u64,
    /// Where each packed stream ends; the next bytes go there.
    pub streams: [u64; STREAMS],
    pub last_prune_at: Option<u64>,
    pub pressure: Pressure,
    pub pruning_enabled: bool,
    pub counters: Counters,
    /// One for each class of the header's table, in its order.
    pub classes: Vec<ClassCount>,
}

impl State {
    pub(crate) fn empty(classes: &ClassTable) -> Self {
        Self {
            head: None,
            first: None,
            boundary: None,
            finalized: None,
            archived: None,
            arena_end: ARENA_HEADER_LEN,
            journal_next: 0,
            report_next: 0,
            run_next: 0,
            streams: [0; STREAMS],
            last_prune_at: None,
            pressure: Pressure::default(),
            pruning_enabled: false,
            counters: Counters::default(),
            classes: vec![ClassCount::default(); classes.classes().len()],
        }
    }

    /// The oldest block that is here.
    pub(crate) fn oldest_kept(&self) -> Option<Height> {
        self.head?;
        match self.boundary {
            Some(boundary) => Some(boundary + 1),
            None => self.first,
        }
    }

    /// How many blocks are here.
    pub(crate) fn kept_blocks(&self) -> u64 {
        match (self.head, self.oldest_kept()) {
            (Some(head), Some(oldest)) => head.height + 1 - oldest,
            _ => 0,
        }
    }

    fn sum(&self, table: &ClassTable, count: impl Fn(&ClassCount) -> u64) -> u64 {
        let sizes = table.classes().iter().map(|class| u64::from(*class));
        sizes
            .zip(&self.classes)
            .fold(0, |sum: u64, (size, c)| sum.saturating_add(size.saturating_mul(count(c))))
    }

    /// Bytes of regions that are used or quarantined (I5).
    pub(crate) fn kept_bytes(&self, table: &ClassTable) -> u64 {
        self.sum(table, |c| c.used.saturating_add(c.quarantine))
    }

    /// The bytes that triggers and stops decide on.
    pub(crate) fn used_bytes(&self, table: &ClassTable) -> u64 {
        self.sum(table, |c| c.used)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.flag(self.head.is_some());
        if let Some(tip) = self.head {
            out.u64(tip.height).bytes(&tip.hash.0).u64(tip.timestamp).u64(tip.max_timestamp);
        }
        out.optional_u64(self.first).optional_u64(self.boundary).optional_u64(self.finalized);
        out.optional_u64(self.archived).u64(self.arena_end);
        out.u64(self.journal_next).u64(self.report_next).u64(self.run_next);
        for end in self.streams {
            out.u64(end);
        }
        out.optional_u64(self.last_prune_at);
        out.flag(self.pressure.draining).flag(self.pressure.emergency).flag(self.pruning_enabled);
        out.u64(self.counters.decreasing_timestamps).u64(self.counters.implausible_timestamps);
        out.u64(self.counters.overruns);
        out.u8(u8::try_from(self.classes.len()).unwrap_or(u8::MAX));
        for count in &self.classes {
            out.u64(count.used).u64(count.quarantine).u64(count.free).u64(count.punched);
        }
        out.finish()
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, CoreError> {
        let mut from = Reader::new("state", body);
        let head = if from.flag()? {
            Some(Tip {
                height: from.u64()?,
                hash: BlockHash(from.array()?),
                timestamp: from.u64()?,
                max_timestamp: from.u64()?,
            })
        } else {
            None
        };
        let state = Self {
            head,
            first: from.optional_u64()?,
            boundary: from.optional_u64()?,
            finalized: from.optional_u64()?,
            archived: from.optional_u64()?,
            arena_end: from.u64()?,
            journal_next: from.u64()?,
            report_next: from.u64()?,
            run_next: from.u64()?,
            streams: [
                read_position(&mut from)?,
                read_position(&mut from)?,
                read_position(&mut from)?,
            ],
            last_prune_at: from.optional_u64()?,
            pressure: Pressure { draining: from.flag()?, emergency: from.flag()? },
            pruning_enabled: from.flag()?,
            counters: Counters {
                decreasing_timestamps: from.u64()?,
                implausible_timestamps: from.u64()?,
                overruns: from.u64()?,
            },
            classes: Self::decode_classes(&mut from)?,
        };
        if !state.is_possible() {
            return Err(from.error("its heights contradict each other".into()));
        }
        from.finish()?;
        Ok(state)
    }

    /// Whether operations could have led here: a head with a first block at or below it, at least
    /// one block above the boundary, nothing final or archived that is not here, a height left
    /// above the head; or no block at all. And counts so small that adding to them cannot fail.
    fn is_possible(&self) -> bool {
        let head = self.head.map(|tip| tip.height);
        let heights = match head {
            None => self.first.is_none() && self.boundary.is_none(),
            Some(head) => {
                head < Height::MAX
                    && self.first.is_some_and(|first| first <= head)
                    && self.boundary.is_none_or(|boundary| boundary < head)
            }
        };
        let Counters { decreasing_timestamps, implausible_timestamps, overruns } = self.counters;
        let counts = [
            self.journal_next,
            self.report_next,
            self.run_next,
            decreasing_timestamps,
            implausible_timestamps,
            overruns,
        ];
        let classes = self.classes.iter().flat_map(|c| [c.used, c.quarantine, c.free, c.punched]);
        heights
            && self.finalized <= head
            && self.archived <= head
            && counts.into_iter().chain(classes).all(|count| count < MAX_COUNT)
    }

    fn decode_classes(from: &mut Reader<'_>) -> Result<Vec<ClassCount>, CoreError> {
        let count = from.u8()?;
        (0..count)
            .map(|_| {
                Ok(ClassCount {
                    used: from.u64()?,
                    quarantine: from.u64()?,
                    free: from.u64()?,
                    punched: from.u64()?,
                })
            })
            .collect()
    }

    pub(crate) fn load(rows: &impl Snapshot) -> Result<Self, StoreError> {
        let body = rows
            .row(Table::Meta, STATE_KEY)?
            .ok_or_else(|| StoreError::corrupt("meta", "the state row is missing"))?;
        Self::decode(&body).map_err(row_error("state"))
    }
}

/// Loads a row that holds one JSON document.
pub(crate) fn load_document<T: for<'de> Deserialize<'de>>(
    rows: &impl Snapshot,
    table: Table,
    key: &[u8],
) -> Result<Option<T>, StoreError> {
    let Some(body) = rows.row(table, key)? else {
        return Ok(None);
    };
    parse_document(table, &body).map(Some)
}

/// Reads a row's body as a JSON document.
pub(crate) fn parse_document<T: for<'de> Deserialize<'de>>(
    table: Table,
    body: &[u8],
) -> Result<T, StoreError> {
    serde_json::from_slice(body).map_err(|e| StoreError::corrupt(table.name(), e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_reads_back_and_a_shorter_or_longer_one_does_not() {
        let mut state = State::empty(&ClassTable::standard());
        state.head =
            Some(Tip { height: 9, hash: BlockHash([3; 32]), timestamp: 4, max_timestamp: 5 });
        (state.first, state.boundary) = (Some(1), Some(3));
        state.pressure.draining = true;
        state.classes[2] = ClassCount { used: 1, quarantine: 2, free: 3, punched: 1 };
        let body = state.encode();
        assert_eq!(State::decode(&body).unwrap(), state);
        for cut in 0..body.len() {
            assert!(State::decode(&body[..cut]).is_err());
        }
        assert!(State::decode(&[body, vec![0]].concat()).is_err());
    }

    #[test]
    fn a_state_that_no_operation_leads_to_is_refused() {
        let tip = |height| Tip { height, hash: BlockHash([3; 32]), timestamp: 4, max_timestamp: 5 };
        let sound = State {
            head: Some(tip(9)),
            first: Some(1),
            boundary: Some(3),
            finalized: Some(9),
            ..State::empty(&ClassTable::standard())
        };
        assert!(State::decode(&sound.encode()).is_ok());
        let refused = |change: fn(&mut State)| {
            let mut state = sound.clone();
            change(&mut state);
            assert!(State::decode(&state.encode()).is_err(), "{state:?}");
        };
        refused(|state| state.boundary = Some(9));
        refused(|state| state.first = Some(10));
        refused(|state| state.first = None);
        refused(|state| state.head = None);
        refused(|state| state.finalized = Some(10));
        refused(|state| state.archived = Some(10));
        refused(|state| state.head = state.head.map(|tip| Tip { height: u64::MAX, ..tip }));
        refused(|state| state.journal_next = u64::MAX);
        refused(|state| state.classes[0].used = u64::MAX);
    }

    #[test]
    fn a_header_of_a_newer_format_says_so() {
        let header = Header {
            store_id: [7; 16],
            chain_id: 1,
            layout: Layout::Packed,
            classes: ClassTable::small(),
        };
        let mut body = header.encode();
        assert_eq!(Header::decode(&body).unwrap(), header);
        body[11] = 9;
        assert!(matches!(
            Header::decode(&body),
            Err(StoreError::NewerFormat { found: 9, known: 2 })
        ));
        body[0] = b'X';
        assert!(matches!(Header::decode(&body), Err(StoreError::Foreign(_))));
    }
}
