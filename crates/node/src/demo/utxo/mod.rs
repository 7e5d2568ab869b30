//! The demo's UTXO chain: the real service on SQLite in `utxo/` of the demo's directory, fed and
//! pruned over its own gRPC, a block for every sixteen of the other chain.

mod chain;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::Context as _;
use parking_lot::Mutex;
use secateur_core::Height;
use secateur_proto::utxo::v1 as pb;
use secateur_proto::utxo::v1::created::Outcome;
use secateur_proto::utxo::v1::pruner_client::PrunerClient;
use secateur_proto::utxo::v1::store_client::StoreClient;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot, watch};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use crate::config::{Config, DEFAULT_FILE, Layers};
use crate::durable;
use crate::error::NodeError;
use crate::service::NodeFile;
use crate::ui::words::{count, plural};
use crate::utxo::{self, Addresses, Place};
use chain::{Chain, MATURITY};

/// So many blocks of the demo's chain are one of the UTXO chain.
const EVERY: u64 = 16;
/// Blocks that wait for the service at most; the chain waits then.
const AHEAD: usize = 4;
/// Threads that serve: the demo is to be comfortable on two cores.
const THREADS: usize = 2;

/// What became of UTXO records in this run.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Figures {
    /// Blocks of this run.
    pub(super) blocks: u64,
    pub(super) head: Option<Height>,
    /// Records now.
    pub(super) records: u64,
    pub(super) unmined: u64,
    pub(super) preserved: u64,
    /// How often a prune found a record due and kept it, because an unmined transaction spends it.
    pub(super) held: u64,
    /// Records that went in this run.
    pub(super) pruned: u64,
    pub(super) files_gone: u64,
    pub(super) reorganisations: u64,
    /// A record to ask about, and one that is pruned.
    pub(super) example: Option<String>,
    pub(super) pruned_example: Option<String>,
}

impl Figures {
    /// What went, in half a line.
    pub(super) fn gone(&self) -> String {
        format!("{} pruned, about {} here", plural(self.pruned, "record"), count(self.records))
    }

    /// What stays, and the files, in the other half.
    pub(super) fn kept(&self) -> String {
        format!(
            "held {} by unmined spenders, {} preserved, {} gone",
            plural(self.held, "time"),
            count(self.preserved),
            plural(self.files_gone, "external file")
        )
    }
}

/// The running UTXO chain. Dropping it stops it.
pub(super) struct Utxo {
    appended: Option<mpsc::Sender<u64>>,
    figures: Arc<Mutex<Figures>>,
    thread: Option<JoinHandle<Result<(), anyhow::Error>>>,
}

impl Utxo {
    /// Starts it in the demo's directory. `failed` is set if it cannot go on.
    pub(super) fn start(
        data: &Path,
        seed: u64,
        failed: &Arc<AtomicBool>,
    ) -> Result<Self, anyhow::Error> {
        let config = config(data)?;
        let place = Place::make(data, &config.utxo)?;
        let (sender, appended) = mpsc::channel(AHEAD);
        let figures = Arc::new(Mutex::new(Figures::default()));
        let feeder = Feeder { chain: Chain { seed }, figures: Arc::clone(&figures), next: 0 };
        let failed = Arc::clone(failed);
        let thread = std::thread::Builder::new()
            .name("secateur-utxo".into())
            .spawn(move || {
                let ended = work(&config, &place, feeder, appended);
                if ended.is_err() {
                    failed.store(true, Ordering::Release);
                }
                ended
            })
            .context("starting the UTXO chain's thread")?;
        Ok(Self { appended: Some(sender), figures, thread: Some(thread) })
    }

    /// Tells it that the demo's chain has these heights now. It waits while it is behind.
    pub(super) fn decide(&self, first: Height, last: Height) {
        let blocks = last / EVERY - first.checked_sub(1).map_or(0, |before| before / EVERY);
        if let Some(sender) = self.appended.as_ref().filter(|_| blocks > 0) {
            // If it is gone, its end says why.
            sender.blocking_send(blocks).unwrap_or_default();
        }
    }

