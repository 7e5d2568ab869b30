//! `prune`: cuts what is due now, tick after tick, and frees what was cut.

use secateur_core::{Plan, Report, StopReason};
use serde::Serialize;

use super::plan;
use crate::cli::PruneArgs;
use crate::desk::Desk;
use crate::error::NodeError;
use crate::ui::words::{blocks, plural, report as report_line};
use crate::ui::{self, Progress, Sheet, Ui};

/// What a prune did.
#[derive(Debug, Serialize)]
struct Pruned {
    /// The report of the last tick; it covers the ticks before that it went on from.
    report: Option<Report>,
    /// Blocks cut.
    blocks: u64,
    /// Ticks that cut something.
    ticks: u64,
    /// Why it stopped.
    stop: StopReason,
    /// Whether everything that was cut is free for reuse.
    settled: bool,
    /// Used bytes now.
    used_bytes: u64,
}

pub(crate) fn run(desk: &Desk, args: &PruneArgs, ui: Ui) -> Result<(), anyhow::Error> {
    let planned = desk.plan()?;
    if args.dry_run {
        return ui.answer(&planned, || plan::text(&planned));
    }
    refuse_if_held(&planned)?;
    if planned.totals.blocks > 0 {
        ui.note(&plan::text(&planned))?;
        let question = format!("Cut {} for good?", blocks(planned.totals.blocks));
        ui::confirm("prune", &question, args.yes)?;
    }
    let pruned = cut(desk, args.max_ops, &planned, ui)?;
    ui.answer(&pruned, || text(&pruned))
}

/// A prune that is due but may not cut even its first block is not a success.
fn refuse_if_held(planned: &Plan) -> Result<(), NodeError> {
    match &planned.stop {
        stop @ StopReason::Hold { .. } if planned.totals.blocks == 0 => {
            let advice = "`secateur holds` lists every hold and what it waits for";
            Err(NodeError::Refused(format!("a prune is due, but {stop} ({advice})")))
        }
        _ => Ok(()),
    }
}

fn cut(desk: &Desk, max_ops: Option<u64>, planned: &Plan, ui: Ui) -> Result<Pruned, anyhow::Error> {
    let mut progress = Progress::start(ui, "prune");
    let (mut cut, mut ticks) = (0, 0);
    let mut report = None;
    // What was agreed to is a limit, whatever came meanwhile.
    let mut stop = planned.stop.clone();
    while let Some(last) = planned.totals.last {
        let tick = desk.prune(last, max_ops)?;
        cut += tick.blocks;
        ticks += u64::from(tick.blocks > 0);
        progress.at(cut, planned.totals.blocks.max(cut));
        report = tick.report.or(report);
        stop = tick.stop;
        if !tick.more {
            break;
        }
    }
    progress.end();
    Ok(Pruned {
        report,
        blocks: cut,
        ticks,
        stop,
        settled: desk.settle()?,
        used_bytes: desk.status()?.used_bytes,
    })
}

fn text(pruned: &Pruned) -> String {
    let mut sheet = Sheet::default();
    match &pruned.report {
        Some(report) => {
            let (cut, ticks) = (blocks(pruned.blocks), plural(pruned.ticks, "tick"));
            sheet
                .row("done", format_args!("{cut} cut in {ticks}"))
                .row("report", report_line(report));
        }
        None => {
            sheet.row("done", "nothing was cut");
        }
    }
    sheet.row("stopped", format_args!("because {}", pruned.stop));
    if !pruned.settled {
        sheet.row("waiting", "some regions wait for a reader before they are free");
    }
    sheet.finish()
}
