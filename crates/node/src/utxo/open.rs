//! Opening records, whatever database they are in: from here on nobody knows which one it is.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use prometheus_client::registry::Registry;
use secateur_archive::ArchiveUrl;
use secateur_sql::postgres::{Address, PostgresOptions};
use secateur_utxo::teranode::{self, ChainAssembly};
use secateur_utxo::{
    Assembly, ExternalFiles, Metrics, PostgresStore, Pruner, Service, SqliteStore, Standing,
    Subscribed, UtxoError, UtxoStore,
};
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::service::RoutesBuilder;

use super::Place;
use crate::config::{ArchivePlace, RecordsIn, UtxoSettings};
use crate::grpc::utxo::{Api, Line, Sizes};
use crate::security::Guard;

/// How long a place of files may take to be opened.
const OPENING: Duration = Duration::from_secs(10);

type Work = Pin<Box<dyn Future<Output = Result<(), UtxoError>> + Send>>;
pub(super) type Refresh = Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Records that are open, and their pruner.
pub(crate) struct Opened {
    /// The pruner's calls, within this process.
    pub(crate) line: Line,
    /// All calls, to be served.
    pub(crate) routes: Box<dyn Fn() -> RoutesBuilder + Send + Sync>,
    /// Where the pruner stands.
    pub(crate) standing: watch::Receiver<Standing>,
    /// What is counted.
    pub(crate) registry: Registry,
    /// Counts records anew, for whoever reads the metrics.
    pub(crate) refresh: Refresh,
    /// Follows the chain and prunes, until it is told to stop.
    pub(crate) work: Work,
}

/// What differs between those who open.
pub(crate) struct Opening<'a> {
    pub(crate) settings: &'a UtxoSettings,
    /// The longest message of its calls.
    pub(crate) message_bytes: usize,
    /// How many bytes of them are in memory at a time.
    pub(crate) answer_bytes: usize,
    /// Whose audit log tells of changes.
    pub(crate) guard: Option<Arc<Guard>>,
    pub(crate) stop: watch::Receiver<bool>,
}

/// Opens the records of a place.
pub(crate) async fn open(place: &Place, opening: Opening<'_>) -> Result<Opened, anyhow::Error> {
    let rules = opening.settings.rules;
    match &place.records {
        RecordsIn::Sqlite(path) => {
            let path = path.clone();
            let store =
                tokio::task::spawn_blocking(move || SqliteStore::open(&path, rules)).await??;
            with_store(store, place, opening).await
        }
        RecordsIn::Postgres(url) => {
            let address = Address::parse(url).map_err(UtxoError::from)?;
            let connections = PostgresStore::CONNECTIONS;
            let options = PostgresOptions { connections, ..PostgresOptions::default() };
            let store = PostgresStore::open(&address, options, rules).await?;
            with_store(store, place, opening).await
        }
        #[cfg(feature = "aerospike")]
        RecordsIn::Aerospike(address) => {
            let store = secateur_utxo::AerospikeStore::open(address, rules).await?;
            with_store(store, place, opening).await
        }
        // Refused before, where the configuration is read.
        #[cfg(not(feature = "aerospike"))]
        RecordsIn::Aerospike(_) => {
            Err(crate::error::NodeError::Usage(crate::config::WITHOUT_AEROSPIKE.into()).into())
        }
    }
}

