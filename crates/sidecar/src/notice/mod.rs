//! Signed archive notices: who may sign, how it is signed, and when a notice is believed.
//!
//! What lives here: keys and their files, the validators by height, signing, and the checks that a
//! notice passes before anything is done about it, each with its own [`Rejection`]. What
//! deliberately does not: the bytes of notices, which are `secateur_core::notice`'s; what the
//! engine knows, which is asked through [`Known`]; gossip; and the clock.

mod key;
mod policy;
mod rejection;
mod validators;
mod verify;

#[cfg(test)]
mod tests;

pub use key::{NoticeKey, keygen};
pub use policy::Signers;
pub use rejection::Rejection;
pub use validators::{MAX_VALIDATOR_TERMS, ValidatorTerm, Validators};
pub use verify::{Accepted, Addition, Authentic, Decided, DecidedBlob, Known, Verifier, addition};

use secateur_core::notice::{ArchiveNotice, ArchiveNoticeV0, Notice, NoticeBody, NoticeBodyV0};
use sha2::{Digest, Sha256};

use crate::SidecarError;

/// Signs a notice. The same body and key always give the same signature. Nothing leaves before it is
/// durable together with what it is over, so a node never tells two notices for one blob.
///
/// `archived_at` is the wall-clock time, in seconds; it is not signed.
pub fn sign(
    body: NoticeBody,
    archived_at: u64,
    key: &NoticeKey,
) -> Result<ArchiveNotice, SidecarError> {
    body.check()?;
    let signature = key.sign(&digest(&body.preimage()));
    Ok(ArchiveNotice { body, archived_at, signature })
}

/// Signs a notice in Ultramarine's form. Its time is signed, so it belongs into the record too.
pub fn sign_v0(body: NoticeBodyV0, key: &NoticeKey) -> Result<ArchiveNoticeV0, SidecarError> {
    body.check()?;
    let signature = key.sign(&digest(&body.preimage()));
    Ok(ArchiveNoticeV0 { body, signature })
}

/// What a notice's signature is over. Two notices that say the same have the same one, whatever
/// time they carry beside it.
pub fn notice_digest(notice: &Notice) -> [u8; 32] {
    digest(&notice.preimage())
}

fn digest(preimage: &[u8]) -> [u8; 32] {
    Sha256::digest(preimage).into()
}