    /// The figures now.
    pub(super) fn figures(&self) -> Figures {
        self.figures.lock().clone()
    }

    /// Stops it when what it was told of is done.
    pub(super) fn end(mut self) -> Result<Figures, anyhow::Error> {
        self.join()?;
        Ok(self.figures())
    }

    fn join(&mut self) -> Result<(), anyhow::Error> {
        drop(self.appended.take());
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(ended)) => ended.context("the demo's UTXO chain failed"),
            Some(Err(_)) => Err(NodeError::ThreadDied("UTXO chain").into()),
        }
    }
}

impl Drop for Utxo {
    fn drop(&mut self) {
        // Whoever wanted to know how it ended has asked already.
        self.join().unwrap_or_default();
    }
}

/// What the service is told, as a file in its own directory: commands find it there when the demo has
/// ended. The numbers are small, so that there is something to see.
fn config(data: &Path) -> Result<Config, anyhow::Error> {
    let directory = utxo::directory(data);
    if !directory.is_dir() {
        crate::data_dir::make_directory(&directory)?;
    }
    let text = format!(
        "# The demo's UTXO service.\n[utxo]\nblock_height_retention = 10\ncoinbase_maturity = \
         {MATURITY}\nunmined_tx_retention = 12\nparent_preservation_blocks = 30\n"
    );
    durable::write(&directory, DEFAULT_FILE, &text)?;
    let mut layers = Layers::defaults();
    layers.file(&directory.join(DEFAULT_FILE))?;
    // Any free port: several demos may run.
    layers.flag("utxo.listen", "data", Some("127.0.0.1:0".into()));
    layers.flag("utxo.http", "data", Some("127.0.0.1:0".into()));
    Ok(Config::of(&layers)?)
}

fn work(
    config: &Config,
    place: &Place,
    feeder: Feeder,
    appended: mpsc::Receiver<u64>,
) -> Result<(), anyhow::Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .thread_name("secateur-utxo")
        .build()
        .context("starting the threads of the UTXO chain")?;
    runtime.block_on(async {
        let (stop, stopping) = watch::channel(false);
        let (up, is_up) = oneshot::channel();
        let serving = utxo::serve(config, place, stopping, |Addresses { grpc, .. }| {
            // Nobody waits for it if feeding has failed.
            up.send(grpc).unwrap_or_default();
            Ok(())
        });
        let feeding = async {
            // If it does not come up, its end says why.
            let Ok(grpc) = is_up.await else { return std::future::pending().await };
            let fed = feed(feeder, grpc, place, appended).await;
            stop.send_replace(true);
            fed
        };
        let fed = Mutex::new(Ok(()));
        let feeding = async {
            *fed.lock() = feeding.await;
            std::future::pending::<()>().await;
        };
        let served = tokio::select! {
            served = serving => served,
            () = feeding => Ok(()),
        };
        let fed = fed.into_inner();
        fed.and(served)
    })
}

async fn feed(
    mut feeder: Feeder,
    grpc: SocketAddr,
    place: &Place,
    mut appended: mpsc::Receiver<u64>,
) -> Result<(), anyhow::Error> {
    let file = NodeFile::read(&place.directory)?.context("the UTXO service left no node.json")?;
    let line = Calls::to(grpc, &file)?;
    feeder.begin(&line).await?;
    while let Some(blocks) = appended.recv().await {
        for _ in 0..blocks {
            feeder.block(&line).await?;
        }
    }
    Ok(())
}

/// The service's calls.
#[derive(Clone)]
struct Calls {
    store: StoreClient<Channel>,
    pruner: PrunerClient<Channel>,
    token: MetadataValue<Ascii>,
}

