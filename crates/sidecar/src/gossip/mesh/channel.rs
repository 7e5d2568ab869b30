//! The way to a peer: its address, its TLS, the token it wants.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use secateur_proto::sidecar::v1::gossip_client::GossipClient;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tonic::codegen::http::Uri;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};

use super::super::GossipError;
use super::MeshOptions;
use super::server::MAX_WIRE;
use super::socket::Socket;
use crate::secret::read_token;

/// A connection that stays silent for so long is asked whether it lives.
const PING: Duration = Duration::from_secs(10);

pub(super) type Client = GossipClient<InterceptedService<Channel, Bearer>>;

/// Puts the token, if there is one, on every request.
#[derive(Clone)]
pub(super) struct Bearer(Option<MetadataValue<Ascii>>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

/// Tells when a connection has ended.
pub(super) struct Ended(oneshot::Receiver<Infallible>);

impl Ended {
    pub(super) async fn wait(&mut self) {
        // Nothing is ever said; the other end goes with its connection.
        if let Ok(never) = (&mut self.0).await {
            match never {}
        }
    }
}

/// The way to a peer.
pub(super) struct Way {
    endpoint: Endpoint,
    bearer: Bearer,
}

impl Way {
    pub(super) fn new(options: &MeshOptions, url: &str) -> Result<Self, GossipError> {
        // The address may hold a password that was put there by mistake.
        let refuse = |reason: String| GossipError::invalid("peer address", reason);
        let mut endpoint = Endpoint::from_shared(url.to_owned())
            .map_err(|error| refuse(error.to_string()))?
            .connect_timeout(options.timeout)
            .http2_keep_alive_interval(PING)
            .keep_alive_timeout(options.timeout)
            .keep_alive_while_idle(true);
        if endpoint.uri().authority().is_none_or(|authority| authority.as_str().contains('@')) {
            return Err(refuse("it names no host, or a user".to_owned()));
        }
        match endpoint.uri().scheme_str() {
            Some("https") => {
                secateur_archive::install_tls_provider();
                let tls = ClientTlsConfig::new();
                let tls = match &options.ca_file {
                    Some(path) => {
                        let pem = std::fs::read(path)
                            .map_err(|error| refuse(format!("{}: {error}", path.display())))?;
                        tls.ca_certificate(Certificate::from_pem(pem))
                    }
                    None => tls.with_native_roots(),
                };
                endpoint = endpoint.tls_config(tls).map_err(|error| refuse(error.to_string()))?;
            }
            Some("http") if options.token_file.is_some() && !is_loopback(&endpoint) => {
                return Err(refuse("a token would travel in the clear; use https".to_owned()));
            }
            Some("http") => {}
            _ => return Err(refuse("http:// or https:// is wanted".to_owned())),
        }
        let token = options.token_file.as_deref().map(read_token).transpose()?;
        let value = |token: crate::secret::Token| {
            let value: Result<MetadataValue<Ascii>, _> =
                format!("Bearer {}", token.as_str()).parse();
            let mut value = value.map_err(|_| refuse("the token fits no header".to_owned()))?;
            value.set_sensitive(true);
            Ok::<_, GossipError>(value)
        };
        Ok(Self { endpoint, bearer: Bearer(token.map(value).transpose()?) })
    }

    /// Connects, and says when the connection has ended. It is not made again behind our back: a
    /// node that connects has to ask for what it missed.
    pub(super) async fn connect(&self) -> Result<(Client, Ended), tonic::transport::Error> {
        let (alive, ended) = oneshot::channel::<Infallible>();
        let mut alive = Some(alive);
        let connector = tower::service_fn(move |uri: Uri| {
            let alive = alive.take();
            async move {
                let alive = alive.ok_or(io::ErrorKind::ConnectionAborted)?;
                let stream = TcpStream::connect(authority(&uri)?).await?;
                Ok::<_, io::Error>(TokioIo::new(Socket::new(stream, alive)))
            }
        });
        let channel = self.endpoint.connect_with_connector(connector).await?;
        let link = InterceptedService::new(channel, self.bearer.clone());
        Ok((GossipClient::new(link).max_decoding_message_size(MAX_WIRE), Ended(ended)))
    }
}

/// The host and port of an address.
fn authority(uri: &Uri) -> io::Result<(String, u16)> {
    let host = uri.host().ok_or(io::ErrorKind::InvalidInput)?;
    let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok((host, uri.port_u16().unwrap_or(default)))
}

fn is_loopback(endpoint: &Endpoint) -> bool {
    let Some(host) = endpoint.uri().host() else { return false };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
