//! `secateur.sidecar.v1.Sidecar`: blobs in and out. Each call that changes something leaves a line
//! in the audit log, and what is refused is counted.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use secateur_core::Height;
use secateur_proto::sidecar::v1::{self as pb, sidecar_server};
use secateur_sidecar::engine::{Decided, PruneReport, Stored, StoredBlob};
use secateur_sidecar::{BLOB_LEN, Proposal, SidecarError};
use tonic::{Request, Response, Status, Streaming};

use super::entry::Entry;
use super::proposal::{self, Broken};
use super::status;
use crate::blobs::{Blobs, DiskSidecars, proof_bytes};
use crate::security::Guard;
use crate::service::{ApiError, Node, Room};

/// Indexes of one request, at most.
const MOST_INDEXES: usize = secateur_sidecar::MAX_BLOBS as usize;

/// A list that is sent piece by piece.
type Sent<T> = stream::Iter<std::vec::IntoIter<Result<T, Status>>>;

/// The service.
#[derive(Debug)]
pub(super) struct Sidecar {
    node: Arc<Node>,
    guard: Arc<Guard>,
    blobs: Arc<Blobs>,
}

/// The full name of a method, for the audit log.
macro_rules! call {
    ($method:literal) => {
        concat!("/secateur.sidecar.v1.Sidecar/", $method)
    };
}

impl Sidecar {
    /// The service, where blobs are kept.
    pub(super) fn new(node: &Arc<Node>, guard: &Arc<Guard>) -> Option<Self> {
        let blobs = node.blobs.clone()?;
        Some(Self { node: Arc::clone(node), guard: Arc::clone(guard), blobs })
    }

    /// Runs one change and notes it. It goes on to its end, and to its line in the log, though
    /// whoever asked has gone.
    async fn change<T: Send + 'static>(
        &self,
        entry: Entry,
        work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let blobs = Arc::clone(&self.blobs);
        let done = tokio::spawn(async move {
            let done = entry.over(work).await;
            if let Err(error) = &done {
                blobs.refused(error);
            }
            done
        });
        let done = done.await.unwrap_or_else(|error| Err(ApiError::Internal(error.to_string())));
        done.map(Response::new).map_err(|error| status::sidecar(&error))
    }

    /// Reads a proposal and does something with it.
    async fn take<T, F>(
        &self,
        request: Request<Streaming<pb::ProposalPart>>,
        call: &'static str,
        work: impl FnOnce(Arc<Blobs>, Proposal) -> F,
    ) -> Result<Response<T>, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ApiError>> + Send + 'static,
    {
        let (parts, extensions, mut stream) = request.into_parts();
        let request = Request::from_parts(parts, extensions, ());
        let entry = |what: &str| Entry::new(&self.guard, &request, call, what);
        let max_blobs = self.blobs.store().config().max_blobs;
        match proposal::read(&self.node, max_blobs, &mut stream).await {
            Ok((proposal, room)) => {
                let Proposal { height, round, .. } = proposal;
                let count = proposal.sidecars.len();
                let what = format!("height {height} round {round}, {count} blobs");
                let work = work(Arc::clone(&self.blobs), proposal);
                let taken = self.change(entry(&what), kept(room, work)).await?;
                if count > 0 {
                    // A height without blobs fits on any disk, and says nothing of it.
                    self.blobs.has_room();
                }
                Ok(taken)
            }
            Err(Broken::Wrong(error)) => {
                self.change(entry("a proposal that is none"), async move { Err(error) }).await
            }
            Err(Broken::Stream(status)) => Err(status),
        }
    }

    /// Room for the blobs of a height, before they are read.
    async fn room(&self, height: Height, most: Option<usize>) -> Result<Room, ApiError> {
        let record = self.node.ask_blobs(move |store| store.height(height)).await?;
        let record = record.ok_or(SidecarError::Unknown(height))?;
        let count = (record.blob_count as usize).min(most.unwrap_or(usize::MAX));
        self.node.rooms.take(count.saturating_mul(BLOB_LEN))
    }

    async fn some(&self, asked: pb::GetBlobsRequest) -> Result<(Vec<pb::Blob>, Room), ApiError> {
        let pb::GetBlobsRequest { height, indexes } = asked;
        if indexes.len() > MOST_INDEXES {
            return Err(ApiError::Limit(format!("at most {MOST_INDEXES} indexes are taken")));
        }
        let most = (!indexes.is_empty()).then_some(indexes.len());
        let room = self.room(height, most).await?;
        let all = self.node.ask_blobs(move |store| store.blob_metas(height)).await?;
        let blob_count = u32::try_from(all.len()).unwrap_or(u32::MAX);
        if let Some(index) = indexes.iter().copied().find(|index| *index >= blob_count) {
            return Err(SidecarError::NoSuchBlob { height, index, blob_count }.into());
        }
        let wanted = move |index| indexes.is_empty() || indexes.contains(&index);
        let blobs = self.blobs.blobs(height, move |meta| wanted(meta.index)).await?;
        Ok((blobs.into_iter().map(blob).collect(), room))
    }
}

