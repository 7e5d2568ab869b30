//! `blob plan` and `blob prune`: what may go, what holds what, and letting it go.

use secateur_core::{Height, format_bytes};
use serde::Serialize;

use super::view::{PlanView, hold};
use super::{BlobDesk, read};
use crate::ui::words::{count, plural};
use crate::ui::{self, Progress, Sheet, Ui};

/// What a prune did.
#[derive(Debug, Default, Serialize)]
struct Done {
    heights: u64,
    blobs: u64,
    bytes: u64,
    /// Blobs whose bytes were gone already.
    failures: u64,
    first: Option<Height>,
    last: Option<Height>,
    /// The lowest height that had to stay, and why.
    held: Option<(Height, String)>,
    /// The highest height that finality and `retain_blocks` let go.
    limit: Option<Height>,
}

pub(super) fn plan(desk: &BlobDesk, ui: Ui) -> Result<(), anyhow::Error> {
    let value = desk.plan()?;
    let view: PlanView = read(&value)?;
    ui.answer(&value, || text(&view, desk))
}

pub(super) fn run(
    desk: &BlobDesk,
    before: Option<Height>,
    dry_run: bool,
    yes: bool,
    ui: Ui,
) -> Result<(), anyhow::Error> {
    let value = desk.plan()?;
    let planned: PlanView = read(&value)?;
    if dry_run {
        return ui.answer(&value, || text(&planned, desk));
    }
    if planned.blobs > 0 {
        ui.note(&text(&planned, desk))?;
        let question = format!("Prune {} for good?", plural(planned.blobs, "archived blob"));
        ui::confirm("blob prune", &question, yes)?;
    }
    let mut progress = Progress::start(ui, "prune");
    let mut done = Done::default();
    loop {
        let step = desk.prune(before)?;
        done.heights += step.heights;
        done.blobs += step.blobs;
        done.bytes += step.bytes;
        done.failures += step.failures;
        done.first = done.first.or(step.first);
        done.last = step.last.or(done.last);
        done.held = done.held.or(step.held);
        progress.at(done.heights, planned.heights.max(done.heights));
        if !step.more {
            break;
        }
    }
    progress.end();
    // A prune looks only at heights that have all of their notices; the plan names the others too.
    let planned_hold = planned.held.filter(|(height, _)| before.is_none_or(|most| *height < most));
    done.held = match (done.held, planned_hold) {
        (Some(one), Some(other)) => Some(if other.0 < one.0 { other } else { one }),
        (one, other) => one.or(other),
    };
    done.limit = planned.limit;
    ui.answer(&done, || told(&done, desk))
}

/// The plan for people.
fn text(plan: &PlanView, desk: &BlobDesk) -> String {
    let mut sheet = Sheet::default();
    match (plan.first, plan.last) {
        (Some(first), Some(last)) => {
            let more = if plan.more { ", and maybe more" } else { "" };
            sheet
                .row(
                    "would cut",
                    format_args!(
                        "{} of {}, {} to {}{more}",
                        plural(plan.blobs, "blob"),
                        plural(plan.heights, "height"),
                        count(first),
                        count(last)
                    ),
                )
                .row("releases", format_bytes(plan.bytes));
        }
        _ => {
            sheet.row("would cut", "nothing");
        }
    }
    stays(&mut sheet, plan.limit, plan.held.as_ref(), desk);
    sheet.finish()
}

/// How far a prune goes, and what stays below that.
fn stays(
    sheet: &mut Sheet,
    limit: Option<Height>,
    held: Option<&(Height, String)>,
    desk: &BlobDesk,
) {
    match limit {
        Some(limit) => sheet.row("up to", format_args!("height {}", count(limit))),
        None => sheet.row("up to", "nothing is final and old enough"),
    };
    if let Some((height, why)) = held {
        let status = desk.command(&format!("blob status {height}"));
        sheet
            .row("held", format_args!("height {}: {}", count(*height), hold(why)))
            .row("", format_args!("`{status}` tells more"));
    }
}

fn told(done: &Done, desk: &BlobDesk) -> String {
    let mut sheet = Sheet::default();
    match (done.first, done.last) {
        (Some(first), Some(last)) => {
            sheet.row(
                "done",
                format_args!(
                    "{} of {} pruned, {} to {}, {}",
                    plural(done.blobs, "blob"),
                    plural(done.heights, "height"),
                    count(first),
                    count(last),
                    format_bytes(done.bytes)
                ),
            );
        }
        _ => {
            sheet.row("done", "nothing was pruned");
        }
    }
    if done.failures > 0 {
        sheet.row("missing", format_args!("{} were gone already", plural(done.failures, "blob")));
    }
    stays(&mut sheet, done.limit, done.held.as_ref(), desk);
    sheet.finish()
}
