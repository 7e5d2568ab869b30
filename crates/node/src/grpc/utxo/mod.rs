//! `secateur.utxo.v1` and `pruner`: the UTXO service's own words. What they do is `secateur-utxo`'s.

mod convert;
mod create;
mod failure;
mod pruner;
mod room;
mod store;
mod story;

use std::net::TcpListener;
use std::sync::Arc;

use prost::Message;
use secateur_core::Height;
use secateur_proto::teranode::pruner::pruner_api_server::{self, PrunerApiServer};
use secateur_proto::utxo::v1::pruner_server::{self, PrunerServer};
use secateur_proto::utxo::v1::store_server::{self, StoreServer};
use secateur_utxo::{Service, Standing, UtxoStore};
use tokio::sync::{Mutex, Semaphore, watch};
use tonic::body::Body;
use tonic::codegen::http;
use tonic::service::{Routes, RoutesBuilder};
use tonic::{Response, Status};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt};

use self::create::Orphans;
use self::room::Room;
use super::{Door, FAREWELL, QUESTION, Served, held, stopped};
use crate::config::{Limits, TlsFiles};
use crate::http::metrics::Metrics;
use crate::security::Guard;
use crate::service::Rooms;

/// The services that have a health; the empty name is the whole service. The last is there for feeding as long as the records are
/// open; the others say whether the pruner keeps up.
static SERVICES: [&str; 4] =
    ["", pruner_server::SERVICE_NAME, pruner_api_server::SERVICE_NAME, store_server::SERVICE_NAME];

/// A way to the pruner's calls: over a socket, or within this process.
pub(crate) type Line = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, BoxError>;

/// How many bytes things may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Bodies above this become external files.
    pub(crate) inline: usize,
    /// The longest message.
    pub(crate) message: usize,
    /// What is read and on its way, with the bodies of all transactions that are being created.
    pub(crate) together: usize,
}

/// What the calls share.
#[derive(Debug, Clone)]
pub(crate) struct Api<S> {
    service: Service<S>,
    /// Whose audit log tells of changes; none within a command.
    guard: Option<Arc<Guard>>,
    stopping: watch::Receiver<bool>,
    sizes: Sizes,
    /// A file is written, or taken back, by one at a time: what nobody's record names any more may
    /// be somebody's next one.
    files: Arc<Mutex<Orphans>>,
    room: Room,
    /// The memory of records that are read until they are taken, and of creations with files until they are done.
    rooms: Rooms,
    /// That of the other creations, which go on where nobody takes what was read and no place of files answers.
    inline_rooms: Rooms,
    /// That of stories and jobs, which tell why.
    told_rooms: Rooms,
    /// Who may read a record: it has all of its outputs in memory, of which few are answered.
    reads: Arc<Semaphore>,
    /// Who may have one explained, which asks the place of files as well.
    stories: Arc<Semaphore>,
}

/// Records that are read for the same kind of call at the same time, at most.
const MOST_READ: usize = 4;
/// Bytes of stories and jobs that are on their way, at most; each is a few MiB at most.
const TOLD: usize = 16 << 20;

impl<S: UtxoStore> Api<S> {
    pub(crate) fn new(
        service: Service<S>,
        guard: Option<Arc<Guard>>,
        stopping: watch::Receiver<bool>,
        sizes: Sizes,
    ) -> Self {
        let permits = |most: usize| Arc::new(Semaphore::new(most));
        Self {
            service,
            guard,
            stopping,
            sizes,
            files: Arc::default(),
            room: Room::new(),
            rooms: Rooms::new(sizes.together / 2),
            inline_rooms: Rooms::new(sizes.together / 2),
            told_rooms: Rooms::new(TOLD),
            reads: permits(MOST_READ),
            stories: permits(MOST_READ),
        }
    }

    /// The pruner's calls, asked within this process.
    pub(crate) fn line(&self) -> Line {
        let server = PrunerServer::new(self.clone());
        BoxCloneSyncService::new(ServiceExt::<http::Request<Body>>::map_err(server, BoxError::from))
    }

