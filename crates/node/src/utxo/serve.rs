//! The UTXO service: records, pruner, gRPC and HTTP, started in order and ended together.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use secateur_utxo::UtxoError;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic_health::server::HealthReporter;

use super::board::{Board, Shown};
use super::open::Opening;
use super::{Opened, Place, http, open};
use crate::config::Config;
use crate::error::NodeError;
use crate::grpc::utxo::{Serving, serve as serve_grpc, tell_health};
use crate::http::metrics::Metrics;
use crate::security::{Guard, check_address, new_token};
use crate::service::{NodeFile, listen};

/// How long a database that is not there is waited for between two attempts, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
/// How long the parts of the service may take to end.
const GRACE: Duration = Duration::from_secs(45);

/// Where the service listens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) open_health: Option<SocketAddr>,
}

/// Serves until it is told to stop. `told` hears where it listens.
pub(crate) async fn serve(
    config: &Config,
    place: &Place,
    stop: watch::Receiver<bool>,
    told: impl FnOnce(Addresses) -> Result<(), anyhow::Error>,
) -> Result<(), anyhow::Error> {
    check_address(config, "utxo.listen", config.utxo.listen)?;
    check_address(config, "utxo.http", config.utxo.http)?;
    secateur_archive::install_tls_provider();
    for warning in config.utxo.key_warnings() {
        tracing::warn!("{warning}");
    }
    let own = new_token()?;
    let guard = Arc::new(Guard::new(config, &place.directory, &own)?);
    let (all_stop, stopping) = watch::channel(false);
    let mut tasks: JoinSet<Result<(), anyhow::Error>> = JoinSet::new();
    let (board, calls): (Arc<Board>, Arc<Metrics>) = (Arc::default(), Arc::default());
    let serving = http::HttpServers {
        config,
        guard: &guard,
        calls: &calls,
        board: &board,
        stopping: stopping.clone(),
    };
    let socket = http::HttpSocket::open("utxo.http", config.utxo.http).await?;
    let http = socket.address;
    tasks.spawn(serving.http(socket)?);
    let open_health = open_health(&serving, &mut tasks).await?;
    // One that a crash left behind leads nowhere.
    NodeFile::remove(&place.directory);
    let waiting = Waiting { board: &board, http };
    let opened = patiently(config, place, &guard, &stop, waiting).await?;
    let Some(opened) = opened else { return Ok(()) };
    let Opened { routes, standing, registry, refresh, work, line: _ } = opened;
    // Only now: whoever calls before is refused at once, and does not wait for an answer.
    let sockets = Sockets::open(config)?;
    let grpc = sockets.public.1;
    board.show(Shown {
        standing: standing.clone(),
        registry,
        calls: Arc::clone(&calls),
        refresh,
        refreshed: Mutex::default(),
    });
    let file = NodeFile {
        pid: std::process::id(),
        http,
        grpc: sockets.for_commands(),
        admin_token: own.0,
        store_id: None,
    };
    for (socket, tls) in sockets.all(config) {
        let serving = Serving {
            limits: &config.limits,
            metrics: &calls,
            guard: &guard,
            stopping: stopping.clone(),
            standing: standing.clone(),
        };
        tasks.spawn(serve_grpc(serving, routes(), socket, tls)?);
    }
    let health = open_health.as_ref().map(|(address, _)| *address);
    if let Some((_, reporter)) = open_health {
        let (standing, stopping) = (standing.clone(), stopping.clone());
        tasks.spawn(async move {
            tell_health(reporter, standing, stopping).await;
            Ok(())
        });
    }
    tasks.spawn(async move { work.await.map_err(Into::into) });
    file.write(&place.directory)?;
    tracing::info!(%grpc, %http, directory = %place.directory.display(), "the UTXO service is up");
    told(Addresses { grpc, http, open_health: health })?;
    let ended = run(&mut tasks, stop, &all_stop).await;
    NodeFile::remove(&place.directory);
    ended
}

