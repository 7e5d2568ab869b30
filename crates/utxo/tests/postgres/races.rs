//! Steps and a prune at the same time, on connections of their own. Each race is stopped at its worst
//! moment: a connection of the test's keeps a row that comes last in the order of locks, so that one
//! side has everything else and the other waits for it.

use std::time::Duration;

use secateur_utxo::{Created, Fate, Kept, PostgresStore, Slot, Sweep, UtxoError, UtxoStore as _};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

use crate::conformance::rig::{
    RULES, add, block, coinbase, coins, delete, finish, get, id, is_here, mine, output, pays,
    try_add, unmine,
};
use crate::conformance::sweeps::due;
use crate::fixture;
use crate::suite::open_at;

const SWEEP: Sweep = Sweep { height: 17, external: true };
/// The record that is due, and the transaction that spends it.
const PARENT: u64 = 2;
const CHILD: u64 = 3;
/// A coinbase of which nothing is spent; older than the gate, so that whoever waits there has its row.
const COIN: u64 = 30;
/// The record whose row is kept: younger than the others, so locked last.
const GATE: u64 = 9;

pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A store in which [`PARENT`] is due at 17, and a connection that can keep [`GATE`].
struct Scene {
    store: PostgresStore,
    url: String,
    keeper: Client,
}

impl Scene {
    async fn new() -> Self {
        let url = fixture::database();
        let store = open_at(&url, RULES).await;
        // One coin is never spent, so that the coinbase is not due.
        coins(&store, 4).await;
        add(&store, 6, vec![pays(PARENT, &[(1, 0)], 1), pays(4, &[(1, 1)], 1)]).await;
        add(&store, 6, vec![pays(CHILD, &[(PARENT, 0)], 1)]).await;
        add(&store, 1, vec![coinbase(COIN, 1, block(1, 1))]).await;
        add(&store, 6, vec![pays(GATE, &[(1, 2)], 2)]).await;
        mine(&store, 7, &[PARENT, CHILD, 4, GATE]).await;
        let keeper = connect(&url).await;
        Self { store, url, keeper }
    }

    async fn close_gate(&self) {
        let id = id(GATE).0;
        self.keeper.batch_execute("begin").await.unwrap();
        let lock = "select id from utxo_txs where txid = $1 for update";
        self.keeper.query_one(lock, &[&id.as_slice()]).await.unwrap();
    }

    /// Waits until so many wait for locks.
    async fn until_waiting(&self, wanted: i64) {
        self.until_statements_wait(wanted, "").await;
    }

    /// Waits until a prune has given up its range, which it does after 100 ms, and waits again to cut
    /// record by record. It has the parent's row then, and gives it back only with its transaction.
    async fn until_cutting(&self) {
        self.until_statements_wait(1, "with locked").await;
    }

    async fn until_statements_wait(&self, wanted: i64, beginning: &str) {
        let sql = "select count(*) from pg_stat_activity where datname = current_database() \
            and wait_event_type = 'Lock' and starts_with(query, $1)";
        let eyes = connect(&self.url).await;
        let look = async {
            while eyes.query_one(sql, &[&beginning]).await.unwrap().get::<_, i64>(0) < wanted {
                tokio::task::yield_now().await;
            }
        };
        // Locks are waited for ten seconds at most; whoever does not wait by then never will.
        tokio::time::timeout(Duration::from_secs(9), look).await.expect("somebody waits");
    }

    async fn open_gate(&self) {
        self.keeper.batch_execute("rollback").await.unwrap();
    }

    /// A step stands at the gate and has the parent's row; then what is due is deleted; then the gate
    /// opens. Answers what became of the parent and of the step.
    async fn step_first<T: Send + 'static>(
        &self,
        step: impl FnOnce(PostgresStore) -> JoinHandle<T>,
    ) -> (Fate<()>, T) {
        let keys = due(&self.store, 17).await;
        assert_eq!(keys.len(), 1, "the parent");
        self.step_first_with(keys, step).await
    }

    async fn step_first_with<T: Send + 'static>(
        &self,
        keys: Vec<Key>,
        step: impl FnOnce(PostgresStore) -> JoinHandle<T>,
    ) -> (Fate<()>, T) {
        self.close_gate().await;
        let step = step(self.store.clone());
        self.until_waiting(1).await;
        let store = self.store.clone();
        let prune = tokio::spawn(async move { delete(&store, keys, SWEEP).await });
        self.until_waiting(2).await;
        self.open_gate().await;
        let fate = match prune.await.unwrap().remove(0) {
            Fate::Kept(why) => Fate::Kept(why),
            // A range is given up after 100 ms, and cut then: nothing brings that back either.
            Fate::Deleted | Fate::Cut(_) => Fate::Deleted,
            fate @ (Fate::Gone | Fate::Left) => panic!("{fate:?}"),
        };
        (fate, step.await.unwrap())
    }

    /// What is due, the gate with it, is being deleted and has the parent's row; then a step begins;
    /// then the gate opens.
    async fn prune_first<T: Send + 'static>(
        &self,
        step: impl FnOnce(PostgresStore) -> JoinHandle<T>,
    ) -> T {
        let last = vec![pays(20, &[(GATE, 0), (GATE, 1)], 1)];
        add(&self.store, 7, last).await;
        mine(&self.store, 7, &[20]).await;
        let keys = due(&self.store, 17).await;
        assert!(keys.len() >= 2, "the parent and the gate");
        self.close_gate().await;
        let store = self.store.clone();
        let prune = tokio::spawn(async move { delete(&store, keys, SWEEP).await });
        self.until_cutting().await;
        let step = step(self.store.clone());
        self.until_waiting(2).await;
        self.open_gate().await;
        let mut cut = Vec::new();
        for fate in prune.await.unwrap() {
            match fate {
                Fate::Cut(doomed) => cut.push(doomed.key),
                fate => assert_eq!(fate, Fate::Deleted),
            }
        }
        let answer = step.await.unwrap();
        finish(&self.store, cut).await;
        assert!(!is_here(&self.store, PARENT).await);
        answer
    }
}

