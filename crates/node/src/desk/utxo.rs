//! The desk of UTXO records: the records themselves, or the service that has them open. Both are asked
//! by the same calls, so the answers are the same.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use prost::Message as _;
use secateur_proto::ERROR_TRAILER;
use secateur_proto::utxo::v1 as pb;
use secateur_proto::utxo::v1::pruner_client::PrunerClient;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::watch;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Request, Response, Status};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt as _};

use super::way_to;
use crate::config::Config;
use crate::error::NodeError;
use crate::grpc::utxo::Line;
use crate::service::NodeFile;
use crate::utxo::{self, Opened, Place};

/// The longest answer that is read, in bytes.
const MAX_ANSWER: usize = 64 << 20;
/// How long a command that has its answer waits for what it began beside it.
const GRACE: Duration = Duration::from_secs(1);

/// What runs for a command. It ends with it: a place of files that never answers keeps no command from ending.
struct Tasks {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl Tasks {
    fn new() -> Result<Self, anyhow::Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("starting a runtime")?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(GRACE);
        }
    }
}

/// Where commands about UTXO records ask.
pub(crate) struct UtxoDesk {
    client: PrunerClient<Line>,
    /// The token of a running service.
    token: Option<MetadataValue<Ascii>>,
    /// Who is asked, for what goes wrong.
    asked: String,
    tasks: Tasks,
    /// Ends with the command.
    _stop: watch::Sender<bool>,
    /// The directory, where this process has it.
    _place: Option<Place>,
}

impl UtxoDesk {
    /// Opens the records, or finds the service that has them open.
    pub(crate) fn open(data: &Path, config: &Config) -> Result<Self, anyhow::Error> {
        let tasks = Tasks::new()?;
        match Place::existing(data, &config.utxo) {
            Ok(place) => Self::here(tasks, place, config),
            Err(error) => {
                let directory = utxo::directory(data);
                match (error.downcast_ref(), NodeFile::read(&directory)) {
                    (Some(NodeError::Locked { .. }), Ok(Some(file))) => {
                        Self::there(tasks, &directory, &file)
                    }
                    (Some(NodeError::Locked { path, pid }), Ok(None)) => {
                        Err(NodeError::NotUp { path: path.clone(), pid: *pid }.into())
                    }
                    _ => Err(error),
                }
            }
        }
    }

    fn here(tasks: Tasks, place: Place, config: &Config) -> Result<Self, anyhow::Error> {
        let (stop, stopping) = watch::channel(false);
        let opening = utxo::Opening {
            settings: &config.utxo,
            message_bytes: MAX_ANSWER,
            answer_bytes: usize::MAX,
            guard: None,
            stop: stopping,
        };
        let Opened { line, .. } = tasks
            .handle
            .block_on(utxo::open(&place, opening))
            .context("the UTXO records cannot be opened")?;
        let client = PrunerClient::new(line).max_decoding_message_size(MAX_ANSWER);
        let asked = place.directory.display().to_string();
        Ok(Self { client, token: None, asked, tasks, _stop: stop, _place: Some(place) })
    }

    fn there(tasks: Tasks, directory: &Path, file: &NodeFile) -> Result<Self, anyhow::Error> {
        let bad = || NodeError::BadFile {
            path: NodeFile::path(directory),
            reason: "its token is not one".into(),
        };
        let token = format!("Bearer {}", file.admin_token).parse().map_err(|_| bad())?;
        let channel = {
            let _inside = tasks.handle.enter();
            way_to(file)?
        };
        let line = BoxCloneSyncService::new(channel.map_err(BoxError::from));
        let client = PrunerClient::new(line).max_decoding_message_size(MAX_ANSWER);
        let asked = format!("the UTXO service of process {} at {}", file.pid, file.grpc);
        let (stop, _) = watch::channel(false);
        let token = Some(token);
        Ok(Self { client, token, asked, tasks, _stop: stop, _place: None })
    }

