//! `status`: the state of the history in one page; of the blobs, where there is no history.

use secateur_core::{IdUse, PruneStatus, format_bytes};

use super::blob;
use crate::data_dir::Claimed;
use crate::desk::{BlobDesk, Whole};
use crate::ui::words::{
    allows, blocks, count, exact, height, moment, plural, report, span, strength,
};
use crate::ui::{Sheet, Ui, gauge};

const BAR_WIDTH: usize = 56;

pub(crate) fn run(whole: Whole, ui: Ui) -> Result<(), anyhow::Error> {
    let desk = match whole {
        Whole::Desk(desk) => desk,
        Whole::Blobs(claimed) => return blobs(claimed, ui),
    };
    let status = desk.status()?;
    let chain = desk.chain_id()?;
    ui.answer(&status, || {
        let mut sheet = Sheet::default();
        sheet.line(format_args!("{}   chain {chain}", desk.path().display())).gap();
        budget(&mut sheet, &status);
        heights(&mut sheet, &status);
        space(&mut sheet, &status);
        pruning(&mut sheet, &status);
        holds(&mut sheet, &status);
        alarms(&mut sheet, &status);
        sheet.finish()
    })
}

/// A directory that has blobs and no history.
fn blobs(claimed: Claimed, ui: Ui) -> Result<(), anyhow::Error> {
    let head = format!(
        "{}   chain {}   blobs and no history",
        claimed.path().display(),
        claimed.chain_id()
    );
    let value = BlobDesk::of(claimed, None)?.figures()?;
    let text = blob::figures(&value)?;
    ui.answer(&serde_json::json!({ "sidecars": value }), || format!("{head}\n\n{text}"))
}

fn budget(sheet: &mut Sheet, status: &PruneStatus) {
    if let Some(marks) = gauge::marks(status) {
        let bar = gauge::bar(status.used_bytes, status.target_bytes, BAR_WIDTH);
        sheet
            .row("budget", format_args!("{bar} {}", format_bytes(marks.target)))
            .row("", gauge::marks_row(&marks, BAR_WIDTH))
            .row("", gauge::legend(&marks));
    }
    let state = gauge::styled_state(status.pressure);
    sheet
        .row("used", format_args!("{}, {state}", gauge::used(status)))
        .row("", format_args!("{} bytes", count(status.used_bytes)));
    if status.quarantined_bytes > 0 {
        sheet.row("quarantine", exact(status.quarantined_bytes));
    }
    sheet.gap();
}

fn heights(sheet: &mut Sheet, status: &PruneStatus) {
    sheet.row("head", height(status.head));
    match status.pruned_before_block {
        Some(boundary) => sheet.row(
            "boundary",
            format_args!("{} (everything at or below it is gone)", count(boundary)),
        ),
        None => sheet.row("boundary", "none (nothing was ever pruned)"),
    };
    if let Some(archived) = status.archived {
        sheet.row("archived", format_args!("{} (verified parts reach so far)", count(archived)));
    }
    if let (Some(oldest), Some(head)) = (status.oldest_kept_block, status.head) {
        let kept = (head + 1).saturating_sub(oldest);
        sheet.row("kept", format_args!("{}, {} to {}", blocks(kept), count(oldest), count(head)));
    }
    if let Some(since) = status.oldest_kept_timestamp {
        sheet.row("since", moment(since));
    }
    if status.bytes_per_block > 0 {
        sheet.row("per block", exact(status.bytes_per_block));
    }
    if let Some(budget) = status.budget_blocks {
        let long = status
            .budget_seconds
            .map_or_else(String::new, |seconds| format!(", about {} of chain time", span(seconds)));
        sheet.row(
            "forecast",
            format_args!("the budget holds {} at this rate{long}", blocks(budget)),
        );
    }
    if let Some(seconds) = status.seconds_to_high_water.filter(|_| !status.pressure.draining) {
        sheet.row("", format_args!("high water in about {} of chain time", span(seconds)));
    }
    sheet.gap();
}

fn space(sheet: &mut Sheet, status: &PruneStatus) {
    sheet
        .row("arena", exact(status.arena_bytes))
        .row("disk", exact(status.disk_bytes))
        .row("index", exact(status.index_bytes))
        .row("layout", &status.layout)
        .row("ids", ids(&status.ids));
    let in_use =
        status.classes.iter().filter(|class| class.used + class.quarantine + class.free > 0);
    for (place, class) in in_use.enumerate() {
        let label = if place == 0 { "regions" } else { "" };
        let punched = if class.punched > 0 {
            format!(" ({} given back)", count(class.punched))
        } else {
            String::new()
        };
        sheet.row(
            label,
            format_args!(
                "{:>10}  {:>7} used  {:>5} quarantined  {:>7} free{punched}",
                format_bytes(u64::from(class.class)),
                count(class.used),
                count(class.quarantine),
                count(class.free)
            ),
        );
    }
    sheet.gap();
}

fn ids(ids: &IdUse) -> String {
    let sealed = format!("{} in {}", count(ids.sealed_ids), plural(ids.runs, "sealed run"));
    let tombstones = (ids.tombstones > 0).then(|| {
        let bytes = format_bytes(ids.tombstone_bytes);
        format!("{} of {bytes}", plural(ids.tombstones, "tombstone"))
    });
    let known = ids.searched_from.map(|from| format!("known from block {from} on"));
    [Some(sealed), tombstones, known].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn pruning(sheet: &mut Sheet, status: &PruneStatus) {
    let switch = if status.pruning_enabled {
        "on"
    } else {
        "off (the daemon rests; `secateur prune` still works)"
    };
    sheet.row("pruning", switch);
    let due = match (&status.need.cause, &status.need.blocked_by) {
        (Some(cause), None) => format!("yes, for {cause}"),
        (Some(cause), Some(stop)) => format!("yes, for {cause}, but {stop}"),
        (None, _) => "no".into(),
    };
    sheet.row("due", due);
    if let Some(last) = &status.last_report {
        sheet.row("last", report(last)).row(
            "",
            format_args!("by {} at {}; stopped because {}", last.by, moment(last.at), last.stop),
        );
    }
    if status.queued_transactions > 0 {
        sheet.row("queued", plural(status.queued_transactions, "transaction"));
    }
    sheet.gap();
}

/// The holds as a table; the binding one is marked.
pub(super) fn holds(sheet: &mut Sheet, status: &PruneStatus) {
    for (place, hold) in status.holds.iter().enumerate() {
        let label = if place == 0 { "holds" } else { "" };
        let name = hold.kind.to_string();
        let binds = if status.binding_hold.as_ref() == Some(&name) { "  ← binds" } else { "" };
        let expired = if hold.active { "" } else { "  expired" };
        sheet.row(
            label,
            format_args!(
                "{name:<20} {}  lets go {}{expired}{binds}",
                strength(hold.strength),
                allows(hold)
            ),
        );
    }
    if status.holds.iter().next().is_none() {
        sheet.row("holds", "none (there is no block yet)");
    }
}

fn alarms(sheet: &mut Sheet, status: &PruneStatus) {
    if status.alarms.is_empty() {
        sheet.row("alarms", "none");
    }
    for alarm in &status.alarms {
        sheet.row("ALARM", alarm);
    }
}
