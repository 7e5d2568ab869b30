//! TLS for the gRPC side.

use std::time::Duration;

use tonic::transport::{Identity, Server, ServerTlsConfig};

use crate::config::TlsFiles;
use crate::error::NodeError;
use crate::http::tls::read_pem;

/// A client that has not shaken hands by then is let go of.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Makes a server speak TLS and nothing else. The key must be its owner's alone.
pub(super) fn secure<L>(server: Server<L>, files: &TlsFiles) -> Result<Server<L>, anyhow::Error> {
    secateur_archive::install_tls_provider();
    let pem = read_pem(files)?;
    let identity = Identity::from_pem(pem.cert, pem.key);
    let config = ServerTlsConfig::new().identity(identity).timeout(HANDSHAKE);
    server.tls_config(config).map_err(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        NodeError::Usage(format!(
            "the certificate {} and the key {} cannot be used together{}",
            files.cert.display(),
            files.key.display(),
            cause.unwrap_or_default()
        ))
        .into()
    })
}
