//! Archive notices: a validator's signed word that a blob is archived, and where.
//!
//! What lives here: the two forms of a notice, their limits, their bytes on the wire and the bytes
//! that are signed (`docs/format/notice.md`). `v1` is ours; `v0` is Ultramarine's, for networks that
//! speak it. What deliberately does not: hashing, keys, signatures and the decision whether a
//! notice is believed, which are `secateur-sidecar`'s.

mod v0;
mod v1;

#[cfg(test)]
mod tests;

pub use v0::{ArchiveNoticeV0, DOMAIN_V0, NoticeBodyV0};
pub use v1::{ArchiveNotice, DOMAIN_V1, NoticeBody};

use crate::{CoreError, Height, Locator};

/// The longest notice, in either form.
pub const MAX_NOTICE_LEN: usize = 16 * 1024;
/// The most locators of a notice.
pub const MAX_LOCATORS: usize = 16;
/// The longest name of a signer.
pub const MAX_SIGNER_LEN: usize = 32;
/// The bytes of an Ed25519 signature.
pub const SIGNATURE_LEN: usize = 64;

/// What the format is called in errors.
const WHAT: &str = "archive notice";

/// Which form a notice has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NoticeForm {
    /// Ours: it names its chain.
    V1,
    /// Ultramarine's: one locator, and no chain.
    V0,
}

impl NoticeForm {
    /// The form that the first byte announces: our version, or the tag of Ultramarine's first
    /// field. Nothing else is looked at.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        match bytes.first() {
            Some(&v1::VERSION) => Some(Self::V1),
            Some(&v0::FIRST_TAG) => Some(Self::V0),
            _ => None,
        }
    }
}

/// A notice in either form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Ours.
    V1(ArchiveNotice),
    /// Ultramarine's.
    V0(ArchiveNoticeV0),
}

/// What a signer said, without the signature: the whole of what was signed, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// In our form.
    V1(NoticeBody),
    /// In Ultramarine's.
    V0(NoticeBodyV0),
}

/// What both forms say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim<'a> {
    /// The chain; V0 names none.
    pub chain_id: Option<u64>,
    /// The height that the blob belongs to.
    pub height: Height,
    /// The round in which it was proposed; −1 for none.
    pub round: i32,
    /// Its place in the block.
    pub blob_index: u32,
    /// The commitment to it.
    pub kzg_commitment: &'a [u8; 48],
    /// The keccak-256 of its bytes.
    pub blob_keccak: &'a [u8; 32],
    /// Where copies of it are.
    pub locators: &'a [Locator],
    /// Who says so.
    pub archived_by: &'a [u8],
}

impl Notice {
    /// Reads a notice. Every length is bounded, and exactly one sequence of bytes stands for a
    /// notice: what is accepted here encodes to the same bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, CoreError> {
        match NoticeForm::of(bytes) {
            Some(NoticeForm::V1) => ArchiveNotice::decode(bytes).map(Self::V1),
            Some(NoticeForm::V0) => ArchiveNoticeV0::decode(bytes).map(Self::V0),
            None => Err(CoreError::decode(WHAT, "its first byte is that of no version")),
        }
    }

    /// Its bytes on the wire.
    pub fn encode(&self) -> Result<Vec<u8>, CoreError> {
        match self {
            Self::V1(notice) => notice.encode(),
            Self::V0(notice) => notice.encode(),
        }
    }

    /// Its form.
    pub fn form(&self) -> NoticeForm {
        match self {
            Self::V1(_) => NoticeForm::V1,
            Self::V0(_) => NoticeForm::V0,
        }
    }

    /// What it says.
    pub fn claim(&self) -> Claim<'_> {
        match self {
            Self::V1(notice) => notice.body.claim(),
            Self::V0(notice) => notice.body.claim(),
        }
    }

    /// What its signature is over, before hashing.
    pub fn preimage(&self) -> Vec<u8> {
        match self {
            Self::V1(notice) => notice.body.preimage(),
            Self::V0(notice) => notice.body.preimage(),
        }
    }

    /// Its signature.
    pub fn signature(&self) -> &[u8; SIGNATURE_LEN] {
        match self {
            Self::V1(notice) => &notice.signature,
            Self::V0(notice) => &notice.signature,
        }
    }

    /// Whether this is what was signed: the same form and the same content.
    pub fn says(&self, statement: &Statement) -> bool {
        match (self, statement) {
            (Self::V1(notice), Statement::V1(body)) => notice.body == *body,
            (Self::V0(notice), Statement::V0(body)) => notice.body == *body,
            _ => false,
        }
    }

    /// What was signed.
    pub fn statement(&self) -> Statement {
        match self {
            Self::V1(notice) => Statement::V1(notice.body.clone()),
            Self::V0(notice) => Statement::V0(notice.body.clone()),
        }
    }
}

impl Statement {
    /// Its form.
    pub fn form(&self) -> NoticeForm {
        match self {
            Self::V1(_) => NoticeForm::V1,
            Self::V0(_) => NoticeForm::V0,
        }
    }

    /// What it says.
    pub fn claim(&self) -> Claim<'_> {
        match self {
            Self::V1(body) => body.claim(),
            Self::V0(body) => body.claim(),
        }
    }
}

/// Refuses bytes that are too many before anything is made of them.
fn check_len(len: usize) -> Result<(), CoreError> {
    if len <= MAX_NOTICE_LEN {
        return Ok(());
    }
    let (len, max) = (len as u64, MAX_NOTICE_LEN as u64);
    Err(CoreError::TooLong { what: WHAT, len, max })
}

/// Refuses the name of a signer that is empty or too long.
fn check_signer(archived_by: &[u8]) -> Result<(), CoreError> {
    if archived_by.is_empty() || archived_by.len() > MAX_SIGNER_LEN {
        let reason = format!("its signer has {} bytes, not 1 to 32", archived_by.len());
        return Err(CoreError::decode(WHAT, reason));
    }
    Ok(())
}

/// Copies a text out of a notice whose length was checked.
fn text(bytes: &[u8]) -> Result<String, CoreError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(CoreError::decode(WHAT, "a locator is not UTF-8")),
    }
}
