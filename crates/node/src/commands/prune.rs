//! `prune`: cuts what is due now, tick after tick, and frees what was cut.

use secateur_core::{Plan, Report, StopReason};
use serde::Serialize;

use super::plan;
use crate::cli::PruneArgs;
use crate::data_dir::DataDir;
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

pub(crate) fn run(data: &DataDir, args: &PruneArgs, ui: Ui) -> Result<(), anyhow::Error> {
    let planned = data.store.prune_plan()?;
    if args.dry_run {
        return ui.answer(&planned, || plan::text(&planned));
    }
    refuse_if_held(&planned)?;
    if planned.totals.blocks > 0 {
        ui.note(&plan::text(&planned))?;
        let question = format!("Cut {} for good?", blocks(planned.totals.blocks));
        ui::confirm("prune", &question, args.yes)?;
    }
    let max_ops = if let Some(max_ops) = args.max_ops {
        max_ops
    } else {
        // What a tick of the daemon would be granted now, so that the plan's ticks are right.
        let pressure = data.store.get_prune_status()?.pressure;
        pressure.tick_ops(data.store.policy().max_ops_per_tick)
    };
    let pruned = cut(data, max_ops, &planned, ui)?;
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

fn cut(data: &DataDir, max_ops: u64, planned: &Plan, ui: Ui) -> Result<Pruned, anyhow::Error> {
    let mut progress = Progress::start(ui, "prune");
    let (mut cut, mut ticks) = (0, 0);
    let mut report = None;
    let stop = loop {
        let outcome = data.store.prune_now(max_ops)?;
        cut += outcome.totals.blocks;
        ticks += u64::from(outcome.totals.blocks > 0);
        progress.at(cut, planned.totals.blocks.max(cut));
        let more = outcome.more();
        report = outcome.report.or(report);
        if !more {
            break outcome.stop;
        }
    };
    progress.end();
    Ok(Pruned {
        report,
        blocks: cut,
        ticks,
        stop,
        settled: data.store.settle()?,
        used_bytes: data.store.get_prune_status()?.used_bytes,
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