#[tokio::test]
async fn a_coinbase_that_is_told_again_while_it_is_being_deleted_is_refused() {
    let scene = Scene::new().await;
    let coin = || coinbase(COIN, 1, block(1, 1));
    add(&scene.store, 6, vec![pays(31, &[(COIN, 0)], 1)]).await;
    mine(&scene.store, 7, &[31]).await;
    let again = scene
        .prune_first(|store| tokio::spawn(async move { try_add(&store, 17, coin()).await }))
        .await;
    assert!(matches!(again, Err(UtxoError::Pruned { .. })), "{again:?}");
    assert!(!is_here(&scene.store, COIN).await);
}

#[tokio::test]
async fn a_spender_that_leaves_its_block_while_its_parent_is_being_deleted_keeps_it() {
    let scene = Scene::new().await;
    let (fate, step) = scene
        .step_first(|store| {
            tokio::spawn(async move {
                store.unset_mined(vec![id(CHILD), id(GATE)], block(7, 7).id, 17).await
            })
        })
        .await;
    step.unwrap();
    assert_eq!(fate, Fate::Kept(Kept::Held));
    assert_eq!(get(&scene.store, PARENT).await.held_by, [id(CHILD)]);
}

#[tokio::test]
async fn a_new_spender_of_a_record_that_is_being_deleted_keeps_it() {
    let scene = Scene::new().await;
    let keys = due(&scene.store, 17).await;
    unmine(&scene.store, 7, 7, &[CHILD]).await;
    scene.store.unspend(id(CHILD), 7).await.unwrap();
    // At height 7 it is dated 17 again, so that nothing but the new spender's hold keeps it.
    let (fate, created) = scene
        .step_first_with(keys, |store| {
            tokio::spawn(
                async move { try_add(&store, 7, pays(5, &[(PARENT, 0), (GATE, 0)], 1)).await },
            )
        })
        .await;
    assert_eq!(created.unwrap(), Created::New);
    assert_eq!(fate, Fate::Kept(Kept::Held));
    let parent = get(&scene.store, PARENT).await;
    assert_eq!((parent.delete_at_height, parent.held_by), (Some(17), vec![id(5)]));
}

#[tokio::test]
async fn an_output_that_is_let_go_while_its_record_is_being_deleted_keeps_it() {
    let scene = Scene::new().await;
    let keys = due(&scene.store, 17).await;
    unmine(&scene.store, 7, 7, &[CHILD]).await;
    scene.store.unspend(id(CHILD), 7).await.unwrap();
    add(&scene.store, 7, vec![pays(5, &[(PARENT, 0), (GATE, 0)], 1)]).await;
    let (fate, step) = scene
        .step_first_with(keys, |store| tokio::spawn(async move { store.unspend(id(5), 8).await }))
        .await;
    step.unwrap();
    assert_eq!(fate, Fate::Kept(Kept::NotDue));
    assert_eq!(get(&scene.store, PARENT).await.outputs, [Slot::Unspent]);
}

#[tokio::test]
async fn a_record_that_is_preserved_while_it_is_being_deleted_stays() {
    let scene = Scene::new().await;
    let (fate, step) = scene
        .step_first(|store| {
            tokio::spawn(async move { store.preserve(vec![id(GATE), id(PARENT)], 99).await })
        })
        .await;
    assert_eq!(step.unwrap().kept, 2);
    assert_eq!(fate, Fate::Kept(Kept::Preserved));
    assert_eq!(get(&scene.store, PARENT).await.preserve_until, Some(99));
}

