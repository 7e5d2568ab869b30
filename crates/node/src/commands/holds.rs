//! `holds`: who keeps what from being cut, and the consumers among them.

use secateur_core::{Holds, PruneStatus, Strength};
use serde::Serialize;

use super::status;
use crate::cli::HoldsVerb;
use crate::desk::Desk;
use crate::error::NodeError;
use crate::ui::{Sheet, Ui};

/// The holds and the one that binds.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    holds: &'a Holds,
    binding_hold: &'a Option<String>,
    draining: bool,
}

pub(crate) fn run(desk: &Desk, verb: Option<&HoldsVerb>, ui: Ui) -> Result<(), anyhow::Error> {
    match verb {
        None => {}
        Some(HoldsVerb::Add { name, hard, .. }) => {
            let strength = if *hard { Strength::Hard } else { Strength::Soft };
            desk.add_consumer(name, strength)?;
        }
        Some(HoldsVerb::Remove { name }) => {
            let name = name.strip_prefix("export:").unwrap_or(name);
            if !desk.remove_consumer(name)? {
                return Err(NodeError::Failed(format!(
                    "no export consumer `{name}` is registered (only consumers can be removed; \
                     the other holds follow from policy and finality)"
                ))
                .into());
            }
        }
    }
    let status = desk.status()?;
    let answer = Answer {
        holds: &status.holds,
        binding_hold: &status.binding_hold,
        draining: status.pressure.draining,
    };
    ui.answer(&answer, || text(&status))
}

fn text(status: &PruneStatus) -> String {
    let mut sheet = Sheet::default();
    status::holds(&mut sheet, status);
    if status.pressure.draining {
        sheet.row("", "the budget is draining: soft holds have given way");
    }
    sheet.finish()
}
