//! What writers keep of their rate while a prune runs.
//!
//! Each makes transactions that spend its own last ones, a hundred at a time, and puts them into a
//! block: as a node does that validates and mines. They write as fast as they can, through the same
//! store that is pruned, so that everything that the machine has is taken before the prune begins.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use secateur_utxo::{BlockId, BlockRef, Body, NewTx, OutPoint, TxId, UtxoStore};

use super::rows::{HEIGHT, txid};
use crate::measure::{float, share};

const WRITERS: u64 = 4;
const BATCH: u64 = 100;
/// How long they write alone.
const ALONE: Duration = Duration::from_secs(4);
/// Their ids begin here, far above the rows'.
const FIRST: u64 = 1 << 40;

/// What they did, as they do it.
#[derive(Default)]
pub struct Tally {
    written: AtomicU64,
    longest_us: AtomicU64,
    stop: AtomicBool,
}

impl Tally {
    /// Transactions a second from now until something ends.
    pub async fn rate_while<T>(&self, until: impl Future<Output = Result<T>>) -> Result<(f64, T)> {
        let (before, began) = (self.written.load(Ordering::Relaxed), Instant::now());
        let value = until.await?;
        let written = self.written.load(Ordering::Relaxed) - before;
        Ok((share(float(written), began.elapsed().as_secs_f64()), value))
    }

    /// Transactions a second while nothing else happens.
    pub async fn rate_alone(&self) -> Result<f64> {
        let wait = async {
            tokio::time::sleep(ALONE).await;
            Ok(())
        };
        Ok(self.rate_while(wait).await?.0)
    }

    /// The longest that one of their calls took since this was asked last.
    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.longest_us.swap(0, Ordering::Relaxed))
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    async fn timed<T>(&self, call: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let value = call.await;
        let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.longest_us.fetch_max(took, Ordering::Relaxed);
        value
    }
}

fn coin(n: u64, spends: Option<u64>, height: u64) -> NewTx {
    let inputs = spends.map(|parent| OutPoint { txid: TxId(txid(parent)), n: 0 });
    NewTx {
        txid: TxId(txid(n)),
        coinbase: inputs.is_none(),
        inputs: inputs.into_iter().collect(),
        outputs: 1,
        conflicting: false,
        mined: inputs.is_none().then(|| block(0, height)),
        body: Body::Inline(vec![7; 374].into()),
    }
}

fn block(n: u64, height: u64) -> BlockRef {
    BlockRef { id: BlockId(txid(n ^ (1 << 59))), height }
}

async fn write<S: UtxoStore>(store: &S, writer: u64, tally: &Tally) -> Result<()> {
    let first = FIRST + (writer << 32);
    let numbers = |round: u64| (0..BATCH).map(move |n| first + round * BATCH + n);
    let coins = numbers(0).map(|n| coin(n, None, 1)).collect();
    for made in store.create(coins, HEIGHT).await? {
        made?;
    }
    for round in 1.. {
        if tally.stop.load(Ordering::Relaxed) {
            break;
        }
        let txs: Vec<NewTx> = numbers(round).map(|n| coin(n, Some(n - BATCH), HEIGHT)).collect();
        let txids: Vec<TxId> = txs.iter().map(|tx| tx.txid).collect();
        for made in tally.timed(store.create(txs, HEIGHT)).await? {
            made?;
        }
        let block = block(first + round, HEIGHT);
        tally.timed(store.set_mined(txids, block, HEIGHT)).await?;
        tally.written.fetch_add(BATCH, Ordering::Relaxed);
    }
    Ok(())
}

/// Writers at work; they end when the tally says so.
pub fn start<S: UtxoStore>(
    store: &S,
    writers: u64,
) -> (Arc<Tally>, Vec<tokio::task::JoinHandle<Result<()>>>) {
    let tally = Arc::new(Tally::default());
    let tasks = (0..writers).map(|writer| {
        let (store, tally) = (store.clone(), tally.clone());
        tokio::spawn(async move { write(&store, writer, &tally).await })
    });
    let tasks = tasks.collect();
    (tally, tasks)
}

/// What they wrote a second alone, and during a prune.
pub async fn rates<S: UtxoStore>(
    store: &S,
    prune: impl Future<Output = Result<()>>,
) -> Result<(f64, f64)> {
    let (tally, tasks) = start(store, WRITERS);
    // What is made for the first time is.
    tally.rate_alone().await?;
    let before = tally.rate_alone().await?;
    let (during, ()) = tally.rate_while(prune).await?;
    let after = tally.rate_alone().await?;
    tally.stop();
    for task in tasks {
        task.await??;
    }
    ensure!(before > 0.0 && after > 0.0, "the writers wrote nothing");
    Ok(((before + after) / 2.0, during))
}
