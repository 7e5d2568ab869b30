//! Transactions by numbers, and a store that can be made to fail.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use secateur_core::Height;
use secateur_utxo::{
    BlockId, BlockRef, Body, Counts, Created, Doomed, Fate, FileKind, Job, NewTx, OutPoint, Page,
    Preserved, Record, Room, RoomLook, Rules, Sweep, TxId, Unmined, UtxoError, UtxoStore,
};
use tokio::sync::Notify;

/// Small numbers, so that a few blocks are a long time.
pub const RULES: Rules = Rules { block_height_retention: 10, coinbase_maturity: 5 };

/// A store with what keeps it alive: a directory, a server.
pub struct Home<S> {
    pub store: S,
    pub _keeps: Box<dyn std::any::Any + Send + Sync>,
}

/// The id of transaction number n. Ids of neighbours are far apart, as hashes are.
pub fn id(n: u64) -> TxId {
    let mut bytes = [0; 32];
    let mut seed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    for chunk in bytes.chunks_mut(8) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        chunk.copy_from_slice(&seed.to_be_bytes());
    }
    bytes[..8].copy_from_slice(&(seed ^ n.rotate_left(40)).to_be_bytes());
    bytes[24..].copy_from_slice(&n.to_be_bytes());
    TxId(bytes)
}

/// Block number n, at a height.
pub fn block(n: u64, height: Height) -> BlockRef {
    BlockRef { id: BlockId(id(n ^ 0xb10c << 32).0), height }
}

pub fn output(tx: u64, n: u32) -> OutPoint {
    OutPoint { txid: id(tx), n }
}

/// A coinbase in a block.
pub fn coinbase(n: u64, outputs: u32, mined: BlockRef) -> NewTx {
    NewTx {
        txid: id(n),
        inputs: Vec::new(),
        outputs,
        coinbase: true,
        conflicting: false,
        body: Body::Inline(Bytes::from_static(b"coin")),
        mined: Some(mined),
    }
}

/// An unmined transaction that spends.
pub fn pays(n: u64, inputs: &[(u64, u32)], outputs: u32) -> NewTx {
    NewTx {
        txid: id(n),
        inputs: inputs.iter().map(|(tx, n)| output(*tx, *n)).collect(),
        outputs,
        coinbase: false,
        conflicting: false,
        body: Body::Inline(Bytes::new()),
        mined: None,
    }
}

/// The same with a file.
pub fn external(tx: NewTx) -> NewTx {
    NewTx { body: Body::External(FileKind::of(tx.inputs.len())), ..tx }
}

/// Creates them; all must be new.
pub async fn add<S: UtxoStore>(store: &S, height: Height, txs: Vec<NewTx>) {
    for created in store.create(txs, height).await.unwrap() {
        assert_eq!(created.unwrap(), Created::New);
    }
}

/// Creates one, and answers what became of it.
pub async fn try_add<S: UtxoStore>(
    store: &S,
    height: Height,
    tx: NewTx,
) -> Result<Created, UtxoError> {
    store.create(vec![tx], height).await.unwrap().remove(0)
}

/// Mines them in a block whose number is its height.
pub async fn mine<S: UtxoStore>(store: &S, height: Height, txs: &[u64]) {
    let txs = txs.iter().map(|n| id(*n)).collect();
    store.set_mined(txs, block(height, height), height).await.unwrap();
}

/// Takes them out of that block, when the tip is at a height.
pub async fn unmine<S: UtxoStore>(store: &S, of: Height, height: Height, txs: &[u64]) {
    let txs = txs.iter().map(|n| id(*n)).collect();
    store.unset_mined(txs, block(of, of).id, height).await.unwrap();
}

pub async fn get<S: UtxoStore>(store: &S, n: u64) -> Record {
    store.get(id(n)).await.unwrap().unwrap_or_else(|| panic!("transaction {n} is not here"))
}

pub async fn is_here<S: UtxoStore>(store: &S, n: u64) -> bool {
    store.get(id(n)).await.unwrap().is_some()
}

/// Coins to spend: transaction 1, a ripe coinbase of so many outputs, in block 1.
pub async fn coins<S: UtxoStore>(store: &S, outputs: u32) {
    add(store, 1, vec![coinbase(1, outputs, block(1, 1))]).await;
}

