//! Secrets from files that are their owner's alone; the bearer token, shown to nobody.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

use crate::IndexError;

/// Such a file is no longer than this.
const MOST: u64 = 4_096;

/// Puts the token, if there is one, on every request.
#[derive(Clone)]
pub(super) struct Bearer(Option<MetadataValue<Ascii>>);

impl std::fmt::Debug for Bearer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Bearer(…)" } else { "Bearer(none)" })
    }
}

impl Bearer {
    pub(super) fn new(token: Option<&str>) -> Result<Self, IndexError> {
        let value = |token: &str| {
            let mut value: MetadataValue<Ascii> =
                format!("Bearer {token}").parse().map_err(|_| {
                    IndexError::Refused("the token has characters that no header takes".into())
                })?;
            value.set_sensitive(true);
            Ok(value)
        };
        token.map(value).transpose().map(Self)
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

/// Reads a secret's file. One that others can read is refused.
pub(super) fn read_private(path: &Path) -> Result<String, IndexError> {
    let refuse = |reason: String| IndexError::Refused(format!("{}: {reason}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| refuse(error.to_string()))?;
    let mode = file.metadata().map_err(|error| refuse(error.to_string()))?.mode();
    if mode & 0o077 != 0 {
        return Err(refuse(format!(
            "the file can be read by others (mode {:03o}); make it its owner's alone with `chmod 600`",
            mode & 0o777
        )));
    }
    let mut text = String::new();
    file.take(MOST).read_to_string(&mut text).map_err(|error| refuse(error.to_string()))?;
    Ok(text)
}

/// Reads the first token of a file: a line that is neither empty nor a comment. The `node.json` of
/// a running node is such a file too. One that others can read is refused.
pub fn read_token(path: &Path) -> Result<String, IndexError> {
    let refuse = |reason: String| IndexError::Refused(format!("{}: {reason}", path.display()));
    let text = read_private(path)?;
    if text.starts_with('{') {
        let said: serde_json::Value =
            serde_json::from_str(&text).map_err(|_| refuse("it is not JSON".into()))?;
        let token = said.get("admin_token").and_then(serde_json::Value::as_str);
        return token.map(str::to_owned).ok_or_else(|| refuse("there is no token in it".into()));
    }
    text.lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .ok_or_else(|| refuse("there is no token in it".into()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_read_only_from_a_file_of_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "# comment\n\n  abc  \nother\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = read_token(&path).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read_token(&path).unwrap(), "abc");
        std::fs::write(&path, r#"{"pid":1,"admin_token":"xyz"}"#).unwrap();
        assert_eq!(read_token(&path).unwrap(), "xyz");
        let bearer = Bearer::new(Some("abc")).unwrap();
        assert!(!format!("{bearer:?}").contains("abc"));
    }
}
