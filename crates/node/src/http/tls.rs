//! TLS for the HTTP side: rustls with ring, a certificate chain and its key from PEM files.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::TlsFiles;
use crate::error::NodeError;
use crate::security::check_private;

/// A server's TLS configuration.
pub(crate) type Tls = Arc<ServerConfig>;

/// No PEM file is longer.
const MAX_LEN: u64 = 1024 * 1024;

/// Certificate chain and key as they stand in their files.
pub(crate) struct Pem {
    pub(crate) cert: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

/// Reads both files; the key must be its owner's alone. What issues certificates often leaves
/// links in the place of files, so these are followed.
pub(crate) fn read_pem(files: &TlsFiles) -> Result<Pem, anyhow::Error> {
    let cert = bounded("tls.cert", &files.cert)?;
    let key = bounded("tls.key", &files.key)?;
    let key_file = std::fs::canonicalize(&files.key)
        .map_err(|error| unusable("tls.key", &files.key, &error.to_string()))?;
    check_private(&key_file)?;
    Ok(Pem { cert, key })
}

/// Reads certificate and key, and checks that they belong together.
pub(crate) fn read(files: &TlsFiles) -> Result<Tls, anyhow::Error> {
    let pem = read_pem(files)?;
    let bad_cert = |reason: &str| unusable("tls.cert", &files.cert, reason);
    let bad_key = |reason: &str| unusable("tls.key", &files.key, reason);
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&pem.cert)
        .collect::<Result<_, _>>()
        .map_err(|error| bad_cert(&error.to_string()))?;
    if chain.is_empty() {
        return Err(bad_cert("it holds no certificate in PEM form").into());
    }
    let key = PrivateKeyDer::from_pem_slice(&pem.key).map_err(|error| match error {
        pem::Error::NoItemsFound => bad_key("it holds no unencrypted private key in PEM form"),
        error => bad_key(&error.to_string()),
    })?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| bad_key(&error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| bad_key(&format!("it does not go with the certificate: {error}")))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn bounded(key: &str, path: &Path) -> Result<Vec<u8>, NodeError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_LEN + 1).read_to_end(&mut bytes));
    match read {
        Ok(len) if len as u64 > MAX_LEN => Err(unusable(key, path, "it is over 1 MiB")),
        Ok(_) => Ok(bytes),
        Err(error) => Err(unusable(key, path, &error.to_string())),
    }
}

fn unusable(key: &str, path: &Path, reason: &str) -> NodeError {
    NodeError::Usage(format!("{key} = {} cannot be used: {reason}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn put(path: &Path, text: &str, mode: u32) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn made() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn a_certificate_with_its_key_is_read_and_every_other_pair_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let files =
            TlsFiles { cert: place.path().join("cert.pem"), key: place.path().join("key.pem") };
        let refused = |text: &str| {
            let error = read(&files).unwrap_err().to_string();
            assert!(error.contains(text), "no `{text}` in {error}");
        };
        let ((cert, key), (_, other_key)) = (made(), made());
        refused("tls.cert");
        put(&files.cert, &cert, 0o644);
        refused("tls.key");
        put(&files.key, &key, 0o644);
        refused("chmod 600");
        put(&files.key, &key, 0o600);
        assert_eq!(read(&files).unwrap().alpn_protocols, [b"http/1.1"]);
        put(&files.key, &other_key, 0o600);
        refused("does not go with the certificate");
        put(&files.key, &cert, 0o600);
        refused("no unencrypted private key");
        put(&files.key, "-----BEGIN PRIVATE KEY-----\nrubbish", 0o600);
        refused("tls.key");
        put(&files.key, &key, 0o600);
        put(&files.cert, "", 0o644);
        refused("no certificate");
    }

    #[test]
    fn links_to_certificate_and_key_are_followed_and_the_key_behind_is_checked() {
        let place = tempfile::tempdir().unwrap();
        let (cert, key) = made();
        let [real_cert, real_key] = ["c1.pem", "k1.pem"].map(|name| place.path().join(name));
        let files =
            TlsFiles { cert: place.path().join("cert.pem"), key: place.path().join("key.pem") };
        std::os::unix::fs::symlink(&real_cert, &files.cert).unwrap();
        std::os::unix::fs::symlink(&real_key, &files.key).unwrap();
        put(&real_cert, &cert, 0o644);
        put(&real_key, &key, 0o600);
        assert!(read(&files).is_ok());
        put(&real_key, &key, 0o640);
        assert!(read(&files).unwrap_err().to_string().contains("chmod 600"));
    }
}