    fn call<Q, A, F>(
        &self,
        request: Q,
        call: impl FnOnce(PrunerClient<Line>, Request<Q>) -> F,
    ) -> Result<A, anyhow::Error>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let mut request = Request::new(request);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        let answered = self.tasks.handle.block_on(call(self.client.clone(), request));
        answered.map(Response::into_inner).map_err(|status| self.explain(&status))
    }

    fn explain(&self, status: &Status) -> anyhow::Error {
        anyhow::Error::from(meant(status)).context(format!("asking {}", self.asked))
    }

    pub(crate) fn status(&self) -> Result<pb::StatusResponse, anyhow::Error> {
        self.call(pb::StatusRequest {}, |mut to, asked| async move { to.status(asked).await })
    }

    pub(crate) fn plan(&self, height: Option<u64>) -> Result<pb::PlanResponse, anyhow::Error> {
        let request = pb::PlanRequest { height };
        self.call(request, |mut to, asked| async move { to.plan(asked).await })
    }

    pub(crate) fn prune(&self, height: Option<u64>) -> Result<pb::PruneResponse, anyhow::Error> {
        let request = pb::PruneRequest { height };
        self.call(request, |mut to, asked| async move { to.prune(asked).await })
    }

    pub(crate) fn jobs(&self) -> Result<pb::JobsResponse, anyhow::Error> {
        self.call(pb::JobsRequest {}, |mut to, asked| async move { to.jobs(asked).await })
    }

    pub(crate) fn explain_tx(&self, txid: &str) -> Result<pb::ExplainResponse, anyhow::Error> {
        let request = pb::ExplainRequest { txid: txid.to_owned() };
        self.call(request, |mut to, asked| async move { to.explain(asked).await })
    }
}

/// What a status means to a command.
fn meant(status: &Status) -> NodeError {
    let text = crate::config::plainly(status.message());
    match status.code() {
        Code::InvalidArgument => NodeError::Usage(text),
        Code::FailedPrecondition | Code::PermissionDenied | Code::Unauthenticated => {
            NodeError::Refused(text)
        }
        Code::OutOfRange => NodeError::Pruned(text),
        Code::DataLoss => NodeError::Damage(text),
        Code::Unavailable | Code::Internal => NodeError::Database(text),
        // Otherwise too much is under way.
        Code::ResourceExhausted if label(status).as_deref() == Some("full") => {
            NodeError::DiskFull(text)
        }
        // No question about records is too large: something that it asks stands still.
        Code::DeadlineExceeded => NodeError::Unanswered(
            "the service did not answer in time, because its database does not, most likely: its log and \
             /readyz say"
                .into(),
        ),
        Code::Cancelled => NodeError::Unanswered(text),
        _ => NodeError::Failed(text),
    }
}

/// What an error is called in the trailer of a status.
fn label(status: &Status) -> Option<String> {
    let bytes = status.metadata().get_bin(ERROR_TRAILER)?.to_bytes().ok()?;
    Some(pb::UtxoError::decode(bytes).ok()?.label)
}

#[cfg(test)]
mod tests {
    use tonic::metadata::MetadataMap;

    use super::*;
    use crate::error::UNCHANGED;

    #[test]
    fn only_what_says_that_a_disk_is_full_is_taken_for_it() {
        let told = |label: &str| {
            let mut metadata = MetadataMap::new();
            let details = pb::UtxoError { label: label.into(), ..pb::UtxoError::default() };
            metadata.insert_bin(ERROR_TRAILER, MetadataValue::from_bytes(&details.encode_to_vec()));
            meant(&Status::with_metadata(Code::ResourceExhausted, "no", metadata))
        };
        assert!(matches!(told("full"), NodeError::DiskFull(_)));
        assert!(matches!(told("overloaded"), NodeError::Failed(_)));
    }

    #[test]
    fn only_an_answer_that_left_everything_alone_says_so() {
        let told = |code: Code| meant(&Status::new(code, "no")).to_string();
        assert!(told(Code::FailedPrecondition).contains(UNCHANGED));
        assert!(told(Code::DeadlineExceeded).ends_with("/readyz say"));
        assert_eq!(told(Code::Cancelled), "no");
        assert_eq!(told(Code::Unavailable), "no");
    }
}
