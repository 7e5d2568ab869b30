//! Tokens: at least 256 bits, kept hashed in memory, compared in constant time, never shown.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Context as _;
use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::Role;
use crate::config::TokenFiles;
use crate::durable;
use crate::error::NodeError;
use crate::service::ApiError;

/// Hexadecimal digits of 256 bits.
const DIGITS: usize = 64;
/// Tokens of one file at most.
const MOST: usize = 1_000;
/// What a line with only the hash of a token begins with.
const HASHED: &str = "sha256:";

/// A token in the clear. It is shown to nobody by accident.
#[derive(Clone)]
pub(crate) struct Token(pub(crate) String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// A new random token.
pub(crate) fn new_token() -> Result<Token, anyhow::Error> {
    let mut bytes = [0u8; DIGITS / 2];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .context("reading random bytes from /dev/urandom")?;
    Ok(Token(hex(&bytes)))
}

/// A token that was recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) role: Role,
    pub(crate) fingerprint: String,
}

/// The tokens that a node knows, by their hashes.
#[derive(Debug)]
pub(crate) struct Tokens {
    known: Vec<([u8; 32], Role)>,
    reads_need_one: bool,
    peers_need_one: bool,
}

impl Tokens {
    /// Reads the configured files; `own` may do everything, and those of `peers` gossip.
    pub(crate) fn read(
        files: &TokenFiles,
        peers: Option<&Path>,
        own: &Token,
    ) -> Result<Self, anyhow::Error> {
        let mut known = vec![(hash(own.0.as_bytes()), Role::Admin)];
        // A token that stands in two files has the greater role: the first that is found counts.
        for (file, role) in [
            (&files.admin, Role::Admin),
            (&files.consumer, Role::Consumer),
            (&files.read, Role::Read),
        ] {
            if let Some(path) = file {
                known.extend(read_file(path)?.into_iter().map(|hash| (hash, role)));
            }
        }
        if let Some(path) = peers {
            known.extend(read_file(path)?.into_iter().map(|hash| (hash, Role::Peer)));
        }
        let peers_need_one = peers.is_some();
        let reads_need_one =
            [&files.read, &files.consumer, &files.admin].iter().any(|f| f.is_some());
        Ok(Self { known, reads_need_one, peers_need_one })
    }

    /// Whether reading needs a token too: as soon as any are configured.
    pub(crate) fn reads_need_one(&self) -> bool {
        self.reads_need_one
    }

    /// Whether other nodes must show one: as soon as theirs is configured.
    pub(crate) fn peers_need_one(&self) -> bool {
        self.peers_need_one
    }

    /// Whose token an `authorization` header shows. All are compared, whichever it is.
    pub(crate) fn find(&self, header: &[u8]) -> Result<Known, ApiError> {
        let token = header
            .split_at_checked(7)
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "))
            .map(|(_, token)| token.trim_ascii())
            .ok_or(ApiError::Unauthenticated)?;
        let shown = hash(token);
        let mut found = None;
        for (hash, role) in &self.known {
            if bool::from(hash.ct_eq(&shown)) {
                found = found.or(Some(*role));
            }
        }
        let role = found.ok_or(ApiError::UnknownToken)?;
        Ok(Known { role, fingerprint: hex(shown.get(..4).unwrap_or_default()) })
    }
}

/// The hashes of a file's tokens. The file must be its owner's alone.
fn read_file(path: &Path) -> Result<Vec<[u8; 32]>, anyhow::Error> {
    check_private(path)?;
    let text = durable::read(path)?
        .ok_or_else(|| NodeError::Usage(format!("there is no token file at {}", path.display())))?;
    let bad = |line: usize, reason: &str| {
        NodeError::Usage(format!("{}, line {line}: {reason}", path.display()))
    };
    let mut hashes = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let hash = match line.strip_prefix(HASHED) {
            Some(digits) => unhex(digits)
                .ok_or_else(|| bad(number, "`sha256:` wants 64 hexadecimal digits behind it"))?,
            None if line.len() < DIGITS || !line.bytes().all(|b| b.is_ascii_graphic()) => {
                let reason = "a token has at least 64 characters (`openssl rand -hex 32`)";
                return Err(bad(number, reason).into());
            }
            None => hash(line.as_bytes()),
        };
        hashes.push(hash);
        if hashes.len() > MOST {
            return Err(bad(number, "these are too many tokens").into());
        }
    }
    if hashes.is_empty() {
        return Err(NodeError::Usage(format!("{} holds no token", path.display())).into());
    }
    Ok(hashes)
}

/// Refuses a secret that others than its owner can read.
pub(crate) fn check_private(path: &Path) -> Result<(), anyhow::Error> {
    let file = durable::open(path, OFlags::RDONLY)?
        .ok_or_else(|| NodeError::Usage(format!("there is no file at {}", path.display())))?;
    let mode = file.metadata().with_context(|| format!("looking at {}", path.display()))?.mode();
    if mode & 0o077 != 0 {
        return Err(NodeError::Usage(format!(
            "{} can be read by others (mode {:03o}); make it its owner's alone with `chmod 600`",
            path.display(),
            mode & 0o777
        ))
        .into());
    }
    Ok(())
}

fn hash(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn hex(bytes: &[u8]) -> String {
    alloy_primitives::hex::encode(bytes)
}

fn unhex(digits: &str) -> Option<[u8; 32]> {
    let mut bytes = [0u8; 32];
    alloy_primitives::hex::decode_to_slice(digits.trim(), &mut bytes).ok()?;
    Some(bytes)
}
