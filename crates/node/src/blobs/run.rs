//! Everything of a node's blobs together: started, asked, and ended with the node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use bytes::Bytes;
use secateur_core::Height;
use secateur_proto::sidecar::v1::gossip_server::GossipServer;
use secateur_sidecar::compat::AlsoV0;
use secateur_sidecar::copies::Copies;
use secateur_sidecar::engine::{BlobMeta, PruneReport, StoredBlob, Summary};
use secateur_sidecar::gossip::{Gossip, GossipService, Mesh, MeshOptions, NoticeBook, PeerState};
use secateur_sidecar::pruner::PrunerObserver as _;
use secateur_sidecar::reader::Reader;
use secateur_sidecar::service::{Identity, ServiceOptions, Sidecars};
use secateur_sidecar::{SidecarError, VersionedHash};
use secateur_store::SystemClock;
use secateur_store::ground::disk::{FileArena, FsVolume, RedbIndex};
use tokio::sync::watch;

use super::counts::Counts;
use super::proofs::Proofs;
use super::{DiskSidecars, identity, open, providers, verifier};
use crate::config::NodeBlobs;
use crate::data_dir::{DataDir, random_store_id};
use crate::service::ApiError;

type Arena = FileArena<FsVolume>;

/// A node's blobs.
#[derive(Debug)]
pub(crate) struct Blobs {
    sidecars: Sidecars<Arena, RedbIndex>,
    reader: Reader<Arena, RedbIndex>,
    mesh: Arc<Mesh>,
    counts: Counts,
    /// Who this node is, if its notices are told in the older form too.
    older: Option<Identity>,
    proofs: Proofs,
    /// The last proposal did not fit on the disk.
    full: AtomicBool,
}

impl Blobs {
    /// Opens and checks everything, and begins to connect to peers. Called within a runtime.
    pub(crate) fn start(data: &DataDir, settings: &NodeBlobs) -> Result<Self, anyhow::Error> {
        // What can be wrong with the configuration is asked before anything is opened.
        let identity = identity(settings)?;
        let verifier = verifier(settings, data.store.header().chain_id)?;
        let providers = providers(settings)?;
        let store = open(data, &settings.limits)?;
        // The jitter of nodes that start together must differ; it decides nothing else.
        let random = random_store_id()?;
        let seed = random.first_chunk().copied().map_or(0, u64::from_be_bytes);
        let (counts, metrics) = Counts::new();
        // Only what asks a provider waits for a place: what is here is read at once.
        let copies = Copies::new(&providers).bounded(settings.at_once);
        let older = identity.clone().filter(|_| settings.also_send_v0);
        let options = ServiceOptions {
            identity,
            min_copies: settings.min_copies,
            at_once: settings.at_once,
            rebroadcast_blocks: settings.rebroadcast_blocks,
            seed,
        };
        let sidecars = Sidecars::new(
            Arc::clone(&store),
            providers,
            verifier,
            Arc::new(SystemClock),
            Arc::new(metrics),
            options,
        )?;
        let mesh = MeshOptions { seed, ..settings.mesh.clone() };
        let book: Arc<dyn NoticeBook> = Arc::clone(sidecars.book()) as _;
        let mesh = Mesh::start(&mesh, Some(book)).context("starting the mesh of sidecar.peers")?;
        Ok(Self {
            reader: Reader::new(store, copies, settings.serve_archived, settings.read_through),
            sidecars,
            mesh: Arc::new(mesh),
            counts,
            older,
            proofs: Proofs::default(),
            full: AtomicBool::new(false),
        })
    }

    /// Archives, announces and prunes until the node stops, or the store fails.
    pub(crate) async fn run(&self, stopping: watch::Receiver<bool>) -> Result<(), anyhow::Error> {
        let mesh = Arc::clone(&self.mesh);
        let gossip: Arc<dyn Gossip> = match self.older.clone() {
            Some(identity) => Arc::new(AlsoV0::new(mesh, identity)),
            None => mesh,
        };
        let ended = self.sidecars.run(gossip, stopping).await;
        self.mesh.stop().await;
        ended.context("keeping blobs")
    }

    /// All of it, for whoever changes something.
    pub(crate) fn sidecars(&self) -> &Sidecars<Arena, RedbIndex> {
        &self.sidecars
    }

    /// The store, for questions that only look.
    pub(crate) fn store(&self) -> &Arc<DiskSidecars> {
        self.sidecars.store()
    }

    /// What is known of the peers.
    pub(crate) fn peers(&self) -> Vec<PeerState> {
        self.mesh.peers()
    }

    /// What answers peers.
    pub(crate) fn gossip(&self) -> GossipServer<GossipService> {
        self.mesh.service()
    }

    /// Whether the store refuses writes.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.store().poisoned().is_some()
    }

    /// Those blobs of a height that are wanted.
    pub(crate) async fn blobs(
        &self,
        height: Height,
        wanted: impl Fn(&BlobMeta) -> bool + Send + 'static,
    ) -> Result<Vec<StoredBlob>, ApiError> {
        Ok(self.reader.blobs_where(height, wanted).await?)
    }

    /// A blob from an archived copy.
    pub(crate) async fn fetch(&self, height: Height, index: u32) -> Result<StoredBlob, ApiError> {
        Ok(self.reader.fetch(height, index).await?)
    }

    /// The blobs that transactions name so, as far as their bytes are here.
    pub(crate) async fn by_hashes(
        &self,
        hashes: Vec<VersionedHash>,
    ) -> Result<Vec<Option<StoredBlob>>, ApiError> {
        Ok(self.reader.by_hashes(hashes).await?)
    }

    /// Computes the KZG proofs that the source of a blob did not give.
    pub(crate) async fn prove(&self, found: &mut [Option<StoredBlob>]) -> Result<(), ApiError> {
        for one in found.iter_mut().flatten().filter(|one| one.meta.proof.is_none()) {
            one.meta.proof = Some(self.proofs.of(one).await?);
        }
        Ok(())
    }

    /// Something was refused.
    pub(crate) fn refused(&self, error: &ApiError) {
        let reason = match error {
            ApiError::Blobs(error) => error.label(),
            ApiError::DiskFull(_) => {
                self.full.store(true, Ordering::Relaxed);
                "disk_full"
            }
            _ => return,
        };
        tracing::warn!(%error, "a change of blobs was refused");
        self.counts.refused(reason);
    }

    /// A proposal with blobs was taken.
    pub(crate) fn has_room(&self) {
        self.full.store(false, Ordering::Relaxed);
    }

    /// Whether the disk had no room for the last proposal.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// A prune that was asked for did something.
    pub(crate) fn pruned(&self, report: &PruneReport) {
        if report.heights > 0 || report.failures > 0 {
            self.sidecars.metrics().pruned(report);
        }
    }

    /// Writes what was counted, and the store as it is.
    pub(crate) fn write(&self, summary: Option<&Summary>, to: &mut String) -> std::fmt::Result {
        if let Some(summary) = summary {
            self.sidecars.metrics().look(summary);
        }
        self.counts.write(self.mesh.counts(), to)
    }
}

/// The bytes of a proof, where there is one.
pub(crate) fn proof_bytes(meta: &BlobMeta) -> Bytes {
    meta.proof.map_or_else(Bytes::new, |proof| Bytes::copy_from_slice(&proof.0))
}

impl From<SidecarError> for ApiError {
    fn from(error: SidecarError) -> Self {
        match error {
            SidecarError::Store(error) => error.into(),
            error => Self::Blobs(Arc::new(error)),
        }
    }
}
