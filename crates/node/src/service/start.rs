//! Starting everything in order, and ending it in the opposite one.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::Context as _;
use secateur_store::{Daemon, PruneOutcome, StoreError, Workers};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Node, NodeFile, Reading};
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::error::NodeError;
use crate::follow::{self, Standing};
use crate::http::metrics::Metrics;
use crate::security::{Guard, check_bind, new_token};
use crate::{grpc, http};

/// A task of the service, by its name.
type Task = (&'static str, JoinHandle<Result<(), anyhow::Error>>);

/// A running service. Dropping it stops it.
pub(crate) struct Service {
    pub(crate) node: Arc<Node>,
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    stop: watch::Sender<bool>,
    tasks: Vec<Task>,
    // In the order in which they end.
    runtime: Option<Runtime>,
    daemon: Option<Daemon>,
    workers: Option<Workers>,
    data: DataDir,
}

impl Service {
    /// Opens the sockets, starts workers, daemon and servers, and says in `node.json` where they
    /// are. Nothing is left behind when any of it fails.
    pub(crate) fn start(data: DataDir, config: &Config) -> Result<Self, anyhow::Error> {
        check_bind(config)?;
        let own = new_token()?;
        let guard = Arc::new(Guard::new(config, &data.path, &own)?);
        let tls = config.tls.as_ref().map(http::tls::read).transpose()?;
        let (http_socket, http) = listen("http.addr", config.http)?;
        let (grpc_socket, grpc) = listen("grpc.addr", config.grpc)?;
        let (stop, stopping) = watch::channel(false);
        let (say, standing) = watch::channel(Standing::default());
        let workers = Some(Workers::start(&data.store)?);
        let daemon = Some(Daemon::start(Arc::clone(&data.store), report)?);
        let node = Arc::new(Node {
            store: Arc::clone(&data.store),
            path: data.path.clone(),
            chain: config.chain.clone(),
            limits: config.limits,
            standing,
            metrics: Metrics::default(),
            reading: Reading::new(&config.limits),
            stopping,
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .thread_name("secateur-serve")
            .build()
            .context("starting the threads that serve")?;
        let mut tasks: Vec<Task> = Vec::new();
        {
            let _inside = runtime.enter();
            let serving = grpc::serve(&node, &guard, grpc_socket, config.tls.as_ref())?;
            tasks.push(("gRPC", tokio::spawn(serving)));
            let serving = http::serve(&node, &guard, http_socket, tls)?;
            tasks.push(("HTTP", tokio::spawn(serving)));
            if let Some(follow) = &config.follow {
                let following = follow::run(Arc::clone(&node), follow.clone(), say);
                tasks.push(("follow", tokio::spawn(following)));
            }
        }
        NodeFile {
            pid: std::process::id(),
            http,
            grpc,
            tls: config.tls.is_some(),
            admin_token: own.0,
        }
        .write(&data.path)?;
        tracing::info!(%http, %grpc, data = %data.path.display(), "the node is up");
        let runtime = Some(runtime);
        Ok(Self { node, http, grpc, stop, tasks, runtime, daemon, workers, data })
    }

    /// Waits until a signal says stop or a part of the service ends by itself, then stops.
    pub(crate) fn run(mut self) -> Result<(), anyhow::Error> {
        let ended = match &self.runtime {
            Some(runtime) => runtime.block_on(wait(&mut self.tasks)),
            None => Ok(()),
        };
        self.end();
        ended
    }

    /// Stops everything and waits for it.
    pub(crate) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        tracing::info!("stopping");
        // One that ended by itself has given its answer, and gives it once.
        self.tasks.retain(|(_, task)| !task.is_finished());
        self.stop.send_replace(true);
        runtime.block_on(async {
            for (name, task) in self.tasks.drain(..) {
                match tokio::time::timeout(GRACE, task).await {
                    Ok(Ok(Err(error))) => tracing::warn!(%error, "{name} ended badly"),
                    // It ended well, or whoever waited for it has its answer already.
                    Ok(_) => {}
                    Err(_) => tracing::warn!("{name} did not end in time"),
                }
            }
        });
        runtime.shutdown_timeout(GRACE);
        drop(self.daemon.take());
        drop(self.workers.take());
        NodeFile::remove(&self.data.path);
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

fn listen(
    key: &'static str,
    address: SocketAddr,
) -> Result<(TcpListener, SocketAddr), anyhow::Error> {
    let open = || {
        let socket = TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok::<_, std::io::Error>((socket, address))
    };
    open().map_err(|error| {
        let advice = format!(
            "{key} = {address} cannot be listened on: {error}; choose another address, or port 0 \
             for any free one"
        );
        NodeError::Failed(advice).into()
    })
}

/// Waits for a signal, or for the first task that ends by itself.
async fn wait(tasks: &mut [Task]) -> Result<(), anyhow::Error> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .context("listening for signals")?;
    let ended = futures_util::future::select_all(
        tasks.iter_mut().map(|(name, task)| Box::pin(async move { (*name, task.await) })),
    );
    tokio::select! {
        _ = tokio::signal::ctrl_c() => Ok(()),
        _ = terminate.recv() => Ok(()),
        ((name, ended), _, _) = ended => match ended {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(NodeError::ThreadDied(name).into()),
        },
    }
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
