//! UTXO records and their pruner, on the Aerospike cluster that `AEROSPIKE_HOSTS` names
//! (`make e2e-aerospike`). Each test has sets of its own, and truncates them at its end.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../conformance/mod.rs"]
mod conformance;
#[path = "../histories/mod.rs"]
mod histories;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use secateur_utxo::{AerospikeStore, ExternalFiles, Rules, UtxoStore};

use crate::conformance::conformance;
use crate::conformance::rig::{Home, RULES};
use crate::histories::{numbers, play, play_all, rules};

const HISTORIES: u64 = 10;

/// Removes everything at the end, also at a bad one.
struct Sets(String, Rules);

impl Drop for Sets {
    fn drop(&mut self) {
        // In a thread with a runtime of its own: that of the test may be the only thread that it has.
        let erase = || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async { AerospikeStore::open(&self.0, self.1).await?.erase().await })
        };
        if let Err(error) = std::thread::scope(|scope| scope.spawn(erase).join()).unwrap() {
            eprintln!("{} is not erased: {error}", self.0);
        }
    }
}

/// An empty store in sets of this name. What a test that was killed left there is removed.
async fn open_at(set: &str, rules: Rules) -> (AerospikeStore, Sets) {
    let mut store = open_as_it_is(set, rules).await;
    // Before anything that may fail.
    let sets = Sets(store.address(), rules);
    if store.counts(u64::MAX).await.unwrap().records == 0 {
        return (store, sets);
    }
    store.erase().await.unwrap();
    store = open_as_it_is(set, rules).await;
    // A server's count of objects follows its removals late (`sindex-gc-period`, 10 s).
    let gone = async {
        while store.counts(u64::MAX).await.unwrap().records > 0 {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let gone = tokio::time::timeout(Duration::from_mins(1), gone).await;
    assert!(gone.is_ok(), "{} has records that are not removed", store.address());
    (store, sets)
}

async fn open_as_it_is(set: &str, rules: Rules) -> AerospikeStore {
    let variable = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
    let hosts = variable("AEROSPIKE_HOSTS").expect("AEROSPIKE_HOSTS names the cluster");
    let namespace = variable("AEROSPIKE_NAMESPACE").unwrap_or_else(|| "test".into());
    // A namespace with a file or a device needs `wiped_before_rejoin=yes` on the community edition.
    let more = variable("AEROSPIKE_OPTIONS").map_or_else(String::new, |more| format!("&{more}"));
    let address = format!("aerospike://{hosts}/{namespace}?set={set}{more}");
    AerospikeStore::open(&address, rules).await.unwrap()
}

/// Sets are named by the test: a namespace never forgets the name of a set, and knows only so many.
async fn open(rules: Rules) -> Home<AerospikeStore> {
    static OPENED: AtomicU32 = AtomicU32::new(0);
    let mut hasher = DefaultHasher::new();
    std::thread::current().name().unwrap_or_default().hash(&mut hasher);
    let (test, n) = (hasher.finish(), OPENED.fetch_add(1, Ordering::Relaxed));
    let (store, sets) = open_at(&format!("e2e_{test:016x}_{n}"), rules).await;
    Home { store, _keeps: Box::new(sets) }
}

conformance!(open, #[ignore = "needs AEROSPIKE_HOSTS"]);

async fn history(seed: u64) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let url = dir.path().join("files").to_str().unwrap().parse().unwrap();
    let files = ExternalFiles::create(&url, &secateur_archive::Settings::default()).unwrap();
    let rules = rules(&numbers(seed));
    let (store, _sets) = open_at(&format!("e2e_history_{seed}"), rules).await;
    let reopen = async || AerospikeStore::open(&store.address(), rules).await.unwrap();
    Box::pin(play(seed, store.clone(), files, reopen)).await
}

#[ignore = "needs AEROSPIKE_HOSTS"]
#[test]
fn ten_random_histories_end_as_the_naive_model_says() {
    play_all(HISTORIES, |_, seed| history(seed));
}

#[ignore = "needs AEROSPIKE_HOSTS"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_opened_again_has_what_was_there() {
    let home = open(RULES).await;
    conformance::rig::coins(&home.store, 3).await;
    home.store.set_note("a", "b").await.unwrap();
    let again = AerospikeStore::open(&home.store.address(), RULES).await.unwrap();
    assert_eq!(again.note("a").await.unwrap().as_deref(), Some("b"));
    assert_eq!(conformance::rig::get(&again, 1).await.outputs.len(), 3);
}
