//! One simulated validator: the product's own store, archiver, announcer, book and pruner on a
//! volume whose power can go out, and what is checked when it comes back.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use secateur_core::Height;
use secateur_sidecar::book::Book;
use secateur_sidecar::metrics::SidecarMetrics;
use secateur_sidecar::notice::NoticeKey;
use secateur_sidecar::provider::Provider;
use secateur_sidecar::service::{Identity, ServiceOptions, Sidecars};
use secateur_sidecar::{EngineConfig, Sabotage, SidecarError, SidecarStore, Trust, testdata};
use secateur_store::ground::MemorySnapshot;
use secateur_store::ground::disk::FileArena;
use secateur_store::{Change, Clock, Ground, Index, StoreError, Table};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::mortal::Mortal;
use super::net::{Net, Place, SimGossip};
use super::oracle::Oracle;
use super::plan::Rules;
use super::vault::{SimProvider, Vault};
use super::{CHAIN, secret, validator};
use crate::crash::image_of;
use crate::rng::Rng;
use crate::world::{Fault, SimIndex, World};

/// A store of the simulation.
pub type Store = SidecarStore<FileArena<World>, WatchedIndex>;
/// A book of the simulation.
pub type NodeBook = Book<FileArena<World>, WatchedIndex>;
type Service = Sidecars<FileArena<World>, WatchedIndex>;

/// The time that the runtime shows.
#[derive(Debug)]
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now_millis(&self) -> u64 {
        let since = u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX);
        1_700_000_000_000 + since
    }
}

/// An index that tells the oracle of every cut at the moment when it is durable.
#[derive(Debug)]
pub struct WatchedIndex {
    n: usize,
    rows: SimIndex,
    oracle: Arc<Oracle>,
}

impl Index for WatchedIndex {
    type Snapshot = MemorySnapshot;

    fn snapshot(&self) -> Result<MemorySnapshot, StoreError> {
        self.rows.snapshot()
    }

    fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        let height = |change: &Change| {
            let is_cut = change.table == Table::Pruned && change.value.is_some();
            let key: [u8; 8] = change.key.as_slice().try_into().ok().filter(|_| is_cut)?;
            Some(u64::from_be_bytes(key))
        };
        let cut: Vec<Height> = changes.iter().filter_map(height).collect();
        self.rows.commit(changes)?;
        for height in cut {
            self.oracle.pruned(self.n, height);
        }
        Ok(())
    }

    fn bytes(&self) -> Result<u64, StoreError> {
        self.rows.bytes()
    }

    fn ensure_reserve(&self) -> Result<bool, StoreError> {
        self.rows.ensure_reserve()
    }

    fn check(&self) -> Result<Vec<String>, StoreError> {
        self.rows.check()
    }
}

/// How a life ended.
#[derive(Debug)]
enum End {
    Died,
    Ended(Result<(), SidecarError>),
}

/// What all validators share.
#[derive(Debug, Clone)]
pub struct Around {
    /// What they agree on.
    pub rules: Rules,
    /// The planted bug.
    pub bug: Sabotage,
    /// Their copies.
    pub vault: Arc<Vault>,
    /// What is between them.
    pub net: Arc<Net>,
    /// Who watches.
    pub oracle: Arc<Oracle>,
    /// When time began.
    pub began: Instant,
}

/// A validator that runs.
pub struct Node {
    /// Which.
    pub n: usize,
    /// Its life.
    pub mortal: Arc<Mortal>,
    /// All that it does.
    pub service: Arc<Service>,
    task: JoinHandle<End>,
    /// Told to stop when it is dropped.
    _stop: watch::Sender<bool>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("n", &self.n).finish_non_exhaustive()
    }
}

fn open(n: usize, world: &World, around: &Around) -> Result<Store, SidecarError> {
    let arena = FileArena::open(world.clone())?;
    let oracle = Arc::clone(&around.oracle);
    let index = WatchedIndex { n, rows: SimIndex::open(world), oracle };
    let config = EngineConfig {
        trust: around.rules.trust,
        retain_blocks: around.rules.retain_blocks,
        sabotage: around.bug,
        ..EngineConfig::new(CHAIN, [9; 16])
    };
    SidecarStore::open(Ground { arena, index }, config, Arc::new(TokioClock(around.began)))
}

