//! The end of a run: what it did, and proof that what is kept can still be read.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use secateur_core::{Height, PruneStatus, format_bytes};
use secateur_store::ground::disk::DiskStore;
use secateur_store::{MAX_PARTS, StoreError};
use serde::Serialize;

use super::Demo;
use super::blobs::{Ended, Figures, newest_with_blobs};
use super::show::kept_blocks;
use super::tally::{Counts, Tally, per_second_tenths};
use super::utxo;
use crate::indexer::Done;
use crate::ui::words::{blocks, count, height, percent, plural, tenths};
use crate::ui::{self, Sheet, Ui, gauge};
use secateur_evm::{VerifiedCounts, verify_block};

/// The figures of a run.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    event: &'static str,
    appended: u64,
    payload_bytes: u64,
    elapsed_ms: u64,
    blocks_per_second_tenths: u64,
    reports: u64,
    blocks_cut: u64,
    kept_blocks: u64,
    arena_grew_at: Option<Height>,
    /// Blocks that were read back and recomputed at the end: the oldest kept and the newest.
    blocks_checked: u64,
    signatures_checked: u64,
    logs_checked: u64,
    /// The newest block in the index; none where there is none.
    indexed: Option<Height>,
    index_bytes: u64,
    parts: u64,
    part_bytes: u64,
    /// What became of the validators' blobs; none where there are none.
    blobs: Option<Ended>,
    /// What became of UTXO records; none where there are none.
    utxo: Option<utxo::Figures>,
    status: PruneStatus,
}

/// What the archive holds, as the store knows it.
#[derive(Debug, Default)]
struct Archived {
    parts: u64,
    bytes: u64,
}

impl Archived {
    fn of(store: &DiskStore) -> Result<Self, StoreError> {
        let mut all = Self::default();
        let mut from = 0;
        loop {
            let page = store.list_parts(from, MAX_PARTS)?;
            let Some(last) = page.last() else { return Ok(all) };
            all.parts += page.len() as u64;
            all.bytes += page.iter().map(|part| part.size).sum::<u64>();
            from = last.last.saturating_add(1);
        }
    }
}

impl Summary {
    /// Reads the last figures, and two blocks as a reader would.
    pub(super) fn gather(
        demo: &Demo,
        tally: &Tally,
        done: Option<Done>,
        blobs: Option<Ended>,
        utxo: Option<utxo::Figures>,
    ) -> Result<Self, anyhow::Error> {
        let elapsed = tally.elapsed();
        let counts = tally.counts();
        let status = demo.store.get_prune_status()?;
        let checked = check_ends(demo, &status)?;
        let mut summary = Self::of(&counts, elapsed, status, &checked);
        let archived = Archived::of(&demo.store)?;
        (summary.parts, summary.part_bytes) = (archived.parts, archived.bytes);
        if let Some(done) = done {
            (summary.indexed, summary.index_bytes) = (done.indexed, done.sink_bytes);
        }
        (summary.blobs, summary.utxo) = (blobs, utxo);
        Ok(summary)
    }

    fn of(
        counts: &Counts,
        elapsed: Duration,
        status: PruneStatus,
        checked: &[VerifiedCounts],
    ) -> Self {
        Self {
            event: "summary",
            appended: counts.appended,
            payload_bytes: counts.payload_bytes,
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            blocks_per_second_tenths: per_second_tenths(counts.appended, elapsed),
            reports: counts.reports,
            blocks_cut: counts.cut,
            kept_blocks: kept_blocks(&status),
            arena_grew_at: counts.arena_grew_at,
            blocks_checked: checked.len() as u64,
            signatures_checked: checked.iter().map(|counts| counts.transactions).sum(),
            logs_checked: checked.iter().map(|counts| counts.logs).sum(),
            indexed: None,
            index_bytes: 0,
            parts: 0,
            part_bytes: 0,
            blobs: None,
            utxo: None,
            status,
        }
    }

    /// Prints it.
    pub(super) fn print(&self, path: &Path, ui: Ui) -> Result<(), anyhow::Error> {
        if ui.json {
            return ui::print(&format!("{}\n", serde_json::to_string(self)?));
        }
        ui::print(&self.text(path))
    }

