//! Validators on real grounds with everything that runs in a node: store, archiver, announcer, book,
//! pruner and mesh, each with a cable of its own to each other. What they wait for is a commit of
//! their index, so nothing here sleeps.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use secateur_archive::{ArchiveUrl, Settings};
use secateur_core::Height;
use secateur_sidecar::engine::{HeightStatus, PruneReport};
use secateur_sidecar::gossip::{Gossip, Mesh, MeshOptions, NoticeBook, ServeOptions};
use secateur_sidecar::metrics::SidecarMetrics;
use secateur_sidecar::notice::{NoticeKey, Signers, ValidatorTerm, Validators, Verifier};
use secateur_sidecar::provider::{ObjectProvider, Provider};
use secateur_sidecar::service::{Identity, ServiceOptions, Sidecars};
use secateur_sidecar::{
    BlobState, EngineConfig, SidecarError, SidecarStore, Trust, ValidatorId, testdata,
};
use secateur_store::ground::disk::{FileArena, FsVolume, open_ground_of};
use secateur_store::{Family, Ground, Sabotage, SystemClock};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cable::Cable;
use crate::nodes::{options, peer};
use crate::watched::{Commits, WatchedIndex};

/// A test that hangs must end.
pub const PATIENCE: Duration = Duration::from_mins(1);
pub const CHAIN: u64 = 7;

pub type Store = SidecarStore<FileArena<FsVolume>, WatchedIndex>;
pub type Service = Sidecars<FileArena<FsVolume>, WatchedIndex>;

pub fn id(n: usize) -> ValidatorId {
    ValidatorId::new(&[u8::try_from(n).unwrap() + 1; 20]).unwrap()
}

pub fn key(n: usize) -> NoticeKey {
    NoticeKey::from_secret(&[u8::try_from(n).unwrap() + 1; 32])
}

/// A validator from the first height on, or for some of them.
pub fn term(n: usize, from_height: Height, to_height: Option<Height>) -> ValidatorTerm {
    ValidatorTerm { id: id(n), public_key: key(n).public_key(), from_height, to_height }
}

/// What the validators agree on.
#[derive(Clone)]
pub struct Rules {
    pub terms: Vec<ValidatorTerm>,
    pub signers: Signers,
    pub trust: Trust,
    pub rebroadcast_blocks: u64,
    /// Which key each of them has.
    pub keys: Vec<usize>,
}

impl Rules {
    pub fn of(count: usize) -> Self {
        Self {
            terms: (0..count).map(|n| term(n, 0, None)).collect(),
            signers: Signers::ProposerOnly,
            trust: Trust::Signature,
            rebroadcast_blocks: 1,
            keys: (0..8).collect(),
        }
    }

    pub fn verifier(&self) -> Verifier {
        let validators = Validators::new(&self.terms).unwrap();
        Verifier { chain_id: CHAIN, validators, signers: self.signers, accept_v0: false }
    }
}

/// What one validator uses instead of the usual.
pub type ProviderOf = Arc<dyn Fn(usize, Arc<dyn Provider>) -> Arc<dyn Provider>>;
pub type GossipOf = Arc<dyn Fn(usize, Arc<dyn Gossip>) -> Arc<dyn Gossip>>;

/// The directory that all of them archive into.
pub fn directory(path: PathBuf) -> Arc<dyn Provider> {
    let url = ArchiveUrl::Directory(path);
    Arc::new(ObjectProvider::open("disk", &url, &Settings::default()).unwrap())
}

pub struct Validator {
    pub n: usize,
    pub service: Arc<Service>,
    pub mesh: Arc<Mesh>,
    pub commits: Arc<Commits>,
    stop: watch::Sender<bool>,
    task: Option<JoinHandle<Result<(), SidecarError>>>,
}

impl Validator {
    pub fn store(&self) -> &Arc<Store> {
        self.service.store()
    }

