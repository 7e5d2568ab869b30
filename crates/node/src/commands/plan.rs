//! `plan`: what a prune would do now, and what stops it.

use secateur_core::{Plan, format_bytes};

use crate::desk::Desk;
use crate::ui::words::{blocks, count, pace, plural};
use crate::ui::{Sheet, Ui};

pub(crate) fn run(desk: &Desk, ui: Ui) -> Result<(), anyhow::Error> {
    let plan = desk.plan()?;
    ui.answer(&plan, || text(&plan))
}

/// The plan for people.
pub(super) fn text(plan: &Plan) -> String {
    let mut sheet = Sheet::default();
    let totals = &plan.totals;
    if let (Some(first), Some(last), Some(cause)) = (totals.first, totals.last, plan.cause) {
        sheet
            .row(
                "would cut",
                format_args!(
                    "{}, {} to {}, for {cause}",
                    blocks(totals.blocks),
                    count(first),
                    count(last)
                ),
            )
            .row(
                "with",
                format_args!(
                    "{}, {} in {}",
                    plural(totals.transactions, "transaction"),
                    plural(totals.ops, "operation"),
                    plural(plan.ticks, "tick")
                ),
            )
            .row(
                "releases",
                format_args!(
                    "{}; used {} → {}",
                    format_bytes(totals.bytes),
                    format_bytes(plan.used_before),
                    format_bytes(plan.used_after)
                ),
            );
        for class in &plan.by_class {
            let size = format_bytes(u64::from(class.class));
            let regions = plural(class.regions, "region");
            sheet.row("", format_args!("{regions} of {size}"));
        }
    } else {
        sheet.row("would cut", "nothing");
    }
    if let Some(pace) = pace(&plan.pace) {
        sheet.row("a tick", pace);
    }
    sheet.row("stops", format_args!("because {}", plan.stop));
    if let Some(hold) = &plan.binding_hold {
        sheet.row("binding", format_args!("hold `{hold}`"));
    }
    sheet.finish()
}
