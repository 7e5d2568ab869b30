//! Tokens: from a file that is its owner's alone, shown to nobody.

use std::fmt;
use std::path::Path;

use secateur_archive::{ArchiveError, read_secret};

/// A token file is no longer than this.
const MAX_TOKEN_FILE: u64 = 4_096;

/// A token. It is shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl Token {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Reads the first token of a file: a line that is neither empty nor a comment.
pub(crate) fn read_token(path: &Path) -> Result<Token, ArchiveError> {
    let text = read_secret(path, MAX_TOKEN_FILE)?;
    let mut lines = text.lines().map(str::trim);
    let token = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    let refuse = |reason: &str| ArchiveError::Credentials {
        path: path.to_owned(),
        reason: reason.to_owned(),
    };
    let token = token.ok_or_else(|| refuse("there is no token in it"))?;
    if !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(refuse("its token has characters that no header takes"));
    }
    Ok(Token(token.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_read_only_from_a_file_of_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let set = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set("# comment\n\n  hunter2  \nother\n", 0o640);
        assert!(read_token(&path).unwrap_err().to_string().contains("chmod 600"));
        set("# comment\n\n  hunter2  \nother\n", 0o600);
        let token = read_token(&path).unwrap();
        assert_eq!(token.as_str(), "hunter2");
        assert!(!format!("{token:?}").contains("hunter2"));
        for text in ["", "# hunter2", "hunter2 hunter2", "hünter2", &"x".repeat(5_000)] {
            set(text, 0o600);
            let error = read_token(&path).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
