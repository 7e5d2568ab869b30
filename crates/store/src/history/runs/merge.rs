//! Merging: when there are as many live runs as there may be, the two neighbours with the fewest
//! ids become one run. The same order of writes as sealing: a crash before the batch leaves both.

use super::format::{PAGE, RunEntry, Summary, decode_page, encode_run};
use super::record::RunRecord;
use crate::StoreError;
use crate::error::row_error;
use crate::ground::{Arena, Index};
use crate::history::place::Stream;
use crate::history::store::Store;

/// Fewer live runs than this cannot be asked for: two are needed to make one.
const FEWEST_RUNS: u64 = 2;

impl<A: Arena, I: Index> Store<A, I> {
    /// Makes room for one more run, if there is none. The caller holds the sealing lock. A store that
    /// works in slices merges once, and leaves alone what would be too long.
    pub(super) fn merge_if_full(&self) -> Result<(), StoreError> {
        let limit = self.merge_limit();
        loop {
            let (pair, number) = {
                let control = self.control.lock();
                let most = control.settings.max_runs.max(FEWEST_RUNS);
                let live: Vec<&RunRecord> = control.runs.iter().filter(|r| r.is_live()).collect();
                if (live.len() as u64) < most {
                    return Ok(());
                }
                (smallest_pair(&live), control.state.run_next)
            };
            let Some((older, newer)) = pair else { return Ok(()) };
            let ids = older.entries.saturating_add(newer.entries);
            if limit.is_some_and(|limit| ids > limit) {
                return Ok(());
            }
            self.merge(number, &older, &newer)?;
            if limit.is_some() {
                return Ok(());
            }
        }
    }

    fn merge(&self, number: u64, older: &RunRecord, newer: &RunRecord) -> Result<(), StoreError> {
        let wrong = |error| StoreError::corrupt("run", format!("{error}"));
        let shift = u32::try_from(newer.first - older.first)
            .map_err(|_| StoreError::refused("merge", "the runs are too far apart"))?;
        let mut entries = self.entries_of(older)?;
        entries.extend(self.entries_of(newer)?.into_iter().map(|entry| RunEntry {
            height_delta: entry.height_delta.saturating_add(shift),
            ..entry
        }));
        entries.sort_unstable();
        let summary = Summary::of(&entries).map_err(wrong)?;
        let run = encode_run(number, &entries).map_err(wrong)?;
        drop(entries);
        let covers = super::seal::Covers {
            first: older.first,
            last: newer.last,
            missing: older.missing.saturating_add(newer.missing),
        };
        let sealing = super::seal::Sealing { number, covers, summary, run };
        let ticket = self.stage_run(sealing, &[older, newer])?;
        self.wait_for(ticket)
    }

    /// Every entry of a live run, checked.
    fn entries_of(&self, record: &RunRecord) -> Result<Vec<RunEntry>, StoreError> {
        let view = self.view()?;
        let Some(blob) = &record.run else { return Ok(Vec::new()) };
        let (mut entries, mut page) = (Vec::new(), vec![0u8; PAGE]);
        let pages = u32::try_from(blob.len / PAGE as u64).unwrap_or(u32::MAX);
        for number in 0..pages {
            let start = u64::from(number) * PAGE as u64;
            view.read(Stream::Runs, &blob.place, start, &mut page)?;
            let found = decode_page(record.number, number, &page);
            entries.extend(found.map_err(row_error("run"))?);
        }
        Ok(entries)
    }
}

/// The neighbours with the fewest ids together.
fn smallest_pair(live: &[&RunRecord]) -> Option<(RunRecord, RunRecord)> {
    // Between two that are no neighbours there are blocks whose ids were forgotten.
    let next = |(older, newer): &(&&RunRecord, &&RunRecord)| older.last + 1 == newer.first;
    let pairs = live.iter().zip(live.iter().skip(1)).filter(next);
    let (older, newer) = pairs.min_by_key(|(a, b)| a.entries.saturating_add(b.entries))?;
    Some(((*older).clone(), (*newer).clone()))
}
