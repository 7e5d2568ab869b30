//! A chain that is played, and a service that listens to it.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use parking_lot::Mutex;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use secateur_proto::teranode::blockassembly::block_assembly_api_server::{
    BlockAssemblyApi, BlockAssemblyApiServer,
};
use secateur_proto::teranode::blockassembly::{EmptyMessage, StateMessage};
use secateur_proto::teranode::blockchain::blockchain_api_server::{
    BlockchainApi, BlockchainApiServer,
};
use secateur_proto::teranode::blockchain::{
    GetBlockHeaderResponse, GetFsmStateResponse, GetStateRequest, Notification,
    NotificationMetadata, StateResponse, SubscribeRequest,
};
use secateur_utxo::teranode::{ChainAssembly, ChainOptions, follow};
use secateur_utxo::{
    Assembly, Following, Metrics, Pruner, Rules, Service, Settings, SqliteStore, Standing,
};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// No test waits longer for what it wants to see.
const PATIENCE: Duration = Duration::from_mins(1);

type Told = Result<Notification, Status>;

/// What the chain says.
#[derive(Debug, Default)]
pub struct Chain {
    pub head: u32,
    pub mined_set: bool,
    /// The state under `BlockPersisterHeight`; without one the call fails as unknown.
    pub persister: Option<Vec<u8>>,
    pub assembly: (String, u32),
    /// Whether a subscription is never answered.
    pub mute: bool,
    listeners: Vec<mpsc::UnboundedSender<Told>>,
}

/// A chain, shared with its server.
#[derive(Debug, Clone, Default)]
pub struct World {
    chain: Arc<Mutex<Chain>>,
    subscribed: watch::Sender<u64>,
}

pub fn notification(kind: i32, height: Option<&str>) -> Notification {
    let metadata = height.map(|height| NotificationMetadata {
        metadata: [("height".to_owned(), height.to_owned())].into(),
    });
    Notification { r#type: kind, metadata, ..Notification::default() }
}

impl World {
    pub fn at(head: u32) -> Self {
        let world = Self::default();
        world.set(|chain| (chain.head, chain.mined_set) = (head, true));
        world
    }

    pub fn set(&self, change: impl FnOnce(&mut Chain)) {
        change(&mut self.chain.lock());
    }

    /// Tells everybody who listens.
    pub fn tell(&self, told: &Notification) {
        self.chain.lock().listeners.retain(|to| to.send(Ok(told.clone())).is_ok());
    }

    /// A new block, told of.
    pub fn block(&self, height: u32) {
        self.set(|chain| (chain.head, chain.mined_set) = (height, true));
        self.tell(&notification(2, Some(&height.to_string())));
    }

    pub fn persisted(&self, height: u32) {
        self.tell(&notification(7, Some(&height.to_string())));
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

    /// Serves on a port until what is returned is dropped.
    pub async fn serve(&self, port: u16) -> Serving {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let listener = listener.into_std().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = Server::builder()
            .add_service(BlockchainApiServer::new(self.clone()).max_encoding_message_size(1 << 30))
            .add_service(BlockAssemblyApiServer::new(self.clone()));
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

#[tonic::async_trait]
impl BlockchainApi for World {
    type SubscribeStream = Pin<Box<dyn Stream<Item = Told> + Send>>;

    async fn subscribe(
        &self,
        _: Request<SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        if self.chain.lock().mute {
            std::future::pending::<()>().await;
        }
        let (to, mut from) = mpsc::unbounded_channel();
        self.chain.lock().listeners.push(to);
        self.subscribed.send_modify(|number| *number += 1);
        let told = futures_util::stream::poll_fn(move |cx| from.poll_recv(cx));
        Ok(Response::new(Box::pin(told)))
    }

    async fn get_state(
        &self,
        request: Request<GetStateRequest>,
    ) -> Result<Response<StateResponse>, Status> {
        assert_eq!(request.get_ref().key, "BlockPersisterHeight");
        let state = self.chain.lock().persister.clone();
        let data = state.ok_or_else(|| Status::not_found("no such state"))?;
        Ok(Response::new(StateResponse { data: data.into() }))
    }

    async fn get_best_block_header(
        &self,
        _: Request<()>,
    ) -> Result<Response<GetBlockHeaderResponse>, Status> {
        let (height, mined_set) = {
            let chain = self.chain.lock();
            (chain.head, chain.mined_set)
        };
        let block_header = vec![0; 80].into();
        Ok(Response::new(GetBlockHeaderResponse { block_header, height, mined_set }))
    }

    async fn get_fsm_current_state(
        &self,
        _: Request<()>,
    ) -> Result<Response<GetFsmStateResponse>, Status> {
        Ok(Response::new(GetFsmStateResponse { state: 1 }))
    }
}

#[tonic::async_trait]
impl BlockAssemblyApi for World {
    async fn get_block_assembly_state(
        &self,
        _: Request<EmptyMessage>,
    ) -> Result<Response<StateMessage>, Status> {
        let (block_assembly_state, current_height) = self.chain.lock().assembly.clone();
        Ok(Response::new(StateMessage { block_assembly_state, current_height }))
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
