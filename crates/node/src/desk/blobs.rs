//! The desk of the blobs: the store in a data directory, or the node that has it open. Both give the
//! same answers; those that are only told are JSON values in the node's own shape.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use secateur_core::Height;
use secateur_sidecar::SidecarError;
use secateur_sidecar::book::{Book, BookObserver};
use secateur_sidecar::copies::Copies;
use secateur_sidecar::engine::{
    ArchiveRecord, BlobKey, BlobMeta, KeptRecord, PruneReport, StoredBlob,
};
use secateur_sidecar::notice::{Rejection, Verifier};
use secateur_sidecar::reader::{Reader, ServeArchived};
use secateur_store::{Clock as _, SystemClock};
use serde_json::Value;

use super::remote::Remote;
use crate::blobs::{self, DiskSidecars, Told};
use crate::config::{self, Config, DEFAULT_FILE, NodeBlobs};
use crate::data_dir::Claimed;
use crate::error::NodeError;
use crate::service::NodeFile;

/// Heights that a plan looks at.
const PLAN_HEIGHTS: usize = 100_000;
/// Blobs of one page of records.
pub(super) const PAGE: usize = 1_000;

/// Where commands about blobs ask.
pub(crate) enum BlobDesk {
    /// Nobody has the directory open but this process.
    Here(Box<Local>),
    /// A node has it open.
    There(Box<Remote>),
}

/// A directory that this process has for itself.
pub(crate) struct Local {
    store: Arc<DiskSidecars>,
    settings: NodeBlobs,
    /// Whether it is known what the blobs of this directory are held by.
    ruled: bool,
    /// The configuration file, where one was named.
    named: Option<PathBuf>,
    claimed: Claimed,
}

/// One step of a prune.
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) heights: u64,
    pub(crate) blobs: u64,
    pub(crate) bytes: u64,
    pub(crate) failures: u64,
    pub(crate) first: Option<Height>,
    pub(crate) last: Option<Height>,
    pub(crate) held: Option<(Height, String)>,
    pub(crate) more: bool,
}

/// A blob from a copy.
#[derive(Debug)]
pub(crate) struct FetchedBlob {
    pub(crate) blob: bytes::Bytes,
    pub(crate) commitment: String,
    pub(crate) versioned_hash: String,
    pub(crate) keccak: String,
}

/// A page of archive records.
#[derive(Debug, Default)]
pub(crate) struct RecordsPage {
    pub(crate) records: Vec<Value>,
    /// Where the next page begins; none if this was the last.
    pub(crate) next: Option<BlobKey>,
}

impl BlobDesk {
    /// Opens a directory's blobs, or finds the node that has them open. The configuration tells how
    /// long they are kept, what a copy must have proved, and where copies are.
    pub(crate) fn open(path: &Path, config: Option<&Path>) -> Result<Self, anyhow::Error> {
        let error = match Claimed::existing(path) {
            Ok(claimed) => return Self::of(claimed, config),
            Err(error) => error,
        };
        let locked = matches!(error.downcast_ref(), Some(NodeError::Locked { .. }));
        match NodeFile::read(path) {
            Ok(Some(file)) if locked => Ok(Self::There(Box::new(Remote::new(path, file)?))),
            _ => Err(error),
        }
    }

    /// The same for a directory that this process has for itself.
    pub(crate) fn of(claimed: Claimed, config: Option<&Path>) -> Result<Self, anyhow::Error> {
        let path = claimed.path();
        let own = path.join(DEFAULT_FILE);
        let file = config.or_else(|| own.is_file().then_some(own.as_path()));
        let settings = Config::of(&config::base(file)?)?.sidecar;
        let opened = blobs::open_existing_at(path, claimed.chain_id(), &settings.limits)?
            .ok_or_else(|| NodeError::NoBlobs(path.to_path_buf()))?;
        // Whatever lies in the current directory need not be this directory's.
        let ruled = opened.ruled || file.is_some();
        let named = config.map(Path::to_path_buf);
        let local = Local { store: opened.store, settings, ruled, named, claimed };
        Ok(Self::Here(Box::new(local)))
    }

