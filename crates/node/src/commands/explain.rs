//! `explain`: the story of a block, a transaction or a blob. "Pruned" and "not found" are answers, so the
//! exit code is 0 for them too.

use std::path::PathBuf;

use secateur_core::{
    CutTx, ExplainBlock, ExplainTx, Height, Locator, LookupError, Report, format_bytes,
};

use super::blob;
use crate::cli::ExplainVerb;
use crate::data_dir::DEFAULT_DATA;
use crate::desk;
use crate::ui::words::{blocks, count, exact, height, moment, plural};
use crate::ui::{Sheet, Ui};

pub(crate) fn run(named: Option<PathBuf>, verb: &ExplainVerb, ui: Ui) -> Result<(), anyhow::Error> {
    let open = |named| desk::open(named, DEFAULT_DATA);
    match verb {
        ExplainVerb::Block { height } => {
            let story = open(named)?.explain_block(*height)?;
            ui.answer(&story, || {
                let mut sheet = Sheet::default();
                block(&mut sheet, *height, &story);
                sheet.finish()
            })
        }
        ExplainVerb::Tx { hash } => {
            let story = open(named)?.explain_tx(*hash)?;
            ui.answer(&story, || transaction(&story))
        }
        ExplainVerb::Blob { height, index, config } => {
            blob::explain(named, config.as_deref(), *height, *index, ui)
        }
    }
}

fn block(sheet: &mut Sheet, number: Height, story: &ExplainBlock) {
    let subject = format!("block {}", count(number));
    match story {
        ExplainBlock::Kept { meta, tx_count, payload_bytes, region_bytes, held_by, due } => {
            let held = if held_by.is_empty() { "nobody".into() } else { held_by.join(", ") };
            let due = due.map_or_else(|| "no".into(), |cause| format!("yes, for {cause}"));
            sheet
                .line(format_args!("{subject} is here"))
                .row("hash", meta.hash)
                .row("parent", meta.parent_hash)
                .row("time", moment(meta.timestamp))
                .row("contains", plural(u64::from(*tx_count), "transaction"))
                .row("payload", exact(*payload_bytes))
                .row("regions", format_bytes(*region_bytes))
                .row("held by", held)
                .row("due", due);
        }
        ExplainBlock::Pruned { pruned_before_block, report, locator } => {
            sheet.line(format_args!("{subject} was here and was pruned")).row(
                "boundary",
                format_args!("{} (everything at or below it is gone)", count(*pruned_before_block)),
            );
            pruned_by(sheet, report.as_ref());
            if let Some(Locator { provider, key }) = locator {
                sheet.row("archived", format_args!("{provider}/{key}")).row(
                    "",
                    format_args!("`secateur archive fetch {number} --archive {provider}`"),
                );
            }
            sheet.row("first here", format_args!("block {}", count(pruned_before_block + 1)));
        }
        ExplainBlock::NotYet { head } => {
            sheet.line(format_args!("{subject} has not arrived yet")).row("head", height(*head));
        }
        ExplainBlock::BeforeFirst { first } => {
            sheet
                .line(format_args!("{subject} was never in this store"))
                .row("first", format_args!("the store began with block {}", count(*first)));
        }
    }
}

fn pruned_by(sheet: &mut Sheet, report: Option<&Report>) {
    let Some(report) = report else {
        sheet.row("report", "no longer in the log, which is bounded");
        return;
    };
    let (first, last) = (count(report.first), count(report.last));
    sheet
        .row("when", moment(report.at))
        .row("why", format_args!("{}", report.cause))
        .row("by", &report.by)
        .row(
            "report",
            format_args!("#{}, {} ({first} to {last})", report.seq, blocks(report.blocks)),
        );
}

/// When a pruned transaction was cut, why, and where it is.
fn gone(sheet: &mut Sheet, cut: &CutTx) {
    let CutTx { first, last, reports, locators } = cut;
    if first == last {
        sheet.row("block", count(*first));
    } else {
        sheet.row("block", format_args!("one of {} to {}", count(*first), count(*last)));
    }
    match (reports.as_slice(), cut.misses_reports()) {
        ([], _) => pruned_by(sheet, None),
        ([report], false) => pruned_by(sheet, Some(report)),
        ([first, ..], lost) => {
            let last = reports.last().unwrap_or(first);
            pruned_by_one_of(sheet, first, last, lost);
        }
    }
    for (nth, Locator { provider, key }) in (0..).zip(locators) {
        let name = if nth == 0 { "archived" } else { "or" };
        sheet.row(name, format_args!("{provider}/{key}"));
    }
}

