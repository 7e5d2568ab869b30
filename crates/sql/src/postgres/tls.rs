//! Encrypted connections: tokio-postgres over rustls, with the server's name and certificate always
//! checked. Whether a connection is encrypted at all is the address's business.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use crate::SqlError;

/// Makes connections encrypted.
#[derive(Clone)]
pub(super) struct Tls(Arc<ClientConfig>);

fn failed(why: impl std::fmt::Display) -> SqlError {
    SqlError::lasting(format!("certificates for the connection to PostgreSQL: {why}"))
}

/// The certificates to believe: those of a file, or the system's.
fn roots(file: Option<&Path>) -> Result<RootCertStore, SqlError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = file {
        let place = |error: &dyn std::fmt::Display| failed(format!("{}: {error}", path.display()));
        for certificate in CertificateDer::pem_file_iter(path).map_err(|error| place(&error))? {
            let certificate = certificate.map_err(|error| place(&error))?;
            roots.add(certificate).map_err(|error| place(&error))?;
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if roots.is_empty() {
        return Err(failed("none found; name a file of them with sslrootcert="));
    }
    Ok(roots)
}

impl Tls {
    /// A connector; without encryption the certificates are not looked for.
    pub(super) fn new(wanted: bool, file: Option<&Path>) -> Result<Self, SqlError> {
        let roots = if wanted { roots(file)? } else { RootCertStore::empty() };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

/// One connection to be encrypted.
pub(super) struct Connect {
    config: Arc<ClientConfig>,
    name: String,
}

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type TlsConnect = Connect;
    type Error = io::Error;

    fn make_tls_connect(&mut self, name: &str) -> io::Result<Connect> {
        // The name is looked at only when it is used: a socket of this machine has none.
        Ok(Connect { config: Arc::clone(&self.0), name: name.to_owned() })
    }
}

impl<S> TlsConnect<S> for Connect
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from(self.name).map_err(io::Error::other)?;
            TlsConnector::from(self.config).connect(name, stream).await.map(Encrypted)
        })
    }
}

/// An encrypted stream.
pub(super) struct Encrypted<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(task, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(task, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(task)
    }
}
