//! `secateur.history.v1.Admin`: everything that changes the history. Each call leaves a line in the
//! audit log.

use std::sync::Arc;

use parking_lot::Mutex;
use secateur_core::{Block, Height, Locator, Part};
use secateur_index::codec::CodecName;
use secateur_proto::history::v1::{self as pb, admin_server};
use secateur_store::ground::disk::DiskStore;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use super::entry::Entry;
use super::{convert, status, stopped};
use crate::http::metrics::Metrics;
use crate::security::Guard;
use crate::service::{ApiError, Node};

/// Blocks of one append.
const MOST_BLOCKS: usize = 1_024;
/// Transactions that are queued at once.
const MOST_QUEUED: usize = 4_096;
/// Policy keys that are changed at once: there are fewer.
const MOST_CHANGES: usize = 64;

/// The service.
#[derive(Debug)]
pub(super) struct Admin {
    node: Arc<Node>,
    guard: Arc<Guard>,
    /// Held while a policy is read, changed and written.
    policy: Arc<Mutex<()>>,
    /// One verification at a time.
    verifying: Arc<Semaphore>,
    /// One archive part at a time.
    acknowledging: Arc<Semaphore>,
}

/// The full name of a method, for the audit log.
macro_rules! call {
    ($method:literal) => {
        concat!("/secateur.history.v1.Admin/", $method)
    };
}

impl Admin {
    pub(super) fn new(node: &Arc<Node>, guard: &Arc<Guard>) -> Self {
        Self {
            node: Arc::clone(node),
            guard: Arc::clone(guard),
            policy: Arc::default(),
            verifying: Arc::new(Semaphore::new(1)),
            acknowledging: Arc::new(Semaphore::new(1)),
        }
    }

    /// Runs one change and notes it.
    async fn change<Q, T: Send + 'static>(
        &self,
        request: Request<Q>,
        call: &'static str,
        what: String,
        work: impl FnOnce(&DiskStore, Q) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<Response<T>, Status>
    where
        Q: Send + 'static,
    {
        let entry = Entry::new(&self.guard, &request, call, &what);
        let request = request.into_inner();
        let answer = self.node.ask(move |store| entry.around(|| work(store, request))).await;
        answer.map(Response::new).map_err(|error| status::history(&error))
    }
}

fn bad(reason: impl Into<String>) -> ApiError {
    ApiError::BadRequest(reason.into())
}

/// `blocks 5..9`, both ends included.
fn range_of(blocks: &[pb::Block]) -> String {
    let number = |block: Option<&pb::Block>| Some(block?.meta.as_ref()?.number);
    match (number(blocks.first()), number(blocks.last())) {
        (Some(first), Some(last)) => format!("blocks {first}..{last}"),
        _ => "no blocks".into(),
    }
}

fn append(
    store: &DiskStore,
    request: pb::AppendRequest,
    codec: Option<CodecName>,
) -> Result<pb::AppendResponse, ApiError> {
    let len = request.blocks.len();
    if len == 0 || len > MOST_BLOCKS {
        return Err(bad(format!(
            "{len} blocks were sent; 1 to {MOST_BLOCKS} are taken at once; nothing was written"
        )));
    }
    let blocks: Vec<Block> = request
        .blocks
        .into_iter()
        .map(|block| convert::block_in(block, codec))
        .collect::<Result<_, _>>()?;
    let appended = store.append_group(&blocks)?;
    Ok(pb::AppendResponse { head: appended.head, written: appended.written })
}

fn queue(
    store: &DiskStore,
    request: &pb::QueueTransactionsRequest,
) -> Result<pb::QueueTransactionsResponse, ApiError> {
    let len = request.tx_ids.len();
    if len > MOST_QUEUED {
        return Err(bad(format!(
            "{len} transactions were sent; at most {MOST_QUEUED} are taken at once; nothing was \
             queued"
        )));
    }
    let ids: Vec<_> =
        request.tx_ids.iter().map(|id| convert::tx_id(id)).collect::<Result<_, _>>()?;
    let results = store.queue_txs(&ids)?.into_iter().map(convert::queued).collect();
    Ok(pb::QueueTransactionsResponse { results })
}

fn roll_back(
    store: &DiskStore,
    request: pb::RollbackRequest,
) -> Result<pb::RollbackResponse, ApiError> {
    let removed = match (request.to, store.get_prune_status()?.oldest_kept_block) {
        (Some(to), _) => store.rollback(to)?,
        (None, None) => 0,
        (None, Some(oldest)) => {
            let below = oldest.checked_sub(1).ok_or_else(|| {
                ApiError::Refused(
                    "block 0 has no block below it to roll back to; nothing was changed. Begin \
                     with a new data directory"
                        .into(),
                )
            })?;
            store.rollback(below)?
        }
    };
    Ok(pb::RollbackResponse { removed, head: store.head() })
}

