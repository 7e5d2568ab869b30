//! The mesh: gRPC between configured peers.
//!
//! Each node keeps a connection to each of its peers, over which it hands over its notices and asks
//! for those that it lacks; what comes to it comes over the peers' own connections, to
//! [`GossipService`]. A message goes to peers and no further: a node that is not a peer of its
//! author gets it by asking. `link` is one connection, `ask` the asking, `server` the other side,
//! `limits` what keeps a peer in bounds, `accept` its connections, `channel` the way to a peer, `socket`
//! what both sides use of TCP.

mod accept;
mod ask;
mod channel;
mod limits;
mod link;
mod server;
mod socket;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use secateur_proto::sidecar::v1::gossip_server::GossipServer;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use limits::Limits;
pub use server::GossipService;

use self::link::{Link, Outgoing};
use super::intake::Intake;
use super::{Delivery, Gossip, GossipCounts, GossipError, Message, NoticeBook, Subscription};

/// Peers, at most.
const MAX_PEERS: usize = 256;
/// A peer's name is no longer than this.
const MAX_NAME_LEN: usize = 128;
/// How long connections may take to wind down when the mesh stops.
const FAREWELL: Duration = Duration::from_secs(1);

/// Another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// What it is called in logs and answers.
    pub name: String,
    /// `http://host:port` or `https://host:port`.
    pub url: String,
}

/// How peers are reached.
#[derive(Debug, Clone)]
pub struct MeshOptions {
    /// The other nodes.
    pub peers: Vec<Peer>,
    /// A file with the token that peers want, its owner's alone.
    pub token_file: Option<PathBuf>,
    /// Certificates (PEM) to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// The longest wait for an answer, and for a connection.
    pub timeout: Duration,
    /// How often a peer is asked for what is lacking while the connection to it stands. It is
    /// asked on connecting too.
    pub ask_every: Duration,
    /// The pause after a connection failed; it doubles with every further failure.
    pub first_pause: Duration,
    /// The longest pause.
    pub max_pause: Duration,
    /// What the pauses' jitter is drawn from.
    pub seed: u64,
    /// What peers may ask of this node.
    pub limits: Limits,
}

impl Default for MeshOptions {
    fn default() -> Self {
        Self {
            peers: Vec::new(),
            token_file: None,
            ca_file: None,
            timeout: Duration::from_secs(5),
            ask_every: Duration::from_secs(30),
            first_pause: Duration::from_millis(250),
            max_pause: Duration::from_secs(30),
            seed: 0,
            limits: Limits::default(),
        }
    }
}

impl MeshOptions {
    /// What [`Mesh::start`] would refuse: limits, peers, and the files that are named. Nothing is
    /// asked of a peer.
    pub fn check(&self) -> Result<(), GossipError> {
        check(self)?;
        self.peers.iter().try_for_each(|peer| channel::Way::new(self, &peer.url).map(drop))
    }
}

/// How this node is reached.
#[derive(Debug, Clone, Default)]
pub struct ServeOptions {
    /// A file with the token that is wanted of peers, its owner's alone.
    pub token_file: Option<PathBuf>,
    /// The certificate and its key (PEM); the key's file is its owner's alone.
    pub tls: Option<(PathBuf, PathBuf)>,
}

/// What is known of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerState {
    /// Its name.
    pub name: String,
    /// Whether the connection to it stands.
    pub connected: bool,
}

/// A node's part of the mesh. It ends when it is dropped.
pub struct Mesh {
    intake: Arc<Intake>,
    links: Vec<Link>,
    limits: Limits,
    timeout: Duration,
    stop: watch::Sender<bool>,
    tasks: Mutex<JoinSet<()>>,
}

impl fmt::Debug for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mesh").field("peers", &self.peers()).finish_non_exhaustive()
    }
}

impl Mesh {
    /// Begins to connect to the peers. Without a book everything that comes is handed to
    /// subscribers unjudged, and nobody is asked for anything. Called within a runtime.
    pub fn start(
        options: &MeshOptions,
        book: Option<Arc<dyn NoticeBook>>,
    ) -> Result<Self, GossipError> {
        check(options)?;
        let intake = Intake::new(book);
        let (stop, stopping) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let mut links = Vec::with_capacity(options.peers.len());
        for peer in &options.peers {
            let way = channel::Way::new(options, &peer.url)?;
            let (link, run) =
                link::open(&peer.name, way, options, Arc::clone(&intake), stopping.clone());
            tasks.spawn(run);
            links.push(link);
        }
        let (limits, timeout) = (options.limits, options.timeout);
        Ok(Self { intake, links, limits, timeout, stop, tasks: Mutex::new(tasks) })
    }

