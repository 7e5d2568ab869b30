//! `blob status`: where the blobs of a height are in their lives, or the figures of all of them.

use secateur_core::{Height, format_bytes};
use serde_json::Value;

use super::view::{Blob, Figures, HeightView, hold, no_signer};
use super::{BlobDesk, read};
use crate::ui::words::{count, height as shown, moment, plural};
use crate::ui::{Sheet, Ui};

pub(super) fn run(desk: &BlobDesk, height: Option<Height>, ui: Ui) -> Result<(), anyhow::Error> {
    if let Some(height) = height {
        let value = desk.height(height)?;
        let view: HeightView = read(&value)?;
        return ui.answer(&value, || one(&view));
    }
    let value = desk.figures()?;
    let text = figures(&value)?;
    ui.answer(&value, || text)
}

/// The figures of all blobs, for people.
pub(crate) fn figures(value: &Value) -> Result<String, anyhow::Error> {
    read(value).map(|view: Figures| all(&view))
}

fn one(view: &HeightView) -> String {
    let mut sheet = Sheet::default();
    let HeightView { height, round, proposer, undecided, blobs, .. } = view;
    let number = count(*height);
    if let (Some(round), Some(proposer)) = (round, proposer) {
        let blobs = plural(blobs.len() as u64, "blob");
        sheet
            .line(format_args!("height {number} was decided in round {round} with {blobs}"))
            .row("proposer", proposer);
    } else {
        let rounds = plural(undecided.len() as u64, "stored round");
        sheet.line(format_args!("height {number} is not decided; it has {rounds}"));
    }
    for blob in blobs {
        sheet
            .row(&format!("blob {}", blob.index), state(blob))
            .row("", format_args!("versioned hash {}", blob.versioned_hash));
        for record in &blob.records {
            for locator in &record.locators {
                sheet.row("", format_args!("copy {}/{}", locator.provider, locator.key));
            }
        }
    }
    if let (Some(proposer), true) = (proposer, view.no_signer) {
        sheet.row("signers", no_signer(proposer));
    }
    if let Some(pruned) = &view.pruned {
        let (at, finalized) = (moment(pruned.at), count(pruned.finalized));
        sheet.row("pruned", format_args!("{at}, once height {finalized} was final"));
    }
    if let Some(why) = &view.hold {
        sheet.row("held", hold(why));
    } else if view.pruned.is_none() && !blobs.is_empty() {
        sheet.row("held", "by nothing: the next prune takes it");
    }
    sheet.finish()
}

fn state(blob: &Blob) -> String {
    let Blob { state, records, job, .. } = blob;
    let signers: Vec<&str> = records.iter().map(|record| record.signer.as_str()).collect();
    let signed = match signers.as_slice() {
        [] => String::new(),
        signers => format!(", signed for by {}", signers.join(" and ")),
    };
    let queued = job
        .as_ref()
        .map_or_else(String::new, |job| format!("; this node archives it, {}", job.words()));
    format!("{state}{signed}{queued}")
}

fn all(view: &Figures) -> String {
    let mut sheet = Sheet::default();
    let stored = view.pending + view.archived + view.pruned;
    sheet
        .row(
            "stored",
            format_args!(
                "{} of {}",
                plural(stored, "blob"),
                plural(view.heights, "decided height")
            ),
        )
        .row("pending", format_args!("{} wait for a notice", count(view.pending)))
        .row("archived", format_args!("{} are archived and here", count(view.archived)))
        .row(
            "pruned",
            format_args!(
                "{} are archived and gone from here, {} were gone before",
                count(view.pruned),
                count(view.prune_failures)
            ),
        )
        .row("undecided", plural(view.rounds, "round"))
        .row("decided", format_args!("up to {}", shown(view.latest_decided)))
        .row("final", format_args!("up to {}", shown(view.finalized)))
        .row(
            "archived",
            format_args!(
                "newest height {}, oldest that lacks a notice {}",
                shown(view.latest_archived),
                shown(view.oldest_unarchived)
            ),
        )
        .row(
            "queue",
            format_args!(
                "{} to archive, {} not acknowledged by every peer",
                plural(view.jobs, "blob"),
                plural(view.announcements, "own notice")
            ),
        );
    if let Some(backlog) = view.pruner_backlog {
        sheet.row("to prune", format_args!("from height {}", count(backlog)));
    }
    let used = format_bytes(view.used_bytes);
    let disk = format_bytes(view.disk_bytes);
    if view.budget_bytes > 0 {
        let budget = format_bytes(view.budget_bytes);
        sheet.row("used", format_args!("{used} of {budget}, {disk} on disk"));
        if view.used_bytes > view.budget_bytes {
            sheet.row("ALARM", "blobs take more than their budget; nothing is cut for it");
        }
    } else {
        sheet.row("used", format_args!("{used}, {disk} on disk"));
    }
    sheet.finish()
}
