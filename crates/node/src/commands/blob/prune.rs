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
}

pub(super) fn plan(desk: &BlobDesk, ui: Ui) -> Result<(), anyhow::Error> {
    let value = desk.plan()?;
    let view: PlanView = read(&value)?;
    ui.answer(&value, || text(&view))
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
        return ui.answer(&value, || text(&planned));
    }
    if planned.blobs > 0 {
        ui.note(&text(&planned))?;
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
    ui.answer(&done, || told(&done))
}

/// The plan for people.
fn text(plan: &PlanView) -> String {
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
    match plan.limit {
        Some(limit) => sheet.row("up to", format_args!("height {}", count(limit))),
        None => sheet.row("up to", "nothing is final and old enough"),
    };
    held(&mut sheet, plan.held.as_ref());
    sheet.finish()
}

fn held(sheet: &mut Sheet, held: Option<&(Height, String)>) {
    if let Some((height, why)) = held {
        sheet
            .row("held", format_args!("height {}: {}", count(*height), hold(why)))
            .row("", format_args!("`secateur blob status {height}` tells more"));
    }
}

fn told(done: &Done) -> String {
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
    held(&mut sheet, done.held.as_ref());
    sheet.finish()
}
