//! The store of this canister, and how it is opened.

use std::cell::RefCell;
use std::sync::Arc;

use ic_stable_structures::DefaultMemoryImpl;
use secateur_core::PrunePolicy;
use secateur_store::ground::stable::{self, StableArena, StableIndex};
use secateur_store::{
    ClassTable, Clock, Family, Layout as StoreLayout, Settings, Slices, Store, StoreConfig,
    StoreError,
};

use crate::access;
use crate::types::{InitArgs, Layout, MAX_TICK_OPS, TICK_OPS};
use crate::work;

/// The store on stable memory.
pub(crate) type History = Store<StableArena<DefaultMemoryImpl>, StableIndex<DefaultMemoryImpl>>;

/// Ids of an epoch: sealing them must fit into a message.
const EPOCH_IDS: u64 = 1 << 16;

/// Bytes of a region: an eighth of the smallest budget. The smaller they are the less of a budget is lost
/// to the ones that are half empty; a canister has megabytes where a node has gigabytes.
const REGION: u32 = 256 * 1024;

/// Bytes of regions where each block has its own: doubling up to that.
const CLASSES: [u32; 7] = [4 * 1024, 8 * 1024, 16 * 1024, 32 * 1024, 64 * 1024, 128 * 1024, REGION];

/// What a message has room for. Ids that are not sealed are read back after an upgrade: no more than those
/// of so many blocks, or so many bytes. The figures are measured (`docs/canister.md`).
const SLICES: Slices = Slices {
    tick_ops: MAX_TICK_OPS,
    epoch_blocks: 4096,
    epoch_bytes: 16 * 1024 * 1024,
    merge_ids: 1 << 18,
};

thread_local! {
    static HISTORY: RefCell<Option<History>> = const { RefCell::new(None) };
}

/// The time of the message.
struct MessageClock;

impl Clock for MessageClock {
    fn now_millis(&self) -> u64 {
        ic_cdk::api::time() / 1_000_000
    }
}

/// Does something with the store.
pub(crate) fn with<T>(
    work: impl FnOnce(&History) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    HISTORY.with_borrow(|history| {
        let missing = || StoreError::Foreign("this canister was not initialised".into());
        history.as_ref().ok_or_else(missing).and_then(work)
    })
}

fn store_id() -> [u8; 16] {
    // Unlike any other: no two canisters have one id, and none begins twice in one nanosecond.
    let mut seed = ic_cdk::api::canister_self().as_slice().to_vec();
    seed.extend(ic_cdk::api::time().to_be_bytes());
    secateur_store::store_id_of(&seed)
}

fn create(args: InitArgs) -> Result<History, StoreError> {
    let ground = stable::open(DefaultMemoryImpl::default(), Family::History)?;
    let mut config = StoreConfig::new(args.chain_id, store_id());
    (config.layout, config.classes) = match args.layout.unwrap_or(Layout::Packed) {
        Layout::Packed => (StoreLayout::Packed, ClassTable::explicit(vec![REGION])?),
        Layout::PerBlock => (StoreLayout::PerBlock, ClassTable::explicit(CLASSES.to_vec())?),
    };
    config.settings = settings(&args);
    config.pruning_enabled = args.pruning_enabled.unwrap_or(false);
    config.policy = match args.policy {
        Some(policy) => PrunePolicy::try_from(policy)?,
        None => PrunePolicy { max_ops_per_tick: TICK_OPS, ..PrunePolicy::default() },
    };
    let store = Store::create(ground, config, Arc::new(MessageClock))?;
    if let Some(principals) = args.consumer_principals {
        access::set_consumers(&store, principals)?;
    }
    Ok(store)
}

fn settings(args: &InitArgs) -> Settings {
    let usual = Settings { epoch_ids: EPOCH_IDS, ..Settings::default() };
    Settings {
        archive_hold: args.archive_hold.unwrap_or(usual.archive_hold),
        challenge_blocks: args.challenge_blocks.unwrap_or(usual.challenge_blocks),
        challenge_seconds: args.challenge_seconds.unwrap_or(usual.challenge_seconds),
        consumer_expiry_blocks: args.consumer_expiry_blocks.unwrap_or(usual.consumer_expiry_blocks),
        tombstone_bytes: args.tombstone_bytes.unwrap_or(usual.tombstone_bytes),
        ..usual
    }
}

fn open() -> Result<History, StoreError> {
    let ground = stable::open(DefaultMemoryImpl::default(), Family::History)?;
    Store::open(ground, Arc::new(MessageClock))
}

fn take_over(store: Result<History, StoreError>) {
    match store {
        Ok(store) => {
            store.work_in_slices(SLICES);
            store.on_prune_due(work::ring);
            HISTORY.set(Some(store));
            work::arm();
        }
        // Whatever was there stays as it was: an installation that traps did not happen.
        Err(error) => ic_cdk::trap(format!("secateur does not open its stable memory: {error}")),
    }
}

#[ic_cdk::init]
fn init(args: InitArgs) {
    take_over(create(args));
}

#[ic_cdk::post_upgrade]
fn post_upgrade() {
    take_over(open());
    // Now, when there is most room for it; what a query reads back is forgotten with it.
    let read = with(History::read_ids);
    if let Err(error) = read {
        ic_cdk::api::debug_print(format!("secateur: ids were not read back: {error}"));
    }
    // What the last version left in the middle goes on at once.
    work::schedule_prune();
}
