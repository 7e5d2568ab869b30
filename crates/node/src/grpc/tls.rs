//! TLS for the gRPC side.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use tonic::transport::{Identity, Server, ServerTlsConfig};

use crate::config::TlsFiles;
use crate::error::NodeError;
use crate::security::check_private;

/// No certificate chain and no key is longer.
const LONGEST: u64 = 1024 * 1024;
/// A client that has not shaken hands by then is let go of.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Makes a server speak TLS and nothing else. The key must be its owner's alone.
pub(super) fn secure<L>(server: Server<L>, files: &TlsFiles) -> Result<Server<L>, anyhow::Error> {
    // One that somebody else chose is as good: there is one kind in this program.
    rustls::crypto::ring::default_provider().install_default().unwrap_or_default();
    let (cert, key) = (read(&files.cert)?, read(&files.key)?);
    // What issues certificates often leaves links in the place of files.
    check_private(&std::fs::canonicalize(&files.key)?)?;
    let config = ServerTlsConfig::new().identity(Identity::from_pem(cert, key)).timeout(HANDSHAKE);
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

fn read(path: &Path) -> Result<Vec<u8>, anyhow::Error> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes));
    read.with_context(|| format!("reading {}", path.display()))?;
    if bytes.len() as u64 > LONGEST {
        let reason = format!("it is over {LONGEST} bytes");
        return Err(NodeError::BadFile { path: path.to_path_buf(), reason }.into());
    }
    Ok(bytes)
}
