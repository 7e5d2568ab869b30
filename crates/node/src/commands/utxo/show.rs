//! Answers about UTXO records for people.

use secateur_core::format_bytes;
use secateur_proto::utxo::v1 as pb;

use crate::error::NodeError;
use crate::ui::Sheet;
use crate::ui::words::{count, height, moment, plural, span};

/// A number of records.
pub(super) fn records(number: u64) -> String {
    plural(number, "record")
}

/// Records that a plan finds due, those that are cut already too.
pub(super) fn due(plan: &pb::PlanResponse) -> u64 {
    plan.counts.as_ref().map_or(0, |counts| counts.due.saturating_add(counts.cut))
}

pub(super) fn status(status: &pb::StatusResponse) -> String {
    let counts = status.counts.unwrap_or_default();
    let mut sheet = Sheet::default();
    sheet.row("store", &status.store);
    if let Some(files) = &status.files {
        sheet.row("files", files);
    }
    sheet
        .row(
            "records",
            format_args!(
                "about {}: {} in no block, {} preserved",
                count(counts.records),
                count(counts.unmined),
                count(counts.preserved)
            ),
        )
        .row("past due", records(counts.due.saturating_add(counts.cut)));
    if counts.cut > 0 {
        sheet.row("of these", format_args!("{} cut, and still to be removed", records(counts.cut)));
    }
    let free = counts
        .free_bytes
        .map_or_else(String::new, |free| format!(", {} of it free", format_bytes(free)));
    sheet
        .row("size", format_args!("{}{free}", format_bytes(counts.size_bytes)))
        .row("head", height(status.head))
        .row("persisted", height(status.persisted))
        .row("processed", height(status.processed));
    if let Some(lag) = status.lag_blocks {
        sheet.row("lag", plural(lag, "block"));
    }
    let switch = if status.enabled { "on" } else { "off: events set no prune off" };
    sheet.row("pruning", format_args!("{switch}, trigger {}", status.mode)).row(
        "rules",
        format_args!(
            "{} after all is spent, coinbases ripen in {}",
            plural(status.block_height_retention, "block"),
            count(status.coinbase_maturity)
        ),
    );
    if let Some(progress) = &status.running {
        running(&mut sheet, progress);
    }
    if let Some(skip) = &status.last_skip {
        sheet.row("skipped", skip_text(skip));
    }
    if let Some(error) = &status.last_error {
        sheet.row("failed", error);
    }
    if status.persister_stale {
        sheet.row("ALARM", "the block persister has fallen behind, and records go only up to it");
    }
    if let Some(alarm) = &status.store_alarm {
        sheet.row("ALARM", alarm);
    }
    for warning in &status.warnings {
        sheet.row("WARNING", warning);
    }
    if !status.ready {
        sheet.row("ALARM", format_args!("not ready: {}", status.not_ready));
    }
    sheet.finish()
}

fn running(sheet: &mut Sheet, progress: &pb::Progress) {
    let deleted = progress.done.as_ref().map_or(0, |done| done.deleted);
    let rate = match progress.records_per_second {
        0 => String::new(),
        rate => format!(", {} a second", count(rate)),
    };
    let left =
        progress.seconds_left.map_or_else(String::new, |left| format!(", {} left", span(left)));
    sheet.row(
        "running",
        format_args!(
            "at height {}, phase {}: {} of {} gone{rate}{left}",
            count(progress.height),
            progress.phase,
            count(deleted),
            records(progress.due)
        ),
    );
}

/// Why a run does not begin, as a sentence.
fn skip_text(skip: &str) -> &str {
    match skip {
        "assembly_not_running" => "block assembly is not running: a reorganisation, most likely",
        "assembly_behind" => "block assembly has not reached the height yet",
        "assembly_unreachable" => "block assembly does not answer",
        "not_ahead" => "the height was processed before",
        "too_far" => "the height is far above what is known: a mistake, most likely",
        "store_unreachable" => "the store does not say what a persister reported",
        "persister_unheard" => "records wait for a block persister, and none has ever reported",
        "persister_in_doubt" => {
            "the chain did not say whether it has a block persister, or how far that is \
             (utxo.persister_absent, if there is none)"
        }
        other => other,
    }
}

pub(super) fn plan(plan: &pb::PlanResponse) -> String {
    let mut sheet = Sheet::default();
    sheet.row("at height", count(plan.height));
    let counts = plan.counts.unwrap_or_default();
    if plan.deletes {
        sheet.row(
            "would go",
            format_args!(
                "up to {} whose delete-at-height is {} or less, unless held",
                records(counts.due),
                count(plan.safe_height)
            ),
        );
        if counts.cut > 0 {
            let cut = records(counts.cut);
            sheet.row(
                "and",
                format_args!("{cut} cut by an earlier run, if what is left of them can be removed"),
            );
        }
    } else {
        sheet.row("would go", "nothing: utxo.delete is off");
    }
    sheet.row(
        "first",
        format_args!(
            "parents of unmined transactions that have waited long are preserved ({} unmined now)",
            count(counts.unmined)
        ),
    );
    if let Some(skip) = &plan.skip {
        sheet.row("stopped by", skip_text(skip));
    }
    sheet.finish()
}

