//! Random histories of a chain against the naive model: payments, double spends, long-unmined
//! children, reorganisations, submissions again, prunes, and prunes that fail or crash at any call.
//!
//! After every step the store and the model give the same answer; after every few all records are
//! compared. At the end the holds are let go, time passes, and everything that is due must be gone.

pub mod model;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use secateur_core::Height;
use secateur_utxo::{
    BlockRef, ExternalFiles, FileKind, NewTx, OutPoint, Outcome, Pruner, Rules, Settings, Slot,
    Trigger, TxId, UtxoStore,
};

use self::model::{Model, No, Numbers, Tx, no};
use crate::conformance::prunes::{go, pruner};
use crate::conformance::rig::{Faulty, When, block, coinbase, external, pays};

/// One history.
pub struct History<S> {
    rng: ChaCha8Rng,
    store: S,
    files: ExternalFiles,
    model: Model,
    /// The main chain, from height 1.
    chain: Vec<(BlockRef, Vec<TxId>)>,
    /// Everything that was ever created.
    known: Vec<NewTx>,
    next: u64,
    settings: Settings,
    /// What was done, for people.
    pub pruned: u64,
}

/// The rules that a seed plays by.
pub fn numbers(seed: u64) -> Numbers {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x5ec4);
    Numbers {
        retention: 1 + u64::from(rng.next_u32() % 5),
        maturity: u64::from(rng.next_u32() % 3),
        unmined_retention: u64::from(rng.next_u32() % 4),
        preservation: 2 + u64::from(rng.next_u32() % 8),
    }
}

pub const fn rules(numbers: &Numbers) -> Rules {
    Rules { block_height_retention: numbers.retention, coinbase_maturity: numbers.maturity }
}