    /// What answers peers, to be served by whoever has a server already. Who may ask is that
    /// server's business then.
    pub fn service(&self) -> GossipServer<GossipService> {
        server::service(Arc::clone(&self.intake), self.limits, None)
    }

    /// Serves peers on a socket of its own until the mesh stops.
    pub fn serve(&self, listener: TcpListener, options: &ServeOptions) -> Result<(), GossipError> {
        if *self.stop.borrow() {
            return Err(GossipError::Stopped);
        }
        let served =
            server::serve(listener, &self.intake, self.limits, options, self.stop.subscribe())?;
        self.tasks.lock().spawn(served);
        Ok(())
    }

    /// What is known of the peers, in the order in which they are configured.
    pub fn peers(&self) -> Vec<PeerState> {
        self.links.iter().map(Link::state).collect()
    }

    /// Waits until the connection to a peer stands, or does not; false if there is no such peer or
    /// the mesh has stopped.
    pub async fn wait_for(&self, peer: &str, connected: bool) -> bool {
        match self.links.iter().find(|link| link.name == peer) {
            Some(link) => link.wait_for(connected).await,
            None => false,
        }
    }

    /// Ends every connection. Sending fails from now on.
    pub async fn stop(&self) {
        self.stop.send_replace(true);
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        let ended = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(FAREWELL.saturating_mul(2), ended).await.is_err() {
            tracing::debug!("a part of the mesh was ended without a farewell");
        }
    }

    async fn send(&self, message: Message) -> Result<Delivery, GossipError> {
        if *self.stop.borrow() {
            return Err(GossipError::Stopped);
        }
        let bytes = message.encode();
        self.intake.sends(&bytes);
        let deadline = Instant::now() + self.timeout;
        let answers = self.links.iter().map(|link| {
            let (answer, told) = oneshot::channel();
            let queued = link.queue.try_send(Outgoing { bytes: bytes.clone(), answer });
            async move {
                // A queue that is full is that of a peer that does not follow.
                queued.ok()?;
                tokio::time::timeout_at(deadline, told).await.ok()?.ok()
            }
        });
        let mut delivery = Delivery { confirms: true, ..Delivery::default() };
        for (link, verdict) in self.links.iter().zip(join_all(answers).await) {
            delivery.add(link.name.clone(), verdict);
        }
        self.intake.counts.unanswered(delivery.waiting.len());
        Ok(delivery)
    }
}

/// Refuses what cannot be a mesh.
fn check(options: &MeshOptions) -> Result<(), GossipError> {
    let refuse = |reason: String| Err(GossipError::invalid("mesh", reason));
    if options.peers.len() > MAX_PEERS {
        return refuse(format!("it has more than {MAX_PEERS} peers"));
    }
    for (at, peer) in options.peers.iter().enumerate() {
        let name = &peer.name;
        if name.is_empty() || name.len() > MAX_NAME_LEN || name.contains(char::is_control) {
            return refuse(format!("peer {at} has no name that can be printed"));
        }
        if options.peers.iter().take(at).any(|earlier| earlier.name == *name) {
            return refuse(format!("two peers are called {name}"));
        }
    }
    if options.timeout.is_zero() || options.ask_every.is_zero() || options.first_pause.is_zero() {
        return refuse("a time of it is nothing".to_owned());
    }
    Ok(())
}

impl Gossip for Mesh {
    fn broadcast(&self, message: Message) -> BoxFuture<'_, Result<Delivery, GossipError>> {
        Box::pin(self.send(message))
    }

    fn subscribe(&self) -> Subscription {
        self.intake.subscribe()
    }

    fn catch_up(&self) -> BoxFuture<'_, usize> {
        Box::pin(async move { join_all(self.links.iter().map(Link::ask)).await.into_iter().sum() })
    }

    fn counts(&self) -> GossipCounts {
        self.intake.counts()
    }
}