pub(super) fn pruned(pruned: &pb::PruneResponse) -> String {
    let mut sheet = Sheet::default();
    match (&pruned.job, &pruned.skip) {
        (Some(job), _) => one(&mut sheet, job),
        (None, skip) => {
            let why = skip.as_deref().unwrap_or("not told why");
            sheet.row("not begun", skip_text(why));
        }
    }
    sheet.finish()
}

/// A run that did not complete is no success.
pub(super) fn outcome(pruned: &pb::PruneResponse) -> Result<(), anyhow::Error> {
    match (&pruned.job, &pruned.skip) {
        (None, skip) => {
            let why = skip_text(skip.as_deref().unwrap_or("not told why"));
            Err(NodeError::Refused(format!("the prune did not begin: {why}")).into())
        }
        (Some(job), _) if job.outcome != "completed" => {
            let why = job.outcome.replace('_', " ");
            Err(NodeError::Unfinished(format!("the prune {why}")).into())
        }
        (Some(job), _) => {
            let kept = |why: &str| job.done.as_ref().and_then(|done| done.kept.get(why)).copied();
            for (reason, advice) in [
                (
                    "files_missing",
                    "the place of external files does not answer, or is not the one that their files are in. Check \
                     utxo.files, and that the disk is mounted",
                ),
                (
                    "file_stays",
                    "external files cannot be removed. See that utxo.files can be written to, then prune again",
                ),
            ] {
                if let Some(some) = kept(reason).filter(|some| *some > 0) {
                    let verb = if some == 1 { "stays" } else { "stay" };
                    let told = format!("{} due for deletion {verb}: {advice}", records(some));
                    return Err(NodeError::FilesAway(told).into());
                }
            }
            Ok(())
        }
    }
}

pub(super) fn jobs(jobs: &pb::JobsResponse) -> String {
    let mut sheet = Sheet::default();
    if jobs.jobs.is_empty() {
        sheet.line("no run has ended yet");
    }
    for job in &jobs.jobs {
        one(&mut sheet, job);
    }
    sheet.finish()
}

fn one(sheet: &mut Sheet, job: &pb::Job) {
    let done = job.done.clone().unwrap_or_default();
    let outcome = job.outcome.replace('_', " ");
    sheet.line(format_args!(
        "height {}, records up to {}: {outcome}, {}, {} ms",
        count(job.height),
        count(job.safe_height),
        moment(job.started_at),
        count(job.millis)
    ));
    if let Some(reason) = &job.reason {
        sheet.row("  because", reason);
    }
    sheet.row("  deleted", records(done.deleted));
    if !done.kept.is_empty() {
        let kept: Vec<String> =
            done.kept.iter().map(|(why, some)| format!("{} {why}", count(*some))).collect();
        sheet.row("  kept", kept.join(", "));
    }
    if done.preserved + done.expired + done.parents_missing > 0 {
        sheet.row(
            "  preserved",
            format_args!(
                "{} of {}, {} not here, {} ended",
                plural(done.preserved, "parent"),
                plural(done.old_unmined, "old unmined transaction"),
                count(done.parents_missing),
                count(done.expired)
            ),
        );
    }
    if done.files_deleted + done.files_missing > 0 {
        sheet.row(
            "  files",
            format_args!(
                "{} deleted, {} not there",
                count(done.files_deleted),
                count(done.files_missing)
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(free_bytes: Option<u64>, store_alarm: Option<&str>) -> String {
        let counts = pb::Counts { size_bytes: 1024, free_bytes, ..pb::Counts::default() };
        status(&pb::StatusResponse {
            counts: Some(counts),
            store_alarm: store_alarm.map(str::to_owned),
            ready: true,
            ..pb::StatusResponse::default()
        })
    }

    #[test]
    fn what_is_not_known_to_be_free_is_not_shown_as_none_and_a_full_store_is_an_alarm() {
        assert!(shown(Some(0), None).contains(", 0 B of it free"));
        let unknown = shown(None, None);
        assert!(!unknown.contains("free") && !unknown.contains("ALARM"), "{unknown}");
        let full = shown(None, Some("the store takes no more writes"));
        assert!(full.contains("ALARM") && full.contains("takes no more writes"), "{full}");
    }
}
