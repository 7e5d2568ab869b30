//! `blob`: an operator's way to blob sidecars, a file for each verb. Nothing is decided here.

mod fetch;
mod keygen;
mod prune;
mod records;
mod status;
mod story;
mod view;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use secateur_core::Height;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cli::{BlobArgs, BlobVerb, RecordsVerb};
use crate::data_dir::DEFAULT_DATA;
use crate::desk::BlobDesk;
use crate::ui::Ui;
use crate::ui::words::{count, plural};
pub(crate) use status::figures;
use view::HeightView;

pub(crate) fn run(args: &BlobArgs, named: Option<PathBuf>, ui: Ui) -> Result<(), anyhow::Error> {
    if let BlobVerb::Keygen { path } = &args.verb {
        return keygen::run(path, ui);
    }
    let desk = open(named, args.config.as_deref())?;
    match &args.verb {
        BlobVerb::Status { height } => status::run(&desk, *height, ui),
        BlobVerb::Plan => prune::plan(&desk, ui),
        BlobVerb::Prune { before, dry_run, yes } => prune::run(&desk, *before, *dry_run, *yes, ui),
        BlobVerb::Retry { height } => retry(&desk, *height, ui),
        BlobVerb::Rebroadcast { height } => rebroadcast(&desk, *height, ui),
        BlobVerb::Fetch { height, index, out } => {
            fetch::run(&desk, *height, *index, out.as_deref(), ui)
        }
        BlobVerb::Records(RecordsVerb::Export { from }) => records::run(&desk, *from),
        BlobVerb::Keygen { .. } => Ok(()),
    }
}

/// `explain blob`.
pub(crate) fn explain(
    named: Option<PathBuf>,
    config: Option<&Path>,
    height: Height,
    index: u32,
    ui: Ui,
) -> Result<(), anyhow::Error> {
    story::run(&open(named, config)?, height, index, ui)
}

fn open(named: Option<PathBuf>, config: Option<&Path>) -> Result<BlobDesk, anyhow::Error> {
    BlobDesk::open(&named.unwrap_or_else(|| PathBuf::from(DEFAULT_DATA)), config)
}

/// Reads what a text needs out of an answer.
fn read<T: DeserializeOwned>(value: &Value) -> Result<T, anyhow::Error> {
    serde_json::from_value(value.clone()).context("reading an answer about blobs")
}

fn retry(desk: &BlobDesk, height: Height, ui: Ui) -> Result<(), anyhow::Error> {
    let blobs = desk.retry(height)?;
    let idle = if blobs == 0 { Some(read(&desk.height(height)?)?) } else { None };
    ui.answer(&serde_json::json!({ "height": height, "blobs": blobs }), || {
        let (number, some) = (count(height), plural(blobs, "blob"));
        match (idle, desk.is_running()) {
            (Some(view), _) => format!("nothing to do: {}\n", why_idle(&view, desk)),
            (None, true) => format!("{some} of height {number}: archived again at once\n"),
            (None, false) => {
                format!("{some} of height {number}: archived again as soon as the node runs\n")
            }
        }
    })
}

/// Why a height has nothing to archive.
fn why_idle(view: &HeightView, desk: &BlobDesk) -> String {
    let height = view.height;
    let number = count(height);
    if view.blobs.is_empty() {
        return format!("height {number} has no blobs");
    }
    if view.pruned.is_some() {
        let fetch = desk.command(&format!("blob fetch {height} 0"));
        return format!(
            "the blobs of height {number} are archived and pruned; `{fetch}` reads a copy"
        );
    }
    format!("this node has archived every blob of height {number} that is here")
}

fn rebroadcast(desk: &BlobDesk, height: Height, ui: Ui) -> Result<(), anyhow::Error> {
    let notices = desk.rebroadcast(height)?;
    ui.answer(&serde_json::json!({ "height": height, "notices": notices }), || {
        let (number, own) = (count(height), plural(notices, "own notice"));
        match (notices, desk.is_running()) {
            (0, _) => format!("nothing to tell: this node has signed for no blob of {number}\n"),
            (_, true) => format!("{own} of height {number}: told again\n"),
            (_, false) => {
                format!("{own} of height {number}: told again as soon as the node runs\n")
            }
        }
    })
}
