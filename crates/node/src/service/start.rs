//! Starting everything in order, and ending it in the opposite one.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::Context as _;
use secateur_core::Plan;
use secateur_store::{Daemon, PruneOutcome, StoreError, Workers};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{LastPressing, Node, NodeFile, Reading, Rooms, pressure};
use crate::agreed::foretell;
use crate::blobs::Blobs;
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::error::NodeError;
use crate::follow::{self, Standing};
use crate::http::metrics::Metrics;
use crate::rpc::Cache;
use crate::security::{Guard, Token, check_bind, new_token};
use crate::vault::Vault;
use crate::{grpc, http};

/// A task of the service, by its name.
type Task = (&'static str, JoinHandle<Result<(), anyhow::Error>>);

/// A running service. Dropping it stops it.
pub(crate) struct Service {
    pub(crate) node: Arc<Node>,
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    stop: watch::Sender<bool>,
    signals: [Signal; 2],
    tasks: Vec<Task>,
    // In the order in which they end.
    runtime: Option<Runtime>,
    daemon: Option<Daemon>,
    workers: Option<Workers>,
    data: Option<DataDir>,
}

/// Who hears of every prune tick.
pub(crate) type Observer = Box<dyn FnMut(Result<&PruneOutcome, &StoreError>) + Send>;

/// Which sockets may take any free port.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AnyPort {
    pub(crate) http: bool,
    pub(crate) grpc: bool,
}

/// What differs between those who start a service.
pub(crate) struct Options {
    /// Who hears of prune ticks, beside the log.
    pub(crate) observe: Option<Observer>,
    /// Whose port nobody named: any free one will do where the usual one is taken.
    pub(crate) any_port: AnyPort,
}

impl Service {
    /// Opens the sockets, starts workers, daemon and servers, and says in `node.json` where they
    /// are. Nothing is left behind when any of it fails.
    pub(crate) fn start(
        data: DataDir,
        config: &Config,
        options: Options,
    ) -> Result<Self, anyhow::Error> {
        check_bind(config)?;
        let own = new_token()?;
        let guard = Arc::new(Guard::new(config, &data.path, &own)?);
        let sockets = Sockets::open(config, options.any_port)?;
        let (stop, stopping) = watch::channel(false);
        let (say, standing) = watch::channel(Standing::default());
        let (say_blobs, beacon) = watch::channel(Standing::default());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .thread_name("secateur-serve")
            .build()
            .context("starting the threads that serve")?;
        let blobs = blobs(&runtime, &data, config)?;
        let workers = Some(Workers::start(&data.store)?);
        let mut observe = options.observe;
        let metrics = Arc::<Metrics>::default();
        let counted = Arc::clone(&metrics);
        let heard = move |outcome: Result<&PruneOutcome, &StoreError>| {
            report(outcome);
            if let Ok(outcome) = outcome {
                counted.pruned(outcome);
            }
            if let Some(observe) = &mut observe {
                observe(outcome);
            }
        };
        let daemon = Some(Daemon::start_with(Arc::clone(&data.store), announce, heard)?);
        let node = Arc::new(Node {
            store: Arc::clone(&data.store),
            path: data.path.clone(),
            chain: config.chain.clone(),
            limits: config.limits,
            standing,
            beacon,
            metrics,
            rpc: Cache::default(),
            vault: Vault::open(config)?,
            blobs,
            reading: Reading::new(&config.limits),
            rooms: Rooms::new(config.limits.answer_bytes),
            pressing: LastPressing::default(),
            backpressure: config.backpressure,
            stopping,
        });
        let store_id = data.store.header().store_id;
        let (http, grpc, file) =
            (sockets.http.1, sockets.grpc.1, sockets.node_file(own, &store_id));
        let mut tasks: Vec<Task> = Vec::new();
        let signals = {
            let _inside = runtime.enter();
            // Before anybody learns that the node is there, and may want it to stop.
            let signals =
                [listen_for(SignalKind::interrupt())?, listen_for(SignalKind::terminate())?];
            sockets.serve(&node, &guard, config, &mut tasks)?;
            if let Some(blobs) = node.blobs.clone() {
                let stopping = node.stopping.clone();
                tasks.push(("blobs", tokio::spawn(async move { blobs.run(stopping).await })));
            }
            tasks.push(("pressure log", tokio::spawn(pressure::run(Arc::clone(&node)))));
            follow_all(&node, config, (say, say_blobs), &mut tasks);
            signals
        };
        NodeFile::remove(&data.path);
        if let Err(error) = file.write(&data.path) {
            // A full disk must not keep a node from pruning itself out of it.
            tracing::warn!(error = format!("{error:#}"), "commands will not find this node");
        }
        tracing::info!(%http, %grpc, data = %data.path.display(), "the node is up");
        let (runtime, data) = (Some(runtime), Some(data));
        Ok(Self { node, http, grpc, stop, signals, tasks, runtime, daemon, workers, data })
    }

