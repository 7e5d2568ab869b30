//! Secateur's own store on the disk ground, as the product runs it: workers write, commit and
//! seal, and the prune daemon's work is done in a thread of its own, with a clock around it.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use secateur_core::{Block, BlockHash, LookupError, PrunePolicy, Segment, TxId};
use secateur_store::ground::disk::{FileArena, FsVolume, RESERVE_BYTES, RedbIndex, open_ground};
use secateur_store::{
    ClassTable, Sabotage, Store, StoreConfig, StoreError, SystemClock, Ticket, Workers,
};

use super::meter::{Meter, Metered, Reading, metered};
use super::{Contestant, IN_FLIGHT, Identity, Phases};
use crate::measure::thread_cpu;

type MeteredStore = Store<Metered<FileArena<FsVolume>>, Metered<RedbIndex>>;

/// What the store holds at some moment.
#[derive(Debug, Clone, Copy)]
pub struct Standing {
    /// Blocks that can still be read.
    pub kept_blocks: u64,
    /// Bytes that count against the budget.
    pub used_bytes: u64,
    /// How far the arena reaches.
    pub arena_bytes: u64,
    /// What the file system has given the arena.
    pub disk_bytes: u64,
}

/// Where its time went.
#[derive(Debug)]
pub struct Spent {
    /// What the prune daemon's thread was on a processor.
    cut: Duration,
    /// In commits that carry cuts alone.
    cut_commit: Duration,
    /// By the kind of work. It goes on in several threads, so the sum may be more than the time
    /// on the wall.
    pub phases: Phases,
    /// Commits of the index.
    pub commits: u64,
}

impl Spent {
    /// What cutting took: the daemon on a processor, and every commit that carries cuts alone.
    /// Cuts that ride along with a group's commit cost no sync of their own.
    pub fn cutting(&self) -> Duration {
        self.cut + self.cut_commit
    }
}

/// The store.
pub struct Secateur {
    // In the order in which they must end.
    pruner: Pruner,
    _workers: Workers,
    store: Arc<MeteredStore>,
    meter: Arc<Meter>,
    tickets: VecDeque<Ticket>,
    settings: String,
    submitting: Duration,
    waiting: Duration,
}

impl Secateur {
    /// Makes a new store in a directory: the product's defaults, a budget (none if it is 0),
    /// pruning on.
    pub fn create(directory: &Path, budget: u64) -> Result<Self> {
        let meter = Arc::new(Meter::default());
        let ground = open_ground(&FsVolume::open(directory)?, RESERVE_BYTES, Sabotage::None)?;
        let policy = PrunePolicy { target_bytes: budget, ..PrunePolicy::default() };
        let classes = ClassTable::for_budget(budget);
        let config = StoreConfig { policy, classes, ..StoreConfig::new(1, [7; 16]) };
        let store = Store::create(metered(ground, &meter), config, Arc::new(SystemClock))?;
        store.set_pruning_enabled(true)?;
        Self::start(store, meter)
    }

    /// Opens the store in a directory again.
    pub fn open(directory: &Path) -> Result<Self> {
        let meter = Arc::new(Meter::default());
        let ground = open_ground(&FsVolume::open(directory)?, RESERVE_BYTES, Sabotage::None)?;
        let store = Store::open(metered(ground, &meter), Arc::new(SystemClock))?;
        Self::start(store, meter)
    }

    fn start(store: MeteredStore, meter: Arc<Meter>) -> Result<Self> {
        let settings = format!(
            "disk ground, {:?} layout, {} size classes, budget {} MiB, default policy and \
             settings, workers, the prune daemon's work in a thread of its own",
            store.header().layout,
            store.header().classes.classes().len(),
            store.policy().target_bytes >> 20,
        );
        let store = Arc::new(store);
        let workers = Workers::start(&store)?;
        Ok(Self {
            pruner: Pruner::start(&store)?,
            _workers: workers,
            store,
            meter,
            tickets: VecDeque::new(),
            settings,
            submitting: Duration::ZERO,
            waiting: Duration::ZERO,
        })
    }

    /// Waits for the oldest groups until so few are under way.
    fn wait_down_to(&mut self, groups: usize) -> Result<()> {
        let began = Instant::now();
        while self.tickets.len() > groups {
            let ticket = self.tickets.pop_front().context("a ticket is missing")?;
            self.store.wait(ticket)?;
        }
        self.waiting += began.elapsed();
        Ok(())
    }

    /// Whether the receipt of a transaction is there.
    pub fn has_receipt(&self, id: &TxId) -> Result<bool> {
        Ok(there(self.store.get_receipt(id))?.is_some_and(|receipt| !receipt.is_empty()))
    }

    /// Whether the block of a hash is there, with so many bytes of its own.
    pub fn has_block(&self, hash: &BlockHash, len: usize) -> Result<bool> {
        let found = there(self.store.get_payload_by_hash(hash, Segment::Block))?;
        Ok(found.is_some_and(|(_, block)| block.len() == len))
    }

    /// Reads of the arena so far.
    pub fn arena_reads(&self) -> u64 {
        self.meter.reads()
    }

