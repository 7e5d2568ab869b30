//! The desk: where an operator's commands ask. It is the data directory itself, or the node that
//! has it open; the answers are the same.

mod blobs;
mod remote;
mod remote_blobs;
mod utxo;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use secateur_core::{
    ExplainBlock, ExplainTx, Height, Plan, PrunePolicy, PruneStatus, Report, StopReason, Strength,
    TxId,
};
use secateur_store::{Finding, ShelfReport, VerifyReport};
use serde::Serialize;
use tonic::transport::{Channel, Endpoint};

use crate::blobs::{DiskSidecars, open_existing_at};
use crate::config::{Config, Layers};
use crate::data_dir::{Claimed, DataDir};
use crate::error::NodeError;
use crate::service::{NodeFile, SourceNow};
pub(crate) use blobs::BlobDesk;
use remote::Remote;
pub(crate) use utxo::UtxoDesk;

/// How long a connection to a service of this machine may take to come up, or to answer a ping.
const CONNECT: Duration = Duration::from_secs(5);
/// How often a service that is at work is asked whether it lives.
const PING: Duration = Duration::from_secs(10);

/// The way to a running service; nothing is sent yet. A call may take long, and one to a service that stands still
/// ends all the same.
fn way_to(file: &NodeFile) -> Result<Channel, tonic::transport::Error> {
    let way = Endpoint::from_shared(format!("http://{}", file.grpc))?
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(PING)
        .keep_alive_timeout(CONNECT);
    Ok(way.connect_lazy())
}

/// Where commands ask.
#[derive(Debug)]
pub(crate) enum Desk {
    /// Nobody has the directory open but this process.
    Here(DataDir),
    /// A node has it open.
    There(Box<Remote>),
}

/// A directory with whatever is in it, for commands about all of it.
#[derive(Debug)]
pub(crate) enum Whole {
    /// A history, and blobs perhaps.
    Desk(Desk),
    /// Blobs alone.
    Blobs(Claimed),
}

/// What a verification saw.
#[derive(Debug)]
pub(crate) struct Verified {
    /// The history, where there is one.
    pub(crate) history: Option<VerifyReport>,
    /// The blobs, where there are some.
    pub(crate) sidecars: Option<BlobsReport>,
}

/// What a verification saw of blobs.
#[derive(Debug, Serialize)]
pub(crate) struct BlobsReport {
    /// Blobs whose bytes were read.
    pub(crate) blobs: u64,
    pub(crate) bytes: u64,
    pub(crate) regions: u64,
    pub(crate) findings: Vec<Finding>,
    /// Findings beyond those listed.
    pub(crate) unlisted: u64,
}

impl From<ShelfReport> for BlobsReport {
    fn from(report: ShelfReport) -> Self {
        let ShelfReport { slots: blobs, bytes, regions, findings } = report;
        Self { blobs, bytes, regions, findings: findings.list, unlisted: findings.unlisted }
    }
}

/// What one tick of a prune did.
#[derive(Debug)]
pub(crate) struct Tick {
    pub(crate) blocks: u64,
    pub(crate) more: bool,
    pub(crate) stop: StopReason,
    pub(crate) report: Option<Report>,
}

impl Desk {
    /// Opens a directory, or finds the node that has it open.
    pub(crate) fn open(path: &Path) -> Result<Self, anyhow::Error> {
        let error = match DataDir::open(path) {
            Ok(data) => return Ok(Self::Here(data)),
            Err(error) => error,
        };
        let locked = matches!(error.downcast_ref(), Some(NodeError::Locked { .. }));
        match NodeFile::read(path) {
            Ok(Some(file)) if locked => Ok(Self::There(Box::new(Remote::new(path, file)?))),
            _ => Err(error),
        }
    }