    /// Waits until a signal says stop or a part of the service ends by itself, then stops.
    pub(crate) fn run(mut self) -> Result<(), anyhow::Error> {
        let ended = match &self.runtime {
            Some(runtime) => {
                let (ended, finished) = runtime.block_on(wait(&mut self.tasks, &mut self.signals));
                // It has given its answer and must not be asked again.
                if let Some(finished) = finished.filter(|at| *at < self.tasks.len()) {
                    self.tasks.remove(finished);
                }
                ended
            }
            None => Ok(()),
        };
        self.end();
        ended
    }

    /// Stops everything and waits for it; the data directory is the caller's again.
    pub(crate) fn stop(mut self) -> Option<DataDir> {
        self.end();
        self.data.take()
    }

    fn end(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        tracing::info!("stopping");
        self.stop.send_replace(true);
        runtime.block_on(async {
            for (name, task) in self.tasks.drain(..) {
                match tokio::time::timeout(GRACE, task).await {
                    Ok(Ok(Err(error))) => tracing::warn!(%error, "{name} ended badly"),
                    Ok(Err(_)) => tracing::warn!("{name} panicked"),
                    Ok(Ok(Ok(()))) => {}
                    Err(_) => tracing::warn!("{name} did not end in time"),
                }
            }
        });
        runtime.shutdown_timeout(GRACE);
        drop(self.daemon.take());
        drop(self.workers.take());
        NodeFile::remove(&self.node.path);
        tracing::info!("stopped; everything that was acknowledged is on disk");
    }
}

/// How long a part of the service may take to end.
const GRACE: std::time::Duration = std::time::Duration::from_secs(10);

impl Drop for Service {
    fn drop(&mut self) {
        self.end();
    }
}

/// Follows what is to be followed.
fn follow_all(
    node: &Arc<Node>,
    config: &Config,
    (say, say_blobs): (watch::Sender<Standing>, watch::Sender<Standing>),
    tasks: &mut Vec<Task>,
) {
    if let Some(follow) = &config.follow {
        let following = follow::run(Arc::clone(node), follow.clone(), say);
        tasks.push(("follow", tokio::spawn(following)));
    }
    if let (Some(beacon), Some(blobs)) = (config.beacon.clone(), node.blobs.clone()) {
        let stopping = node.stopping.clone();
        let following =
            async move { follow::beacon::run(blobs.sidecars(), beacon, say_blobs, stopping).await };
        tasks.push(("beacon", tokio::spawn(following)));
    }
}

/// Opens the blobs, where they are kept.
fn blobs(
    runtime: &Runtime,
    data: &DataDir,
    config: &Config,
) -> Result<Option<Arc<Blobs>>, anyhow::Error> {
    if !config.sidecar.enabled {
        return Ok(None);
    }
    let _inside = runtime.enter();
    Ok(Some(Arc::new(Blobs::start(data, &config.sidecar)?)))
}

type Socket = (TcpListener, SocketAddr);

/// The open sockets. Where the public ones speak TLS there is a second pair on the loopback for
/// commands of the same machine, which show the token of `node.json`.
struct Sockets {
    http: Socket,
    grpc: Socket,
    local: Option<(Socket, Socket)>,
}

