//! A chain that is played, and a service that listens to it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use secateur_utxo::teranode::{ChainAssembly, ChainOptions, follow};
use secateur_utxo::{
    Assembly, Following, Metrics, Pruner, Rules, Service, Settings, SqliteStore, Standing,
};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::transport::Server;

use crate::teranode::{Messages, Served, about_block, messages, sha256d, with_metadata};

/// No test waits longer for what it wants to see.
const PATIENCE: Duration = Duration::from_mins(1);
/// As many notifications wait for a subscriber; one that takes them more slowly is dropped.
const WAITING: usize = 64;

/// What the chain says.
#[derive(Debug, Default)]
struct Chain {
    /// The header of the top, and its height.
    top: (Vec<u8>, u32),
    /// Whether the blocks that ever were its top are set mined.
    mined: HashMap<[u8; 32], bool>,
    /// The state under `BlockPersisterHeight`; without one the call fails as unknown.
    persister: Option<Vec<u8>>,
    assembly: (String, u32),
    /// Whether a subscription is never answered.
    mute: bool,
    /// What has to be shown with every call.
    key: Option<String>,
    /// How often each method was called.
    asked: HashMap<String, u64>,
    listeners: Vec<mpsc::Sender<Bytes>>,
}

impl Chain {
    fn hash(&self) -> [u8; 32] {
        sha256d(&self.top.0)
    }
}

/// A chain, shared with its server.
#[derive(Debug, Clone, Default)]
pub struct World {
    chain: Arc<Mutex<Chain>>,
    subscribed: watch::Sender<u64>,
    asked: watch::Sender<u64>,
}

impl World {
    pub fn at(head: u32) -> Self {
        let world = Self::default();
        world.goes_to(head, true);
        world
    }

    /// The chain has another top, of which it says nothing by itself.
    pub fn goes_to(&self, height: u32, is_mined: bool) {
        let mut chain = self.chain.lock();
        let mut header = vec![0; 80];
        header[..4].copy_from_slice(&height.to_le_bytes());
        header[36..68].fill(7);
        chain.top = (header, height);
        let hash = chain.hash();
        chain.mined.insert(hash, is_mined);
    }

    /// The transactions of the top are set mined.
    pub fn mines(&self) {
        let mut chain = self.chain.lock();
        let hash = chain.hash();
        chain.mined.insert(hash, true);
    }

    pub fn set_persister(&self, state: Option<Vec<u8>>) {
        self.chain.lock().persister = state;
    }

    pub fn set_assembly(&self, state: &str, height: u32) {
        self.chain.lock().assembly = (state.to_owned(), height);
    }

    pub fn falls_mute(&self) {
        self.chain.lock().mute = true;
    }

    pub fn wants_key(&self, key: &str) {
        self.chain.lock().key = Some(key.to_owned());
    }

    /// Sends a notification to those who listen. One whose buffer is full is dropped, and its stream just ends.
    pub fn tell(&self, notification: &Bytes) {
        self.chain.lock().listeners.retain(|to| to.try_send(notification.clone()).is_ok());
    }

    /// Tells of the top.
    pub fn tells_top(&self) {
        let hash = self.chain.lock().hash();
        self.tell(&about_block(2, &hash));
    }

    /// A new block, told of.
    pub fn block(&self, height: u32) {
        self.goes_to(height, true);
        self.tells_top();
    }

    /// A persister says how far it is, and then keeps it.
    pub fn persisted(&self, height: u32) {
        self.says_persisted(&height.to_string());
        self.set_persister(Some(height.to_le_bytes().to_vec()));
    }

    /// A persister says something.
    pub fn says_persisted(&self, height: &str) {
        self.tell(&with_metadata(7, &[9; 32], &[("height", height)]));
    }

    /// Ends every subscription.
    pub fn hang_up(&self) {
        self.chain.lock().listeners.clear();
    }

    /// Waits until so many have subscribed in all.
    pub async fn heard_by(&self, number: u64) {
        let mut subscribed = self.subscribed.subscribe();
        let wait = subscribed.wait_for(|found| *found >= number);
        tokio::time::timeout(PATIENCE, wait).await.expect("nobody subscribes").unwrap();
    }

    /// How often a method was called.
    pub fn asked(&self, method: &str) -> u64 {
        self.chain.lock().asked.get(method).copied().unwrap_or(0)
    }

    /// Waits until a method was called so often.
    pub async fn is_asked(&self, method: &str, times: u64) {
        let mut asked = self.asked.subscribe();
        let wait = asked.wait_for(|_| self.asked(method) >= times);
        tokio::time::timeout(PATIENCE, wait).await.expect("it is not asked").unwrap();
    }

    /// Serves on a port until what is returned is dropped.
    pub async fn serve(&self, port: u16) -> Serving {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let listener = listener.into_std().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = Server::builder()
            .add_service(Served::<false>(self.clone()))
            .add_service(Served::<true>(self.clone()));
        // A runtime of its own: when it ends, so do its connections, cut off and not asked to end.
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
                tokio::select! {
                    served = server.serve_with_incoming(incoming) => served.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        Serving { address, stop, thread }
    }
}

/// What the server asks of it.
impl World {
    /// Counts a call, and refuses one without the key.
    pub fn admit(&self, method: &str, key: Option<&[u8]>) -> Result<(), Status> {
        let wanted = {
            let mut chain = self.chain.lock();
            *chain.asked.entry(method.to_owned()).or_default() += 1;
            chain.key.clone()
        };
        self.asked.send_modify(|number| *number += 1);
        if wanted.is_some_and(|wanted| key != Some(wanted.as_bytes())) {
            return Err(Status::unauthenticated("invalid or missing API key"));
        }
        Ok(())
    }