impl Calls {
    fn to(grpc: SocketAddr, file: &NodeFile) -> Result<Self, anyhow::Error> {
        let channel = Endpoint::from_shared(format!("http://{grpc}"))?.connect_lazy();
        let token = format!("Bearer {}", file.admin_token);
        let token = token.parse().context("the UTXO service's token is not one")?;
        let (store, pruner) = (StoreClient::new(channel.clone()), PrunerClient::new(channel));
        Ok(Self { store, pruner, token })
    }

    fn asked<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", self.token.clone());
        request
    }
}

fn answer<T>(answered: Result<Response<T>, Status>) -> Result<T, anyhow::Error> {
    answered.map(Response::into_inner).map_err(|status| {
        NodeError::Failed(format!("the UTXO service answers: {}", status.message())).into()
    })
}

/// Feeds the chain, block by block.
struct Feeder {
    chain: Chain,
    figures: Arc<Mutex<Figures>>,
    next: Height,
}

impl Feeder {
    /// Goes on where the last run ended.
    async fn begin(&mut self, line: &Calls) -> Result<(), anyhow::Error> {
        let status = answer(line.pruner.clone().status(line.asked(pb::StatusRequest {})).await)?;
        self.next = status.processed.map_or(0, |processed| processed + 1);
        self.count(status.processed, &status.counts.unwrap_or_default());
        Ok(())
    }

    fn count(&self, head: Option<Height>, counts: &pb::Counts) {
        let mut figures = self.figures.lock();
        figures.head = head;
        (figures.records, figures.unmined) = (counts.records, counts.unmined);
        figures.preserved = counts.preserved;
        figures.example = head.and_then(|head| self.chain.waited_for(head));
        figures.example = figures.example.take().or(head.map(|head| self.chain.coinbase(head)));
    }

    /// One block: its transactions, what becomes of older ones, and the prune that it sets off. What a
    /// crash cut off is told again, and does no harm.
    async fn block(&mut self, line: &Calls) -> Result<(), anyhow::Error> {
        let (height, mut store, mut pruner) = (self.next, line.store.clone(), line.pruner.clone());
        let step = self.chain.step(height);
        let made = answer(store.create(line.asked(step.create)).await)?;
        for one in made.created {
            if one.outcome() == Outcome::Refused {
                let why = one.error.unwrap_or_default().message;
                return Err(NodeError::Failed(format!("UTXO block {height}: {why}")).into());
            }
        }
        if let Some(lost) = step.lost {
            answer(store.set_conflicting(line.asked(lost)).await)?;
        }
        if let Some(mined) = step.mined {
            answer(store.set_mined(line.asked(mined)).await)?;
        }
        if let Some((out, into)) = step.replaced {
            answer(store.unset_mined(line.asked(out)).await)?;
            answer(store.set_mined(line.asked(into)).await)?;
            self.figures.lock().reorganisations += 1;
        }
        // It is told of, and pruned at at once, so that what went can be counted.
        let block = pb::BlockEvent { height, mined_set: false };
        let event = Some(pb::trigger_request::Event::Block(block));
        answer(pruner.trigger(line.asked(pb::TriggerRequest { event })).await)?;
        let request = pb::PruneRequest { height: Some(height) };
        let pruned = answer(pruner.prune(line.asked(request)).await)?;
        let done = pruned.job.and_then(|job| job.done).unwrap_or_default();
        let status = answer(pruner.status(line.asked(pb::StatusRequest {})).await)?;
        self.count(Some(height), &status.counts.unwrap_or_default());
        let mut figures = self.figures.lock();
        figures.blocks += 1;
        figures.pruned += done.deleted;
        figures.files_gone += done.files_deleted;
        figures.held += done.kept.get("held").copied().unwrap_or(0);
        if done.deleted > 0 {
            figures.pruned_example = Some(self.chain.coinbase(0));
        }
        drop(figures);
        self.next += 1;
        Ok(())
    }
}