    /// All calls, to be served.
    pub(crate) fn routes(&self) -> RoutesBuilder {
        let most = self.sizes.message;
        let question = QUESTION.min(most);
        let mut routes = Routes::builder();
        routes
            .add_service(
                PrunerServer::new(self.clone())
                    .max_decoding_message_size(question)
                    .max_encoding_message_size(most),
            )
            .add_service(
                StoreServer::new(self.clone())
                    .max_decoding_message_size(most)
                    .max_encoding_message_size(most),
            )
            .add_service(PrunerApiServer::new(self.clone()).max_decoding_message_size(question));
        routes
    }

    /// A story or jobs; their memory is counted until they are sent.
    fn held<T: Message>(&self, message: T) -> Result<Response<T>, Status> {
        held::held(&self.told_rooms, message).map_err(|_| failure::overloaded())
    }
}

/// What the service shares with those who serve it.
pub(crate) struct Serving<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) metrics: &'a Arc<Metrics>,
    pub(crate) guard: &'a Arc<Guard>,
    pub(crate) stopping: watch::Receiver<bool>,
    pub(crate) standing: watch::Receiver<Standing>,
}

/// Serves until it is told to stop.
pub(crate) fn serve(
    serving: Serving<'_>,
    routes: RoutesBuilder,
    socket: TcpListener,
    tls: Option<&TlsFiles>,
) -> Result<Served, anyhow::Error> {
    let Serving { limits, metrics, guard, stopping, standing } = serving;
    let door = Door { limits, metrics, guard, tls, stopping: stopping.clone() };
    let at_first = standing.clone();
    let at_first = move |name: &str| health_of(name, &at_first.borrow());
    door.serve(socket, routes, &SERVICES, at_first, |reporter| {
        tell_lag(reporter, standing, stopping)
    })
}

/// The health of one of the services.
fn health_of(name: &str, standing: &Standing) -> ServingStatus {
    let lags = standing.not_ready.is_some() && name != store_server::SERVICE_NAME;
    if lags { ServingStatus::NotServing } else { ServingStatus::Serving }
}

/// Says that no service is there (yet).
pub(crate) async fn say_not_serving(reporter: &HealthReporter) {
    super::say(reporter, &SERVICES, ServingStatus::NotServing).await;
}

/// Reports the services' health whenever it changes, until the service stops; from then on none is there, and the
/// watches end.
pub(crate) async fn tell_health(
    mut reporter: HealthReporter,
    standing: watch::Receiver<Standing>,
    stopping: watch::Receiver<bool>,
) {
    tell_lag(reporter.clone(), standing, stopping.clone()).await;
    stopped(stopping).await;
    say_not_serving(&reporter).await;
    tokio::time::sleep(FAREWELL).await;
    for name in SERVICES {
        reporter.clear_service_status(name).await;
    }
}

/// Reports the services' health whenever it changes.
async fn tell_lag(
    reporter: HealthReporter,
    mut standing: watch::Receiver<Standing>,
    stopping: watch::Receiver<bool>,
) {
    let stopped = stopped(stopping);
    tokio::pin!(stopped);
    loop {
        let stands = standing.borrow_and_update().clone();
        for name in SERVICES {
            reporter.set_service_status(name, health_of(name, &stands)).await;
        }
        tokio::select! {
            // What is said of the health from now on is that it ends.
            () = &mut stopped => return,
            changed = standing.changed() => if changed.is_err() { return },
        }
    }
}

/// A height that a chain can have: they have 32 bits, and what is beyond is a mistake that would make
/// every record due.
fn height(number: u64) -> Result<Height, Status> {
    if number > u64::from(u32::MAX) {
        return Err(failure::malformed(format_args!(
            "{number} is no height of a UTXO chain, which have 32 bits"
        )));
    }
    Ok(number)
}
