//! `verify`: recomputes the invariants; `--repair` puts back what can be derived, after saying
//! what it will do.

use secateur_core::format_bytes;
use secateur_store::{Repair, VerifyReport};
use serde::Serialize;

use crate::cli::VerifyArgs;
use crate::desk::Desk;
use crate::error::NodeError;
use crate::ui::words::{blocks, plural};
use crate::ui::{self, Progress, Sheet, Ui};

/// What a verification, and the repair after it, came to.
#[derive(Debug, Serialize)]
struct Answer {
    /// The store as it is now: after the repair, if one was done.
    #[serde(flatten)]
    report: VerifyReport,
    clean: bool,
    /// What a repair does, or would do.
    repairs: Vec<Repair>,
    /// Whether it was done.
    repaired: bool,
}

pub(crate) fn run(desk: &Desk, args: &VerifyArgs, ui: Ui) -> Result<(), anyhow::Error> {
    let report = check(desk, ui)?;
    let mut answer =
        Answer { clean: report.is_clean(), report, repairs: Vec::new(), repaired: false };
    if args.repair && !answer.clean {
        let data = desk.alone("repair")?;
        answer.repairs = data.store.repair_plan()?;
        if !args.dry_run && !answer.repairs.is_empty() {
            ui.note(&text(&answer))?;
            let steps = plural(answer.repairs.len() as u64, "repair");
            ui::confirm("repair", &format!("Make {steps} in one batch?"), args.yes)?;
            answer.repairs = data.store.repair()?;
            answer.report = check(desk, ui)?;
            answer.clean = answer.report.is_clean();
            answer.repaired = true;
        }
    }
    ui.answer(&answer, || text(&answer))?;
    verdict(&answer, args).map_err(Into::into)
}

fn check(desk: &Desk, ui: Ui) -> Result<VerifyReport, anyhow::Error> {
    let mut progress = Progress::start(ui, "verify");
    let report = desk.verify(|done, total| progress.at(done, total));
    progress.end();
    report
}

fn verdict(answer: &Answer, args: &VerifyArgs) -> Result<(), NodeError> {
    if answer.clean {
        return Ok(());
    }
    let repairable = answer.report.findings.iter().filter(|f| f.repairable);
    let repairable = repairable.count() as u64;
    let hint = match (repairable, args.repair && !args.dry_run) {
        (0, _) => "; nothing can be derived for them: restore the data from a backup or its source",
        (_, false) => "; nothing was changed. `secateur verify --repair` puts those back",
        (_, true) => "; run `secateur verify --repair` again",
    };
    Err(NodeError::Damaged {
        found: answer.report.findings.len() as u64 + answer.report.unlisted,
        repairable,
        hint,
    })
}

fn text(answer: &Answer) -> String {
    let mut sheet = Sheet::default();
    let report = &answer.report;
    sheet.row(
        "read",
        format_args!(
            "{}, {} of payload, {}",
            blocks(report.blocks),
            format_bytes(report.payload_bytes),
            plural(report.regions, "region")
        ),
    );
    if answer.clean {
        sheet.row("found", "nothing wrong");
    }
    for finding in &report.findings {
        let repairable = if finding.repairable { ", repairable" } else { "" };
        sheet.row(
            "found",
            format_args!("{} (invariant {}{repairable})", finding.detail, finding.invariant),
        );
    }
    if report.unlisted > 0 {
        sheet.row("found", format_args!("{} more", report.unlisted));
    }
    let verb = if answer.repaired { "did" } else { "would" };
    for repair in &answer.repairs {
        sheet.row(verb, &repair.detail);
    }
    sheet.finish()
}