    /// Waits until something is so; it is looked at after every commit.
    pub async fn until(&self, what: &str, is_so: impl Fn(&Store) -> bool) {
        let mut commits = self.commits.subscribe();
        let reached = tokio::time::timeout(PATIENCE, async {
            while !is_so(self.store()) {
                commits.changed().await.unwrap();
            }
        });
        let n = self.n;
        let summary = || self.store().summary();
        assert!(reached.await.is_ok(), "validator {n}: {what}: {:?}", summary());
    }

    pub fn status(&self, height: Height) -> HeightStatus {
        self.store().status(height).unwrap()
    }

    pub fn states(&self, height: Height) -> Vec<BlobState> {
        self.status(height).blobs.iter().map(|blob| blob.state).collect()
    }

    pub async fn until_pruned(&self, heights: impl IntoIterator<Item = Height>) {
        for height in heights {
            self.until(&format!("height {height} is pruned"), |store| {
                store.status(height).is_ok_and(|status| status.pruned.is_some())
            })
            .await;
        }
    }

    /// What a prune of everything would do now: a pruner that has nothing to do yet is not waited
    /// for, it is asked.
    pub fn prune(&self) -> PruneReport {
        self.store().prune_archived_before(Height::MAX).unwrap()
    }

    /// Whether its tasks have ended because the store failed.
    pub async fn has_failed(&mut self) -> bool {
        let task = self.task.take().unwrap();
        tokio::time::timeout(PATIENCE, task).await.unwrap().unwrap().is_err()
    }
}

pub struct Net {
    pub dir: TempDir,
    pub rules: Rules,
    pub validators: Vec<Option<Validator>>,
    addresses: Vec<SocketAddr>,
    cables: Vec<Vec<(usize, Cable)>>,
    pub provider_of: ProviderOf,
    pub gossip_of: GossipOf,
}

impl Net {
    /// So many validators, connected.
    pub async fn start(rules: Rules, count: usize) -> Self {
        Self::with(rules, count, Arc::new(|_, provider| provider), Arc::new(|_, gossip| gossip))
            .await
    }

    pub async fn with(
        rules: Rules,
        count: usize,
        provider_of: ProviderOf,
        gossip_of: GossipOf,
    ) -> Self {
        let mut listeners = Vec::new();
        for _ in 0..count {
            listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
        }
        let addresses: Vec<_> = listeners.iter().map(|one| one.local_addr().unwrap()).collect();
        let mut cables = Vec::new();
        for n in 0..count {
            let mut of = Vec::new();
            for (other, address) in addresses.iter().enumerate().filter(|(other, _)| *other != n) {
                of.push((other, Cable::to(*address).await));
            }
            cables.push(of);
        }
        let dir = tempfile::tempdir().unwrap();
        let validators = (0..count).map(|_| None).collect();
        let mut net = Self { dir, rules, validators, addresses, cables, provider_of, gossip_of };
        for (n, listener) in listeners.into_iter().enumerate() {
            net.boot(n, listener);
        }
        for n in 0..count {
            net.connected(n).await;
        }
        net
    }

    pub fn at(&self, n: usize) -> &Validator {
        self.validators[n].as_ref().unwrap()
    }

    pub fn all(&self) -> impl Iterator<Item = &Validator> {
        self.validators.iter().flatten()
    }

    /// Where copies lie.
    pub fn archive(&self) -> PathBuf {
        self.dir.path().join("archive")
    }

    fn open(&self, n: usize) -> (Arc<Store>, Arc<Commits>) {
        let volume = FsVolume::open(&self.dir.path().join(format!("validator{n}"))).unwrap();
        let Ground { arena, index } =
            open_ground_of(&volume, Family::Sidecar, 0, Sabotage::None).unwrap();
        let commits = Commits::new();
        let index = WatchedIndex { rows: index, commits: Arc::clone(&commits) };
        let config = EngineConfig { trust: self.rules.trust, ..EngineConfig::new(CHAIN, [1; 16]) };
        let ground = Ground { arena, index };
        let store = SidecarStore::open(ground, config, Arc::new(SystemClock)).unwrap();
        (Arc::new(store), commits)
    }

