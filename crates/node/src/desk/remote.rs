//! A running node, asked over its own interfaces: reads over HTTP, changes over gRPC, with the
//! token of `node.json`.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use secateur_core::{Height, PruneStatus, StopReason, Strength};
use secateur_proto::history::v1 as proto;
use secateur_proto::history::v1::admin_client::AdminClient;
use secateur_proto::sidecar::v1::sidecar_client::SidecarClient;
use secateur_store::{Finding, VerifyReport};
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::{BlobsReport, CONNECT, Tick, Verified, way_to};
use crate::error::NodeError;
use crate::service::{NodeFile, SourceNow};

/// The longest answer that is read, in bytes.
const MAX_ANSWER: usize = 64 << 20;

/// Shows the token with every call.
#[derive(Clone)]
pub(super) struct Credentials(MetadataValue<Ascii>);

impl tonic::service::Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.clone());
        Ok(request)
    }
}

type Admin = AdminClient<InterceptedService<Channel, Credentials>>;
/// Calls about blobs.
pub(super) type SidecarCalls = SidecarClient<InterceptedService<Channel, Credentials>>;

/// The node that has a data directory open.
pub(crate) struct Remote {
    path: PathBuf,
    file: NodeFile,
    http: reqwest::Client,
    admin: Admin,
    sidecar: SidecarCalls,
    runtime: Runtime,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Remote {
    /// Makes ready to ask; nothing is sent yet.
    pub(crate) fn new(path: &Path, file: NodeFile) -> Result<Self, anyhow::Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("starting a runtime")?;
        let bad = || NodeError::BadFile {
            path: NodeFile::path(path),
            reason: "its token is not one".into(),
        };
        let token = format!("Bearer {}", file.admin_token).parse().map_err(|_| bad())?;
        let channel = {
            let _inside = runtime.enter();
            way_to(&file)?
        };
        let token = Credentials(token);
        let admin = AdminClient::with_interceptor(channel.clone(), token.clone())
            .max_decoding_message_size(MAX_ANSWER);
        let sidecar = SidecarClient::with_interceptor(channel, token);
        secateur_archive::install_tls_provider();
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .no_proxy()
            .build()
            .context("making an HTTP client")?;
        Ok(Self { path: path.to_path_buf(), file, http, admin, sidecar, runtime })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn pid(&self) -> u32 {
        self.file.pid
    }

    /// Asks a read route and reads its JSON.
    pub(crate) fn get<T: DeserializeOwned>(&self, route: &str) -> Result<T, anyhow::Error> {
        let url = format!("http://{}{route}", self.file.http);
        let ask = async {
            let request = self.http.get(url).bearer_auth(&self.file.admin_token);
            let mut answer = request.send().await?;
            let ok = answer.status().is_success();
            let mut body = Vec::new();
            while let Some(piece) = answer.chunk().await? {
                if body.len() + piece.len() > MAX_ANSWER {
                    anyhow::bail!("the node's answer is over {MAX_ANSWER} bytes");
                }
                body.extend_from_slice(&piece);
            }
            Ok((ok, body))
        };
        let (ok, body) = self.runtime.block_on(ask).with_context(|| self.unreachable())?;
        if !ok {
            let said = serde_json::from_slice::<serde_json::Value>(&body).ok();
            let said = said.as_ref().and_then(|said| said.get("error")?.as_str());
            let text = said.unwrap_or("something that is not JSON");
            return Err(NodeError::Failed(format!("the node answers: {text}")).into());
        }
        serde_json::from_slice(&body).with_context(|| format!("reading the answer to {route}"))
    }

    fn unreachable(&self) -> String {
        format!(
            "the node of process {} has {} open, but does not answer at {}",
            self.file.pid,
            self.path.display(),
            self.file.http
        )
    }

    /// Makes one admin call.
    fn call<A, F>(&self, call: impl FnOnce(Admin) -> F) -> Result<A, anyhow::Error>
    where
        F: Future<Output = Result<tonic::Response<A>, Status>>,
    {
        let answered = self.runtime.block_on(call(self.admin.clone()));
        answered.map(tonic::Response::into_inner).map_err(|status| self.explain(&status))
    }

    /// The calls about blobs.
    pub(super) fn sidecar(&self) -> SidecarCalls {
        self.sidecar.clone()
    }

    /// Waits for a call.
    pub(super) fn block_on<F: Future>(&self, call: F) -> F::Output {
        self.runtime.block_on(call)
    }

    pub(super) fn explain(&self, status: &Status) -> anyhow::Error {
        let text = status.message().to_owned();
        match status.code() {
            Code::InvalidArgument => NodeError::Usage(text).into(),
            Code::FailedPrecondition | Code::PermissionDenied | Code::Unauthenticated => {
                NodeError::Refused(text).into()
            }
            Code::Unavailable => anyhow::anyhow!("{text}").context(self.unreachable()),
            Code::DeadlineExceeded => {
                NodeError::Unanswered(format!("the node answers: {text}")).into()
            }
            _ => NodeError::Failed(format!("the node answers: {text}")).into(),
        }
    }

    pub(crate) fn chain_id(&self) -> Result<u64, anyhow::Error> {
        #[derive(serde::Deserialize)]
        struct Answer {
            chain_id: u64,
        }
        Ok(self.get::<Answer>("/v1/node")?.chain_id)
    }

    /// The source that the node follows, if it follows one.
    pub(crate) fn source(&self) -> Result<Option<SourceNow>, anyhow::Error> {
        #[derive(serde::Deserialize)]
        struct Answer {
            source: Option<SourceNow>,
        }
        Ok(self.get::<Answer>("/v1/node")?.source)
    }

    pub(crate) fn set_policy(&self, changes: &[(String, String)]) -> Result<(), anyhow::Error> {
        let changes = changes.iter().cloned().collect();
        let request = proto::SetPolicyRequest { changes };
        self.call(|mut admin| async move { admin.set_policy(request).await }).map(drop)
    }

    pub(crate) fn set_pruning(&self, enabled: bool) -> Result<(), anyhow::Error> {
        let request = proto::SetPruningRequest { enabled };
        self.call(|mut admin| async move { admin.set_pruning(request).await }).map(drop)
    }

    pub(crate) fn prune(&self, to: Height, max_ops: Option<u64>) -> Result<Tick, anyhow::Error> {
        let request = proto::PruneRequest { max_ops: max_ops.unwrap_or(0), to: Some(to) };
        let answer = self.call(|mut admin| async move { admin.prune(request).await })?;
        let report = if answer.blocks > 0 {
            self.get::<PruneStatus>("/v1/status")?.last_report
        } else {
            None
        };
        let stop = answer.stop.context("the node did not say why the prune stopped")?;
        Ok(Tick { blocks: answer.blocks, more: answer.more, stop: stop_of(stop)?, report })
    }

    pub(crate) fn add_consumer(&self, name: &str, strength: Strength) -> Result<(), anyhow::Error> {
        let strength = match strength {
            Strength::Soft => proto::Strength::Soft,
            Strength::Hard => proto::Strength::Hard,
        };
        let request =
            proto::RegisterConsumerRequest { name: name.into(), strength: strength.into() };
        self.call(|mut admin| async move { admin.register_consumer(request).await }).map(drop)
    }

    pub(crate) fn remove_consumer(&self, name: &str) -> Result<bool, anyhow::Error> {
        let request = proto::RemoveConsumerRequest { name: name.into() };
        let answer = self.call(|mut admin| async move { admin.remove_consumer(request).await })?;
        Ok(answer.was_there)
    }

    pub(crate) fn verify(&self) -> Result<Verified, anyhow::Error> {
        let request = proto::VerifyRequest {};
        let answer = self.call(|mut admin| async move { admin.verify(request).await })?;
        let findings = |found: Vec<_>| found.into_iter().map(finding).collect::<Result<_, _>>();
        let sidecars = answer.sidecars.map(|blobs| {
            Ok::<_, anyhow::Error>(BlobsReport {
                blobs: blobs.blobs,
                bytes: blobs.bytes,
                regions: blobs.regions,
                findings: findings(blobs.findings)?,
                unlisted: blobs.unlisted,
            })
        });
        let history = Some(VerifyReport {
            blocks: answer.blocks,
            payload_bytes: answer.payload_bytes,
            regions: answer.regions,
            runs: answer.runs,
            findings: findings(answer.findings)?,
            unlisted: answer.unlisted,
        });
        Ok(Verified { history, sidecars: sidecars.transpose()? })
    }
}

fn finding(found: proto::verify_response::Finding) -> Result<Finding, anyhow::Error> {
    Ok(Finding {
        kind: serde_json::from_value(found.kind.into()).context("an unknown kind of finding")?,
        invariant: u8::try_from(found.invariant).context("an unknown invariant")?,
        detail: found.detail,
        repairable: found.repairable,
    })
}

fn stop_of(stop: proto::Stop) -> Result<StopReason, anyhow::Error> {
    let strength = match stop.strength() {
        proto::Strength::Unspecified => None,
        proto::Strength::Soft => Some("soft"),
        proto::Strength::Hard => Some("hard"),
    };
    // The same shape as its JSON, so that there is one place that knows the reasons.
    let mut value = serde_json::json!({ "reason": stop.reason });
    if let Some(fields) = value.as_object_mut().filter(|_| stop.hold.is_some()) {
        fields.insert("hold".into(), stop.hold.into());
        fields.insert("strength".into(), strength.into());
        fields.insert("limit".into(), stop.limit.into());
    }
    serde_json::from_value(value).context("an unknown reason to stop")
}
