//! The key of a consumer or controller, from a file that is its owner's alone.

use std::path::Path;
use std::sync::Arc;

use ic_agent::Identity;
use ic_agent::identity::{BasicIdentity, Prime256v1Identity, Secp256k1Identity};

use crate::IndexError;
use crate::source::token::read_private;

/// Reads a key of any of the three kinds that the network knows.
pub(super) fn read(path: &Path) -> Result<Arc<dyn Identity>, IndexError> {
    let pem = read_private(path)?;
    if let Ok(identity) = BasicIdentity::from_pem(&pem) {
        return Ok(Arc::new(identity));
    }
    if let Ok(identity) = Secp256k1Identity::from_pem(&pem) {
        return Ok(Arc::new(identity));
    }
    match Prime256v1Identity::from_pem(&pem) {
        Ok(identity) => Ok(Arc::new(identity)),
        Err(_) => Err(IndexError::Refused(format!(
            "{}: a private key (PEM) of Ed25519, secp256k1 or P-256 is wanted",
            path.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_read_only_from_a_file_of_its_owner_alone_and_never_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.pem");
        // The private key of all ones.
        let key = "-----BEGIN PRIVATE KEY-----\n\
                   MC4CAQAwBQYDK2VwBCIEIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB\n\
                   -----END PRIVATE KEY-----\n";
        std::fs::write(&path, key).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let refused = read(&path).err().unwrap().to_string();
        assert!(refused.contains("chmod 600") && !refused.contains("AQEB"), "{refused}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(read(&path).unwrap().sender().is_ok());
        std::fs::write(&path, "not a key").unwrap();
        let refused = read(&path).err().unwrap().to_string();
        assert!(refused.contains("Ed25519") && !refused.contains("not a key"), "{refused}");
    }
}
