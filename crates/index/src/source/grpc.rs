//! A node as a source: export v1 and v2, status, consumers and acknowledgements over gRPC.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use secateur_core::{Height, HoldKind, MAX_EXPORT_BYTES, Part, Strength, format_duration};
use secateur_proto::ERROR_TRAILER;
use secateur_proto::export::v1::export_client::ExportClient as ExportV1;
use secateur_proto::export::v1::{self, GetHeadRequest};
use secateur_proto::export::v2::export_client::ExportClient as ExportV2;
use secateur_proto::history::v1::admin_client::AdminClient;
use secateur_proto::history::v1::history_client::HistoryClient;
use secateur_proto::history::v1::{
    self as history, AckArchivedRequest, AckExportedRequest, GetStatusRequest, ListHoldsRequest,
    RegisterConsumerRequest,
};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Response, Status};

use super::stream::GrpcBlocks;
use super::token::{Bearer, read_token};
use super::{ARCHIVE_HOLD, Right, Source, SourceStatus, rights};
use crate::IndexError;

/// The largest answer that is read; the node's own limit is far below.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;
/// What the node may send ahead of us on one stream.
const WINDOW: u32 = 4 * 1024 * 1024;
/// What it may send ahead on all of them together: as much as HTTP/2 can say. A stream that waits
/// for its reader has used up its own window only; an answer to another call, which that reader may
/// be waiting for, still comes through. The streams are few, and each has its limit.
const WINDOW_OF_ALL: u32 = (1 << 31) - 1;
const CONNECT: Duration = Duration::from_secs(5);
/// A node reads a part back before it answers. However slow its way to the archive is, it is taken to
/// read so many bytes a second; whether it is still there is asked all the while.
const READ_BACK_RATE: u64 = 512 * 1024;

pub(super) type Link = InterceptedService<Channel, Bearer>;

/// How a node is reached.
#[derive(Debug, Clone)]
pub struct GrpcOptions {
    /// `http://host:port` or `https://host:port`.
    pub url: String,
    /// A file with a bearer token, its owner's alone.
    pub token_file: Option<PathBuf>,
    /// Certificates (PEM) to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// The longest wait for an answer, or for the next piece of a stream. For a part that the node
    /// reads back first it is longer, by the part's size.
    pub timeout: Duration,
    /// The byte budget of one poll.
    pub max_bytes: u32,
    /// Whether to catch up by stream (v2). Polling alone is slower and shows the fixed wire.
    pub stream: bool,
}

impl GrpcOptions {
    /// The usual way to reach a node.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            token_file: None,
            ca_file: None,
            timeout: Duration::from_secs(30),
            max_bytes: MAX_EXPORT_BYTES,
            stream: true,
        }
    }
}

/// A node over gRPC.
#[derive(Debug, Clone)]
pub struct GrpcSource {
    pub(super) export: ExportV1<Link>,
    pub(super) streams: ExportV2<Link>,
    history: HistoryClient<Link>,
    pub(super) admin: AdminClient<Link>,
    pub(super) timeout: Duration,
    pub(super) max_bytes: u32,
    /// Cleared once the source says that it does not know v2.
    pub(super) has_streams: Arc<AtomicBool>,
}

impl GrpcSource {
    /// Makes ready to ask; nothing is sent before the first question.
    pub fn new(options: &GrpcOptions) -> Result<Self, IndexError> {
        let token = options.token_file.as_deref().map(read_token).transpose()?;
        let bearer = Bearer::new(token.as_deref())?;
        let channel = endpoint(options)?.connect_lazy();
        let link = InterceptedService::new(channel, bearer);
        Ok(Self {
            export: ExportV1::new(link.clone()).max_decoding_message_size(MAX_MESSAGE),
            streams: ExportV2::new(link.clone()).max_decoding_message_size(MAX_MESSAGE),
            history: HistoryClient::new(link.clone()).max_decoding_message_size(MAX_MESSAGE),
            admin: AdminClient::new(link).max_decoding_message_size(MAX_MESSAGE),
            timeout: options.timeout,
            max_bytes: options.max_bytes.clamp(1, MAX_EXPORT_BYTES),
            has_streams: Arc::new(AtomicBool::new(options.stream)),
        })
    }