/// Work that keeps a room until it is done.
async fn kept<T>(room: Room, work: impl Future<Output = T>) -> T {
    let done = work.await;
    drop(room);
    done
}

/// A list on its way out, with the memory that it takes.
fn sent<T>(some: Vec<Result<T, Status>>, room: Room) -> Response<Sent<T>> {
    let mut response = Response::new(stream::iter(some));
    response.extensions_mut().insert(Arc::new(room));
    response
}

fn blob(found: StoredBlob) -> pb::Blob {
    let meta = found.meta;
    pb::Blob {
        height: meta.height,
        index: meta.index,
        kzg_commitment: Bytes::copy_from_slice(&meta.commitment.0),
        kzg_proof: proof_bytes(&meta),
        versioned_hash: Bytes::copy_from_slice(&meta.versioned_hash.0),
        blob_keccak: Bytes::copy_from_slice(&meta.keccak.0),
        blob: found.blob,
    }
}

fn pruned(report: &PruneReport) -> pb::PruneBlobsResponse {
    pb::PruneBlobsResponse {
        heights: report.heights,
        blobs: report.blobs,
        bytes: report.bytes,
        failures: report.failures,
        first: report.first,
        last: report.last,
        held: report.held,
        first_held: report.first_held.map(|(height, _)| height),
        hold: report.first_held.map(|(_, hold)| hold.word().to_owned()).unwrap_or_default(),
        more: report.more,
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[tonic::async_trait]
impl sidecar_server::Sidecar for Sidecar {
    type GetBlobsStream = Sent<pb::Blob>;
    type GetUndecidedStream = Sent<pb::ProposalPart>;

    async fn store_proposal(
        &self,
        request: Request<Streaming<pb::ProposalPart>>,
    ) -> Result<Response<pb::StoreProposalResponse>, Status> {
        self.take(request, call!("StoreProposal"), |blobs, proposal| async move {
            let stored = blobs.sidecars().store_proposal(proposal).await?;
            Ok(pb::StoreProposalResponse { known: stored != Stored::New })
        })
        .await
    }

    async fn store_decided(
        &self,
        request: Request<Streaming<pb::ProposalPart>>,
    ) -> Result<Response<pb::StoreDecidedResponse>, Status> {
        self.take(request, call!("StoreDecided"), |blobs, proposal| async move {
            let decided = blobs.sidecars().store_decided(vec![proposal]).await?;
            let nothing = || ApiError::Internal("a decision has no answer".into());
            let decided = decided.into_iter().next().ok_or_else(nothing)??;
            Ok(pb::StoreDecidedResponse { known: decided == Decided::Known })
        })
        .await
    }

    async fn mark_decided(
        &self,
        request: Request<pb::MarkDecidedRequest>,
    ) -> Result<Response<pb::MarkDecidedResponse>, Status> {
        let pb::MarkDecidedRequest { height, round } = *request.get_ref();
        let what = format!("height {height} round {round}");
        let entry = Entry::new(&self.guard, &request, call!("MarkDecided"), &what);
        let blobs = Arc::clone(&self.blobs);
        self.change(entry, async move {
            let decided = blobs.sidecars().decided(height, round).await?;
            Ok(pb::MarkDecidedResponse { known: decided == Decided::Known })
        })
        .await
    }

    async fn drop_round(
        &self,
        request: Request<pb::DropRoundRequest>,
    ) -> Result<Response<pb::DropRoundResponse>, Status> {
        let pb::DropRoundRequest { height, round } = *request.get_ref();
        let what = format!("height {height} round {round}");
        let entry = Entry::new(&self.guard, &request, call!("DropRound"), &what);
        let node = Arc::clone(&self.node);
        self.change(entry, async move {
            let dropped = node.ask_blobs(move |store| store.drop_round(height, round)).await?;
            Ok(pb::DropRoundResponse { dropped })
        })
        .await
    }

    async fn set_finalized(
        &self,
        request: Request<pb::SetBlobsFinalizedRequest>,
    ) -> Result<Response<pb::SetBlobsFinalizedResponse>, Status> {
        let height = request.get_ref().height;
        let what = format!("height {height}");
        let entry = Entry::new(&self.guard, &request, call!("SetFinalized"), &what);
        let (node, blobs) = (Arc::clone(&self.node), Arc::clone(&self.blobs));
        self.change(entry, async move {
            blobs.sidecars().finalized(height).await?;
            let summary = node.ask_blobs(DiskSidecars::summary).await?;
            let finalized = summary.finalized.unwrap_or(height);
            Ok(pb::SetBlobsFinalizedResponse { finalized })
        })
        .await
    }

    async fn get_blobs(
        &self,
        request: Request<pb::GetBlobsRequest>,
    ) -> Result<Response<Self::GetBlobsStream>, Status> {
        let some = self.some(request.into_inner()).await;
        let (blobs, room) = some.map_err(|error| status::sidecar(&error))?;
        Ok(sent(blobs.into_iter().map(Ok).collect(), room))
    }

    async fn get_undecided(
        &self,
        request: Request<pb::GetUndecidedRequest>,
    ) -> Result<Response<Self::GetUndecidedStream>, Status> {
        let pb::GetUndecidedRequest { height, round } = request.into_inner();
        let most = self.blobs.store().config().max_blobs as usize;
        let some = async {
            let room = self.node.rooms.take(most.saturating_mul(BLOB_LEN))?;
            let found = self.node.ask_blobs(move |store| store.get_undecided(height, round));
            Ok((proposal::parts(found.await?), room))
        };
        let (parts, room) = some.await.map_err(|error: ApiError| status::sidecar(&error))?;
        Ok(sent(parts, room))
    }

    async fn fetch(
        &self,
        request: Request<pb::FetchRequest>,
    ) -> Result<Response<pb::Blob>, Status> {
        let pb::FetchRequest { height, index } = request.into_inner();
        let found = self.blobs.fetch(height, index).await;
        found.map(|found| Response::new(blob(found))).map_err(|error| status::sidecar(&error))
    }

    async fn prune_blobs(
        &self,
        request: Request<pb::PruneBlobsRequest>,
    ) -> Result<Response<pb::PruneBlobsResponse>, Status> {
        let before = request.get_ref().before;
        let what = before.map_or_else(|| "whatever may go".into(), |at| format!("below {at}"));
        let entry = Entry::new(&self.guard, &request, call!("PruneBlobs"), &what);
        let (node, blobs) = (Arc::clone(&self.node), Arc::clone(&self.blobs));
        self.change(entry, async move {
            let before = before.unwrap_or(Height::MAX);
            let report = node.ask_blobs(move |store| store.prune_step(before)).await?;
            blobs.pruned(&report);
            Ok(pruned(&report))
        })
        .await
    }

    async fn retry(
        &self,
        request: Request<pb::RetryRequest>,
    ) -> Result<Response<pb::RetryResponse>, Status> {
        let height = request.get_ref().height;
        let what = format!("height {height}");
        let entry = Entry::new(&self.guard, &request, call!("Retry"), &what);
        let blobs = Arc::clone(&self.blobs);
        self.change(entry, async move {
            let blobs = count(blobs.sidecars().retry(height).await?);
            Ok(pb::RetryResponse { blobs })
        })
        .await
    }

    async fn rebroadcast(
        &self,
        request: Request<pb::RebroadcastRequest>,
    ) -> Result<Response<pb::RebroadcastResponse>, Status> {
        let height = request.get_ref().height;
        let what = format!("height {height}");
        let entry = Entry::new(&self.guard, &request, call!("Rebroadcast"), &what);
        let blobs = Arc::clone(&self.blobs);
        self.change(entry, async move {
            let notices = count(blobs.sidecars().rebroadcast(height).await?);
            Ok(pb::RebroadcastResponse { notices })
        })
        .await
    }
}
