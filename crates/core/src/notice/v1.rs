//! Version 1 of a notice: its content, its bytes on the wire and the bytes that are signed.
//!
//! The wire holds the signed fields as they are signed, between the version and what is not
//! signed, so that there is one encoding of them and not two.

use crate::notice::{
    Claim, MAX_LOCATORS, MAX_NOTICE_LEN, MAX_SIGNER_LEN, SIGNATURE_LEN, WHAT, check_len,
    check_signer, text,
};
use crate::{CoreError, Height, Locator, MAX_LOCATOR_LEN, Reader, Writer};

/// What the signed bytes begin with.
pub const DOMAIN_V1: &[u8] = b"secateur/archive-notice/v1";
/// The first byte on the wire.
pub(super) const VERSION: u8 = 1;
/// Everything on the wire but locators and signer: version, chain, eight fields with their
/// lengths and the count of locators, the time and the signature.
const FIXED_LEN: usize =
    1 + 8 + (4 + 8) + (4 + 4) + (4 + 4) + (4 + 48) + (4 + 32) + (4 + 4) + 4 + (4 + 8) + 8 + 64;

/// Everything that a signer vouches for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeBody {
    /// The chain; a notice of one chain means nothing on another.
    pub chain_id: u64,
    /// The height that the blob belongs to.
    pub height: Height,
    /// The round that was decided; −1 for none.
    pub round: i32,
    /// The blob's place in the block.
    pub blob_index: u32,
    /// The commitment to it.
    pub kzg_commitment: [u8; 48],
    /// The keccak-256 of its bytes.
    pub blob_keccak: [u8; 32],
    /// Where copies of it are: 1 to 16, none twice.
    pub locators: Vec<Locator>,
    /// Who archived it and signs, as the chain names its validators: 1 to 32 bytes.
    pub archived_by: Vec<u8>,
    /// The signer's height when it had read the copies back.
    pub archived_at_height: Height,
}

/// A signed notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveNotice {
    /// What is signed.
    pub body: NoticeBody,
    /// When, by the signer's clock, in seconds since 1970. Nobody vouches for it: it is not
    /// signed, and nothing is decided by it.
    pub archived_at: u64,
    /// Ed25519 over the SHA-256 of [`NoticeBody::preimage`].
    pub signature: [u8; SIGNATURE_LEN],
}

impl NoticeBody {
    /// Refuses content that no notice may have.
    pub fn check(&self) -> Result<(), CoreError> {
        if self.locators.is_empty() || self.locators.len() > MAX_LOCATORS {
            let reason = format!("it has {} locators, not 1 to 16", self.locators.len());
            return Err(CoreError::decode(WHAT, reason));
        }
        self.locators.iter().try_for_each(Locator::check)?;
        let mut rest = self.locators.as_slice();
        while let Some((locator, others)) = rest.split_first() {
            if others.contains(locator) {
                return Err(CoreError::decode(WHAT, "it names a locator twice"));
            }
            rest = others;
        }
        check_signer(&self.archived_by)?;
        check_len(self.encoded_len())
    }

    /// The bytes that are hashed and signed: no two contents have the same ones.
    pub fn preimage(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.bytes(DOMAIN_V1);
        self.write(&mut out);
        out.finish()
    }

