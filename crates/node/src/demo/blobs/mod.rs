//! The demo's four validators, of which its own node is the first: real blobs, archived by whoever proposed them, announced over a real
//! mesh, pruned by everybody.
//!
//! They run in a thread of their own beside the chain and hear of its blocks after these are
//! acknowledged. What a crash keeps from them they are told again at the next start, because which
//! height has which blobs is a function of the height (`schedule`). What is shown of them is counted
//! by their own stores (`figures`).

mod figures;
mod schedule;
mod settings;
mod validator;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::future::try_join_all;
use secateur_core::Height;
use secateur_sidecar::gossip::Peer;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

pub(super) use figures::{Ended, Figures};
pub(super) use schedule::newest_with_blobs;

use crate::blobs::{self, DiskSidecars};
use crate::config::Layers;
use crate::durable;
use crate::error::NodeError;
use crate::service::Service;
use figures::is_settled;
use validator::{Opened, Running};

/// What the validators' common file is called: with it the demo has validators.
const FILE: &str = "demo-blobs.toml";
/// Finality follows so many blocks behind the head.
const FINAL_AFTER: u64 = 3;
/// Groups of blocks that wait for the validators at most; the chain waits then.
const AHEAD: usize = 4;
/// Heights that are caught up with at a time.
const PAGE: u64 = 64;
/// Heights that a validator may have decided out of order: those of a page, or of a group, which is
/// smaller. Below them none is missing.
const SLACK: u64 = PAGE;
/// How long the end of a run waits for what is final to be archived and pruned.
const PATIENCE: Duration = Duration::from_mins(1);
const NAP: Duration = Duration::from_millis(20);
/// Threads that serve them: the demo is to be comfortable on two cores.
const THREADS: usize = 2;

/// What the file says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BlobsFile {
    /// The first height that the validators decided.
    first_height: Height,
}

/// The validators beside the demo's own node, opened before that starts: it must know where they
/// are, and they where it is.
pub(super) struct Others {
    opened: Vec<Opened>,
    data: PathBuf,
}

impl Others {
    /// Opens the validators of a demo's directory, or makes them.
    pub(super) fn open(data: &Path, chain_id: u64) -> Result<Self, anyhow::Error> {
        let opened = validator::open_others(data, chain_id)?;
        Ok(Self { opened, data: data.to_path_buf() })
    }

    /// What the demo's node is told: that it is the first validator, and who its peers are.
    pub(super) fn tell(&self, layers: &mut Layers) -> Result<(), anyhow::Error> {
        layers.file(&settings::file(&self.data, 1))?;
        let peer = |one: &Opened| {
            let Peer { name, url } = one.peer();
            format!("{{ name = \"{name}\", url = \"{url}\" }}")
        };
        let peers: Vec<String> = self.opened.iter().map(peer).collect();
        layers.flag("sidecar.peers", "data", Some(format!("[{}]", peers.join(", "))));
        layers.flag("sidecar.ask_seconds", "data", Some("1".into()));
        Ok(())
    }
}

/// The running validators. Dropping it stops them.
pub(super) struct Blobs {
    /// What all of them store into, the node's first.
    stores: Arc<[Arc<DiskSidecars>]>,
    decided: Option<mpsc::Sender<(Height, Height)>>,
    settle: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), anyhow::Error>>>,
}

impl Blobs {
    /// Starts the others beside a running service. `failed` is set if they cannot go on.
    pub(super) fn start(
        others: Others,
        service: &Service,
        failed: &Arc<AtomicBool>,
    ) -> Result<Self, anyhow::Error> {
        let node = service.node.blobs.clone().context("the demo's node keeps no blobs")?;
        let head = service.node.store.head();
        let first = first_height(&others.data, head)?;
        let beside = others.opened.iter().map(|one| Arc::clone(&one.store));
        let stores: Arc<[_]> = [Arc::clone(node.store())].into_iter().chain(beside).collect();
        let (sender, decided) = mpsc::channel(AHEAD);
        let settle = Arc::new(AtomicBool::new(false));
        let work = Work {
            node,
            grpc: service.grpc,
            others: others.opened,
            stores: Arc::clone(&stores),
            missed: head.map(|head| (first, head)),
            settle: Arc::clone(&settle),
        };
        let failed = Arc::clone(failed);
        let thread = std::thread::Builder::new()
            .name("secateur-blobs".into())
            .spawn(move || {
                let ended = work.run(decided);
                if ended.is_err() {
                    failed.store(true, Ordering::Release);
                }
                ended
            })
            .context("starting the validators' thread")?;
        Ok(Self { stores, decided: Some(sender), settle, thread: Some(thread) })
    }

    /// Tells the validators that the chain has these heights now. It waits while they are behind.
    pub(super) fn decide(&self, first: Height, last: Height) {
        if let Some(sender) = &self.decided {
            // If they are gone, their end says why.
            sender.blocking_send((first, last)).unwrap_or_default();
        }
    }

    /// The figures now.
    pub(super) fn figures(&self) -> Result<Vec<Figures>, anyhow::Error> {
        let figures =
            |(number, store): (u8, &Arc<DiskSidecars>)| Ok(Figures::of(number, &store.summary()?));
        (1..).zip(self.stores.iter()).map(figures).collect()
    }