    fn boot(&mut self, n: usize, listener: TcpListener) {
        let (store, commits) = self.open(n);
        let provider = (self.provider_of)(n, directory(self.archive()));
        let service_options = ServiceOptions {
            identity: Some(Identity { id: id(n), key: Arc::new(key(self.rules.keys[n])) }),
            min_copies: 1,
            at_once: 4,
            rebroadcast_blocks: self.rules.rebroadcast_blocks,
            seed: n as u64,
        };
        let metrics = Arc::new(SidecarMetrics::new(&mut Registry::default()));
        let clock = Arc::new(SystemClock);
        let verifier = self.rules.verifier();
        let service =
            Sidecars::new(store, vec![provider], verifier, clock, metrics, service_options);
        let service = Arc::new(service.unwrap());
        let peers = self.cables[n].iter().map(|(other, c)| peer(&format!("node{other}"), &c.url));
        let mesh_options = MeshOptions { peers: peers.collect(), seed: n as u64, ..options() };
        let book = Arc::clone(service.book()) as Arc<dyn NoticeBook>;
        let mesh = Arc::new(Mesh::start(&mesh_options, Some(book)).unwrap());
        mesh.serve(listener, &ServeOptions::default()).unwrap();
        let gossip = (self.gossip_of)(n, Arc::clone(&mesh) as _);
        let (stop, stopped) = watch::channel(false);
        let running = Arc::clone(&service);
        let task = tokio::spawn(async move { running.run(gossip, stopped).await });
        self.validators[n] = Some(Validator { n, service, mesh, commits, stop, task: Some(task) });
    }

    pub async fn connected(&self, n: usize) {
        for (other, _) in &self.cables[n] {
            assert!(self.at(n).mesh.wait_for(&format!("node{other}"), true).await);
        }
    }

    /// Ends a validator: its tasks are cut off where they are, or stopped in peace.
    pub async fn end(&mut self, n: usize, in_peace: bool) {
        let Validator { service, mesh, stop, task, .. } = self.validators[n].take().unwrap();
        match task {
            Some(task) if in_peace => {
                stop.send_replace(true);
                tokio::time::timeout(PATIENCE, task).await.unwrap().unwrap().unwrap();
            }
            Some(task) => {
                task.abort();
                drop(task.await);
            }
            None => {}
        }
        mesh.stop().await;
        let store = Arc::clone(service.store());
        drop((service, mesh));
        // Calls that are under way on other threads still have it.
        let alone = async {
            while Arc::strong_count(&store) > 1 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, alone).await.unwrap();
    }

    /// Starts it again, on its ground and its port.
    pub async fn restart(&mut self, n: usize) {
        let listener = TcpListener::bind(self.addresses[n]).await.unwrap();
        self.boot(n, listener);
        self.connected(n).await;
    }

    /// Cuts every cable from and to a validator, or heals them, and waits until it shows.
    pub async fn isolate(&self, which: usize, cut: bool) {
        for (n, cables) in self.cables.iter().enumerate() {
            for (to, cable) in cables.iter().filter(|(to, _)| n == which || *to == which) {
                if cut {
                    cable.cut();
                } else {
                    cable.heal();
                }
                if let Some(validator) = &self.validators[n] {
                    assert!(validator.mesh.wait_for(&format!("node{to}"), !cut).await);
                }
            }
        }
    }

    /// A height is proposed and decided everywhere, at its proposer last: a notice that comes too
    /// early is told again with the next block, and here none may come.
    pub async fn decide(&self, height: Height, proposer: usize, blobs: &[usize]) {
        let others = self.all().filter(|one| one.n != proposer);
        for validator in others.chain(self.all().filter(|one| one.n == proposer)) {
            let proposal = testdata::proposal(height, 0, &id(proposer), blobs);
            validator.service.store_proposal(proposal).await.unwrap();
            validator.service.decided(height, 0).await.unwrap();
        }
    }

    pub async fn finalize(&self, height: Height) {
        for validator in self.all() {
            validator.service.finalized(height).await.unwrap();
        }
    }

    /// No store has anything wrong.
    pub fn verify(&self) {
        for validator in self.all() {
            let report = validator.store().verify(|_, _| ()).unwrap();
            assert!(report.findings.is_empty(), "{}: {:#?}", validator.n, report.findings);
        }
    }
}
