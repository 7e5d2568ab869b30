//! Verify: recomputes the invariants from scratch and reports every difference (I10).
//!
//! The index is surveyed in one snapshot; payloads are then read block by block, each under its
//! own pin, so that a long verification never keeps regions from being freed.

use std::collections::HashMap;

use secateur_core::{Block, Height, MAX_SEGMENT_LEN};
use serde::Serialize;

use super::place::Stream;
use super::record::BlockRecord;
use super::runs::format::{PAGE, What, decode_page};
use super::runs::{BlockIds, RunRecord};
use super::store::Store;
use super::survey::Survey;
use crate::StoreError;
use crate::error::row_error;
use crate::ground::{Arena, Index};
use crate::regions::finding::{Finding, FindingKind, add};

/// What a verification saw.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct VerifyReport {
    /// Blocks read.
    pub blocks: u64,
    /// Payload bytes read.
    pub payload_bytes: u64,
    /// Regions seen.
    pub regions: u64,
    /// Runs of ids read.
    pub runs: u64,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Findings beyond those listed.
    pub unlisted: u64,
}

impl VerifyReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    pub(crate) fn find(
        &mut self,
        kind: FindingKind,
        invariant: u8,
        repairable: bool,
        detail: String,
    ) {
        let finding = Finding { kind, invariant, detail, repairable };
        add(&mut self.findings, &mut self.unlisted, finding);
    }
}

/// What a run says of each of its blocks: the keys and places, sorted.
struct RunContent {
    record: RunRecord,
    by_height: HashMap<Height, Vec<(u64, What)>>,
}

impl<A: Arena, I: Index> Store<A, I> {
    /// Recomputes everything and says what is wrong. `progress` hears (blocks read, blocks in
    /// all).
    pub fn verify(&self, mut progress: impl FnMut(u64, u64)) -> Result<VerifyReport, StoreError> {
        let (mut report, first, blocks, runs) = {
            let view = self.view()?;
            let survey = Survey::take(&view.snapshot, &self.header)?;
            let runs = super::runs::load_runs(&view.snapshot).unwrap_or_default();
            (survey.report(), view.state.oldest_kept(), view.state.kept_blocks(), runs)
        };
        for trouble in self.index.check()? {
            report.find(FindingKind::Index, 9, false, trouble);
        }
        for tombstone in runs.iter().filter(|run| !run.is_live()) {
            if let Err(error) = self.read_summary(tombstone) {
                let detail = format!("tombstone {}: {error}", tombstone.number);
                report.find(FindingKind::Run, 3, false, detail);
            }
        }
        let mut runs = runs.into_iter().filter(RunRecord::is_live).peekable();
        let mut content: Option<RunContent> = None;
        let first = first.unwrap_or(0);
        for height in first..first + blocks {
            if content.as_ref().is_some_and(|run| run.record.last < height) {
                content = None;
            }
            while let Some(run) = runs.next_if(|run| run.first <= height) {
                content = self.verify_run(run, &mut report);
            }
            self.verify_block(height, content.as_ref(), &mut report);
            progress(height + 1 - first, blocks);
        }
        Ok(report)
    }

    fn read_summary(&self, record: &RunRecord) -> Result<(), StoreError> {
        let view = self.view()?;
        match self.load_summary(&view, record) {
            // It may have been dropped since the survey.
            Err(error) if self.is_listed(record)? => Err(error),
            _ => Ok(()),
        }
    }

    fn is_listed(&self, record: &RunRecord) -> Result<bool, StoreError> {
        Ok(super::runs::load_runs(&self.view()?.snapshot)?.contains(record))
    }

    /// Reads a run as a whole. One that went meanwhile is no finding.
    fn verify_run(&self, record: RunRecord, report: &mut VerifyReport) -> Option<RunContent> {
        let number = record.number;
        report.runs += 1;
        match self.read_run(&record) {
            Ok(by_height) => Some(RunContent { record, by_height }),
            Err(error) => {
                if self.is_listed(&record).unwrap_or(true) {
                    report.find(FindingKind::Run, 3, false, format!("run {number}: {error}"));
                }
                None
            }
        }
    }

    fn read_run(
        &self,
        record: &RunRecord,
    ) -> Result<HashMap<Height, Vec<(u64, What)>>, StoreError> {
        let view = self.view()?;
        let summary = self.load_summary(&view, record)?;
        let wrong = |detail: &str| StoreError::corrupt("run", detail);
        let blob = record.run.as_ref().ok_or_else(|| wrong("it has no entries"))?;
        let mut by_height: HashMap<Height, Vec<(u64, What)>> = HashMap::new();
        let mut page = vec![0u8; PAGE];
        let mut entries = 0;
        for (fence, number) in summary.fences.iter().zip(0u32..) {
            let start = u64::from(number) * PAGE as u64;
            view.read(Stream::Runs, &blob.place, start, &mut page)?;
            let found = decode_page(record.number, number, &page).map_err(row_error("run"))?;
            if found.first().map(|entry| entry.key) != Some(*fence) {
                return Err(wrong("a page is not where its filter expects it"));
            }
            for entry in found {
                let height = record.first.saturating_add(u64::from(entry.height_delta));
                if !summary.filter.contains(entry.key) || height > record.last {
                    return Err(wrong("it holds an id that its filter denies"));
                }
                by_height.entry(height).or_default().push((entry.key, entry.what));
                entries += 1;
            }
        }
        if entries != record.entries {
            return Err(wrong("its number of ids is another"));
        }
        Ok(by_height)
    }

    /// Reads one block as a reader would. One that was cut meanwhile is no finding.
    fn verify_block(&self, height: Height, run: Option<&RunContent>, report: &mut VerifyReport) {
        let read = || -> Result<Option<(BlockRecord, Block)>, StoreError> {
            let view = self.view()?;
            match view.record(height) {
                Ok(record) => {
                    let block = view.block(&record)?;
                    Ok(Some((record, block)))
                }
                Err(StoreError::Lookup(_)) => Ok(None),
                Err(error) => Err(error),
            }
        };
        let wrong = match read() {
            Ok(None) => return,
            Ok(Some((record, block))) => {
                report.blocks += 1;
                report.payload_bytes += record.payload_bytes();
                match block.check(MAX_SEGMENT_LEN) {
                    Ok(tx_count) if tx_count == record.tx_count => {
                        return self.verify_ids(&block, run, report);
                    }
                    Ok(tx_count) => {
                        format!("{tx_count} transactions, the record says {}", record.tx_count)
                    }
                    Err(error) => error.to_string(),
                }
            }
            Err(error) => error.to_string(),
        };
        report.find(FindingKind::Payload, 1, false, format!("block {height}: {wrong}"));
    }

    /// I3: the run of a sealed block knows its ids and no others.
    fn verify_ids(&self, block: &Block, run: Option<&RunContent>, report: &mut VerifyReport) {
        let Some(run) = run.filter(|run| run.record.missing == 0) else { return };
        let height = block.meta.height;
        let seed = self.header.hash_seed();
        let Ok((mut ids, _)) = BlockIds::of(seed, block) else { return };
        ids.ids.sort_unstable();
        if run.by_height.get(&height) != Some(&ids.ids) {
            let detail = format!("run {} has other ids for block {height}", run.record.number);
            report.find(FindingKind::Run, 3, false, detail);
        }
    }
}