    fn text(&self, path: &Path) -> String {
        let status = &self.status;
        let mut sheet = Sheet::default();
        sheet
            .gap()
            .row(
                "appended",
                format_args!(
                    "{} in {}.{} s, {} blocks/s, {} of payload",
                    blocks(self.appended),
                    self.elapsed_ms / 1000,
                    self.elapsed_ms % 1000 / 100,
                    tenths(self.blocks_per_second_tenths),
                    format_bytes(self.payload_bytes)
                ),
            )
            .row("head", height(status.head))
            .row(
                "boundary",
                format_args!(
                    "{}, kept {}",
                    height(status.pruned_before_block),
                    blocks(self.kept_blocks)
                ),
            )
            .row("used", format_args!("{}, {}", gauge::used(status), gauge::styled_state(status)))
            .row("arena", self.arena())
            .row("", self.growth())
            .row(
                "pruned",
                format_args!(
                    "{} cut, {} in this run",
                    blocks(self.blocks_cut),
                    plural(self.reports, "report")
                ),
            );
        if self.indexed.is_some() {
            let (bytes, parts) = (format_bytes(self.index_bytes), plural(self.parts, "part"));
            sheet.row("indexed", format_args!("{}, {bytes}", height(self.indexed))).row(
                "archived",
                format_args!(
                    "{}, {parts} of {}",
                    height(status.archived),
                    format_bytes(self.part_bytes)
                ),
            );
        }
        self.blobs(&mut sheet);
        if let Some(utxo) = &self.utxo {
            sheet
                .row("utxo", format_args!("head {}: {}", height(utxo.head), utxo.gone()))
                .row("", utxo.kept());
        }
        if self.blocks_checked > 0 {
            sheet.row(
                "read back",
                format_args!(
                    "oldest and newest block: roots, {} and {} are right",
                    plural(self.signatures_checked, "signature"),
                    plural(self.logs_checked, "log")
                ),
            );
        }
        for alarm in &status.alarms {
            sheet.row("ALARM", alarm);
        }
        self.next(&mut sheet, path);
        sheet.finish()
    }

    /// What became of the validators' blobs.
    fn blobs(&self, sheet: &mut Sheet) {
        let Some(blobs) = &self.blobs else { return };
        sheet.row("blobs", blobs.line());
        for one in &blobs.validators {
            sheet.row("", format_args!("v{}: {}", one.validator, one.line()));
        }
    }

    /// How to look at what it left.
    fn next(&self, sheet: &mut Sheet, path: &Path) {
        let path = path.display();
        sheet
            .row("next", format_args!("secateur --data {path} status"))
            .row("", format_args!("secateur --data {path} explain block 1"));
        if let Some(height) = self.blobs.as_ref().and_then(newest_final) {
            sheet
                .row("", format_args!("secateur --data {path} blob status {height}"))
                .row("", format_args!("secateur --data {path} explain blob {height} 0"));
        }
        if let Some(utxo) = &self.utxo {
            sheet.row("", format_args!("secateur --data {path} utxo status"));
            for txid in utxo.example.iter().chain(&utxo.pruned_example) {
                sheet.row("", format_args!("secateur --data {path} utxo explain {txid}"));
            }
        }
        if self.parts > 0 {
            sheet.row("", format_args!("secateur archive verify --archive {path}/archive"));
        }
    }

    fn arena(&self) -> String {
        let status = &self.status;
        let share = if status.target_bytes > 0 {
            let share = percent(status.arena_bytes, status.target_bytes);
            format!(", {share} of the budget")
        } else {
            String::new()
        };
        let (arena, disk) = (status.arena_bytes, status.disk_bytes);
        format!("{}{share}; {} on disk", format_bytes(arena), format_bytes(disk))
    }

    /// Whether the arena is flat: the point of the whole thing.
    fn growth(&self) -> String {
        match (self.arena_grew_at, self.status.head) {
            (Some(at), Some(head)) => {
                let flat = blocks(head.saturating_sub(at));
                format!("last grew at block {}, flat for {flat} since", count(at))
            }
            _ => "did not grow in this run".into(),
        }
    }
}

/// The newest height with blobs that is final on every validator.
fn newest_final(blobs: &Ended) -> Option<Height> {
    let finalized = blobs.validators.iter().map(Figures::finalized).min()??;
    newest_with_blobs(finalized)
        .filter(|height| blobs.validators.iter().all(|one| one.has(*height)))
}

/// Reads the oldest kept block and the newest and recomputes everything that they promise.
fn check_ends(demo: &Demo, status: &PruneStatus) -> Result<Vec<VerifiedCounts>, anyhow::Error> {
    let mut ends: Vec<Height> = status.oldest_kept_block.into_iter().chain(status.head).collect();
    ends.dedup();
    ends.into_iter()
        .map(|height| {
            let block = demo.store.get_block(height)?;
            verify_block(&block, demo.spec.chain_id)
                .with_context(|| format!("block {height} does not hold together"))
        })
        .collect()
}
