//! The other side of a link: takes what peers hand over, and answers what they lack.
//!
//! Every call ends in bounded time and holds one bounded page. Who asks too much is turned away with
//! `RESOURCE_EXHAUSTED` before anything is looked at.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use secateur_archive::read_secret;
use secateur_core::Height;
use secateur_proto::sidecar::v1::gossip_server::{Gossip as GossipCalls, GossipServer};
use secateur_proto::sidecar::v1::{
    self, Acked, MissingRequest, MissingResponse, PublishRequest, PublishResponse,
};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tonic::transport::server::{TcpConnectInfo, TlsConnectInfo};
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use super::super::envelope::{ENVELOPE_HEAD_LEN, MAX_MESSAGE_LEN};
use super::super::intake::Intake;
use super::super::{GossipError, Verdict};
use super::accept::{self, Origin};
use super::limits::{Gate, Limits};
use super::{FAREWELL, ServeOptions};
use crate::SidecarError;
use crate::secret::read_token;

/// Messages of one call.
pub(super) const MAX_BATCH: usize = 16;
/// Heights of one question.
pub(super) const MAX_HEIGHTS: usize = 256;
/// So many heights that are asked about cost as much as one message.
const HEIGHTS_FOR_ONE: usize = 16;
/// Bytes of a page of notices; the last of them may go beyond.
const PAGE_BYTES: usize = 240 * 1024;
/// Notices of a page, as far as a peer believes it.
pub(super) const MAX_PAGE_NOTICES: usize = 4_096;
/// Notices that are read at a time; so many of the longest still fit behind a page.
const STEP: usize = 16;
/// The longest message on the wire: a batch or a page, with something to spare.
pub(super) const MAX_WIRE: usize = 512 * 1024;
/// The longest certificate or key.
const MAX_PEM: u64 = 1 << 20;
/// Calls at the same time over one connection.
const CALLS_PER_CONNECTION: u32 = 32;
const PING: Duration = Duration::from_secs(20);

/// Answers peers.
pub struct GossipService {
    intake: Arc<Intake>,
    gate: Gate,
    /// The SHA-256 of the token that is wanted.
    token: Option<[u8; 32]>,
}

impl fmt::Debug for GossipService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GossipService").finish_non_exhaustive()
    }
}

pub(super) fn service(
    intake: Arc<Intake>,
    limits: Limits,
    token: Option<[u8; 32]>,
) -> GossipServer<GossipService> {
    GossipServer::new(GossipService { intake, gate: Gate::new(limits), token })
        .max_decoding_message_size(MAX_WIRE)
        .max_encoding_message_size(MAX_WIRE)
}

/// Serves on a socket until the mesh stops.
pub(super) fn serve(
    listener: TcpListener,
    intake: &Arc<Intake>,
    limits: Limits,
    options: &ServeOptions,
    stopping: watch::Receiver<bool>,
) -> Result<impl Future<Output = ()> + Send + use<>, GossipError> {
    let token = options.token_file.as_deref().map(read_token).transpose()?;
    let token = token.map(|token| Sha256::digest(token.as_str()).into());
    let mut server = Server::builder()
        .http2_keepalive_interval(Some(PING))
        .http2_keepalive_timeout(Some(PING))
        .max_concurrent_streams(CALLS_PER_CONNECTION);
    if let Some((cert, key)) = &options.tls {
        let refuse = |reason: String| GossipError::invalid("TLS files of the mesh", reason);
        let pem = std::fs::read(cert).map_err(|e| refuse(format!("{}: {e}", cert.display())))?;
        let identity = Identity::from_pem(pem, read_secret(key, MAX_PEM)?);
        secateur_archive::install_tls_provider();
        let tls = ServerTlsConfig::new().identity(identity);
        server = server.tls_config(tls).map_err(|error| refuse(error.to_string()))?;
    }
    let router = server.add_service(service(Arc::clone(intake), limits, token));
    let incoming = accept::incoming(listener, limits.connections);
    Ok(async move {
        let mut goes = stopping.clone();
        // Whoever could say so is gone: that is the end too.
        let stopped =
            async move { goes.wait_for(|stop| *stop).await.map(drop).unwrap_or_default() };
        let mut stays = stopping;
        let parted = async move {
            stays.wait_for(|stop| *stop).await.map(drop).unwrap_or_default();
            tokio::time::sleep(FAREWELL).await;
        };
        tokio::select! {
            served = router.serve_with_incoming_shutdown(incoming, stopped) => {
                if let Err(error) = served {
                    tracing::error!(%error, "notices are no longer served to peers");
                }
            }
            () = parted => {}
        }
    })
}