    /// Whether a consumer is registered at the node, as strong as this or stronger.
    async fn is_held(&self, consumer: &str, wanted: history::Strength) -> Result<bool, IndexError> {
        let mut history = self.history.clone();
        let name = HoldKind::Export(consumer.to_owned()).to_string();
        let answer = self.ask(0, history.list_holds(ListHoldsRequest {})).await?;
        let enough =
            |strength| strength == history::Strength::Hard || wanted == history::Strength::Soft;
        Ok(answer.holds.iter().any(|hold| hold.name == name && enough(hold.strength())))
    }

    pub(super) fn may_stream(&self) -> bool {
        self.has_streams.load(Ordering::Relaxed)
    }

    /// One question, answered in time or not at all.
    pub(super) async fn ask<A>(
        &self,
        wanted: Height,
        call: impl Future<Output = Result<Response<A>, Status>> + Send,
    ) -> Result<A, IndexError> {
        in_time(self.timeout, wanted, call).await
    }
}

async fn in_time<A>(
    timeout: Duration,
    wanted: Height,
    call: impl Future<Output = Result<Response<A>, Status>> + Send,
) -> Result<A, IndexError> {
    match tokio::time::timeout(timeout, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(explain(&status, wanted)),
        Err(_) => Err(IndexError::Timeout(format_duration(timeout))),
    }
}

fn endpoint(options: &GrpcOptions) -> Result<Endpoint, IndexError> {
    let refuse = |reason: String| IndexError::Refused(format!("source {}: {reason}", options.url));
    let mut endpoint = Endpoint::from_shared(options.url.clone())
        .map_err(|error| refuse(error.to_string()))?
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(Duration::from_secs(10))
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW_OF_ALL);
    if options.url.starts_with("https:") {
        secateur_archive::install_tls_provider();
        let mut tls = ClientTlsConfig::new();
        tls = match &options.ca_file {
            Some(path) => {
                let pem = std::fs::read(path)
                    .map_err(|error| refuse(format!("{}: {error}", path.display())))?;
                tls.ca_certificate(Certificate::from_pem(pem))
            }
            None => tls.with_native_roots(),
        };
        endpoint = endpoint.tls_config(tls).map_err(|error| refuse(error.to_string()))?;
    } else if options.token_file.is_some() && !is_loopback(endpoint.uri().host()) {
        return Err(refuse(
            "a token would travel in the clear; use https, or a source on this machine".into(),
        ));
    }
    Ok(endpoint)
}

