//! `archive verify`: the proof, from the archive alone, that nothing is damaged or missing.

use secateur_archive::{Depth, Finding, Leftovers, Progress as At, VerifyOptions, VerifyReport};
use secateur_core::{Height, format_bytes};
use serde_json::{Value, json};

use super::Opened;
use crate::error::NodeError;
use crate::ui::words::{blocks, count, height, plural};
use crate::ui::{Progress, Sheet, Ui};

pub(super) async fn run(
    opened: &Opened,
    full: bool,
    quick: bool,
    upto: Option<Height>,
    ui: Ui,
) -> Result<(), anyhow::Error> {
    let depth = match (full, quick) {
        (true, _) => Depth::Full,
        (_, true) => Depth::Quick,
        _ => Depth::Hashes,
    };
    let mut progress = Progress::start(ui, "verify");
    let mut first = None;
    // How far there is to go is known from the names; nobody asks where no bar is shown.
    let ends = if ui.json { None } else { opened.archive.ends(opened.chain_id).await? };
    let last = ends.map(|(_, last)| last);
    let at = |at: &At| {
        let Some(reached) = at.height else { return };
        let first = *first.get_or_insert(reached.saturating_sub(at.blocks.saturating_sub(1)));
        let all = last.unwrap_or(reached).max(reached).saturating_sub(first).saturating_add(1);
        progress.at(at.blocks, all);
    };
    let report = opened.archive.verify(opened.chain_id, VerifyOptions { depth, upto }, at).await;
    progress.end();
    let report = report?;
    ui.answer(&value(&report), || text(&report))?;
    if report.is_clean() && report.first.is_none() && report.unlisted.is_none() {
        let (chain, place) = (opened.chain_id, opened.archive.provider());
        return Err(
            NodeError::Archive(format!("there is no part of chain {chain} in {place}")).into()
        );
    }
    if report.is_clean() {
        return Ok(());
    }
    let hint = if full { "" } else { "; `--full` looks at every block too" };
    Err(NodeError::ArchiveDamaged { found: report.found, hint }.into())
}

fn told(finding: &Finding) -> (&'static str, String) {
    match finding {
        Finding::Damaged { key, reason } => ("damaged", format!("{key}: {reason}")),
        Finding::Foreign { key } => ("foreign", key.clone()),
        Finding::NoObject { key } => ("missing", format!("{key}: its manifest is there alone")),
        Finding::NoManifest { key } => ("unlisted", format!("{key}: it has no manifest")),
        Finding::Gap { range } => {
            ("gap", format!("{} to {}", count(*range.start()), count(*range.end())))
        }
        Finding::Overlap { key, range } => {
            let (first, last) = (count(*range.start()), count(*range.end()));
            ("overlap", format!("{key}: {first} to {last} are in another part too"))
        }
        Finding::BrokenLink { key, reason } => ("link", format!("{key}: {reason}")),
        _ => ("other", "something that this version has no words for".into()),
    }
}

fn value(report: &VerifyReport) -> Value {
    let findings: Vec<Value> = report
        .findings
        .iter()
        .map(|finding| {
            let (kind, detail) = told(finding);
            json!({ "kind": kind, "detail": detail })
        })
        .collect();
    json!({
        "clean": report.is_clean(),
        "first": report.first,
        "last": report.last,
        "parts": report.progress.parts,
        "blocks": report.progress.blocks,
        "bytes": report.progress.bytes,
        "found": report.found,
        "findings": findings,
        "unlisted": report.unlisted,
        "leftover_files": report.leftovers.files,
        "leftover_bytes": report.leftovers.bytes,
        "superseded": report.superseded.files,
        "superseded_bytes": report.superseded.bytes,
        "other_chains": report.other_chains,
    })
}

fn text(report: &VerifyReport) -> String {
    let mut sheet = Sheet::default();
    let at = &report.progress;
    let (parts, bytes) = (plural(at.parts, "part"), format_bytes(at.bytes));
    sheet
        .row("read", format_args!("{parts}, {}, {bytes}", blocks(at.blocks)))
        .row("reaches", format_args!("{} to {}", height(report.first), height(report.last)));
    for finding in &report.findings {
        let (kind, detail) = told(finding);
        sheet.row(kind, detail);
    }
    let listed = report.findings.len() as u64;
    if report.found > listed {
        sheet.row("found", format_args!("{} more", count(report.found - listed)));
    }
    if let Some(key) = &report.unlisted {
        sheet.row("unlisted", format_args!("{key}: an archiver is, or was, about to list it"));
    }
    if let Leftovers { files, bytes, first: Some(first) } = &report.leftovers {
        let files = plural(*files, "file");
        sheet.row(
            "leftover",
            format_args!(
                "{files} of {} from writes that were cut off, such as {first}: no part of the \
                 archive; an archiver removes them, and so may you while none runs",
                format_bytes(*bytes)
            ),
        );
    }
    if let Leftovers { files, bytes, first: Some(first) } = &report.superseded {
        let objects = plural(*files, "object");
        sheet.row(
            "superseded",
            format_args!(
                "{objects} of {} that nobody listed, such as {first}: other parts have the blocks; \
                 nobody reads it, and it may be removed",
                format_bytes(*bytes)
            ),
        );
    }
    if report.is_clean() {
        sheet.row("found", "nothing wrong");
    }
    let others = report.other_chains.len() as u64;
    if others > 0 {
        let others = plural(others, "other chain");
        sheet.row("not read", format_args!("{others}: name one with --chain-id"));
    }
    sheet.finish()
}
