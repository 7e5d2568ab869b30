//! Random histories of a chain against the naive model: payments, double spends, long-unmined
//! children, reorganisations, submissions again, prunes, prunes that fail at any call, and prunes in which
//! the process dies at any call and another one opens what it left.
//!
//! After every step the store and the model give the same answer; after every few all records are
//! compared. At the end the holds are let go, time passes, and everything that is due must be gone.

pub mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::panic::AssertUnwindSafe;
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
pub struct History<S, R> {
    rng: ChaCha8Rng,
    store: S,
    /// Opens what a process left that died.
    reopen: R,
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

impl<S: UtxoStore, R: AsyncFnMut() -> S> History<S, R> {
    pub fn new(seed: u64, store: S, files: ExternalFiles, reopen: R) -> Self {
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
        let (next, pruned) = (1, 0);
        Self { rng, store, reopen, files, model, chain, known, next, settings, pruned }
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.rng.next_u32()).unwrap() % n.max(1)
    }

    fn chance(&mut self, of: u32) -> bool {
        self.rng.next_u32().is_multiple_of(of)
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
            _ => self.die_in_a_prune().await,
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
        for _ in 0..=self.below(2) {
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
        let coin = if self.chance(8) { external(coin) } else { coin };
        self.next += 1;
        txs.push(coin.txid);
        self.create(coin).await;
        if let Some(top) = self.chain.last_mut() {
            top.1 = txs;
        }
    }

    async fn reorganise(&mut self) {
        for _ in 0..=self.below(3) {
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
        let Some(mut tx) = self.known.get(at).cloned() else { return };
        // Now and then it comes back as a loser.
        tx.conflicting |= !tx.coinbase && self.chance(3);
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
        if self.chance(12) {
            self.compare().await;
        }
    }

    /// A run in which the process dies at a call of its own choice, before or after it is done.
    async fn die_in_a_prune(&mut self) {
        let trigger = self.trigger();
        let when = if self.chance(2) { When::Keeps } else { When::Dies };
        let mut left = self.below(14);
        let faulty = Faulty::new(self.store.clone(), move |_| {
            let is_last = left == 0;
            left = left.checked_sub(1).unwrap_or(usize::MAX);
            is_last.then_some(when)
        });
        let pruner = self.pruner(&faulty);
        let safe = pruner.settings().safe_height(&self.store.rules(), trigger);
        tokio::select! {
            ran = pruner.run(trigger, go()) => drop(ran),
            () = faulty.stands_still() => {}
        }
        drop(pruner);
        self.store = (self.reopen)().await;
        let mut after = self.model.clone();
        after.prune(trigger.height, safe);
        self.settle(&after).await;
    }

    /// A run that fails at a call of its own choice, and perhaps at all that follow; what it leaves must be
    /// something between before and after.
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
        let mut next = Model { txs: BTreeMap::new(), ..self.model.clone() };
        let mut deletes = false;
        for (txid, before) in &self.model.txs {
            let then = after.txs.get(txid);
            let now = self.store.get(*txid).await.unwrap().map(Tx::from);
            match now {
                None => {
                    assert!(then.is_none(), "{txid} went, and must not");
                    deletes = true;
                    if before.is_nameless() {
                        next.spent_up.insert(*txid);
                    }
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
        // A loser goes, then its parents' preservation ends, then they are dated, then they go; and they
        // may be losers themselves.
        let losers = self.model.txs.values().filter(|tx| tx.conflicting).count();
        for _ in 0..4 + 2 * losers {
            for _ in 0..=retention.max(preservation) {
                let top = self.height() + 1;
                self.chain.push((block(self.next + top, top), Vec::new()));
            }
            let height = self.height();
            self.prune_at(Trigger { height, persisted: None }).await;
        }
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
            let is_remembered = self.store.pruned_at(tx.txid).await.unwrap().is_some();
            assert_eq!(is_remembered, self.model.spent_up.contains(&tx.txid), "{}", tx.txid);
        }
    }
}

/// Plays one history to its end; answers how many records were pruned.
pub async fn play<S: UtxoStore>(
    seed: u64,
    store: S,
    files: ExternalFiles,
    reopen: impl AsyncFnMut() -> S,
) -> u64 {
    let mut history = History::new(seed, store, files, reopen);
    for _ in 0..3 {
        history.mine().await;
    }
    for _ in 0..48 {
        history.step().await;
    }
    history.compare().await;
    history.heal().await;
    history.pruned
}

/// How many are played at a time.
pub fn workers() -> usize {
    4 * std::thread::available_parallelism().map_or(2, std::num::NonZero::get)
}

/// Plays so many histories (`SECATEUR_TEST_HISTORIES` says otherwise), several at a time;
/// or only the one that a failure named. `one` plays a seed in a worker's place.
///
/// Each has a runtime of its own: steps take turns with the thread or the server that works on the
/// database, and nothing is faster than two that wait for each other. Several at a time fill the waits.
pub fn play_all<F: Future<Output = u64>>(histories: u64, one: impl Fn(usize, u64) -> F + Sync) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let play = |worker, seed| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(one(worker, seed))
    };
    if let Some(seed) = number("SECATEUR_TEST_HISTORY") {
        play(0, seed);
        return;
    }
    let histories = number("SECATEUR_TEST_HISTORIES").unwrap_or(histories);
    let (next, pruned) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = |worker: usize| {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= histories {
                return;
            }
            let gone = std::panic::catch_unwind(AssertUnwindSafe(|| play(worker, seed)));
            let gone = gone.unwrap_or_else(|_| {
                next.store(histories, Ordering::Relaxed);
                panic!("replay with SECATEUR_TEST_HISTORY={seed}")
            });
            pruned.fetch_add(gone, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for worker in 0..workers() {
            let work = &work;
            scope.spawn(move || work(worker));
        }
    });
    let pruned = pruned.into_inner();
    assert!(pruned > histories, "histories in which nothing is pruned show nothing: {pruned}");
}
