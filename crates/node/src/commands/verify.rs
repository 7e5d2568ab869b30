//! `verify`: recomputes the invariants of the history and of the blobs; `--repair` puts back what can
//! be derived of the history, after saying what it will do.

use secateur_core::format_bytes;
use secateur_store::{Finding, Repair, VerifyReport};
use serde::Serialize;

use crate::cli::VerifyArgs;
use crate::desk::{BlobsReport, Verified, Whole};
use crate::error::NodeError;
use crate::ui::words::{blocks, plural};
use crate::ui::{self, Progress, Sheet, Ui};

/// What a verification, and the repair after it, came to.
#[derive(Debug, Serialize)]
struct Answer {
    /// The history as it is now: after the repair, if one was done. None if there is none.
    #[serde(flatten)]
    report: Option<VerifyReport>,
    /// The blobs, if there are any.
    sidecars: Option<BlobsReport>,
    /// Whether nothing is wrong with either.
    clean: bool,
    /// What a repair does, or would do.
    repairs: Vec<Repair>,
    /// Whether it was done.
    repaired: bool,
}

impl Answer {
    fn of(verified: Verified) -> Self {
        let Verified { history: report, sidecars } = verified;
        let right = sidecars.as_ref().is_none_or(|blobs| blobs.findings.is_empty());
        let clean = right && report.as_ref().is_none_or(VerifyReport::is_clean);
        Self { report, sidecars, clean, repairs: Vec::new(), repaired: false }
    }

    fn findings(&self) -> impl Iterator<Item = &Finding> {
        let blobs = self.sidecars.iter().flat_map(|blobs| &blobs.findings);
        self.report.iter().flat_map(|report| &report.findings).chain(blobs)
    }

    fn unlisted(&self) -> u64 {
        let history = self.report.as_ref().map_or(0, |report| report.unlisted);
        history + self.sidecars.as_ref().map_or(0, |blobs| blobs.unlisted)
    }
}

pub(crate) fn run(whole: &Whole, args: &VerifyArgs, ui: Ui) -> Result<(), anyhow::Error> {
    let mut answer = check(whole, ui)?;
    // Nothing of blobs is repaired.
    if let (Whole::Desk(desk), true) = (whole, args.repair && !answer.clean) {
        let data = desk.alone("repair")?;
        answer.repairs = data.store.repair_plan()?;
        if !args.dry_run && !answer.repairs.is_empty() {
            ui.note(&text(&answer))?;
            let steps = plural(answer.repairs.len() as u64, "repair");
            ui::confirm("repair", &format!("Make {steps} in one batch?"), args.yes)?;
            let repairs = data.store.repair()?;
            answer = Answer { repairs, repaired: true, ..check(whole, ui)? };
        }
    }
    ui.answer(&answer, || text(&answer))?;
    verdict(&answer, args).map_err(Into::into)
}

fn check(whole: &Whole, ui: Ui) -> Result<Answer, anyhow::Error> {
    let mut progress = Progress::start(ui, "verify");
    let verified = whole.verify(|done, total| progress.at(done, total));
    progress.end();
    verified.map(Answer::of)
}

fn verdict(answer: &Answer, args: &VerifyArgs) -> Result<(), NodeError> {
    if answer.clean {
        return Ok(());
    }
    let repairable = answer.findings().filter(|f| f.repairable).count() as u64;
    let hint = match (repairable, args.repair && !args.dry_run) {
        (0, _) => "; nothing can be derived for them: restore the data from a backup or its source",
        (_, false) => "; nothing was changed. `secateur verify --repair` puts those back",
        (_, true) => "; run `secateur verify --repair` again",
    };
    let found = answer.findings().count() as u64 + answer.unlisted();
    Err(NodeError::Damaged { found, repairable, hint })
}

fn text(answer: &Answer) -> String {
    let mut sheet = Sheet::default();
    if let Some(report) = &answer.report {
        sheet.row(
            "read",
            format_args!(
                "{}, {} of payload, {}",
                blocks(report.blocks),
                format_bytes(report.payload_bytes),
                plural(report.regions, "region")
            ),
        );
    }
    if let Some(blobs) = &answer.sidecars {
        let label = if answer.report.is_some() { "" } else { "read" };
        let (number, bytes) = (plural(blobs.blobs, "blob"), format_bytes(blobs.bytes));
        sheet.row(label, format_args!("{number}, {bytes}, {}", plural(blobs.regions, "region")));
    }
    if answer.clean {
        sheet.row("found", "nothing wrong");
    }
    for finding in answer.findings() {
        let repairable = if finding.repairable { ", repairable" } else { "" };
        sheet.row(
            "found",
            format_args!("{} (invariant {}{repairable})", finding.detail, finding.invariant),
        );
    }
    if answer.unlisted() > 0 {
        sheet.row("found", format_args!("{} more", answer.unlisted()));
    }
    let verb = if answer.repaired { "did" } else { "would" };
    for repair in &answer.repairs {
        sheet.row(verb, &repair.detail);
    }
    sheet.finish()
}