    /// The data directory.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Here(local) => local.claimed.path(),
            Self::There(remote) => remote.path(),
        }
    }

    /// A command about these blobs as it can be said here: of this directory, with the configuration
    /// that was named.
    pub(crate) fn command(&self, words: &str) -> String {
        let named = match self {
            Self::Here(local) => local.named.as_ref(),
            // The node has a configuration of its own.
            Self::There(_) => None,
        };
        let config = named.map_or_else(String::new, |file| format!(" --config {}", file.display()));
        format!("secateur --data {} {words}{config}", self.path().display())
    }

    /// Whether a node is at work on them.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self, Self::There(_))
    }

    /// The figures of all blobs.
    pub(crate) fn figures(&self) -> Result<Value, anyhow::Error> {
        match self {
            Self::Here(local) => Ok(serde_json::to_value(local.store.summary()?)?),
            Self::There(remote) => remote.get("/v1/blobs"),
        }
    }

    pub(crate) fn height(&self, height: Height) -> Result<Value, anyhow::Error> {
        match self {
            Self::Here(local) => local.height(height),
            Self::There(remote) => remote.get(&format!("/v1/blobs/{height}")),
        }
    }

    pub(crate) fn story(&self, height: Height, index: u32) -> Result<Value, anyhow::Error> {
        match self {
            Self::Here(local) => local.story(height, index),
            Self::There(remote) => remote.get(&format!("/v1/blobs/{height}/{index}")),
        }
    }

    pub(crate) fn plan(&self) -> Result<Value, anyhow::Error> {
        match self {
            Self::Here(local) => {
                local.ruled()?;
                Ok(serde_json::to_value(local.store.plan(PLAN_HEIGHTS)?)?)
            }
            Self::There(remote) => remote.get("/v1/blobs/plan"),
        }
    }

    /// One step of a prune.
    pub(crate) fn prune(&self, before: Option<Height>) -> Result<Step, anyhow::Error> {
        match self {
            Self::Here(local) => {
                local.ruled()?;
                Ok(step(&local.store.prune_step(before.unwrap_or(Height::MAX))?))
            }
            Self::There(remote) => remote.prune_blobs(before),
        }
    }

    /// How many blobs are to be archived again is the answer.
    pub(crate) fn retry(&self, height: Height) -> Result<u64, anyhow::Error> {
        match self {
            Self::Here(local) => local.retry(height),
            Self::There(remote) => remote.retry_blobs(height),
        }
    }

    /// How many notices are to be told again is the answer.
    pub(crate) fn rebroadcast(&self, height: Height) -> Result<u64, anyhow::Error> {
        match self {
            Self::Here(local) => Ok(local.store.reannounce(height)? as u64),
            Self::There(remote) => remote.rebroadcast(height),
        }
    }

    /// A blob from an archived copy that hashes right.
    pub(crate) fn fetch(&self, height: Height, index: u32) -> Result<FetchedBlob, anyhow::Error> {
        match self {
            Self::Here(local) => local.fetch(height, index),
            Self::There(remote) => remote.fetch_blob(height, index),
        }
    }

    /// Archived blobs with their records, from a height on.
    pub(crate) fn records(&self, from: BlobKey) -> Result<RecordsPage, anyhow::Error> {
        match self {
            Self::Here(local) => local.records(from),
            Self::There(remote) => remote.blob_records(from),
        }
    }
}

/// No notice comes to a command.
struct Unheard;

impl BookObserver for Unheard {
    fn recorded(&self, _: BlobKey, _: &ArchiveRecord) {}
    fn rejected(&self, _: &Rejection) {}
}

fn step(report: &PruneReport) -> Step {
    let PruneReport { heights, blobs, bytes, failures, first, last, first_held, more, .. } =
        *report;
    let held = first_held.map(|(height, hold)| (height, hold.word().to_owned()));
    Step { heights, blobs, bytes, failures, first, last, held, more }
}

impl Local {
    /// Refuses where nothing says what must be held: a default could be laxer than the node.
    fn ruled(&self) -> Result<(), NodeError> {
        if self.ruled {
            return Ok(());
        }
        Err(NodeError::Refused(
            "no node has left here what it holds blobs by (sidecar.trust, sidecar.retain_blocks); \
             name its configuration with --config <file>, or start it once"
                .to_owned(),
        ))
    }

