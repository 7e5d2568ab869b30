//! `utxo`: the UTXO service, and an operator's way to it. Nothing is decided here.

mod explain;
mod show;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use secateur_proto::utxo::v1 as pb;
use serde_json::json;

use super::index::stop_on_signals;
use super::node::start_log;
use crate::cli::{UtxoArgs, UtxoServeArgs, UtxoVerb};
use crate::config::{self, Config, Layers, Starts};
use crate::data_dir::DEFAULT_DATA;
use crate::desk::UtxoDesk;
use crate::ui::words::listening;
use crate::ui::{self, Ui};
use crate::utxo::{Addresses, Place, serve};

pub(crate) fn run(args: &UtxoArgs, named: Option<PathBuf>, ui: Ui) -> Result<(), anyhow::Error> {
    let data = named.unwrap_or_else(|| PathBuf::from(DEFAULT_DATA));
    let layers = config::utxo_layers(args, &data)?;
    if let UtxoVerb::Serve(flags) = &args.verb {
        return run_service(layers, flags, &data, ui);
    }
    let desk = UtxoDesk::open(&data, &Config::of(&layers)?)?;
    match &args.verb {
        UtxoVerb::Serve(_) => Ok(()),
        UtxoVerb::Status => {
            let status = desk.status()?;
            ui.answer(&status, || show::status(&status))
        }
        UtxoVerb::Plan { height } => {
            let plan = desk.plan(*height)?;
            ui.answer(&plan, || show::plan(&plan))
        }
        UtxoVerb::Prune { height, dry_run: true, .. } => {
            let plan = desk.plan(*height)?;
            ui.answer(&plan, || show::plan(&plan))
        }
        UtxoVerb::Prune { height, yes, .. } => prune(&desk, *height, *yes, ui),
        UtxoVerb::Explain { txid } => {
            let story = desk.explain_tx(txid)?;
            ui.answer(&story, || explain::text(&story))
        }
        UtxoVerb::Jobs => {
            let jobs = desk.jobs()?;
            ui.answer(&jobs, || show::jobs(&jobs))
        }
    }
}

fn prune(desk: &UtxoDesk, height: Option<u64>, yes: bool, ui: Ui) -> Result<(), anyhow::Error> {
    let plan = desk.plan(height)?;
    if show::due(&plan) > 0 && plan.deletes {
        ui.note(&show::plan(&plan))?;
        let question = format!("Delete up to {} for good?", show::records(show::due(&plan)));
        ui::confirm("utxo prune", &question, yes)?;
    }
    let pruned = match plan.skip {
        // If it could begin by now, nobody was asked about what would go.
        Some(skip) if !yes => pb::PruneResponse { job: None, skip: Some(skip) },
        // At the height that was shown, whatever the chain has done since.
        _ => desk.prune(Some(plan.height))?,
    };
    ui.answer(&pruned, || show::pruned(&pruned))?;
    show::outcome(&pruned)
}

fn run_service(
    mut layers: Layers,
    flags: &UtxoServeArgs,
    data: &Path,
    ui: Ui,
) -> Result<(), anyhow::Error> {
    layers.flag("utxo.listen", "listen", flags.listen.clone());
    layers.flag("utxo.http", "http", flags.http.clone());
    layers.flag("utxo.blockchain_url", "blockchain", flags.blockchain.clone());
    layers.flag("utxo.assembly_url", "assembly", flags.assembly.clone());
    layers.flag("utxo.trigger", "trigger", flags.trigger.clone());
    layers.flag("log.level", "log", flags.log.clone());
    layers.flag("log.json", "json-logs", flags.json_logs.then(|| "true".into()));
    let config = config::checked(&layers, Starts::Utxo)?;
    if !config.utxo.start {
        // No failure: it is what was configured.
        let why = "utxo.start is false";
        let event = json!({ "event": "not_started", "reason": why });
        return ui.answer(&event, || format!("not started: {why}\n"));
    }
    start_log(&config.log)?;
    let place = Place::make(data, &config.utxo)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("secateur-utxo")
        .build()
        .context("starting the threads that serve")?;
    let ended = runtime.block_on(async {
        let stop = stop_on_signals()?;
        // For scripts: everything answers from this line on.
        let told = |Addresses { grpc, http, open_health }| {
            let mut addresses = vec![("http", http), ("grpc", grpc)];
            addresses.extend(open_health.map(|health| ("health", health)));
            ui::print(&listening(&addresses))
        };
        serve(&config, &place, stop, told).await
    });
    // What a run that was cut off still does ends with the process.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    ended
}
