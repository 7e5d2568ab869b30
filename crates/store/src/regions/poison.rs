//! What a failed write leaves behind: nothing is written any more, because what is on the medium is
//! unknown, and only reopening finds out.

use std::sync::OnceLock;

use crate::StoreError;

/// Whether writes are refused, and why. The first cause stays.
#[derive(Debug, Default)]
pub(crate) struct Poison(OnceLock<String>);

impl Poison {
    /// Refuses every write from now on.
    pub(crate) fn set(&self, cause: &StoreError) {
        self.0.get_or_init(|| cause.to_string());
    }

    /// The cause, if there is one.
    pub(crate) fn cause(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    /// Lets a writer pass, or refuses it.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if self.cause().is_some() { Err(self.refusal()) } else { Ok(()) }
    }

    /// The answer to every write after a failure.
    pub(crate) fn refusal(&self) -> StoreError {
        StoreError::Poisoned(self.cause().unwrap_or("an unknown failure").to_owned())
    }
}
