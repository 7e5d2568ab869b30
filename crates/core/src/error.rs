//! The one error of this crate: a value that does not decode, or a setting that is refused.

/// Why bytes or settings were refused. Nothing was changed when this is returned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CoreError {
    /// Bytes that do not follow their format.
    #[error("{what} does not decode: {reason}")]
    Decode {
        /// The thing that was being read.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A length over its limit; refused before anything was allocated.
    #[error("{what} is {len} bytes long; the limit is {max}")]
    TooLong {
        /// The thing that is too long.
        what: &'static str,
        /// Its length.
        len: u64,
        /// The limit.
        max: u64,
    },
    /// A prune policy that contradicts itself.
    #[error("policy refused: {0}; the policy in force was not changed")]
    InvalidPolicy(String),
    /// A name or setting that is not allowed.
    #[error("{what} refused: {reason}; nothing was changed")]
    InvalidInput {
        /// The setting.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

impl CoreError {
    /// Shorthand for a [`CoreError::Decode`].
    pub fn decode(what: &'static str, reason: impl Into<String>) -> Self {
        Self::Decode { what, reason: reason.into() }
    }

    /// Whether the same call may succeed later without a change of its input: never here.
    pub fn is_retryable(&self) -> bool {
        false
    }
}