async fn with_store<S: UtxoStore>(
    store: S,
    place: &Place,
    opening: Opening<'_>,
) -> Result<Opened, anyhow::Error> {
    let Opening { settings, message_bytes, answer_bytes, guard, stop } = opening;
    let mut registry = Registry::default();
    let metrics = Arc::new(Metrics::new(&mut registry));
    // A command leaves things as they are.
    let serving = guard.is_some();
    let files = place_of_files(settings, place, serving).await?;
    if let (Some(files), true) = (files.clone(), serving) {
        // Beside everything else: a large place takes long, and one that does not answer for ever.
        tokio::spawn(async move {
            if let Err(error) = files.sweep().await {
                tracing::warn!(%error, "what cut-off writes left beside external files was not looked for");
            }
        });
    }
    let api_key = settings.api_key()?;
    let keyed = |options: &teranode::ChainOptions| teranode::ChainOptions {
        api_key: api_key.clone(),
        ..options.clone()
    };
    let assembly = settings.assembly.as_ref().map(keyed);
    let assembly = assembly.as_ref().map(ChainAssembly::new).transpose()?;
    let assembly = assembly.map(|assembly| Arc::new(assembly) as Arc<dyn Assembly>);
    let pruner =
        Pruner::new(store, files, settings.pruner.clone(), assembly, Arc::clone(&metrics))?;
    // A command listens to nobody.
    let mut following = settings.following.clone();
    if serving && following.subscribed == Subscribed::Elsewhere {
        following.subscribed = Subscribed::Here;
    }
    let service = Service::open(pruner, following, metrics).await?;
    let sizes =
        Sizes { inline: settings.inline_bytes, message: message_bytes, together: answer_bytes };
    let api = Api::new(service.clone(), guard, stop.clone(), sizes);
    let counted = service.clone();
    Ok(Opened {
        line: api.line(),
        routes: Box::new(move || api.routes()),
        standing: service.standing(),
        registry,
        refresh: Box::new(move || {
            let service = counted.clone();
            async move {
                if let Err(error) = service.status().await {
                    tracing::warn!(%error, "UTXO records cannot be counted");
                }
            }
            .boxed()
        }),
        work: work(service, settings.chain.as_ref().map(keyed), stop).boxed(),
    })
}

/// The place of external files, if there is one.
async fn place_of_files(
    settings: &UtxoSettings,
    place: &Place,
    serving: bool,
) -> Result<Option<ExternalFiles>, UtxoError> {
    let Some(ArchivePlace { url, settings: how }) = settings.files_of(&place.records) else {
        return Ok(None);
    };
    let address = url.to_string();
    let is_named = settings.files.is_some();
    let makes = serving || settings.pruner.missing_files_are_gone;
    let open = move || match &url {
        // Ours to make; one that was named is there already, or is not mounted.
        ArchiveUrl::Directory(_) if is_named => ExternalFiles::open(&url, &how).map(Some),
        ArchiveUrl::Directory(path) if !makes && !path.exists() => Ok(None),
        _ => ExternalFiles::create(&url, &how).map(Some),
    };
    within(OPENING, address, open).await
}

/// Opens a place in a thread of its own: a disk may not answer, and then nobody waits for it for ever.
async fn within<T: Send + 'static>(
    most: Duration,
    place: String,
    open: impl FnOnce() -> Result<T, UtxoError> + Send + 'static,
) -> Result<T, UtxoError> {
    if let Ok(opened) = timeout(most, tokio::task::spawn_blocking(open)).await {
        return opened.map_err(|error| UtxoError::store(error.to_string()))?;
    }
    let reason = format!("it could not be opened within {} s", most.as_secs());
    Err(UtxoError::NoAnswer { place, reason })
}

/// Prunes and listens, side by side.
async fn work<S: UtxoStore>(
    service: Service<S>,
    chain: Option<teranode::ChainOptions>,
    stop: watch::Receiver<bool>,
) -> Result<(), UtxoError> {
    let listening = async {
        match &chain {
            Some(chain) => teranode::follow(&service, chain, stop.clone()).await,
            None => Ok(()),
        }
    };
    let (listened, ()) = tokio::join!(listening, service.run(stop.clone()));
    listened
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_place_that_cannot_be_opened_in_time_is_waited_for_by_nobody() {
        let (end, ended) = mpsc::channel::<()>();
        let opened = within(Duration::ZERO, "/mnt/away".into(), move || {
            ended.recv().map_err(|error| UtxoError::store(error.to_string()))
        });
        let error = opened.await.unwrap_err();
        assert!(error.is_retryable(), "{error}");
        let told = "external files at /mnt/away: it could not be opened within 0 s";
        assert!(error.to_string().starts_with(told), "{error}");
        end.send(()).unwrap();
        let opened = within(OPENING, String::new(), || Ok(1)).await;
        assert_eq!(opened.unwrap(), 1);
    }
}
