//! `policy show | set`: the prune policy, changed whole or not at all.

use secateur_core::{Pace, PrunePolicy, StopReason, TimeUnit, WaterMarks, spell_bytes, spell_span};
use serde::Serialize;

use crate::agreed::{Difference, differences};
use crate::cli::PolicyVerb;
use crate::desk::Desk;
use crate::error::NodeError;
use crate::ui::words::{blocks, count, exact, pace};
use crate::ui::{Sheet, Ui};

/// The policy, and what it comes to.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    policy: PrunePolicy,
    #[serde(flatten)]
    pace: Pace,
}

/// What a change of the policy did.
#[derive(Debug, Serialize)]
struct Changed {
    old: PrunePolicy,
    new: PrunePolicy,
    water_marks: Option<WaterMarks>,
    /// Blocks that a prune would cut now, and what would stop it.
    would_cut: u64,
    stop: StopReason,
    /// Values that stand against the configuration until that changes.
    against_configuration: Vec<Difference>,
}

pub(crate) fn run(desk: &Desk, verb: &PolicyVerb, ui: Ui) -> Result<(), anyhow::Error> {
    match verb {
        PolicyVerb::Show => {
            let shown = Shown { policy: desk.policy()?, pace: desk.status()?.pace };
            ui.answer(&shown, || {
                let mut sheet = Sheet::default();
                for (key, value) in fields(&shown.policy) {
                    sheet.line(format_args!("{key:<21} {value}"));
                }
                marks(&mut sheet, shown.policy.water_marks());
                if let Some(pace) = pace(&shown.pace) {
                    sheet.line(format_args!("{:<21} {pace}", "a tick"));
                }
                sheet.finish()
            })
        }
        PolicyVerb::Set { changes } => set(desk, changes, ui),
    }
}

fn set(desk: &Desk, changes: &[String], ui: Ui) -> Result<(), anyhow::Error> {
    let old = desk.policy()?;
    let mut parsed = Vec::with_capacity(changes.len());
    for change in changes {
        let (key, value) = change
            .split_once('=')
            .ok_or_else(|| NodeError::Usage(format!("`{change}` is not of the form key=value")))?;
        parsed.push((key.trim().to_owned(), value.trim().to_owned()));
    }
    let new = desk.set_policy(&parsed)?;
    let plan = desk.plan()?;
    let changed = Changed {
        water_marks: new.water_marks(),
        would_cut: plan.totals.blocks,
        stop: plan.stop,
        against_configuration: differences(desk.path(), &new, desk.status()?.pruning_enabled)?,
        old,
        new,
    };
    ui.answer(&changed, || text(&changed))
}

fn text(changed: &Changed) -> String {
    let mut sheet = Sheet::default();
    let mut same = true;
    for ((key, old), (_, new)) in fields(&changed.old).into_iter().zip(fields(&changed.new)) {
        if old != new {
            same = false;
            sheet.line(format_args!("{key:<21} {old} → {new}"));
        }
    }
    if same {
        sheet.line("the policy is what it was");
    }
    marks(&mut sheet, changed.water_marks);
    let cut = match changed.would_cut {
        0 => "nothing".into(),
        cut => blocks(cut),
    };
    sheet.line(format_args!("{:<21} {cut}; then {}", "a prune would cut", changed.stop));
    for Difference { key, in_force, configured } in &changed.against_configuration {
        sheet.line(format_args!(
            "{key:<21} {in_force} stands until the configuration, which says {configured}, changes"
        ));
    }
    sheet.finish()
}

fn marks(sheet: &mut Sheet, marks: Option<WaterMarks>) {
    let Some(marks) = marks else {
        sheet.line("no budget, so no water marks");
        return;
    };
    for (name, bytes) in
        [("low water", marks.low), ("high water", marks.high), ("hard water", marks.hard)]
    {
        sheet.line(format_args!("{name:<21} {}", exact(bytes)));
    }
}

/// What differs between two policies, in one line.
pub(crate) fn changes(old: &PrunePolicy, new: &PrunePolicy) -> String {
    let both = fields(old).into_iter().zip(fields(new));
    let changed = both.filter(|(old, new)| old != new);
    let words: Vec<String> =
        changed.map(|((key, old), (_, new))| format!("{key} {old} → {new}")).collect();
    words.join(", ")
}

/// Every key with its value, in the order of the documentation.
fn fields(policy: &PrunePolicy) -> [(&'static str, String); 9] {
    let off = |value: u64| match value {
        0 => "0 (off)".into(),
        value => count(value),
    };
    let target = match policy.target_bytes {
        0 => "0 (no budget)".into(),
        // As it may be set again, and how many bytes that is.
        bytes => format!("{} ({} bytes)", spell_bytes(bytes), count(bytes)),
    };
    let retain_days = match u64::from(policy.retain_days) {
        0 => off(0),
        days => spell_span(days, TimeUnit::Days),
    };
    let clock = match policy.clock {
        secateur_core::ClockSource::Chain => "chain",
        secateur_core::ClockSource::Wall => "wall",
    };
    [
        ("target_bytes", target),
        ("retain_days", retain_days),
        ("retain_blocks", off(policy.retain_blocks)),
        ("headroom_ratio", policy.headroom_ratio.to_string()),
        ("hard_emergency_ratio", policy.hard_emergency_ratio.to_string()),
        ("max_ops_per_tick", count(policy.max_ops_per_tick)),
        ("trigger", policy.trigger.spelled()),
        ("min_keep_blocks", count(policy.min_keep_blocks)),
        ("clock", clock.into()),
    ]
}