impl<S: UtxoStore> History<S> {
    pub fn new(seed: u64, store: S, files: ExternalFiles) -> Self {
        let numbers = numbers(seed);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let settings = Settings {
            unmined_tx_retention: Some(numbers.unmined_retention),
            parent_preservation_blocks: numbers.preservation,
            chunk_size: 1 + rng.next_u32() as usize % 4,
            chunk_group_limit: 1 + rng.next_u32() as usize % 3,
            missing_files_are_gone: true,
            ..Settings::default()
        };
        let model = Model::new(numbers);
        let (chain, known) = (Vec::new(), Vec::new());
        Self { rng, store, files, model, chain, known, next: 1, settings, pruned: 0 }
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.rng.next_u32()).unwrap() % n.max(1)
    }

    fn chance(&mut self, of: u32) -> bool {
        self.rng.next_u32() % of == 0
    }

    fn height(&self) -> Height {
        self.chain.len() as Height
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        from.get(self.below(from.len())).copied()
    }

    /// Compares an answer.
    fn same<T, E>(&self, told: &Result<T, secateur_utxo::UtxoError>, wanted: &Result<E, No>) {
        let told = told.as_ref().map(|_| ()).map_err(no);
        let wanted = wanted.as_ref().map(|_| ()).map_err(|no| *no);
        assert_eq!(told, wanted, "at height {}", self.height());
    }

    /// A step of the history.
    pub async fn step(&mut self) {
        match self.below(20) {
            0..=6 => self.pay().await,
            7..=10 => self.mine().await,
            11 => self.reorganise().await,
            12 => self.submit_again().await,
            13 => self.change_of_mind().await,
            14..=16 => self.prune().await,
            17..=18 => self.prune_badly().await,
            _ => self.compare().await,
        }
    }

    async fn create(&mut self, tx: NewTx) {
        if let secateur_utxo::Body::External(kind) = tx.body {
            self.files.put(tx.txid, kind, &Bytes::from_static(b"large")).await.unwrap();
        }
        let height = self.height();
        let wanted = self.model.create(&tx, height);
        let told = self.store.create(vec![tx.clone()], height).await.unwrap().remove(0);
        self.same(&told, &wanted);
        // Whoever wrote a file for a record that was refused removes it.
        if let secateur_utxo::Body::External(kind) = tx.body
            && !self.model.txs.contains_key(&tx.txid)
        {
            self.files.remove(tx.txid, kind).await.unwrap();
        }
        self.known.push(tx);
    }

    /// Coins that could be spent, whatever their state.
    fn coins(&self) -> Vec<OutPoint> {
        let unspent = self.model.txs.iter().flat_map(|(txid, tx)| {
            let slots = (0..).zip(&tx.slots).filter(|(_, slot)| **slot == Slot::Unspent);
            slots.map(|(n, _)| OutPoint { txid: *txid, n })
        });
        unspent.collect()
    }

    async fn pay(&mut self) {
        let mut inputs = BTreeSet::new();
        for _ in 0..1 + self.below(2) {
            // Now and then something that is spent, or not there.
            if self.chance(12) && !self.known.is_empty() {
                let at = self.below(self.known.len());
                let (txid, n) = (self.known[at].txid, self.rng.next_u32() % 4);
                inputs.insert(OutPoint { txid, n });
            } else {
                let coins = self.coins();
                inputs.extend(self.pick(&coins));
            }
        }
        if inputs.is_empty() {
            return;
        }
        let outputs = self.rng.next_u32() % 3;
        let mut tx = pays(self.next, &[], outputs);
        self.next += 1;
        tx.inputs = inputs.into_iter().collect();
        tx.conflicting = self.chance(20);
        let tx = if self.chance(8) { external(tx) } else { tx };
        self.create(tx).await;
    }

    async fn mine(&mut self) {
        let height = self.height() + 1;
        let at = block(self.next, height);
        let unmined = |tx: &&Tx| !tx.is_mined() && tx.spending && !tx.conflicting && !tx.cut;
        let waiting: Vec<TxId> =
            self.model.txs.iter().filter(|(_, tx)| unmined(tx)).map(|(txid, _)| *txid).collect();
        let few = self.chance(3);
        let mut txs: Vec<TxId> =
            waiting.into_iter().filter(|_| self.below(4) > usize::from(few) * 2).collect();
        self.chain.push((at, txs.clone()));
        let wanted = self.model.set_mined(&txs, at, height);
        self.same(&self.store.set_mined(txs.clone(), at, height).await, &wanted);
        let coin = coinbase(self.next, 1 + self.rng.next_u32() % 3, at);
        self.next += 1;
        txs.push(coin.txid);
        self.create(coin).await;
        if let Some(top) = self.chain.last_mut() {
            top.1 = txs;
        }
    }

    async fn reorganise(&mut self) {
        for _ in 0..1 + self.below(3) {
            let Some((at, txs)) = self.chain.pop() else { return };
            let height = self.height();
            let txs: Vec<TxId> = txs.into_iter().filter(|txid| self.is_live(*txid)).collect();
            let wanted = self.model.unset_mined(&txs, at, height);
            self.same(&self.store.unset_mined(txs, at.id, height).await, &wanted);
        }
        self.mine().await;
    }

    fn is_live(&self, txid: TxId) -> bool {
        self.model.txs.get(&txid).is_some_and(|tx| !tx.cut)
    }

    async fn submit_again(&mut self) {
        let at = self.below(self.known.len());
        let Some(tx) = self.known.get(at).cloned() else { return };
        if tx.coinbase {
            return;
        }
        self.create(tx).await;
    }

    async fn change_of_mind(&mut self) {
        let at = self.below(self.known.len());
        let Some(txid) = self.known.get(at).map(|tx| tx.txid) else { return };
        let height = self.height();
        let (told, wanted) = match self.below(4) {
            0 => (self.store.unspend(txid, height).await, self.model.unspend(txid, height)),
            1 => (self.store.spend(txid, height).await, self.model.spend(txid, height)),
            n => {
                let lost = n == 2;
                let told = self.store.set_conflicting(txid, lost, height).await;
                (told, self.model.set_conflicting(txid, lost, height))
            }
        };
        self.same(&told, &wanted);
    }

    fn trigger(&mut self) -> Trigger {
        let height = self.height();
        let persisted = self.chance(3).then(|| height.saturating_sub(self.below(4) as Height));
        Trigger { height, persisted }
    }

    fn pruner<T: UtxoStore>(&self, store: &T) -> Pruner<T> {
        pruner(store, Some(self.files.clone()), self.settings.clone())
    }

    async fn prune(&mut self) {
        let trigger = self.trigger();
        self.prune_at(trigger).await;
    }

    async fn prune_at(&mut self, trigger: Trigger) {
        let (job, error) = self.pruner(&self.store).run(trigger, go()).await.unwrap();
        assert_eq!(job.outcome, Outcome::Completed, "{error:?}");
        let before = self.model.txs.len();
        self.model.prune(trigger.height, job.safe_height);
        self.pruned += (before - self.model.txs.len()) as u64;
        if self.chance(4) {
            self.compare().await;
        }
    }

    /// A run that fails or crashes at a call of its own choice; what it leaves must be something between
    /// before and after.
    async fn prune_badly(&mut self) {
        let trigger = self.trigger();
        let when = if self.chance(2) { When::Before } else { When::After };
        let (mut left, once) = (self.below(14), self.chance(2));
        let faulty = Faulty::new(self.store.clone(), move |_| {
            let strikes = left == 0;
            left = left.saturating_sub(usize::from(!strikes || !once));
            if strikes && once {
                left = usize::MAX;
            }
            strikes.then_some(when)
        });
        let pruner = self.pruner(&faulty);
        let safe = pruner.settings().safe_height(&self.store.rules(), trigger);
        let ran = pruner.run(trigger, go()).await;
        drop(ran);
        let mut after = self.model.clone();
        after.prune(trigger.height, safe);
        self.settle(&after).await;
    }

    /// Takes over what a run that broke off has left, if it may be so.
    async fn settle(&mut self, after: &Model) {
        let mut next = Model::new(self.model.numbers);
        let mut deletes = false;
        for (txid, before) in &self.model.txs {
            let then = after.txs.get(txid);
            let now = self.store.get(*txid).await.unwrap().map(Tx::from);
            match now {
                None => {
                    assert!(then.is_none(), "{txid} went, and must not");
                    deletes = true;
                }
                Some(now) if now.cut => {
                    assert!(then.is_none(), "{txid} was cut, and must not be");
                    deletes |= !before.cut;
                    next.txs.insert(*txid, now);
                }
                Some(now) => {
                    let then = then.unwrap_or(before);
                    let dates = [before.delete_at, then.delete_at];
                    let keeps = [before.preserve_until, then.preserve_until];
                    // A record that goes in a whole run is dated by phase 1 before.
                    let redated = then == before && before.preserve_until.is_some();
                    assert!(dates.contains(&now.delete_at) || redated, "{txid}: {now:?}");
                    assert!(keeps.contains(&now.preserve_until) || redated, "{txid}: {now:?}");
                    for (slot, was) in now.slots.iter().zip(&before.slots) {
                        let told = was.spender().filter(|(by, _)| !after.txs.contains_key(by));
                        let pruned = told.map(|(by, input)| Slot::Pruned { by, input });
                        assert!(slot == was || Some(*slot) == pruned, "{txid}: {slot:?}");
                    }
                    let file = now.external;
                    if let Some(kind) = file {
                        assert!(self.has_file(*txid, kind).await, "{txid} lost its file");
                    }
                    next.txs.insert(*txid, now);
                }
            }
        }
        if deletes {
            for (txid, now) in next.txs.iter().filter(|(_, tx)| !tx.cut) {
                if let Some(then) = after.txs.get(txid) {
                    let kept = (now.preserve_until, now.delete_at);
                    assert_eq!(
                        kept,
                        (then.preserve_until, then.delete_at),
                        "phase 1 of {txid} was not done"
                    );
                }
            }
        }
        self.model = next;
    }

    async fn has_file(&self, txid: TxId, kind: FileKind) -> bool {
        self.files.has(txid, kind).await.unwrap()
    }

    /// Every record that ever was, and its file.
    pub async fn compare(&mut self) {
        for tx in &self.known {
            let record = self.store.get(tx.txid).await.unwrap();
            let wanted = self.model.txs.get(&tx.txid);
            assert_eq!(
                record.is_some(),
                wanted.is_some(),
                "{} at height {}",
                tx.txid,
                self.height()
            );
            let (Some(record), Some(wanted)) = (record, wanted) else { continue };
            let held: BTreeSet<TxId> = record.held_by.iter().copied().collect();
            assert_eq!(held, self.model.held_by(tx.txid), "holds on {}", tx.txid);
            let external = record.external.filter(|_| !record.cut);
            assert_eq!(Tx::from(record), *wanted, "{} at height {}", tx.txid, self.height());
            if let Some(kind) = external {
                assert!(self.has_file(tx.txid, kind).await, "{} lost its file", tx.txid);
            }
        }
    }

    /// Lets every hold go, lets time pass, and finds nothing left that is due.
    pub async fn heal(&mut self) {
        let unmined: Vec<(TxId, Tx)> = self
            .model
            .txs
            .iter()
            .filter(|(_, tx)| !tx.is_mined() && !tx.cut)
            .map(|(txid, tx)| (*txid, tx.clone()))
            .collect();
        let height = self.height() + 1;
        let at = block(self.next, height);
        self.chain.push((at, Vec::new()));
        for (txid, tx) in unmined {
            if tx.conflicting {
                continue;
            }
            if tx.spending {
                self.model.set_mined(&[txid], at, height).unwrap();
                self.store.set_mined(vec![txid], at, height).await.unwrap();
            } else {
                self.model.set_conflicting(txid, true, height).unwrap();
                self.store.set_conflicting(txid, true, height).await.unwrap();
            }
        }
        let Numbers { retention, preservation, .. } = self.model.numbers;
        for _ in 0..3 * (retention + preservation) + 4 {
            let top = self.height() + 1;
            self.chain.push((block(self.next + top, top), Vec::new()));
            if self.chance(2) || self.height() % 4 == 0 {
                self.prune_at(Trigger { height: top, persisted: None }).await;
            }
        }
        let last = Trigger { height: self.height(), persisted: None };
        self.prune_at(last).await;
        self.compare().await;
        for tx in &self.known {
            if let Some(record) = self.store.get(tx.txid).await.unwrap() {
                assert!(
                    record.outputs.contains(&Slot::Unspent) && !record.conflicting && !record.cut,
                    "{} is due and still here: {record:?}",
                    tx.txid
                );
            } else if let secateur_utxo::Body::External(kind) = tx.body {
                assert!(!self.has_file(tx.txid, kind).await, "the file of {} is left", tx.txid);
            }
        }
    }
}