/// Opens what a crash left; now and then the power goes out in the middle of that too.
pub fn recover(
    n: usize,
    world: World,
    around: &Around,
    rng: &mut Rng,
) -> Result<(Store, World), String> {
    let mut world = world;
    if rng.below(3) == 0 {
        world.set_fault(Some(Fault { at: 1 + rng.below(12), forever: true }));
        drop(open(n, &world, around));
        world = World::boot(image_of(&world.point(), rng));
    }
    let store = open(n, &world, around).map_err(|error| format!("validator {n}: {error}"))?;
    let report = store.verify(|_, _| ()).map_err(|error| format!("validator {n}: {error}"))?;
    if !report.findings.is_empty() {
        return Err(format!("validator {n}: verify: {:?}", report.findings));
    }
    around.oracle.compare(n, &store).map_err(|why| format!("validator {n}: {why}"))?;
    Ok((store, world))
}

impl Node {
    /// Starts a validator on its volume.
    pub fn start(n: usize, world: World, around: &Around, rng: &mut Rng) -> Result<Self, String> {
        let (store, world) = recover(n, world, around, rng)?;
        let mortal = Arc::new(Mortal::new(n, world));
        let store = Arc::new(store);
        let provider = |(at, named): (usize, &bool)| -> Arc<dyn Provider> {
            Arc::new(SimProvider {
                id: format!("p{at}"),
                named: *named,
                vault: Arc::clone(&around.vault),
                mortal: Arc::clone(&mortal),
                oracle: Arc::clone(&around.oracle),
            })
        };
        let providers = around.rules.providers.iter().enumerate().map(provider).collect();
        let key = Arc::new(NoticeKey::from_secret(&secret(n)));
        let options = ServiceOptions {
            identity: Some(Identity { id: validator(n), key }),
            min_copies: around.rules.min_copies,
            at_once: 3,
            rebroadcast_blocks: around.rules.rebroadcast_blocks,
            seed: n as u64,
        };
        let service = Sidecars::new(
            Arc::clone(&store),
            providers,
            around.rules.verifier().map_err(|error| error.to_string())?,
            Arc::new(TokioClock(around.began)),
            Arc::new(SidecarMetrics::default()),
            options,
        );
        let service = Arc::new(service.map_err(|error| error.to_string())?);
        let book = Arc::clone(service.book());
        let place = Place { mortal: Arc::clone(&mortal), book, store: Arc::clone(&store) };
        around.net.set(n, Some(place));
        let gossip = SimGossip::new(Arc::clone(&around.net), Arc::clone(&mortal), store);
        let (stop, stopped) = watch::channel(false);
        let (running, life) = (Arc::clone(&service), Arc::clone(&mortal));
        let task = tokio::spawn(async move {
            let mut run = pin!(running.run(Arc::new(gossip), stopped));
            poll_fn(|context| {
                if life.is_dead() {
                    return Poll::Ready(End::Died);
                }
                let polled = run.as_mut().poll(context);
                if life.is_dead() { Poll::Ready(End::Died) } else { polled.map(End::Ended) }
            })
            .await
        });
        Ok(Self { n, mortal, service, task, _stop: stop })
    }

    /// Its store.
    pub fn store(&self) -> &Arc<Store> {
        self.service.store()
    }

    /// A decision reaches it; what it has no power for any more it does after its restart.
    pub async fn hear(
        &self,
        height: Height,
        oracle: &Oracle,
        with_proposal: bool,
    ) -> Option<String> {
        let truth = oracle.truth(height)?;
        let proposal =
            testdata::proposal(height, truth.round, &validator(truth.proposer), &truth.blobs);
        let done = if with_proposal {
            match self.service.store_proposal(proposal).await {
                Ok(_) => self.service.decided(height, truth.round).await.map(drop),
                Err(error) => Err(error),
            }
        } else {
            self.service
                .store_decided(vec![proposal])
                .await
                .and_then(|mut done| done.pop().map_or(Ok(()), |done| done.map(drop)))
        };
        let Err(error) = done else {
            oracle.acked(self.n, height);
            return None;
        };
        (!self.mortal.is_dead()).then(|| format!("validator {}: height {height}: {error}", self.n))
    }

    /// Whether its tasks have ended though its power is on, and how.
    pub async fn failed(&mut self) -> Option<String> {
        if self.mortal.is_dead() || !self.task.is_finished() {
            return None;
        }
        match (&mut self.task).await {
            Ok(End::Ended(how)) => Some(format!("validator {} has ended: {how:?}", self.n)),
            Ok(End::Died) => None,
            Err(error) => Some(format!("validator {} has ended: {error}", self.n)),
        }
    }

    /// Its life is over: what a crash leaves of its volume.
    pub async fn bury(self, around: &Around, trust: Trust, rng: &mut Rng) -> World {
        around.net.set(self.n, None);
        self.task.abort();
        drop(self.task.await);
        around.oracle.judge(self.n, trust, self.service.store());
        World::boot(image_of(&self.mortal.world.point(), rng))
    }
}