/// Serves health in the clear, where that is configured: its address, and who is told of the health.
async fn open_health(
    serving: &http::HttpServers<'_>,
    tasks: &mut JoinSet<Result<(), anyhow::Error>>,
) -> Result<Option<(SocketAddr, HealthReporter)>, anyhow::Error> {
    let Some(address) = serving.config.utxo.open_health else { return Ok(None) };
    let socket = http::HttpSocket::open("utxo.open_health", address).await?;
    let address = socket.address;
    let (served, reporter) = serving.open_health(socket).await;
    tasks.spawn(served);
    tracing::info!(%address, "health answers here without TLS and token");
    Ok(Some((address, reporter)))
}

/// Waits until it is told to stop or a part ends by itself, then ends all of them.
async fn run(
    tasks: &mut JoinSet<Result<(), anyhow::Error>>,
    mut stop: watch::Receiver<bool>,
    all_stop: &watch::Sender<bool>,
) -> Result<(), anyhow::Error> {
    let died = || Err(NodeError::ThreadDied("UTXO service").into());
    let mut ended = tokio::select! {
        // Those who heard of it as well may have ended already.
        biased;
        _ = stop.wait_for(|stop| *stop) => Ok(()),
        // None of them ends before it is told to, unless it fails.
        Some(ended) = tasks.join_next() => ended.unwrap_or_else(|_| died()).and(died()),
    };
    all_stop.send_replace(true);
    let rest = async {
        while let Some(one) = tasks.join_next().await {
            ended = std::mem::replace(&mut ended, Ok(())).and(one.unwrap_or_else(|_| died()));
        }
    };
    if tokio::time::timeout(GRACE, rest).await.is_err() {
        tracing::warn!("a part of the UTXO service did not end in time");
    }
    ended
}

/// Where is told what is waited for.
struct Waiting<'a> {
    board: &'a Board,
    http: SocketAddr,
}

/// Opens the records; a database that may be back is waited for. None if it was told to stop meanwhile.
async fn patiently(
    config: &Config,
    place: &Place,
    guard: &Arc<Guard>,
    stop: &watch::Receiver<bool>,
    Waiting { board, http }: Waiting<'_>,
) -> Result<Option<Opened>, anyhow::Error> {
    let (mut pause, mut stopped) = (PAUSES.0, stop.clone());
    loop {
        let opening = Opening {
            settings: &config.utxo,
            message_bytes: config.limits.message_bytes,
            answer_bytes: config.limits.answer_bytes,
            guard: Some(Arc::clone(guard)),
            stop: stop.clone(),
        };
        let opened = tokio::select! {
            opened = open(place, opening) => opened,
            _ = stopped.wait_for(|stop| *stop) => return Ok(None),
        };
        let error = match opened {
            Ok(opened) => return Ok(Some(opened)),
            Err(error) => error,
        };
        if !error.downcast_ref::<UtxoError>().is_some_and(UtxoError::is_retryable) {
            return Err(error.context("the UTXO records cannot be opened"));
        }
        let reason = format!("{error:#}");
        // Whoever reads the line finds the reason at the address in it.
        board.wait(reason.clone());
        tracing::warn!(%http, error = reason, "the UTXO records are waited for");
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return Ok(None),
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSES.1),
        }
    }
}

/// The open sockets of gRPC. Where the public one speaks TLS there is a second one on the loopback for
/// commands of the same machine, which show the token of `node.json`.
struct Sockets {
    public: (TcpListener, SocketAddr),
    local: Option<(TcpListener, SocketAddr)>,
}

impl Sockets {
    fn open(config: &Config) -> Result<Self, anyhow::Error> {
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let local = config.tls.as_ref().map(|_| listen("utxo.listen", here, false)).transpose()?;
        let public = listen("utxo.listen", config.utxo.listen, false)
            .context("the UTXO service cannot be reached")?;
        Ok(Self { public, local })
    }

    fn for_commands(&self) -> SocketAddr {
        self.local.as_ref().map_or(self.public.1, |local| local.1)
    }

    fn all(self, config: &Config) -> Vec<(TcpListener, Option<&crate::config::TlsFiles>)> {
        let public = (self.public.0, config.tls.as_ref());
        let local = self.local.map(|(socket, _)| (socket, None));
        [public].into_iter().chain(local).collect()
    }
}
