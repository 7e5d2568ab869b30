//! `utxo explain`: a transaction's whole story, in sentences.

use secateur_proto::utxo::v1 as pb;

use crate::ui::Sheet;
use crate::ui::words::{count, plural};

/// Inputs, outputs and holders that are told; the others are counted.
const TOLD: usize = 20;

pub(super) fn text(story: &pb::ExplainResponse) -> String {
    let mut sheet = Sheet::default();
    sheet.line(format_args!("transaction {}", story.txid));
    match &story.record {
        None => {
            sheet.line("is not here.");
        }
        Some(record) => whole(&mut sheet, record),
    }
    for sentence in &story.verdict {
        sheet.line(sentence);
    }
    sheet.finish()
}

fn whole(sheet: &mut Sheet, record: &pb::Record) {
    sheet.line(kind(record));
    inputs(sheet, record);
    outputs(sheet, record);
    if let Some(since) = record.unmined_since {
        // A loser waits for nothing.
        let verb = if record.conflicting { "is in no block" } else { "waits for a block" };
        sheet.line(format_args!("It {verb} since height {}.", count(since)));
    }
    for block in &record.blocks {
        sheet.line(format_args!(
            "Block {} holds it, at height {}.",
            block.hash,
            count(block.height)
        ));
    }
    match (&record.file, record.file_is_there) {
        (None, _) if record.body_bytes == 0 => sheet.line("Its bytes were not given."),
        (None, _) => {
            sheet.line(format_args!("Its {} are in the record.", plural(record.body_bytes, "byte")))
        }
        (Some(file), Some(true)) => {
            sheet.line(format_args!("Its bytes are the external file {file}, which is there."))
        }
        (Some(file), Some(false)) => sheet.line(format_args!(
            "Its bytes are the external file {file}, which is NOT there: check utxo.files."
        )),
        (Some(file), None) => sheet.line(format_args!(
            "Its bytes are the external file {file}; nobody could look whether it is there."
        )),
    };
    for holder in record.held_by.iter().take(TOLD) {
        sheet.line(format_args!("It is held by {holder}, which is unmined and spends it."));
    }
    more(sheet, record.held_by.len(), 0, "holder");
}

fn kind(record: &pb::Record) -> &'static str {
    match (record.coinbase, record.conflicting, record.spending) {
        (true, ..) => "is here: a coinbase, which spends nothing.",
        (_, true, _) => "is here: it lost a double spend, and spends nothing.",
        (_, _, true) => "is here.",
        (_, _, false) => "is here, and has let its inputs go.",
    }
}

fn inputs(sheet: &mut Sheet, record: &pb::Record) {
    let verb = if record.spending { "spends" } else { "would spend" };
    for (n, input) in record.inputs.iter().take(TOLD).enumerate() {
        sheet.line(format_args!("Input {n} {verb} output {} of {}.", input.n, input.txid));
    }
    more(sheet, record.inputs.len(), record.more_inputs, "input");
}

fn outputs(sheet: &mut Sheet, record: &pb::Record) {
    for output in record.outputs.iter().take(TOLD) {
        let n = output.n;
        match (output.state.as_str(), &output.by, output.input) {
            ("pruned", Some(by), Some(input)) => sheet.line(format_args!(
                "Output {n} is spent by input {input} of {by}, whose record is pruned."
            )),
            (_, Some(by), Some(input)) => {
                sheet.line(format_args!("Output {n} is spent by input {input} of {by}."))
            }
            _ => sheet.line(format_args!("Output {n} is unspent.")),
        };
    }
    more(sheet, record.outputs.len(), record.more_outputs, "output");
}

fn more(sheet: &mut Sheet, listed: usize, beyond: u64, what: &str) {
    let untold = listed.saturating_sub(TOLD) as u64 + beyond;
    if untold > 0 {
        sheet.line(format_args!("And {} more.", plural(untold, what)));
    }
}
