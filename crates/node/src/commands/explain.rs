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

/// When a pruned transaction went, why, and where it is.
fn gone(sheet: &mut Sheet, cut: &CutTx) {
    let CutTx { first, last, report, locator } = cut;
    if first == last {
        sheet.row("block", count(*first));
    } else {
        sheet.row("block", format_args!("one of {} to {}", count(*first), count(*last)));
    }
    pruned_by(sheet, report.as_ref());
    if let Some(Locator { provider, key }) = locator {
        sheet.row("archived", format_args!("{provider}/{key}"));
    }
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
