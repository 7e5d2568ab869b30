//! `pruning on | off`: the kill switch of the prune daemon.

use secateur_core::Plan;
use serde::Serialize;

use super::plan;
use crate::agreed::is_guarded;
use crate::cli::{PruningArgs, Switch};
use crate::desk::Desk;
use crate::ui::{self, Ui};

/// What the switch was set to, and what is due with it.
#[derive(Debug, Serialize)]
struct Switched {
    pruning_enabled: bool,
    /// What a prune would do now; only when switched on.
    plan: Option<Plan>,
    warning: Option<&'static str>,
}

const UNGUARDED: &str = "no archive and no export consumer is current: what is cut will be \
                         nowhere else, as far as this store knows";

pub(crate) fn run(desk: &Desk, args: &PruningArgs, ui: Ui) -> Result<(), anyhow::Error> {
    let enabled = args.switch == Switch::On;
    let mut switched = Switched { pruning_enabled: enabled, plan: None, warning: None };
    if enabled {
        let planned = desk.plan()?;
        ui.note(&plan::text(&planned))?;
        if !is_guarded(&planned) {
            switched.warning = Some(UNGUARDED);
            ui.note(&format!("warning    {UNGUARDED}\n"))?;
        }
        switched.plan = Some(planned);
        ui::confirm("pruning on", "Let the daemon prune whatever is due from now on?", args.yes)?;
    }
    desk.set_pruning(enabled)?;
    ui.answer(&switched, || {
        if enabled {
            "pruning is on: the daemon prunes what is due while a node or demo runs\n".into()
        } else {
            "pruning is off: the daemon rests; `secateur prune` still works\n".into()
        }
    })
}
