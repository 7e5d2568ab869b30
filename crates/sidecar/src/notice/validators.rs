//! Who is a validator, and with which key, at a height. The set comes from the configuration;
//! this file knows nothing of how a chain chooses it.

use std::collections::BTreeMap;

use ed25519_dalek::VerifyingKey;
use secateur_core::Height;
use serde::Deserialize;

use crate::{PublicKey, SidecarError, ValidatorId};

/// Terms of office that are configured, at most.
pub const MAX_VALIDATOR_TERMS: usize = 65_536;

/// One validator, from one height to another, as it is configured.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "TermText")]
pub struct ValidatorTerm {
    /// Its name on the chain.
    pub id: ValidatorId,
    /// The key that its notices are verified with.
    pub public_key: PublicKey,
    /// Its first height.
    pub from_height: Height,
    /// Its last height; without one it stays.
    pub to_height: Option<Height>,
}

/// A term as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TermText {
    id: String,
    public_key: String,
    #[serde(default)]
    from_height: Height,
    to_height: Option<Height>,
}

impl TryFrom<TermText> for ValidatorTerm {
    type Error = secateur_core::CoreError;

    fn try_from(text: TermText) -> Result<Self, Self::Error> {
        Ok(Self {
            id: text.id.parse()?,
            public_key: text.public_key.parse()?,
            from_height: text.from_height,
            to_height: text.to_height,
        })
    }
}

impl ValidatorTerm {
    /// The last height.
    fn last(&self) -> Height {
        self.to_height.unwrap_or(Height::MAX)
    }
}

/// The validators of every height.
#[derive(Debug, Clone, Default)]
pub struct Validators {
    terms: BTreeMap<ValidatorId, Vec<Term>>,
}

/// A term that was checked, its key ready for use.
#[derive(Debug, Clone)]
struct Term {
    from: Height,
    last: Height,
    key: VerifyingKey,
}

impl Validators {
    /// Refuses terms of one validator that overlap, a key that two validators share at a height,
    /// and keys that verify nothing safely.
    pub fn new(terms: &[ValidatorTerm]) -> Result<Self, SidecarError> {
        if terms.len() > MAX_VALIDATOR_TERMS {
            return refuse(format!("{} terms are more than {MAX_VALIDATOR_TERMS}", terms.len()));
        }
        if let Some(term) = terms.iter().find(|term| term.last() < term.from_height) {
            return refuse(format!("a term of {} ends before it begins", term.id));
        }
        let mut sorted: Vec<&ValidatorTerm> = terms.iter().collect();
        // Among terms sorted by where they begin, two that overlap have neighbours that do.
        sorted.sort_by_key(|term| (term.public_key, term.from_height));
        for (a, b) in sorted.iter().zip(sorted.iter().skip(1)) {
            if a.public_key == b.public_key && a.id != b.id && a.last() >= b.from_height {
                let height = b.from_height;
                return refuse(format!("{} and {} share a key at height {height}", a.id, b.id));
            }
        }
        sorted.sort_by(|a, b| (&a.id, a.from_height).cmp(&(&b.id, b.from_height)));
        for (a, b) in sorted.iter().zip(sorted.iter().skip(1)) {
            if a.id == b.id && a.last() >= b.from_height {
                return refuse(format!("{} has two terms at height {}", a.id, b.from_height));
            }
        }
        let mut found = Self::default();
        for term in sorted {
            let key = VerifyingKey::from_bytes(&term.public_key.0).ok().filter(|k| !k.is_weak());
            let Some(key) = key else {
                return refuse(format!("{} of {} is not a key", term.public_key, term.id));
            };
            let (from, last) = (term.from_height, term.last());
            found.terms.entry(term.id.clone()).or_default().push(Term { from, last, key });
        }
        Ok(found)
    }

    /// The key of a validator at a height; none if it is no validator then.
    pub fn key_at(&self, id: &ValidatorId, height: Height) -> Option<PublicKey> {
        self.verifying_key(id, height).map(|key| PublicKey(key.to_bytes()))
    }

    /// The validators of a height, in the order of their names.
    pub fn at(&self, height: Height) -> impl Iterator<Item = &ValidatorId> {
        let serves = move |terms: &[Term]| term_at(terms, height).is_some();
        self.terms.iter().filter(move |(_, terms)| serves(terms)).map(|(id, _)| id)
    }

    pub(super) fn verifying_key(&self, id: &ValidatorId, height: Height) -> Option<&VerifyingKey> {
        term_at(self.terms.get(id)?, height).map(|term| &term.key)
    }
}

/// The term that a height lies in; terms are in order and do not overlap.
fn term_at(terms: &[Term], height: Height) -> Option<&Term> {
    let begun = terms.partition_point(|term| term.from <= height);
    terms.get(begun.checked_sub(1)?).filter(|term| height <= term.last)
}

fn refuse<T>(reason: String) -> Result<T, SidecarError> {
    Err(SidecarError::Refused { what: "validators", reason })
}