    pub async fn subscribe(&self) -> Result<Messages, Status> {
        if self.chain.lock().mute {
            std::future::pending::<()>().await;
        }
        let (to, from) = mpsc::channel(WAITING);
        {
            let mut chain = self.chain.lock();
            // The first notification is about the top.
            to.try_send(about_block(2, &chain.hash())).unwrap();
            chain.listeners.push(to);
        }
        self.subscribed.send_modify(|number| *number += 1);
        Ok(messages(from))
    }

    pub fn top(&self) -> (Vec<u8>, u32) {
        self.chain.lock().top.clone()
    }

    pub fn is_mined(&self, hash: &[u8]) -> Option<bool> {
        self.chain.lock().mined.get(hash).copied()
    }

    pub fn persister(&self) -> Option<Vec<u8>> {
        self.chain.lock().persister.clone()
    }

    pub fn assembly(&self) -> (String, u32) {
        self.chain.lock().assembly.clone()
    }
}

/// A server; dropping it cuts it off.
pub struct Serving {
    pub address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Serving {
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends it, and waits until the port is free.
    pub async fn end(self) -> u16 {
        drop(self.stop);
        tokio::task::spawn_blocking(|| self.thread.join()).await.unwrap().unwrap();
        self.address.port()
    }
}

/// A service that prunes an empty store.
pub struct Rig {
    pub service: Service<SqliteStore>,
    registry: Registry,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    _place: tempfile::TempDir,
}

/// Short waits, so that nothing takes long; what is wanted is awaited all the same.
pub fn options(url: &str) -> ChainOptions {
    ChainOptions {
        timeout: Duration::from_secs(5),
        pauses: (Duration::from_millis(10), Duration::from_millis(50)),
        ..ChainOptions::new(url)
    }
}

impl Rig {
    pub async fn open(following: Following, assembly: Option<&ChainOptions>) -> Self {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("utxo.sqlite");
        let store = SqliteStore::open(&path, Rules::default()).unwrap();
        let mut registry = Registry::default();
        let metrics = Arc::new(Metrics::new(&mut registry));
        let assembly = assembly
            .map(|options| Arc::new(ChainAssembly::new(options).unwrap()) as Arc<dyn Assembly>);
        let counted = Arc::clone(&metrics);
        let pruner = Pruner::new(store, None, Settings::default(), assembly, counted).unwrap();
        let service = Service::open(pruner, following, metrics).await.unwrap();
        let (stop, _) = watch::channel(false);
        Self { service, registry, stop, tasks: Vec::new(), _place: place }
    }

    /// Another service on the same store, which listens to nobody.
    pub async fn another(&self, following: Following) -> Service<SqliteStore> {
        let (store, metrics) = (self.service.pruner().store().clone(), Arc::<Metrics>::default());
        let pruner =
            Pruner::new(store, None, Settings::default(), None, Arc::clone(&metrics)).unwrap();
        Service::open(pruner, following, metrics).await.unwrap()
    }

    /// A service that listens and prunes.
    pub async fn listening(options: ChainOptions) -> Self {
        Self::listening_as(Following::default(), options).await
    }

    /// The same with settings of its own.
    pub async fn listening_as(following: Following, options: ChainOptions) -> Self {
        let mut rig = Self::open(following, None).await;
        let (service, stopping) = (rig.service.clone(), rig.stop.subscribe());
        rig.tasks.push(tokio::spawn(async move {
            follow(&service, &options, stopping).await.unwrap();
        }));
        let (service, stopping) = (rig.service.clone(), rig.stop.subscribe());
        rig.tasks.push(tokio::spawn(async move { service.run(stopping).await }));
        rig
    }

    /// Waits for something about where the service stands.
    #[track_caller]
    pub fn stands(
        &self,
        wanted: impl FnMut(&Standing) -> bool + Send,
    ) -> impl Future<Output = Standing> {
        let mut standing = self.service.standing();
        async move {
            let wait = tokio::time::timeout(PATIENCE, standing.wait_for(wanted)).await;
            wait.expect("it never stands so").unwrap().clone()
        }
    }

    /// A line of the metrics, its value.
    pub fn counted(&self, line: &str) -> u64 {
        let mut written = String::new();
        text::encode(&mut written, &self.registry).unwrap();
        let value = written.lines().find_map(|found| found.strip_prefix(line));
        value.map_or(0, |value| value.trim().parse().unwrap())
    }

    /// Tells it to stop, and waits for its end.
    pub async fn end(mut self) {
        self.stop.send_replace(true);
        for task in self.tasks.drain(..) {
            tokio::time::timeout(PATIENCE, task).await.expect("it does not end").unwrap();
        }
    }
}