impl Sockets {
    fn open(config: &Config, any_port: AnyPort) -> Result<Self, anyhow::Error> {
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let local = match config.tls {
            Some(_) => Some((listen("http", here, false)?, listen("grpc", here, false)?)),
            None => None,
        };
        let http = listen("http.addr", config.http, any_port.http)?;
        let grpc = listen("grpc.addr", config.grpc, any_port.grpc)?;
        Ok(Self { http, grpc, local })
    }

    /// What commands on this machine must know.
    fn node_file(&self, own: Token, store_id: &[u8]) -> NodeFile {
        let (http, grpc) = match &self.local {
            Some(((_, http), (_, grpc))) => (*http, *grpc),
            None => (self.http.1, self.grpc.1),
        };
        let store_id = Some(alloy_primitives::hex::encode(store_id));
        NodeFile { pid: std::process::id(), http, grpc, admin_token: own.0, store_id }
    }

    fn serve(
        self,
        node: &Arc<Node>,
        guard: &Arc<Guard>,
        config: &Config,
        tasks: &mut Vec<Task>,
    ) -> Result<(), anyhow::Error> {
        let tls = config.tls.as_ref().map(http::tls::read).transpose()?;
        let mut serve = |http: Socket, grpc: Socket, files, tls| {
            tasks.push(("gRPC", tokio::spawn(grpc::serve(node, guard, grpc.0, files)?)));
            let origins = config.cors_origins.clone();
            tasks.push(("HTTP", tokio::spawn(http::serve(node, guard, http.0, tls, origins)?)));
            Ok::<_, anyhow::Error>(())
        };
        serve(self.http, self.grpc, config.tls.as_ref(), tls)?;
        if let Some((http, grpc)) = self.local {
            serve(http, grpc, None, None)?;
        }
        Ok(())
    }
}

/// Opens a socket.
pub(crate) fn listen(
    key: &'static str,
    address: SocketAddr,
    any_port: bool,
) -> Result<Socket, anyhow::Error> {
    let open = |address| {
        let socket = TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok::<_, std::io::Error>((socket, address))
    };
    let opened = open(address).or_else(|error| {
        let taken = error.kind() == std::io::ErrorKind::AddrInUse;
        if any_port && taken { open(SocketAddr::new(address.ip(), 0)) } else { Err(error) }
    });
    opened.map_err(|error| {
        let advice = format!(
            "{key} = {address} cannot be listened on: {error}; choose another address, or port 0 \
             for any free one"
        );
        NodeError::Failed(advice).into()
    })
}

fn listen_for(kind: SignalKind) -> Result<Signal, anyhow::Error> {
    signal(kind).context("listening for signals")
}

/// Waits for a signal, or for the first task that ends by itself; which one is told too.
async fn wait(
    tasks: &mut [Task],
    [interrupt, terminate]: &mut [Signal; 2],
) -> (Result<(), anyhow::Error>, Option<usize>) {
    let ended = futures_util::future::select_all(
        tasks.iter_mut().map(|(name, task)| Box::pin(async move { (*name, task.await) })),
    );
    tokio::select! {
        _ = interrupt.recv() => (Ok(()), None),
        _ = terminate.recv() => (Ok(()), None),
        ((name, ended), at, _) = ended => {
            (ended.unwrap_or_else(|_| Err(NodeError::ThreadDied(name).into())), Some(at))
        }
    }
}

/// The first prune that a store makes by itself, for the log, before it is made.
fn announce(plan: &Plan) {
    tracing::warn!("the first prune of this store cuts {}", foretell(plan));
}

/// What the prune daemon did, for the log.
fn report(outcome: Result<&PruneOutcome, &StoreError>) {
    match outcome {
        Ok(outcome) => {
            let Some(report) = &outcome.report else { return };
            tracing::info!(
                first = report.first,
                last = report.last,
                blocks = outcome.totals.blocks,
                cause = %report.cause,
                stop = %outcome.stop,
                "pruned"
            );
        }
        Err(error) => tracing::error!(%error, "pruning failed"),
    }
}