/// Deletes what goes at once, and cuts what does not.
pub async fn delete<S: UtxoStore>(store: &S, keys: Vec<S::Key>, sweep: Sweep) -> Vec<Fate<S::Key>> {
    let mut fates = store.delete(keys.clone(), sweep).await.unwrap();
    let left = fates.iter_mut().zip(keys).filter(|(fate, _)| **fate == Fate::Left);
    let (left, keys): (Vec<_>, Vec<_>) = left.unzip();
    for (fate, cut) in left.into_iter().zip(store.cut(keys, sweep).await.unwrap()) {
        *fate = cut;
    }
    fates
}

/// Removes records that are cut, all of them.
pub async fn finish<S: UtxoStore>(store: &S, mut keys: Vec<S::Key>) {
    while !keys.is_empty() {
        let done = store.finish(keys.clone()).await.unwrap();
        assert!(done > 0);
        keys.drain(..done);
    }
}

/// When a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Nothing is done.
    Before,
    /// It is done, and the answer is lost.
    After,
    /// It never ends, and keeps a turn until it is given up.
    Keeps,
    /// It is done, and nobody ever hears of it.
    Dies,
    /// Nothing is done, once somebody keeps the turn.
    OnceKept,
    /// It is done once the turn is given up.
    OnceGivenUp,
}

/// A turn that one keeps and others wait for.
#[derive(Default)]
struct Turn {
    kept: Notify,
    given_up: Notify,
}

struct Keeper<'a>(&'a Turn);

impl Drop for Keeper<'_> {
    fn drop(&mut self) {
        self.0.given_up.notify_one();
    }
}

