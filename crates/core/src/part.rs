//! What is known of an archive part: what it covers, what it hashes to, and where it is.

use serde::{Deserialize, Serialize};

use crate::{BlockHash, CoreError, Height};

/// A locator's texts are no longer than this.
pub const MAX_LOCATOR_LEN: usize = 1_024;

/// Where an archived thing is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Locator {
    /// Whose it is: a directory, a bucket.
    pub provider: String,
    /// Its name there.
    pub key: String,
}

impl Locator {
    /// Refuses one that says nothing, too much, or what cannot be printed on one line.
    pub fn check(&self) -> Result<(), CoreError> {
        let plain = |text: &str| {
            !text.is_empty() && text.len() <= MAX_LOCATOR_LEN && !text.contains(char::is_control)
        };
        if plain(&self.provider) && plain(&self.key) {
            return Ok(());
        }
        let reason = "provider and key are 1 to 1,024 bytes without control characters".into();
        Err(CoreError::InvalidInput { what: "locator", reason })
    }
}

/// One immutable archive object, as a node remembers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Its first block.
    pub first: Height,
    /// Its last block.
    pub last: Height,
    /// The parent of its first block.
    pub parent_hash: BlockHash,
    /// Its last block's hash.
    pub last_hash: BlockHash,
    /// Where it is.
    #[serde(flatten)]
    pub locator: Locator,
    /// The SHA-256 of the whole object, in hexadecimal digits.
    pub sha256: String,
    /// The object's bytes.
    pub size: u64,
}

impl Part {
    /// Refuses one that says nothing, or too much.
    pub fn check(&self) -> Result<(), CoreError> {
        let refuse = |reason: &str| {
            Err(CoreError::InvalidInput { what: "archive part", reason: reason.into() })
        };
        if self.first > self.last {
            return refuse("its last block is below its first one");
        }
        self.locator.check()?;
        if self.sha256.len() != 64 || !self.sha256.bytes().all(|b| b.is_ascii_hexdigit()) {
            return refuse("its SHA-256 is not 64 hexadecimal digits");
        }
        if self.size == 0 {
            return refuse("it has no bytes");
        }
        Ok(())
    }

    /// Whether a block is in it.
    pub fn covers(&self, height: Height) -> bool {
        (self.first..=self.last).contains(&height)
    }
}