fn set_policy(
    store: &DiskStore,
    request: &pb::SetPolicyRequest,
) -> Result<pb::SetPolicyResponse, ApiError> {
    if request.changes.len() > MOST_CHANGES {
        return Err(bad("there are not so many policy keys; nothing was changed"));
    }
    let mut policy = store.policy();
    for (key, value) in &request.changes {
        policy.set(key, value).map_err(|error| bad(error.to_string()))?;
    }
    store.set_prune_policy(policy)?;
    Ok(pb::SetPolicyResponse { policy: convert::policy(&store.policy()) })
}

fn prune(
    store: &DiskStore,
    metrics: &Metrics,
    request: pb::PruneRequest,
) -> Result<pb::PruneResponse, ApiError> {
    let max_ops = match request.max_ops {
        // What a tick of the daemon would be granted now.
        0 => store.get_prune_status()?.pressure.tick_ops(store.policy().max_ops_per_tick),
        named => named,
    };
    let outcome = store.prune_blocks(request.to.unwrap_or(Height::MAX), max_ops)?;
    metrics.pruned(&outcome);
    Ok(pb::PruneResponse {
        blocks: outcome.totals.blocks,
        bytes: outcome.totals.bytes,
        more: outcome.more(),
        stop: Some(convert::stop(&outcome.stop)),
        report: outcome.report.as_ref().map(convert::report),
    })
}

fn part_of(request: pb::AckArchivedRequest) -> Result<Part, ApiError> {
    let sha256 = convert::array("the SHA-256 of the part", &request.sha256)?;
    Ok(Part {
        first: request.first,
        last: request.last,
        parent_hash: convert::block_hash("the parent hash", &request.parent_hash)?,
        last_hash: convert::block_hash("the last block's hash", &request.last_hash)?,
        locator: Locator { provider: request.provider, key: request.key },
        sha256: alloy_primitives::hex::encode(sha256),
        size: request.size,
    })
}

#[tonic::async_trait]
impl admin_server::Admin for Admin {
    async fn append(
        &self,
        request: Request<pb::AppendRequest>,
    ) -> Result<Response<pb::AppendResponse>, Status> {
        let what = range_of(&request.get_ref().blocks);
        let (codec, backpressure) = (self.node.chain.codec, self.node.backpressure);
        self.change(request, call!("Append"), what, move |store, asked| {
            if backpressure && store.pressure().emergency {
                return Err(ApiError::Emergency);
            }
            append(store, asked, codec)
        })
        .await
    }

    async fn queue_transactions(
        &self,
        request: Request<pb::QueueTransactionsRequest>,
    ) -> Result<Response<pb::QueueTransactionsResponse>, Status> {
        let what = format!("{} transactions", request.get_ref().tx_ids.len());
        self.change(request, call!("QueueTransactions"), what, |store, asked| queue(store, &asked))
            .await
    }

    async fn set_finalized(
        &self,
        request: Request<pb::SetFinalizedRequest>,
    ) -> Result<Response<pb::SetFinalizedResponse>, Status> {
        let what = format!("block {}", request.get_ref().block_number);
        self.change(request, call!("SetFinalized"), what, |store, asked| {
            store.set_finalized(asked.block_number)?;
            // The newest exportable block is the newest final one.
            Ok(pb::SetFinalizedResponse { finalized: store.get_head() })
        })
        .await
    }

    async fn rollback(
        &self,
        request: Request<pb::RollbackRequest>,
    ) -> Result<Response<pb::RollbackResponse>, Status> {
        let to = request.get_ref().to;
        let what = to.map_or_else(|| "to nothing".into(), |to| format!("to block {to}"));
        self.change(request, call!("Rollback"), what, roll_back).await
    }

    async fn set_policy(
        &self,
        request: Request<pb::SetPolicyRequest>,
    ) -> Result<Response<pb::SetPolicyResponse>, Status> {
        let mut changes: Vec<String> =
            request.get_ref().changes.iter().map(|(key, value)| format!("{key}={value}")).collect();
        changes.sort();
        let policy = Arc::clone(&self.policy);
        self.change(request, call!("SetPolicy"), changes.join(" "), move |store, asked| {
            let _one_at_a_time = policy.lock();
            set_policy(store, &asked)
        })
        .await
    }

    async fn set_pruning(
        &self,
        request: Request<pb::SetPruningRequest>,
    ) -> Result<Response<pb::SetPruningResponse>, Status> {
        let what = if request.get_ref().enabled { "on" } else { "off" };
        self.change(request, call!("SetPruning"), what.into(), |store, asked| {
            store.set_pruning_enabled(asked.enabled)?;
            Ok(pb::SetPruningResponse { enabled: asked.enabled })
        })
        .await
    }

