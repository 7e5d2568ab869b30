//! `status`: the state of the history in one page; of the blobs, where there is no history.

use secateur_core::{IdUse, PruneStatus, format_bytes, spell_bytes};
use serde::Serialize;

use super::blob;
use crate::agreed::{Difference, differences};
use crate::data_dir::Claimed;
use crate::desk::{BlobDesk, Whole};
use crate::service::SourceNow;
use crate::ui::words::{
    allows, blocks, count, exact, height, moment, pace, plural, report, span, strength,
};
use crate::ui::{Sheet, Ui, gauge};

const BAR_WIDTH: usize = 56;

/// The status, the source where a running node follows one, and the policy values that the
/// configuration contradicts.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    status: &'a PruneStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a SourceNow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    set_at_run_time: Vec<Difference>,
}

pub(crate) fn run(whole: Whole, ui: Ui) -> Result<(), anyhow::Error> {
    let desk = match whole {
        Whole::Desk(desk) => desk,
        Whole::Blobs(claimed) => return blobs(claimed, ui),
    };
    let status = desk.status()?;
    let (chain, source) = (desk.chain_id()?, desk.source()?);
    let set_at_run_time = differences(desk.path(), &desk.policy()?, status.pruning_enabled)?;
    let shown = Shown { status: &status, source: source.as_ref(), set_at_run_time };
    ui.answer(&shown, || {
        let mut sheet = Sheet::default();
        sheet.line(format_args!("{}   chain {chain}", desk.path().display())).gap();
        budget(&mut sheet, &status);
        heights(&mut sheet, &status);
        if let Some(source) = &source {
            followed(&mut sheet, source);
        }
        space(&mut sheet, &status);
        pruning(&mut sheet, &status);
        run_time(&mut sheet, &shown.set_at_run_time);
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
    let state = gauge::styled_state(status);
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

fn followed(sheet: &mut Sheet, source: &SourceNow) {
    sheet.row("source", &source.address);
    let head = match (source.head, source.head_age_seconds) {
        (Some(head), Some(age)) => format!("at {}, as it said {} ago", count(head), span(age)),
        _ => "has not said where it is yet".into(),
    };
    let lag = match source.lag_blocks {
        _ if source.ends_below_final => "it ends below what is final here".into(),
        _ if source.caught_up => "everything of it is here".into(),
        Some(lag) => format!("{} behind it", blocks(lag)),
        None => "how far behind it we are is not known".into(),
    };
    sheet.row("", format_args!("{head}; {lag}"));
    if let Some(trouble) = &source.trouble {
        sheet.row("", format_args!("TROUBLE: {trouble}"));
    }
    sheet.gap();
}

fn space(sheet: &mut Sheet, status: &PruneStatus) {
    sheet
        .row("arena", exact(status.arena_bytes))
        .row("disk", exact(status.disk_bytes))
        .row("index", exact(status.index_bytes))
        .row("free", status.free_bytes.map_or_else(|| "unknown".into(), exact))
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
    if let Some(pace) = pace(&status.pace) {
        sheet.row("a tick", pace);
    }
    if let Some(behind) = status.retention_behind_blocks.filter(|behind| *behind > 0) {
        sheet.row("behind", format_args!("{} more than retention keeps", blocks(behind)));
    }
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

/// Values in force that stand against the configuration.
fn run_time(sheet: &mut Sheet, differences: &[Difference]) {
    for Difference { key, in_force, configured } in differences {
        sheet.row(
            "set",
            format_args!(
                "{key} = {in_force} stands until the configuration's {configured} changes"
            ),
        );
    }
    if !differences.is_empty() {
        sheet.gap();
    }
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
    if status.disk_full {
        sheet.row("do", room(status));
    }
}

/// What makes room on a full disk: only what this store would accept.
fn room(status: &PruneStatus) -> String {
    let mut ways = vec!["free space on the disk".to_owned()];
    let kept = match (status.head, status.oldest_kept_block) {
        (Some(head), Some(oldest)) => (head + 1).saturating_sub(oldest),
        _ => 0,
    };
    if status.need.need_prune {
        // No other policy helps where one is due already.
        match &status.need.blocked_by {
            Some(stop) => ways.push(format!("let the prune go on that is due, but {stop}")),
            None => ways.push("prune now: `secateur prune`".into()),
        }
    } else if let Some(target) = status.budget_that_prunes() {
        let target = spell_bytes(target);
        ways.push(format!("set a budget: `secateur policy set target_bytes={target}`"));
    } else if kept > 1 {
        // Every budget that is accepted is more than what is used.
        let (least, half) = (format_bytes(status.least_target_bytes), kept / 2);
        ways.push(format!(
            "keep fewer blocks: `secateur policy set retain_blocks={half}` (no budget below {least} \
             is accepted)"
        ));
    }
    if !status.pruning_enabled && !status.need.need_prune {
        ways.push("and then `secateur prune`, because pruning is off".into());
    }
    ways.join("; or ")
}