    /// What it holds now.
    pub fn standing(&self) -> Result<Standing> {
        let status = self.store.get_prune_status()?;
        let kept_blocks = match (status.head, status.oldest_kept_block) {
            (Some(head), Some(oldest)) => head + 1 - oldest,
            _ => 0,
        };
        Ok(Standing {
            kept_blocks,
            used_bytes: status.used_bytes,
            arena_bytes: status.arena_bytes,
            disk_bytes: status.disk_bytes,
        })
    }

    /// Where its time went since this was last called.
    pub fn spent(&mut self) -> Spent {
        let Reading { write, sync, space, commit, cut_commit, commits } = self.meter.take();
        let (working, cut) = self.pruner.take_time();
        let phases = vec![
            ("caller: handing groups in (check, checksum, ids, copy)", self.submitting),
            ("caller: waiting for groups", self.waiting),
            ("arena: write", write),
            ("arena: sync", sync),
            ("arena: space", space),
            ("index: commit", commit),
            ("prune daemon: at work, its waits included", working),
            ("prune daemon: on a processor", cut),
        ];
        (self.submitting, self.waiting) = (Duration::ZERO, Duration::ZERO);
        Spent { cut, cut_commit, phases, commits }
    }
}

/// What a lookup found, if it found anything.
fn there<T>(found: Result<T, StoreError>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(StoreError::Lookup(LookupError::NotFound { .. } | LookupError::Pruned { .. })) => {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

impl Contestant for Secateur {
    fn identity(&self) -> Identity {
        Identity {
            key: "secateur",
            name: "Secateur".into(),
            version: "this checkout".into(),
            settings: self.settings.clone(),
        }
    }

    fn append(&mut self, group: &[Block]) -> Result<()> {
        self.wait_down_to(IN_FLIGHT - 1)?;
        let began = Instant::now();
        let ticket = self.store.submit(group)?;
        self.tickets.push_back(ticket);
        self.submitting += began.elapsed();
        Ok(())
    }

    fn prune(&mut self) -> Result<()> {
        self.pruner.check()
    }

    fn finish(&mut self) -> Result<()> {
        self.wait_down_to(0)?;
        // What is due belongs to the turn that made it due.
        self.pruner.wait();
        self.pruner.check()
    }
}

/// The prune daemon's loop, with a clock.
struct Pruner {
    shared: Arc<Shared>,
    store: Arc<MeteredStore>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    bell: Mutex<Bell>,
    rung: Condvar,
    /// What pruning took, on the wall and on a processor.
    wall: AtomicU64,
    cpu: AtomicU64,
    failed: AtomicBool,
    failure: Mutex<Option<String>>,
}

#[derive(Default)]
struct Bell {
    due: bool,
    busy: bool,
    stop: bool,
}

impl Pruner {
    fn start(store: &Arc<MeteredStore>) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let bell = Arc::clone(&shared);
        store.on_prune_due(move || {
            bell.bell.lock().unwrap_or_else(PoisonError::into_inner).due = true;
            bell.rung.notify_all();
        });
        let (life, pruned) = (Arc::clone(&shared), Arc::clone(store));
        let thread = std::thread::Builder::new()
            .name("bench-prune".into())
            .spawn(move || {
                while life.next() {
                    let (cpu, began) = (thread_cpu(), Instant::now());
                    if let Err(error) = pruned.drain(|_| true) {
                        let mut to = life.failure.lock().unwrap_or_else(PoisonError::into_inner);
                        *to = Some(error.to_string());
                        life.failed.store(true, Ordering::Release);
                    }
                    let add = |to: &AtomicU64, time: Duration| {
                        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                        to.fetch_add(nanos, Ordering::Relaxed);
                    };
                    add(&life.wall, began.elapsed());
                    add(&life.cpu, thread_cpu().saturating_sub(cpu));
                }
            })
            .context("starting the prune daemon's thread")?;
        Ok(Self { shared, store: Arc::clone(store), thread: Some(thread) })
    }

    fn take_time(&self) -> (Duration, Duration) {
        let take = |from: &AtomicU64| Duration::from_nanos(from.swap(0, Ordering::Relaxed));
        (take(&self.shared.wall), take(&self.shared.cpu))
    }

    /// Waits until nothing is due.
    fn wait(&self) {
        let mut bell = self.shared.bell.lock().unwrap_or_else(PoisonError::into_inner);
        while bell.due || bell.busy {
            bell = self.shared.rung.wait(bell).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn check(&self) -> Result<()> {
        if !self.shared.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let failure = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
        Err(anyhow!("pruning failed: {}", failure.as_deref().unwrap_or("unknown")))
    }
}

impl Shared {
    /// Waits for the bell; false means stop.
    fn next(&self) -> bool {
        let mut bell = self.bell.lock().unwrap_or_else(PoisonError::into_inner);
        bell.busy = false;
        self.rung.notify_all();
        while !bell.due && !bell.stop {
            bell = self.rung.wait(bell).unwrap_or_else(PoisonError::into_inner);
        }
        (bell.due, bell.busy) = (false, true);
        !bell.stop
    }
}

impl Drop for Pruner {
    fn drop(&mut self) {
        self.shared.bell.lock().unwrap_or_else(PoisonError::into_inner).stop = true;
        self.shared.rung.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            // A panic was printed by the panic hook already.
        }
        self.store.forget_prune_due();
    }
}