type Hook = Box<dyn FnMut(&'static str) -> Option<When> + Send>;

/// A store whose calls fail when a function says so.
#[derive(Clone)]
pub struct Faulty<S> {
    pub inner: S,
    hook: Arc<Mutex<Hook>>,
    turn: Arc<Turn>,
    apart: bool,
}

impl<S: std::fmt::Debug> std::fmt::Debug for Faulty<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl<S: UtxoStore> Faulty<S> {
    pub fn new(inner: S, hook: impl FnMut(&'static str) -> Option<When> + Send + 'static) -> Self {
        Self {
            inner,
            hook: Arc::new(Mutex::new(Box::new(hook))),
            turn: Arc::default(),
            apart: false,
        }
    }

    /// Waits until a call never ends.
    pub async fn stands_still(&self) {
        self.turn.kept.notified().await;
    }

    /// With every chunk a step of its own.
    pub fn apart(self) -> Self {
        Self { apart: true, ..self }
    }

    async fn call<T>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<T, UtxoError>> + Send,
    ) -> Result<T, UtxoError> {
        let failure =
            || UtxoError::Store { reason: format!("{name} was made to fail"), retryable: true };
        let when = (self.hook.lock())(name);
        match when {
            None => work.await,
            Some(When::Before) => Err(failure()),
            Some(When::After) => work.await.and(Err(failure())),
            Some(When::Keeps) => {
                let _keeper = Keeper(&self.turn);
                self.turn.kept.notify_one();
                std::future::pending().await
            }
            Some(When::Dies) => {
                drop(work.await);
                self.turn.kept.notify_one();
                std::future::pending().await
            }
            Some(When::OnceKept) => {
                self.turn.kept.notified().await;
                Err(failure())
            }
            Some(When::OnceGivenUp) => {
                self.turn.given_up.notified().await;
                work.await
            }
        }
    }
}

impl<S: UtxoStore> UtxoStore for Faulty<S> {
    type Key = S::Key;
    type Mark = S::Mark;

    fn address(&self) -> String {
        self.inner.address()
    }

    fn rules(&self) -> Rules {
        self.inner.rules()
    }

    fn chunks_together(&self) -> usize {
        if self.apart { 1 } else { self.inner.chunks_together() }
    }

    async fn create(
        &self,
        txs: Vec<NewTx>,
        height: Height,
    ) -> Result<Vec<Result<Created, UtxoError>>, UtxoError> {
        self.call("create", self.inner.create(txs, height)).await
    }

    async fn spend(&self, txid: TxId, height: Height) -> Result<(), UtxoError> {
        self.call("spend", self.inner.spend(txid, height)).await
    }

    async fn unspend(&self, txid: TxId, height: Height) -> Result<(), UtxoError> {
        self.call("unspend", self.inner.unspend(txid, height)).await
    }

    async fn set_conflicting(
        &self,
        txid: TxId,
        lost: bool,
        height: Height,
    ) -> Result<(), UtxoError> {
        self.call("set_conflicting", self.inner.set_conflicting(txid, lost, height)).await
    }

    async fn set_mined(
        &self,
        txids: Vec<TxId>,
        block: BlockRef,
        height: Height,
    ) -> Result<(), UtxoError> {
        self.call("set_mined", self.inner.set_mined(txids, block, height)).await
    }

    async fn unset_mined(
        &self,
        txids: Vec<TxId>,
        block: BlockId,
        height: Height,
    ) -> Result<(), UtxoError> {
        self.call("unset_mined", self.inner.unset_mined(txids, block, height)).await
    }

    async fn get(&self, txid: TxId) -> Result<Option<Record>, UtxoError> {
        self.call("get", self.inner.get(txid)).await
    }

    async fn pruned_at(&self, txid: TxId) -> Result<Option<Height>, UtxoError> {
        self.call("pruned_at", self.inner.pruned_at(txid)).await
    }

    async fn old_unmined(
        &self,
        cutoff: Height,
        after: Option<Self::Mark>,
        limit: usize,
    ) -> Result<Page<Unmined, Self::Mark>, UtxoError> {
        self.call("old_unmined", self.inner.old_unmined(cutoff, after, limit)).await
    }

    async fn preserve(&self, txids: Vec<TxId>, until: Height) -> Result<Preserved, UtxoError> {
        self.call("preserve", self.inner.preserve(txids, until)).await
    }

    async fn expire_preservations(&self, height: Height, limit: usize) -> Result<u64, UtxoError> {
        self.call("expire_preservations", self.inner.expire_preservations(height, limit)).await
    }

    async fn due(
        &self,
        height: Height,
        after: Option<Self::Mark>,
        limit: usize,
    ) -> Result<Page<Self::Key, Self::Mark>, UtxoError> {
        self.call("due", self.inner.due(height, after, limit)).await
    }

    async fn unstable(
        &self,
        keys: Vec<Self::Key>,
        deep: Option<Height>,
        batch: usize,
    ) -> Result<Vec<bool>, UtxoError> {
        self.call("unstable", self.inner.unstable(keys, deep, batch)).await
    }

    async fn delete(
        &self,
        keys: Vec<Self::Key>,
        sweep: Sweep,
    ) -> Result<Vec<Fate<Self::Key>>, UtxoError> {
        self.call("delete", self.inner.delete(keys, sweep)).await
    }

    async fn cut(
        &self,
        keys: Vec<Self::Key>,
        sweep: Sweep,
    ) -> Result<Vec<Fate<Self::Key>>, UtxoError> {
        self.call("cut", self.inner.cut(keys, sweep)).await
    }

    async fn doomed(
        &self,
        after: Option<Self::Mark>,
        limit: usize,
    ) -> Result<Page<Doomed<Self::Key>, Self::Mark>, UtxoError> {
        self.call("doomed", self.inner.doomed(after, limit)).await
    }

    async fn finish(&self, keys: Vec<Self::Key>) -> Result<usize, UtxoError> {
        self.call("finish", self.inner.finish(keys)).await
    }

    async fn external_sample(
        &self,
        not_due: Option<Height>,
        limit: usize,
    ) -> Result<Vec<(TxId, FileKind)>, UtxoError> {
        self.call("external_sample", self.inner.external_sample(not_due, limit)).await
    }

    async fn room(&self) -> RoomLook {
        let looked = self.call("room", async { Ok(self.inner.room().await) }).await;
        looked.unwrap_or_else(|error| RoomLook { room: Room::Enough, failed: Some(error) })
    }

    async fn has_records(&self) -> Result<bool, UtxoError> {
        self.call("has_records", self.inner.has_records()).await
    }

    async fn counts(&self, height: Height) -> Result<Counts, UtxoError> {
        self.call("counts", self.inner.counts(height)).await
    }

    async fn note(&self, name: &str) -> Result<Option<String>, UtxoError> {
        self.call("note", self.inner.note(name)).await
    }

    async fn set_note(&self, name: &str, value: &str) -> Result<(), UtxoError> {
        self.call("set_note", self.inner.set_note(name, value)).await
    }

    async fn claim_note(&self, name: &str, value: &str) -> Result<String, UtxoError> {
        self.call("claim_note", self.inner.claim_note(name, value)).await
    }

    async fn add_job(&self, job: &Job) -> Result<(), UtxoError> {
        self.call("add_job", self.inner.add_job(job)).await
    }

    async fn jobs(&self) -> Result<Vec<Job>, UtxoError> {
        self.call("jobs", self.inner.jobs()).await
    }
}
