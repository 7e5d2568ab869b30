//! Who may sign. What a signature is worth is the engine's to say (`Trust`).

use std::fmt;
use std::str::FromStr;

use secateur_core::{CoreError, Height};

/// Who may sign for a blob. Heights decide, never a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Signers {
    /// The decided proposer alone.
    #[default]
    ProposerOnly,
    /// The decided proposer; and any validator of the height once so many blocks were decided on
    /// top of it, so that a dead proposer does not pin the disk for ever.
    AnyValidatorAfter(u64),
}

impl Signers {
    /// The head from which on any validator may sign for a height; none for never.
    pub fn open_to_all_from(self, height: Height) -> Option<Height> {
        match self {
            Self::ProposerOnly => None,
            Self::AnyValidatorAfter(blocks) => height.checked_add(blocks),
        }
    }
}

impl fmt::Display for Signers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ProposerOnly => f.write_str("proposer_only"),
            Self::AnyValidatorAfter(blocks) => write!(f, "any_validator_after:{blocks}"),
        }
    }
}

impl FromStr for Signers {
    type Err = CoreError;

    fn from_str(text: &str) -> Result<Self, CoreError> {
        let blocks = |text: &str| text.parse().ok().map(Self::AnyValidatorAfter);
        let found = match text.split_once(':') {
            None if text == "proposer_only" => Some(Self::ProposerOnly),
            Some(("any_validator_after", number)) => blocks(number),
            _ => None,
        };
        found.ok_or_else(|| CoreError::InvalidInput {
            what: "signers",
            reason: "it is proposer_only or any_validator_after:<blocks>".into(),
        })
    }
}
