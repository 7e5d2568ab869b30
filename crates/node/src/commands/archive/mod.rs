//! `archive`: looking at an archive, proving it, and getting blocks back out of it. Nothing here
//! writes to an archive or needs a node.

mod fetch;
mod ls;
mod restore;
mod verify;

pub(super) use restore::parse as parse_range;

use anyhow::Context as _;
use secateur_archive::Archive;

use crate::cli::{ArchiveArgs, ArchiveVerb};
use crate::config::{ArchivePlace, Config, base};
use crate::error::NodeError;
use crate::indexer::only_chain;
use crate::ui::Ui;
use restore::Wanted;

/// An open archive and the chain in it.
struct Opened {
    archive: Archive,
    chain_id: u64,
}

pub(crate) fn run(args: &ArchiveArgs, ui: Ui) -> Result<(), anyhow::Error> {
    let mut layers = base(args.config.as_deref())?;
    layers.flag("archive.url", "archive", args.archive.clone());
    if let ArchiveVerb::Restore { budget, .. } = &args.verb {
        layers.flag("policy.target_bytes", "budget", budget.clone());
    }
    // The same validation as of every service, and all mistakes at once.
    let config = layers.all_at_once(Config::of)?;
    let place = ArchivePlace::of(&layers)?.ok_or_else(|| {
        NodeError::Usage(
            "name an archive with --archive <dir or s3://bucket/prefix>, or archive.url".into(),
        )
    })?;
    secateur_archive::install_tls_provider();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("secateur-archive")
        .build()
        .context("starting the threads that read")?;
    runtime.block_on(async {
        let archive = Archive::open(&place.url, &place.settings)?;
        let chain_id = only_chain(&archive, args.chain_id).await?;
        let opened = Opened { archive, chain_id };
        match &args.verb {
            ArchiveVerb::Ls { from, limit } => ls::parts(&opened, *from, *limit, ui).await,
            ArchiveVerb::Gaps { upto } => ls::gaps(&opened, *upto, ui).await,
            ArchiveVerb::Verify { full, quick, upto } => {
                verify::run(&opened, *full, *quick, *upto, ui).await
            }
            ArchiveVerb::Fetch { what, index, out } => {
                fetch::run(&opened, what, index.as_deref(), out.as_deref(), ui).await
            }
            ArchiveVerb::Restore { range, into, budget } => {
                let wanted = Wanted { config: &config, budget_is_named: budget.is_some() };
                restore::run(&opened, range, into, wanted, ui).await
            }
        }
    })
}