pub(super) fn is_loopback(host: Option<&str>) -> bool {
    let Some(host) = host else { return false };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// What a refusal means to a worker. `wanted` is the block that was asked for.
pub(super) fn explain(status: &Status, wanted: Height) -> IndexError {
    use prost::Message as _;
    let text = || status.message().to_owned();
    let details = status.metadata().get_bin(ERROR_TRAILER).and_then(|value| value.to_bytes().ok());
    let reason = details
        .and_then(|details| v1::ExportError::decode(details).ok())
        .and_then(|details| details.reason);
    match (reason, status.code()) {
        (Some(v1::export_error::Reason::Pruned(pruned)), Code::OutOfRange) => {
            let pruned_before_block = pruned.pruned_before_block;
            IndexError::Pruned { wanted, pruned_before_block }
        }
        (_, Code::OutOfRange | Code::InvalidArgument | Code::NotFound) => {
            IndexError::InvalidCursor(format!("the source says: {}", text()))
        }
        (_, code @ (Code::Unauthenticated | Code::PermissionDenied | Code::FailedPrecondition)) => {
            // A refusal says here, too, that nothing was changed.
            let text = text();
            let text = text.trim_end_matches("; nothing was changed");
            let advice = match code {
                Code::Unauthenticated => " (here: the token's file is named with --token-file)",
                _ => "",
            };
            IndexError::Refused(format!("the source says: {text}{advice}"))
        }
        (_, Code::Unimplemented) => {
            IndexError::Refused(format!("the source does not know this call: {}", text()))
        }
        (_, Code::DeadlineExceeded) => IndexError::Timeout(text()),
        (_, code) => IndexError::Net(format!("{}: {}", code.description(), text())),
    }
}

/// A part's SHA-256 as bytes.
pub(super) fn sha256_of(part: &Part) -> Result<[u8; 32], IndexError> {
    let mut sha256 = [0u8; 32];
    match alloy_primitives::hex::decode_to_slice(&part.sha256, &mut sha256) {
        Ok(()) => Ok(sha256),
        Err(_) => Err(IndexError::ArchiveIo {
            reason: format!("part {} has no SHA-256", part.locator.key),
            retryable: false,
        }),
    }
}

/// The refusal of a caller that may not register its consumer, where that is still to be done.
pub(super) fn unregistered(consumer: &str, strength: Strength) -> IndexError {
    let hold = match strength {
        Strength::Soft => "hold",
        Strength::Hard => "hard hold",
    };
    IndexError::Refused(format!(
        "the source has no {hold} of the consumer {consumer}, and this worker may not register one; an \
         administrator of the source has to do it once"
    ))
}

impl Source for GrpcSource {
    type Blocks = GrpcBlocks;

    async fn head(&self) -> Result<Option<Height>, IndexError> {
        let mut export = self.export.clone();
        let answer = self.ask(0, export.get_head(GetHeadRequest {})).await?;
        Ok(answer.block_number)
    }

    fn blocks(&self, from: Option<Height>, want_meta: bool) -> GrpcBlocks {
        GrpcBlocks::new(self.clone(), from, want_meta)
    }

    async fn status(&self) -> Result<SourceStatus, IndexError> {
        let mut history = self.history.clone();
        let answer = self.ask(0, history.get_status(GetStatusRequest {})).await?;
        Ok(SourceStatus {
            chain_id: answer.chain_id,
            head: answer.export_head,
            oldest: answer.oldest_kept_block,
            pruned_before: answer.pruned_before_block,
            archived: answer.archived,
            store_id: answer.store_id.as_deref().and_then(|id| id.try_into().ok()),
            high_water_bytes: answer.high_water_bytes,
            waits_for_archive: answer.draining
                && answer.binding_hold.as_deref() == Some(ARCHIVE_HOLD),
        })
    }

    async fn check_rights(&self, wanted: &[Right]) -> Result<(), IndexError> {
        rights::check(self, wanted).await
    }

    async fn register(&self, consumer: &str, strength: Strength) -> Result<(), IndexError> {
        let wanted = match strength {
            Strength::Soft => history::Strength::Soft,
            Strength::Hard => history::Strength::Hard,
        };
        let request =
            RegisterConsumerRequest { name: consumer.to_owned(), strength: wanted.into() };
        let mut admin = self.admin.clone();
        let call = admin.register_consumer(request);
        match tokio::time::timeout(self.timeout, call).await {
            Ok(Ok(_)) => Ok(()),
            // A token that may only acknowledge: an administrator has registered the consumer.
            Ok(Err(status)) if status.code() == Code::PermissionDenied => {
                if self.is_held(consumer, wanted).await? {
                    return Ok(());
                }
                Err(unregistered(consumer, strength))
            }
            Ok(Err(status)) => Err(explain(&status, 0)),
            Err(_) => Err(IndexError::Timeout(format_duration(self.timeout))),
        }
    }

    async fn ack_exported(&self, consumer: &str, height: Height) -> Result<(), IndexError> {
        let request = AckExportedRequest { consumer: consumer.to_owned(), block_number: height };
        let mut admin = self.admin.clone();
        self.ask(height, admin.ack_exported(request)).await.map(drop)
    }

    async fn ack_archived(&self, part: &Part) -> Result<Option<Height>, IndexError> {
        let sha256 = sha256_of(part)?;
        let request = AckArchivedRequest {
            first: part.first,
            last: part.last,
            parent_hash: part.parent_hash.0.to_vec().into(),
            last_hash: part.last_hash.0.to_vec().into(),
            provider: part.locator.provider.clone(),
            key: part.locator.key.clone(),
            sha256: sha256.to_vec().into(),
            size: part.size,
        };
        let mut admin = self.admin.clone();
        let reading = Duration::from_secs(part.size.div_ceil(READ_BACK_RATE));
        let timeout = self.timeout.saturating_add(reading);
        let answer = in_time(timeout, part.first, admin.ack_archived(request)).await?;
        Ok(answer.archived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_token_is_told_with_the_flag_that_names_it() {
        let told = explain(&Status::unauthenticated("a token is needed"), 0).to_string();
        assert!(told.contains("a token is needed") && told.contains("--token-file"), "{told}");
        let told = explain(&Status::permission_denied("not for this"), 0).to_string();
        assert!(!told.contains("--token-file"), "{told}");
    }
}