    /// Stops them. With `settle` it waits first, within limits, until every final height is archived
    /// and pruned on all of them.
    pub(super) fn end(mut self, settle: bool) -> Result<Ended, anyhow::Error> {
        self.settle.store(settle, Ordering::Release);
        self.join()?;
        Ok(Ended { settled: all_settled(&self.stores)?, validators: self.figures()? })
    }

    fn join(&mut self) -> Result<(), anyhow::Error> {
        drop(self.decided.take());
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(ended)) => ended.context("the demo's validators failed"),
            Some(Err(_)) => Err(NodeError::ThreadDied("validators").into()),
        }
    }
}

impl Drop for Blobs {
    fn drop(&mut self) {
        // Whoever wanted to know how they ended has asked already.
        self.join().unwrap_or_default();
    }
}

/// The first height of the validators: a demo that was made without them gives them what comes from
/// now on.
fn first_height(data: &Path, head: Option<Height>) -> Result<Height, anyhow::Error> {
    let path = data.join(FILE);
    if let Some(text) = durable::read(&path)? {
        let file: BlobsFile = toml::from_str(&text)
            .map_err(|error| NodeError::BadFile { path, reason: error.message().to_owned() })?;
        return Ok(file.first_height);
    }
    let first_height = head.map_or(0, |head| head + 1);
    let text = toml::to_string(&BlobsFile { first_height }).context("writing the blobs' file")?;
    durable::write(data, FILE, &format!("# Since when the demo's validators have blobs.\n{text}"))?;
    Ok(first_height)
}

/// What the thread has to do.
struct Work {
    node: Arc<blobs::Blobs>,
    grpc: SocketAddr,
    others: Vec<Opened>,
    stores: Arc<[Arc<DiskSidecars>]>,
    /// What the chain had decided when the demo began.
    missed: Option<(Height, Height)>,
    settle: Arc<AtomicBool>,
}

impl Work {
    fn run(self, decided: mpsc::Receiver<(Height, Height)>) -> Result<(), anyhow::Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .enable_all()
            .thread_name("secateur-blobs")
            .build()
            .context("starting the validators' threads")?;
        runtime.block_on(Box::pin(self.validate(decided)))
    }

    fn connect(&self) -> Result<Vec<Running>, anyhow::Error> {
        let mut peers = vec![Running::node_peer(self.grpc)];
        peers.extend(self.others.iter().map(|one| one.peer().clone()));
        let others = self.others.iter().map(|one| Running::connect(one, &peers));
        [Ok(Running::Node(Arc::clone(&self.node)))].into_iter().chain(others).collect()
    }

    /// Runs the validators until nobody tells them of blocks any more.
    async fn validate(
        &self,
        mut decided: mpsc::Receiver<(Height, Height)>,
    ) -> Result<(), anyhow::Error> {
        let running = self.connect()?;
        let (stop, stopping) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for work in running.iter().filter_map(|one| one.work(stopping.clone())) {
            tasks.spawn(work);
        }
        let telling = async {
            self.catch_up(&running).await?;
            while let Some((first, last)) = decided.recv().await {
                decide(&running, first, last).await?;
            }
            if self.settle.load(Ordering::Acquire) {
                self.settled().await?;
            }
            Ok(())
        };
        let died = || Err(NodeError::ThreadDied("validators").into());
        let mut ended = tokio::select! {
            told = telling => told,
            // None of them ends before it is told to, unless it fails.
            Some(ended) = tasks.join_next() => ended.unwrap_or_else(|_| died()).and(died()),
        };
        stop.send_replace(true);
        while let Some(one) = tasks.join_next().await {
            ended = ended.and(one.unwrap_or_else(|_| died()));
        }
        ended
    }

    /// Tells each validator what it missed: a crash may have come between the chain's block and its
    /// own.
    async fn catch_up(&self, running: &[Running]) -> Result<(), anyhow::Error> {
        let Some((first, head)) = self.missed else { return Ok(()) };
        for (one, store) in running.iter().zip(self.stores.iter()) {
            let latest = store.summary()?.latest_decided;
            let mut next = latest.map_or(first, |latest| latest.saturating_sub(SLACK).max(first));
            while next <= head {
                let last = (next + PAGE - 1).min(head);
                one.decide(next, last).await?;
                next = last + 1;
            }
        }
        finalize(running, head).await
    }

    /// Waits until every final height is archived and pruned, or for too long.
    async fn settled(&self) -> Result<(), anyhow::Error> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until && !all_settled(&self.stores)? {
            tokio::time::sleep(NAP).await;
        }
        Ok(())
    }
}

fn all_settled(stores: &[Arc<DiskSidecars>]) -> Result<bool, anyhow::Error> {
    for store in stores {
        if !is_settled(&store.summary()?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// All validators take the decisions of some heights, at the same time.
async fn decide(running: &[Running], first: Height, last: Height) -> Result<(), anyhow::Error> {
    try_join_all(running.iter().map(|one| one.decide(first, last))).await?;
    finalize(running, last).await
}

async fn finalize(running: &[Running], head: Height) -> Result<(), anyhow::Error> {
    if let Some(height) = head.checked_sub(FINAL_AFTER) {
        try_join_all(running.iter().map(|one| one.finalize(height))).await?;
    }
    Ok(())
}