/// Where a request comes from, whichever server took it.
fn address<T>(request: &Request<T>) -> Option<IpAddr> {
    let extensions = request.extensions();
    let own = extensions.get::<Origin>().copied();
    let tls = extensions.get::<TlsConnectInfo<Origin>>().map(|info| *info.get_ref());
    let other = extensions.get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr);
    own.or(tls).map(|Origin(ip)| ip).or_else(|| other.map(|address| address.ip().to_canonical()))
}

impl GossipService {
    /// Lets a call in, or says why not.
    fn admit<T>(&self, request: &Request<T>, cost: usize) -> Result<OwnedSemaphorePermit, Status> {
        if let Some(wanted) = &self.token {
            let shown = request.metadata().get("authorization").and_then(|v| v.to_str().ok());
            let shown = shown.and_then(|text| text.strip_prefix("Bearer ")).unwrap_or_default();
            let shown: [u8; 32] = Sha256::digest(shown.trim()).into();
            // As many steps for a wrong one as for the right one.
            let differs = shown.iter().zip(wanted).fold(0, |acc, (a, b)| acc | (a ^ b));
            if differs != 0 {
                return Err(Status::unauthenticated("this node wants its peers' token"));
            }
        }
        self.gate.enter(address(request), cost).ok_or_else(|| {
            self.intake.counts.limited();
            Status::resource_exhausted("too much at once; say it again later")
        })
    }
}

#[tonic::async_trait]
impl GossipCalls for GossipService {
    async fn publish(
        &self,
        request: Request<PublishRequest>,
    ) -> Result<Response<PublishResponse>, Status> {
        let _place = self.admit(&request, request.get_ref().messages.len().max(1))?;
        let from = address(&request).map(|ip| ip.to_string());
        let messages = request.into_inner().messages;
        if messages.is_empty() || messages.len() > MAX_BATCH {
            return Err(Status::invalid_argument(format!("1 to {MAX_BATCH} messages are wanted")));
        }
        if messages.iter().any(|message| message.len() > MAX_MESSAGE_LEN + ENVELOPE_HEAD_LEN) {
            let most = MAX_MESSAGE_LEN + ENVELOPE_HEAD_LEN;
            return Err(Status::invalid_argument(format!("a message has at most {most} bytes")));
        }
        let verdicts = self.intake.take_all(from, messages).await;
        let acked = verdicts.into_iter().map(acked).collect();
        Ok(Response::new(PublishResponse { acked }))
    }

    async fn missing(
        &self,
        request: Request<MissingRequest>,
    ) -> Result<Response<MissingResponse>, Status> {
        let cost = request.get_ref().heights.len() / HEIGHTS_FOR_ONE;
        let _place = self.admit(&request, cost.max(1))?;
        let MissingRequest { heights, skip } = request.into_inner();
        if heights.len() > MAX_HEIGHTS {
            let reason = format!("at most {MAX_HEIGHTS} heights are wanted");
            return Err(Status::invalid_argument(reason));
        }
        let intake = Arc::clone(&self.intake);
        let page = tokio::task::spawn_blocking(move || page(&intake, &heights, skip));
        match page.await {
            Ok(Ok(page)) => Ok(Response::new(page)),
            Ok(Err(error)) => {
                tracing::warn!(%error, "notices cannot be read for a peer");
                Err(Status::resource_exhausted("its notices cannot be read just now"))
            }
            Err(_) => Err(Status::resource_exhausted("the node stops")),
        }
    }
}

fn acked(verdict: Verdict) -> Acked {
    let (verdict, reason) = match verdict {
        Verdict::New => (v1::Verdict::New, String::new()),
        Verdict::Known => (v1::Verdict::Known, String::new()),
        Verdict::Later(reason) => (v1::Verdict::Later, reason),
        Verdict::Refused(reason) => (v1::Verdict::Refused, reason),
    };
    Acked { verdict: verdict.into(), reason }
}

/// The notices of heights, as many as fit.
fn page(intake: &Intake, heights: &[Height], skip: u32) -> Result<MissingResponse, SidecarError> {
    let mut page = MissingResponse { notices: Vec::new(), heights_done: 0, skip };
    let mut bytes = 0;
    for height in heights {
        loop {
            if bytes >= PAGE_BYTES || page.notices.len() >= MAX_PAGE_NOTICES - STEP {
                return Ok(page);
            }
            let skipped = usize::try_from(page.skip).unwrap_or(usize::MAX);
            let some = intake.notices_for(*height, skipped, STEP)?;
            if some.is_empty() {
                break;
            }
            let count = u32::try_from(some.len()).unwrap_or(u32::MAX);
            page.skip = page.skip.saturating_add(count);
            bytes += some.iter().map(Bytes::len).sum::<usize>();
            page.notices.extend(some);
        }
        page.heights_done += 1;
        page.skip = 0;
    }
    Ok(page)
}