/// Which prune it was is not known exactly: the earliest and the latest that may have been, and whether
/// even earlier ones are no longer in the log.
fn pruned_by_one_of(sheet: &mut Sheet, first: &Report, last: &Report, lost: bool) {
    let either = |one: String, other: String| {
        if one == other { one } else { format!("{one} or {other}") }
    };
    let span = match (lost, first.seq == last.seq) {
        (true, _) => format!("at {} or before", moment(last.at)),
        (false, true) => moment(last.at),
        (false, false) => format!("between {} and {}", moment(first.at), moment(last.at)),
    };
    let mut which = if first.seq == last.seq {
        format!("prune #{}", last.seq)
    } else {
        format!("one of prunes #{} to #{}", first.seq, last.seq)
    };
    if lost {
        which.push_str(", or an earlier one that is no longer in the log");
    }
    sheet
        .row("when", span)
        .row("why", either(first.cause.to_string(), last.cause.to_string()))
        .row("by", either(first.by.clone(), last.by.clone()))
        .row("report", which);
}

fn transaction(story: &ExplainTx) -> String {
    let mut sheet = Sheet::default();
    match story {
        ExplainTx::Kept { tx_id, height, index, block: in_block } => {
            sheet
                .line(format_args!("transaction {tx_id}"))
                .line(format_args!("is here, at place {index} of block {}", count(*height)))
                .gap();
            block(&mut sheet, *height, in_block);
        }
        ExplainTx::Absent { tx_id, answer, cut } => {
            sheet.line(format_args!("transaction {tx_id}"));
            match answer {
                LookupError::Pruned { pruned_before_block } => sheet.line(format_args!(
                    "was pruned: everything at or below block {} is gone",
                    count(*pruned_before_block)
                )),
                LookupError::Pending => sheet.line("is queued and in no block yet"),
                LookupError::NotFound { searched_from: Some(0) } => sheet.line("is in no block"),
                LookupError::NotFound { searched_from: Some(from) } => sheet.line(format_args!(
                    "is in no block from {} on; what was below is not known here",
                    count(*from)
                )),
                LookupError::NotFound { searched_from: None } => {
                    sheet.line("is not here: the store has no block")
                }
            };
            if let Some(cut) = cut {
                gone(&mut sheet, cut);
            }
        }
    }
    sheet.finish()
}

#[cfg(test)]
mod tests {
    use secateur_core::{Cause, StopReason};

    use super::*;

    fn report(seq: u64, first: Height, last: Height, cause: Cause) -> Report {
        Report {
            seq,
            at: 1_800_000_000 + 60 * seq,
            by: "daemon".into(),
            cause,
            first,
            last,
            blocks: last + 1 - first,
            transactions: 0,
            ops: 0,
            ticks: 1,
            overruns: 0,
            used_before: 0,
            used_after: 0,
            by_class: Vec::new(),
            millis: 1,
            stop: StopReason::Done,
        }
    }

    fn shown(first: Height, last: Height, reports: Vec<Report>, keys: &[&str]) -> String {
        let locator = |key: &&str| Locator { provider: "fs".into(), key: (*key).into() };
        let locators = keys.iter().map(locator).collect();
        let mut sheet = Sheet::default();
        gone(&mut sheet, &CutTx { first, last, reports, locators });
        sheet.finish()
    }

    /// The story said that the report was no longer in the log, which it was: only no single one of
    /// them had cut all the blocks at which the transaction may have been.
    #[test]
    fn a_transaction_that_one_of_several_prunes_cut_names_the_first_and_the_last() {
        let reports = vec![report(3, 1, 50, Cause::Retention), report(9, 90, 140, Cause::Capacity)];
        let text = shown(10, 120, reports.clone(), &["a", "b"]);
        for wanted in [
            "one of 10 to 120",
            "between 2027-01-15 08:03:00 UTC and 2027-01-15 08:09:00 UTC",
            "retention or capacity",
            "one of prunes #3 to #9",
            "fs/a",
            "fs/b",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        assert!(!text.contains("no longer in the log"), "{text}");
        let lost = shown(0, 120, reports, &[]);
        assert!(lost.contains("#9, or an earlier one that is no longer in the log"), "{lost}");
        let exact = shown(10, 10, vec![report(3, 1, 50, Cause::Retention)], &[]);
        assert!(exact.contains("#3, 50 blocks (1 to 50)"), "{exact}");
        assert!(shown(10, 10, Vec::new(), &[]).contains("no longer in the log, which is bounded"));
    }
}