    /// Who may sign, where the configuration says it: one that names nobody is not the node's.
    fn verifier(&self) -> Result<Option<Verifier>, anyhow::Error> {
        if self.settings.terms.is_empty() {
            return Ok(None);
        }
        blobs::verifier(&self.settings, self.claimed.chain_id()).map(Some)
    }

    fn height(&self, height: Height) -> Result<Value, anyhow::Error> {
        let status = self.store.status(height)?;
        Ok(match self.verifier()? {
            Some(verifier) => serde_json::to_value(Told::height(status, &verifier))?,
            None => serde_json::to_value(status)?,
        })
    }

    fn story(&self, height: Height, index: u32) -> Result<Value, anyhow::Error> {
        let story = self.store.explain(height, index)?;
        Ok(match self.verifier()? {
            Some(verifier) => serde_json::to_value(Told::blob(story, &verifier))?,
            None => serde_json::to_value(story)?,
        })
    }

    /// The node that runs here next archives what is queued, so it is asked whether that may sign: as the node
    /// itself would be.
    fn retry(&self, height: Height) -> Result<u64, anyhow::Error> {
        let identity = blobs::identity(&self.settings)?;
        let (us, key) = identity.map(|identity| (identity.id, identity.key)).unzip();
        let verifier = blobs::verifier(&self.settings, self.claimed.chain_id())?;
        let store = Arc::clone(&self.store);
        let book = Book::new(store, Arc::new(verifier), key, Arc::new(Unheard));
        let queued = book.queue_again(us.as_ref(), height, SystemClock.now_millis());
        let queued = match queued {
            Err(error @ SidecarError::NoIdentity { .. }) => {
                return Err(anyhow::Error::from(error).context(NodeError::Refused(format!(
                    "{} says nothing of sidecar.identity and sidecar.key_file; name the node's \
                     configuration with --config <file>",
                    self.named.as_ref().map_or("no configuration here".into(), |file| {
                        file.display().to_string()
                    })
                ))));
            }
            queued => queued?,
        };
        Ok(queued as u64)
    }

    fn fetch(&self, height: Height, index: u32) -> Result<FetchedBlob, anyhow::Error> {
        let story = self.store.explain(height, index)?;
        let mut locators = story.blob.records.iter().flat_map(|kept| &kept.record.locators);
        let providers = blobs::providers(&self.settings)?;
        if let Some(first) = locators.next().filter(|_| providers.is_empty()) {
            let reason = format!(
                "no place for copies is configured here, and {} has one ({}); name it in \
                 sidecar.providers of a configuration (--config <file>)",
                first.provider, first.key
            );
            return Err(NodeError::Archive(reason).into());
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("starting a runtime")?;
        let reader = Reader::new(
            Arc::clone(&self.store),
            Copies::new(&providers),
            ServeArchived::UntilPruned,
            true,
        );
        let StoredBlob { meta, blob } = runtime.block_on(reader.fetch(height, index))?;
        Ok(FetchedBlob {
            blob,
            commitment: meta.commitment.to_string(),
            versioned_hash: meta.versioned_hash.to_string(),
            keccak: meta.keccak.to_string(),
        })
    }

    fn records(&self, from: BlobKey) -> Result<RecordsPage, anyhow::Error> {
        let found = self.store.list_records(from, PAGE)?;
        let next = found.last().filter(|_| found.len() == PAGE).map(|(meta, _)| {
            let BlobKey { height, index } = meta.key();
            BlobKey { height, index: index.saturating_add(1) }
        });
        let record = |(meta, records): &(BlobMeta, Vec<KeptRecord>)| {
            serde_json::json!({
                "height": meta.height,
                "index": meta.index,
                "commitment": meta.commitment,
                "versioned_hash": meta.versioned_hash,
                "keccak": meta.keccak,
                "records": records,
            })
        };
        Ok(RecordsPage { records: found.iter().map(record).collect(), next })
    }
}
