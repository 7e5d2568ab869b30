//! The markers and counters: one row, rewritten whole with every batch that changes one.

use secateur_core::{CoreError, Height, Reader, Writer};
use secateur_store::{Rows, ShelfBatch, Snapshot, StoreError, Table};

use super::rows::load;

const KEY: &[u8] = b"marks";
/// No count ever comes near this.
const MAX_COUNT: u64 = 1 << 62;

/// What the counts are called, in the order of [`Marks::counts`].
const NAMES: [&str; 9] = [
    "heights",
    "blobs",
    "archived blobs",
    "pruned blobs",
    "failures",
    "rounds",
    "undecided blobs",
    "jobs",
    "announcements",
];

/// What would otherwise cost a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Marks {
    pub finalized: Option<Height>,
    pub latest_decided: Option<Height>,
    pub latest_archived: Option<Height>,
    /// Decided heights, and their blobs.
    pub heights: u64,
    pub blobs: u64,
    /// Blobs with a record; those of them whose bytes went; those whose bytes were gone already.
    pub archived: u64,
    pub pruned: u64,
    pub failures: u64,
    /// Undecided rounds, and their blobs.
    pub rounds: u64,
    pub undecided: u64,
    pub jobs: u64,
    pub announcements: u64,
}

impl Marks {
    /// The row, or that of an engine to which nothing has happened.
    pub(super) fn load(rows: &impl Rows) -> Result<Self, StoreError> {
        Ok(load(rows, Table::Marks, KEY, Self::take)?.unwrap_or_default())
    }

    /// Changes the row.
    pub(super) fn change<S: Snapshot>(
        batch: &mut ShelfBatch<'_, '_, S>,
        change: impl FnOnce(&mut Self),
    ) -> Result<(), StoreError> {
        let before = Self::load(batch)?;
        let mut marks = before;
        change(&mut marks);
        if marks == before {
            return Ok(());
        }
        batch.put(Table::Marks, KEY, marks.body())
    }

    fn body(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.optional_u64(self.finalized).optional_u64(self.latest_decided);
        out.optional_u64(self.latest_archived);
        for count in self.counts() {
            out.u64(count);
        }
        out.finish()
    }

    /// Where what is stored differs from what was counted, in words.
    pub(super) fn differs(&self, counted: &Self) -> String {
        let said = |height: Option<Height>| height.map_or("none".to_owned(), |at| at.to_string());
        let heights = [
            ("finalized height", self.finalized, counted.finalized),
            ("latest decided height", self.latest_decided, counted.latest_decided),
            ("latest archived height", self.latest_archived, counted.latest_archived),
        ];
        let heights = heights.map(|(name, stored, counted)| (name, said(stored), said(counted)));
        let counts = NAMES.into_iter().zip(self.counts()).zip(counted.counts());
        let counts =
            counts.map(|((name, stored), counted)| (name, stored.to_string(), counted.to_string()));
        let differ =
            heights.into_iter().chain(counts).filter(|(_, stored, counted)| stored != counted);
        let said_of_all =
            differ.map(|(name, stored, counted)| format!("{name} {counted}, stored {stored}"));
        format!("counted: {}", said_of_all.collect::<Vec<_>>().join("; "))
    }

    fn counts(&self) -> [u64; 9] {
        [
            self.heights,
            self.blobs,
            self.archived,
            self.pruned,
            self.failures,
            self.rounds,
            self.undecided,
            self.jobs,
            self.announcements,
        ]
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, CoreError> {
        let marks = Self {
            finalized: from.optional_u64()?,
            latest_decided: from.optional_u64()?,
            latest_archived: from.optional_u64()?,
            heights: from.u64()?,
            blobs: from.u64()?,
            archived: from.u64()?,
            pruned: from.u64()?,
            failures: from.u64()?,
            rounds: from.u64()?,
            undecided: from.u64()?,
            jobs: from.u64()?,
            announcements: from.u64()?,
        };
        if marks.counts().iter().any(|count| *count >= MAX_COUNT) {
            return Err(from.error("a count that cannot be".into()));
        }
        Ok(marks)
    }
}

/// One less; a count that is wrong already stays at 0.
pub(super) fn less(count: &mut u64, by: u64) {
    *count = count.saturating_sub(by);
}
