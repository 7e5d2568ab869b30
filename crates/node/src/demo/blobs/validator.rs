//! One validator: its directory, its key, its store of blobs, and what runs on them.
//!
//! The first is the demo's own node. The others have data directories and sockets of their own; what
//! they do is the same.

use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use secateur_core::Height;
use secateur_sidecar::gossip::{Mesh, MeshOptions, Peer, ServeOptions};
use secateur_sidecar::metrics::SidecarMetrics;
use secateur_sidecar::notice::{NoticeKey, ValidatorTerm, keygen};
use secateur_sidecar::service::{ServiceOptions, Sidecars};
use secateur_store::SystemClock;
use secateur_store::ground::disk::{FileArena, FsVolume, RedbIndex};
use tokio::sync::watch;

use super::schedule::{VALIDATORS, proposal, validator_id};
use super::settings;
use crate::blobs::{self, Blobs, DiskSidecars};
use crate::config::{Config, Layers, NodeBlobs};
use crate::data_dir::Claimed;

/// A validator's blobs, at work.
type Service = Sidecars<FileArena<FsVolume>, RedbIndex>;

/// A validator beside the first one that is opened and does nothing yet.
pub(super) struct Opened {
    number: u8,
    settings: NodeBlobs,
    pub(super) store: Arc<DiskSidecars>,
    socket: TcpListener,
    peer: Peer,
    /// The lock of its directory.
    _claimed: Claimed,
}

/// What a validator is called among its peers.
fn name(number: u8) -> String {
    format!("validator-{number}")
}

impl Opened {
    fn open(data: &Path, number: u8, claimed: Claimed) -> Result<Self, anyhow::Error> {
        let mut layers = Layers::defaults();
        layers.file(&settings::file(data, number))?;
        let settings = Config::of(&layers)?.sidecar;
        let store = blobs::open_at(claimed.path(), claimed.chain_id(), &settings.limits)?;
        let socket = TcpListener::bind(("127.0.0.1", 0)).context("listening for notices")?;
        socket.set_nonblocking(true)?;
        let peer = Peer { name: name(number), url: format!("http://{}", socket.local_addr()?) };
        Ok(Self { number, settings, store, socket, peer, _claimed: claimed })
    }

    /// Where it listens for notices.
    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Everything that works on its blobs.
    fn service(&self) -> Result<Service, anyhow::Error> {
        let options = ServiceOptions {
            identity: blobs::identity(&self.settings)?,
            min_copies: self.settings.min_copies,
            at_once: self.settings.at_once,
            rebroadcast_blocks: self.settings.rebroadcast_blocks,
            seed: u64::from(self.number),
        };
        Ok(Sidecars::new(
            Arc::clone(&self.store),
            blobs::providers(&self.settings)?,
            blobs::verifier(&self.settings, self.store.config().chain_id)?,
            Arc::new(SystemClock),
            Arc::new(SidecarMetrics::default()),
            options,
        )?)
    }
}

/// Makes the keys and the files of all validators in a demo's directory, which is locked already, as
/// far as they are not there, and opens all but the first.
pub(super) fn open_others(data: &Path, chain_id: u64) -> Result<Vec<Opened>, anyhow::Error> {
    let (mut locks, mut terms) = (Vec::new(), Vec::new());
    for number in 1..=VALIDATORS {
        if number > 1 {
            let own = settings::directory(data, number);
            locks.push((number, Claimed::existing_or_new(&own, chain_id)?));
        }
        let public_key = key(&settings::key_file(data, number))?.public_key();
        let id = validator_id(number)?;
        terms.push(ValidatorTerm { id, public_key, from_height: 0, to_height: None });
    }
    for number in 1..=VALIDATORS {
        settings::write(data, number, &terms)?;
    }
    let open = |(number, lock)| {
        Opened::open(data, number, lock)
            .with_context(|| format!("opening validator {number} of the demo"))
    };
    locks.into_iter().map(open).collect()
}

/// The key in a file, which is made if it is not there.
fn key(path: &Path) -> Result<NoticeKey, anyhow::Error> {
    let missing = |path: &Path| matches!(path.symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound);
    if !missing(path) {
        return Ok(NoticeKey::read(path)?);
    }
    // What a crash left of an earlier attempt: nobody has used it, and the directory is ours.
    let unfinished = path.with_extension("key.unfinished");
    if !missing(&unfinished) {
        std::fs::remove_file(&unfinished).context("removing an unfinished key")?;
    }
    Ok(keygen(path)?)
}

/// A validator that takes part.
pub(super) enum Running {
    /// The demo's own node, which runs it.
    Node(Arc<Blobs>),
    /// One of the others.
    Beside { sidecars: Arc<Service>, mesh: Arc<Mesh> },
}

impl Running {
    /// Connects one of the others with all of its peers. Called within a runtime.
    pub(super) fn connect(opened: &Opened, peers: &[Peer]) -> Result<Self, anyhow::Error> {
        let sidecars = Arc::new(opened.service()?);
        let options = MeshOptions {
            peers: peers.iter().filter(|peer| **peer != opened.peer).cloned().collect(),
            // All of them are on this machine and come up together.
            first_pause: Duration::from_millis(20),
            max_pause: Duration::from_secs(1),
            ask_every: Duration::from_secs(1),
            seed: u64::from(opened.number),
            ..MeshOptions::default()
        };
        let mesh = Mesh::start(&options, Some(Arc::clone(sidecars.book()) as _))?;
        let socket = tokio::net::TcpListener::from_std(opened.socket.try_clone()?)?;
        mesh.serve(socket, &ServeOptions::default())?;
        Ok(Self::Beside { sidecars, mesh: Arc::new(mesh) })
    }

    /// The peer that the demo's node is.
    pub(super) fn node_peer(grpc: std::net::SocketAddr) -> Peer {
        Peer { name: name(1), url: format!("http://{grpc}") }
    }

    fn sidecars(&self) -> &Service {
        match self {
            Self::Node(blobs) => blobs.sidecars(),
            Self::Beside { sidecars, .. } => sidecars,
        }
    }

    /// Takes the decisions of some heights as a validator does: each proposal is verified and
    /// stored, and then decided. What it has already it leaves as it is.
    pub(super) async fn decide(&self, first: Height, last: Height) -> Result<(), anyhow::Error> {
        let (mut bare, mut with_blobs) = (Vec::new(), Vec::new());
        for height in first..=last {
            let proposal = proposal(height)?;
            let list = if proposal.sidecars.is_empty() { &mut bare } else { &mut with_blobs };
            list.push(proposal);
        }
        let sidecars = self.sidecars();
        for decided in sidecars.store_decided(bare).await? {
            decided?;
        }
        for proposal in with_blobs {
            let (height, round) = (proposal.height, proposal.round);
            sidecars.store_proposal(proposal).await?;
            sidecars.decided(height, round).await?;
        }
        Ok(())
    }

    /// Everything up to a height is final.
    pub(super) async fn finalize(&self, height: Height) -> Result<(), anyhow::Error> {
        Ok(self.sidecars().finalized(height).await?)
    }

    /// What it does until it is stopped; nothing for the node, which does it by itself.
    pub(super) fn work(
        &self,
        stop: watch::Receiver<bool>,
    ) -> Option<impl Future<Output = Result<(), anyhow::Error>> + Send + use<>> {
        let Self::Beside { sidecars, mesh } = self else { return None };
        let (sidecars, mesh) = (Arc::clone(sidecars), Arc::clone(mesh));
        Some(async move {
            let ended = sidecars.run(Arc::clone(&mesh) as _, stop).await;
            mesh.stop().await;
            Ok(ended?)
        })
    }
}
