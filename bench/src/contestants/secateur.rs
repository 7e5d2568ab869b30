//! Secateur's own store on the disk ground, with the prune daemon's work done in the same thread
//! after each group, so that its time can be told from that of appending.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use secateur_core::{Block, LookupError, PrunePolicy, TxId};
use secateur_store::ground::disk::{FileArena, FsVolume, RESERVE_BYTES, RedbIndex, open_ground};
use secateur_store::{Sabotage, Store, StoreConfig, StoreError, SystemClock};

use super::meter::{Meter, Metered, Reading, metered};
use super::{Contestant, Identity, Phases, Standing};

type MeteredStore = Store<Metered<FileArena<FsVolume>>, Metered<RedbIndex>>;

/// The store.
pub struct Secateur {
    store: MeteredStore,
    meter: Arc<Meter>,
    /// Set by the store when its daemon would be woken.
    due: Arc<AtomicBool>,
    settings: String,
    appending: Share,
    pruning: Share,
}

/// The whole time of one kind of call, and the part of it that the meter saw.
#[derive(Default)]
struct Share {
    whole: Duration,
    seen: Reading,
}

impl Share {
    fn add(&mut self, began: Instant, seen: Reading) {
        self.whole += began.elapsed();
        self.seen.write += seen.write;
        self.seen.sync += seen.sync;
        self.seen.space += seen.space;
        self.seen.commit += seen.commit;
    }

    fn rest(&self) -> Duration {
        let Reading { write, sync, space, commit } = self.seen;
        self.whole.saturating_sub(write + sync + space + commit)
    }
}

impl Secateur {
    /// Makes a new store in a directory: the product's defaults, a budget, pruning on.
    pub fn create(directory: &Path, budget: u64) -> Result<Self> {
        let meter = Arc::new(Meter::default());
        let ground = open_ground(&FsVolume::open(directory)?, RESERVE_BYTES, Sabotage::None)?;
        let policy = PrunePolicy { target_bytes: budget, ..PrunePolicy::default() };
        let config = StoreConfig { policy, ..StoreConfig::new(1, [7; 16]) };
        let classes = config.classes.classes().len();
        let store = Store::create(metered(ground, &meter), config, Arc::new(SystemClock))?;
        store.set_pruning_enabled(true)?;
        // Ids are taken in by appends only once somebody has asked for one; without this the
        // store would get away with not indexing them.
        match store.get_receipt(&TxId([0; 32])) {
            Err(StoreError::Lookup(LookupError::NotFound { .. })) => {}
            other => bail!("an empty store answered a lookup with {other:?}"),
        }
        let due = Arc::new(AtomicBool::new(false));
        let bell = Arc::clone(&due);
        store.on_prune_due(move || bell.store(true, Ordering::Relaxed));
        let settings = format!(
            "disk ground, {:?} layout, {classes} size classes, budget {} MiB, ids indexed in \
             memory, default policy, ticks and settle after each group as the daemon would",
            store.header().layout,
            budget >> 20,
        );
        let (appending, pruning) = (Share::default(), Share::default());
        Ok(Self { store, meter, due, settings, appending, pruning })
    }

    /// What the daemon does when it is woken.
    fn run_daemon(&self) -> Result<()> {
        if !self.due.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        while let Some(outcome) = self.store.tick()? {
            if !outcome.more() {
                break;
            }
        }
        self.store.settle()?;
        Ok(())
    }
}

impl Contestant for Secateur {
    fn identity(&self) -> Identity {
        Identity {
            name: "Secateur".into(),
            version: "this checkout".into(),
            settings: self.settings.clone(),
        }
    }

    fn append(&mut self, group: &[Block]) -> Result<()> {
        let began = Instant::now();
        self.store.append_group(group)?;
        self.appending.add(began, self.meter.take());
        Ok(())
    }

    fn prune(&mut self) -> Result<()> {
        let began = Instant::now();
        self.run_daemon()?;
        self.pruning.add(began, self.meter.take());
        Ok(())
    }

    fn standing(&mut self) -> Result<Standing> {
        let status = self.store.get_prune_status()?;
        let kept_blocks = match (status.head, status.oldest_kept_block) {
            (Some(head), Some(oldest)) => head + 1 - oldest,
            _ => 0,
        };
        self.meter.take();
        let (used_bytes, arena_bytes) = (status.used_bytes, status.arena_bytes);
        Ok(Standing { kept_blocks, used_bytes, arena_bytes })
    }

    fn phases(&mut self) -> Phases {
        let appending = std::mem::take(&mut self.appending);
        let pruning = std::mem::take(&mut self.pruning);
        vec![
            ("append: arena write", appending.seen.write),
            ("append: arena sync", appending.seen.sync),
            ("append: arena space", appending.seen.space),
            ("append: index commit", appending.seen.commit),
            ("append: the rest (check, checksum, copy, ids, rows)", appending.rest()),
            ("prune: index commit", pruning.seen.commit),
            ("prune: arena space", pruning.seen.space),
            ("prune: the rest", pruning.rest()),
        ]
    }
}