    /// What it says.
    pub fn claim(&self) -> Claim<'_> {
        Claim {
            chain_id: Some(self.chain_id),
            height: self.height,
            round: self.round,
            blob_index: self.blob_index,
            kzg_commitment: &self.kzg_commitment,
            blob_keccak: &self.blob_keccak,
            locators: &self.locators,
            archived_by: &self.archived_by,
        }
    }

    /// The bytes of a record of it, which is made before it is signed: `chain_id` and the fields,
    /// as they are signed.
    pub fn encode(&self) -> Result<Vec<u8>, CoreError> {
        self.check()?;
        let mut out = Writer::new();
        self.write(&mut out);
        Ok(out.finish())
    }

    /// Reads what [`NoticeBody::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self, CoreError> {
        check_len(bytes.len())?;
        let mut reader = Reader::new(WHAT, bytes);
        let body = Self::read(&mut reader)?;
        reader.finish()?;
        body.check()?;
        Ok(body)
    }

    /// The length on the wire.
    pub(super) fn encoded_len(&self) -> usize {
        let texts = self.locators.iter().map(|locator| {
            8_usize.saturating_add(locator.provider.len()).saturating_add(locator.key.len())
        });
        let signer = FIXED_LEN.saturating_add(self.archived_by.len());
        texts.fold(signer, usize::saturating_add)
    }

    fn write(&self, out: &mut Writer) {
        out.u64(self.chain_id);
        field(out, &self.height.to_be_bytes());
        field(out, &self.round.to_be_bytes());
        field(out, &self.blob_index.to_be_bytes());
        field(out, &self.kzg_commitment);
        field(out, &self.blob_keccak);
        let mut locators = Writer::new();
        locators.u32(length(self.locators.len()));
        for locator in &self.locators {
            field(&mut locators, locator.provider.as_bytes());
            field(&mut locators, locator.key.as_bytes());
        }
        field(out, &locators.finish());
        field(out, &self.archived_by);
        field(out, &self.archived_at_height.to_be_bytes());
    }

    /// Reads the fields; whether their content is allowed is [`NoticeBody::check`]'s question.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, CoreError> {
        Ok(Self {
            chain_id: reader.u64()?,
            height: u64::from_be_bytes(fixed(reader)?),
            round: i32::from_be_bytes(fixed(reader)?),
            blob_index: u32::from_be_bytes(fixed(reader)?),
            kzg_commitment: fixed(reader)?,
            blob_keccak: fixed(reader)?,
            locators: read_locators(bounded(reader, MAX_NOTICE_LEN)?)?,
            archived_by: bounded(reader, MAX_SIGNER_LEN)?.to_vec(),
            archived_at_height: u64::from_be_bytes(fixed(reader)?),
        })
    }
}

impl ArchiveNotice {
    /// Its bytes on the wire; refuses content that no notice may have.
    pub fn encode(&self) -> Result<Vec<u8>, CoreError> {
        self.body.check()?;
        let mut out = Writer::new();
        out.u8(VERSION);
        self.body.write(&mut out);
        out.u64(self.archived_at).bytes(&self.signature);
        Ok(out.finish())
    }

    /// Reads a notice of version 1 and nothing else.
    pub fn decode(bytes: &[u8]) -> Result<Self, CoreError> {
        check_len(bytes.len())?;
        let mut reader = Reader::new(WHAT, bytes);
        match reader.u8()? {
            VERSION => {}
            other => return Err(reader.error(format!("version {other} is not known"))),
        }
        let body = NoticeBody::read(&mut reader)?;
        let (archived_at, signature) = (reader.u64()?, reader.array()?);
        reader.finish()?;
        body.check()?;
        Ok(Self { body, archived_at, signature })
    }
}

/// Appends a field behind its length.
fn field(out: &mut Writer, bytes: &[u8]) {
    out.u32(length(bytes.len())).bytes(bytes);
}

/// A length as it is written. Nothing that passes [`NoticeBody::check`] comes near the limit.
fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Takes a field of at most `max` bytes.
fn bounded<'a>(reader: &mut Reader<'a>, max: usize) -> Result<&'a [u8], CoreError> {
    let len = reader.u32()?;
    match usize::try_from(len) {
        Ok(len) if len <= max => reader.take(len),
        _ => Err(CoreError::TooLong { what: WHAT, len: len.into(), max: max as u64 }),
    }
}

/// Takes a field of exactly `N` bytes.
fn fixed<const N: usize>(reader: &mut Reader<'_>) -> Result<[u8; N], CoreError> {
    let len = reader.u32()?;
    if usize::try_from(len) != Ok(N) {
        return Err(reader.error(format!("a field has {len} bytes and not {N}")));
    }
    reader.array()
}

fn read_locators(bytes: &[u8]) -> Result<Vec<Locator>, CoreError> {
    let mut reader = Reader::new(WHAT, bytes);
    let count = reader.u32()?;
    let count = match usize::try_from(count) {
        Ok(count) if count <= MAX_LOCATORS => count,
        _ => return Err(reader.error(format!("it has {count} locators, not 1 to 16"))),
    };
    let mut locators = Vec::with_capacity(count);
    for _ in 0..count {
        let provider = text(bounded(&mut reader, MAX_LOCATOR_LEN)?)?;
        let key = text(bounded(&mut reader, MAX_LOCATOR_LEN)?)?;
        locators.push(Locator { provider, key });
    }
    reader.finish()?;
    Ok(locators)
}