    /// The data directory.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Here(data) => &data.path,
            Self::There(remote) => remote.path(),
        }
    }

    /// The chain's number.
    pub(crate) fn chain_id(&self) -> Result<u64, anyhow::Error> {
        match self {
            Self::Here(data) => Ok(data.store.header().chain_id),
            Self::There(remote) => remote.chain_id(),
        }
    }

    pub(crate) fn status(&self) -> Result<PruneStatus, anyhow::Error> {
        match self {
            Self::Here(data) => Ok(data.store.get_prune_status()?),
            Self::There(remote) => remote.get("/v1/status"),
        }
    }

    /// The source that a running node follows; without a node nothing is followed.
    pub(crate) fn source(&self) -> Result<Option<SourceNow>, anyhow::Error> {
        match self {
            Self::Here(_) => Ok(None),
            Self::There(remote) => remote.source(),
        }
    }

    pub(crate) fn plan(&self) -> Result<Plan, anyhow::Error> {
        match self {
            Self::Here(data) => Ok(data.store.prune_plan()?),
            Self::There(remote) => remote.get("/v1/plan"),
        }
    }

    pub(crate) fn policy(&self) -> Result<PrunePolicy, anyhow::Error> {
        match self {
            Self::Here(data) => Ok(data.store.policy()),
            Self::There(remote) => remote.get("/v1/policy"),
        }
    }

    /// Changes keys of the policy, all or none; the policy in force then is the answer.
    pub(crate) fn set_policy(
        &self,
        changes: &[(String, String)],
    ) -> Result<PrunePolicy, anyhow::Error> {
        match self {
            Self::Here(data) => {
                let mut policy = data.store.policy();
                for (key, value) in changes {
                    policy.set(key, value)?;
                }
                data.store.set_prune_policy(policy)?;
            }
            Self::There(remote) => remote.set_policy(changes)?,
        }
        self.policy()
    }

    pub(crate) fn set_pruning(&self, enabled: bool) -> Result<(), anyhow::Error> {
        match self {
            Self::Here(data) => Ok(data.store.set_pruning_enabled(enabled)?),
            Self::There(remote) => remote.set_pruning(enabled),
        }
    }

    /// Prunes one tick, and nothing above block `to`. Without `max_ops` it is what a tick of the daemon
    /// would be granted now.
    pub(crate) fn prune(&self, to: Height, max_ops: Option<u64>) -> Result<Tick, anyhow::Error> {
        match self {
            Self::Here(data) => {
                let max_ops = if let Some(max_ops) = max_ops {
                    max_ops
                } else {
                    let pressure = data.store.get_prune_status()?.pressure;
                    pressure.tick_ops(data.store.policy().max_ops_per_tick)
                };
                let outcome = data.store.prune_blocks(to, max_ops)?;
                Ok(Tick {
                    blocks: outcome.totals.blocks,
                    more: outcome.more(),
                    stop: outcome.stop,
                    report: outcome.report,
                })
            }
            Self::There(remote) => remote.prune(to, max_ops),
        }
    }

    /// Frees what was cut; whether nothing is left in quarantine is the answer.
    pub(crate) fn settle(&self) -> Result<bool, anyhow::Error> {
        match self {
            Self::Here(data) => Ok(data.store.settle()?),
            // The node's own daemon frees it.
            Self::There(_) => Ok(self.status()?.quarantined_bytes == 0),
        }
    }

    pub(crate) fn add_consumer(&self, name: &str, strength: Strength) -> Result<(), anyhow::Error> {
        match self {
            Self::Here(data) => Ok(data.store.register_consumer(name, strength)?),
            Self::There(remote) => remote.add_consumer(name, strength),
        }
    }

    /// Whether it was there is the answer.
    pub(crate) fn remove_consumer(&self, name: &str) -> Result<bool, anyhow::Error> {
        match self {
            Self::Here(data) => Ok(data.store.remove_consumer(name)?),
            Self::There(remote) => remote.remove_consumer(name),
        }
    }

    pub(crate) fn explain_block(&self, height: Height) -> Result<ExplainBlock, anyhow::Error> {
        match self {
            Self::Here(data) => Ok(data.store.explain_block(height)?),
            Self::There(remote) => remote.get(&format!("/v1/explain/block/{height}")),
        }
    }

    pub(crate) fn explain_tx(&self, id: TxId) -> Result<ExplainTx, anyhow::Error> {
        match self {
            Self::Here(data) => Ok(data.store.explain_tx(id)?),
            Self::There(remote) => remote.get(&format!("/v1/explain/tx/{id}")),
        }
    }

    /// Recomputes every invariant, of the blobs too. `at` hears how far it is, where that can be
    /// told.
    pub(crate) fn verify(&self, mut at: impl FnMut(u64, u64)) -> Result<Verified, anyhow::Error> {
        let data = match self {
            Self::Here(data) => data,
            Self::There(remote) => return remote.verify(),
        };
        // Looked for first: that they are gone is told at once.
        let blobs = blobs_in(&data.path, data.store.header().chain_id)?;
        let history = Some(data.store.verify(&mut at)?);
        let sidecars = match blobs {
            Some(blobs) => Some(blobs.verify(&mut at)?.into()),
            None => None,
        };
        Ok(Verified { history, sidecars })
    }

    /// The directory, where this process has it for itself: some things cannot be done beside a
    /// running node.
    pub(crate) fn alone(&self, what: &str) -> Result<&DataDir, NodeError> {
        match self {
            Self::Here(data) => Ok(data),
            Self::There(remote) => Err(NodeError::Refused(format!(
                "{what} needs the data directory for itself, and the node of process {} has it \
                 open; stop that first",
                remote.pid()
            ))),
        }
    }
}

impl Whole {
    /// Opens a directory that has a history or blobs, or finds the node that has it open.
    pub(crate) fn open(path: &Path) -> Result<Self, anyhow::Error> {
        let error = match Desk::open(path) {
            Ok(desk) => return Ok(Self::Desk(desk)),
            Err(error) => error,
        };
        if !matches!(error.downcast_ref(), Some(NodeError::NoHistory(_))) {
            return Err(error);
        }
        let claimed = Claimed::existing(path)?;
        match blobs_in(path, claimed.chain_id())? {
            Some(_) => Ok(Self::Blobs(claimed)),
            None => Err(error),
        }
    }

    /// Recomputes every invariant of what is there.
    pub(crate) fn verify(&self, mut at: impl FnMut(u64, u64)) -> Result<Verified, anyhow::Error> {
        let claimed = match self {
            Self::Desk(desk) => return desk.verify(at),
            Self::Blobs(claimed) => claimed,
        };
        let blobs = blobs_in(claimed.path(), claimed.chain_id())?;
        let blobs = blobs.ok_or_else(|| NodeError::NoBlobs(claimed.path().to_path_buf()))?;
        let sidecars = Some(blobs.verify(&mut at)?.into());
        Ok(Verified { history: None, sidecars })
    }
}

/// The blobs of a directory that this process has for itself, to be looked at: nothing is pruned, so
/// no setting matters.
fn blobs_in(path: &Path, chain_id: u64) -> Result<Option<Arc<DiskSidecars>>, anyhow::Error> {
    let limits = Config::of(&Layers::defaults())?.sidecar.limits;
    let opened = open_existing_at(path, chain_id, &limits)?;
    Ok(opened.map(|opened| opened.store))
}

/// Opens the desk of a named directory, or of the usual one.
pub(crate) fn open(named: Option<PathBuf>, usual: &str) -> Result<Desk, anyhow::Error> {
    Desk::open(&named.unwrap_or_else(|| PathBuf::from(usual)))
}