    async fn prune(
        &self,
        request: Request<pb::PruneRequest>,
    ) -> Result<Response<pb::PruneResponse>, Status> {
        let pb::PruneRequest { max_ops, to } = request.get_ref();
        let what = match max_ops {
            0 => "a tick".into(),
            ops => format!("at most {ops} operations"),
        };
        let what = to.map_or(what.clone(), |to| format!("{what}, up to block {to}"));
        let metrics = Arc::clone(&self.node.metrics);
        let prune = move |store: &DiskStore, asked| prune(store, &metrics, asked);
        self.change(request, call!("Prune"), what, prune).await
    }

    async fn register_consumer(
        &self,
        request: Request<pb::RegisterConsumerRequest>,
    ) -> Result<Response<pb::RegisterConsumerResponse>, Status> {
        let what = format!("consumer {}", request.get_ref().name);
        self.change(request, call!("RegisterConsumer"), what, |store, asked| {
            store.register_consumer(&asked.name, convert::strength_in(asked.strength)?)?;
            Ok(pb::RegisterConsumerResponse {})
        })
        .await
    }

    async fn remove_consumer(
        &self,
        request: Request<pb::RemoveConsumerRequest>,
    ) -> Result<Response<pb::RemoveConsumerResponse>, Status> {
        let what = format!("consumer {}", request.get_ref().name);
        self.change(request, call!("RemoveConsumer"), what, |store, asked| {
            Ok(pb::RemoveConsumerResponse { was_there: store.remove_consumer(&asked.name)? })
        })
        .await
    }

    async fn ack_exported(
        &self,
        request: Request<pb::AckExportedRequest>,
    ) -> Result<Response<pb::AckExportedResponse>, Status> {
        let pb::AckExportedRequest { consumer, block_number } = request.get_ref();
        let what = format!("block {block_number} for consumer {consumer}");
        self.change(request, call!("AckExported"), what, |store, asked| {
            let acked = store.ack_exported(&asked.consumer, asked.block_number)?;
            Ok(pb::AckExportedResponse { acked })
        })
        .await
    }

    async fn ack_archived(
        &self,
        request: Request<pb::AckArchivedRequest>,
    ) -> Result<Response<pb::AckArchivedResponse>, Status> {
        let asked = request.get_ref();
        let what = format!("blocks {}..{} in {}", asked.first, asked.last, asked.key);
        let entry = Entry::new(&self.guard, &request, call!("AckArchived"), &what);
        let part = part_of(request.into_inner()).map_err(|error| status::history(&error))?;
        // Whoever gave up and asks again waits for the first answer, and then finds the part known.
        let turn = Arc::clone(&self.acknowledging).acquire_owned().await;
        let turn = turn.map_err(|_| status::stopping())?;
        let node = Arc::clone(&self.node);
        // Beside the bounded way to the store, because a part is read as long as that takes.
        let acknowledging = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            entry.around(|| match &node.vault {
                Some(vault) => vault.acknowledge(&node.store, &part),
                None => Ok(node.store.ack_archived(&part)?),
            })
        });
        tokio::select! {
            archived = acknowledging => {
                let archived = archived
                    .unwrap_or_else(|error| Err(ApiError::Internal(error.to_string())))
                    .map_err(|error| status::history(&error))?;
                Ok(Response::new(pb::AckArchivedResponse { archived }))
            }
            () = stopped(self.node.stopping.clone()) => Err(status::stopping()),
        }
    }

    async fn verify(
        &self,
        request: Request<pb::VerifyRequest>,
    ) -> Result<Response<pb::VerifyResponse>, Status> {
        let entry = Entry::new(&self.guard, &request, call!("Verify"), "everything");
        let turn = Arc::clone(&self.verifying).try_acquire_owned().map_err(|_| {
            Status::resource_exhausted("a verification is running already; ask again after it")
        })?;
        let store = Arc::clone(&self.node.store);
        let blobs = self.node.blobs().ok().map(|blobs| Arc::clone(blobs.store()));
        // Beside the bounded way to the store, because it takes longer than that allows.
        let verifying = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            entry.around(|| {
                let history = store.verify(|_, _| {})?;
                let blobs = blobs.map(|blobs| blobs.verify(|_, _| {})).transpose()?;
                Ok((history, blobs))
            })
        });
        tokio::select! {
            verified = verifying => {
                let (history, blobs) = verified
                    .unwrap_or_else(|error| Err(ApiError::Internal(error.to_string())))
                    .map_err(|error| status::history(&error))?;
                Ok(Response::new(convert::verified(history, blobs)))
            }
            () = stopped(self.node.stopping.clone()) => Err(status::stopping()),
        }
    }
}