/// Plays one history to its end; answers how many records were pruned.
pub async fn play<S: UtxoStore>(seed: u64, store: S, files: ExternalFiles) -> u64 {
    let mut history = History::new(seed, store, files);
    for _ in 0..3 {
        history.mine().await;
    }
    for _ in 0..70 {
        history.step().await;
    }
    history.compare().await;
    history.heal().await;
    history.pruned
}

/// Plays so many histories, as many at a time as there are processors; or only the one that a failure
/// named. `one` plays a seed in a worker's place.
pub async fn play_all<F>(histories: u64, one: impl Fn(usize, u64) -> F + Clone + Send + 'static)
where
    F: Future<Output = u64> + Send + 'static,
{
    if let Ok(seed) = std::env::var("SECATEUR_TEST_HISTORY") {
        one(0, seed.parse().unwrap()).await;
        return;
    }
    let next = Arc::new(AtomicU64::new(0));
    let workers = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let work = |worker: usize| {
        let (next, one) = (Arc::clone(&next), one.clone());
        async move {
            let mut pruned = 0;
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= histories {
                    return pruned;
                }
                pruned += tokio::spawn(one(worker, seed)).await.unwrap_or_else(|error| {
                    panic!("replay with SECATEUR_TEST_HISTORY={seed}: {error}")
                });
            }
        }
    };
    let tasks: Vec<_> = (0..workers).map(|worker| tokio::spawn(work(worker))).collect();
    let mut pruned = 0;
    for task in tasks {
        pruned += task.await.unwrap();
    }
    assert!(pruned > histories, "histories in which nothing is pruned show nothing: {pruned}");
}