#[tokio::test]
async fn who_comes_while_a_record_goes_finds_it_gone() {
    let scene = Scene::new().await;
    let created = scene
        .prune_first(|store| {
            tokio::spawn(async move { try_add(&store, 17, pays(5, &[(PARENT, 0)], 1)).await })
        })
        .await;
    let missing = |output| matches!(created, Err(UtxoError::MissingParent { output: of, .. }) if of == output);
    assert!(missing(output(PARENT, 0)), "{created:?}");

    let scene = Scene::new().await;
    let preserved = scene
        .prune_first(|store| {
            tokio::spawn(async move { store.preserve(vec![id(PARENT)], 99).await.unwrap() })
        })
        .await;
    assert_eq!((preserved.kept, preserved.missing), (0, 1));

    // A spender that leaves its block too late waits without its parent, and can be mined again.
    let scene = Scene::new().await;
    let unset = scene
        .prune_first(|store| {
            tokio::spawn(
                async move { store.unset_mined(vec![id(CHILD)], block(7, 7).id, 17).await },
            )
        })
        .await;
    unset.unwrap();
    assert_eq!(get(&scene.store, CHILD).await.unmined_since, Some(17));
    mine(&scene.store, 18, &[CHILD]).await;
}

/// How many deadlocks the server had to break.
async fn deadlocks(url: &str) -> i64 {
    let eyes = connect(url).await;
    let sql = "select deadlocks from pg_stat_database where datname = current_database()";
    // What a connection counted is told when it ends, or a little later.
    eyes.batch_execute("select pg_stat_force_next_flush()").await.unwrap();
    eyes.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_who_create_the_same_in_another_order_do_not_block_each_other() {
    let url = fixture::database();
    let store = open_at(&url, RULES).await;
    coins(&store, 2_000).await;
    for round in 0..10_u32 {
        let txs: Vec<_> = (0..200)
            .map(|n| pays(1_000 + u64::from(round * 200 + n), &[(1, round * 200 + n)], 1))
            .collect();
        let mut turned = txs.clone();
        turned.reverse();
        let (one, other) = tokio::join!(store.create(txs, 6), store.create(turned, 6));
        let all = one.unwrap().into_iter().chain(other.unwrap()).map(Result::unwrap);
        assert_eq!(all.filter(|created| *created == Created::New).count(), 200);
    }
    assert_eq!(deadlocks(&url).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_that_share_parents_and_writers_beside_them_do_not_block_each_other() {
    // As a prune makes them, and then neighbours in different chunks.
    chunks_beside_each_other(|n, of| n * 10 / of).await;
    chunks_beside_each_other(|n, _| n % 10).await;
}

type Key = <PostgresStore as secateur_utxo::UtxoStore>::Key;

async fn delete_and_finish(store: &PostgresStore, keys: Vec<Key>) {
    let mut cut = Vec::new();
    for fate in delete(store, keys, SWEEP).await {
        match fate {
            Fate::Deleted => {}
            Fate::Cut(doomed) => cut.push(doomed.key),
            Fate::Left | Fate::Kept(_) | Fate::Gone => panic!("{fate:?}"),
        }
    }
    finish(store, cut).await;
}

async fn chunks_beside_each_other(chunk: impl Fn(usize, usize) -> usize) {
    let url = fixture::database();
    let store = open_at(&url, RULES).await;
    let (layers, width) = (12_u64, 60_u64);
    coins(&store, 4_000).await;
    let number = move |layer: u64, at: u64| 1_000 + layer * width + at % width;
    for layer in 0..layers {
        let tx = |at: u64| {
            // Two parents of the layer before, in an order that mixes the layers' rows.
            let inputs = match layer {
                0 => vec![(1, u32::try_from(at).unwrap())],
                _ => vec![
                    (number(layer - 1, at * 7 + layer), 0),
                    (number(layer - 1, at * 7 + layer + 1), 1),
                ],
            };
            pays(number(layer, at), &inputs, 2)
        };
        add(&store, 6, (0..width).map(tx).collect()).await;
    }
    let all: Vec<u64> = (0..layers * width).map(|n| 1_000 + n).collect();
    mine(&store, 7, &all).await;
    let keys = due(&store, 17).await;
    assert_eq!(keys.len() as u64, (layers - 1) * width, "the last layer is unspent");
    let (mut chunks, of) = (vec![Vec::new(); 10], keys.len());
    for (n, key) in keys.into_iter().enumerate() {
        chunks[chunk(n, of)].push(key);
    }
    let writers: Vec<_> = (0..4_u32)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for n in 0..40 {
                    let at = 100 + writer * 40 + n;
                    add(&store, 17, vec![pays(90_000 + u64::from(at), &[(1, at)], 1)]).await;
                    let last = number(layers - 1, u64::from(at));
                    store.preserve(vec![id(last), id(1)], 40).await.unwrap();
                }
            })
        })
        .collect();
    let prunes: Vec<_> = chunks
        .into_iter()
        .map(|keys| {
            let store = store.clone();
            tokio::spawn(async move { delete_and_finish(&store, keys).await })
        })
        .collect();
    for prune in prunes {
        prune.await.unwrap();
    }
    assert!(
        due(&store, 17).await.is_empty() && store.doomed(None, 1).await.unwrap().items.is_empty()
    );
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(deadlocks(&url).await, 0);
    let coins = get(&store, 1).await;
    let told = |slot: &&Slot| matches!(slot, Slot::Pruned { .. });
    assert_eq!(coins.outputs.iter().filter(told).count() as u64, width);
    assert_eq!(coins.spent() as u64, width + 160);
}
