//! Version 0 of a notice, Ultramarine's: a protobuf message, written and read by hand.
//!
//! What is signed is the body encoded anew, so a notice is accepted only in the one spelling that
//! every encoder gives: fields in order, defaults left out, the shortest numbers. No other bytes
//! stand for the same notice.

use crate::notice::{
    Claim, MAX_NOTICE_LEN, MAX_SIGNER_LEN, SIGNATURE_LEN, WHAT, check_len, check_signer, text,
};
use crate::{CoreError, Height, Locator, MAX_LOCATOR_LEN, Reader, Writer};

/// What the signed bytes begin with.
pub const DOMAIN_V0: &[u8] = b"ArchiveNoticeV0";
/// The first byte on the wire: the tag of the body.
pub(super) const FIRST_TAG: u8 = len_tag(1);

/// The tag of a number.
const fn varint_tag(number: u8) -> u8 {
    number << 3
}

/// The tag of bytes, a text or a message.
const fn len_tag(number: u8) -> u8 {
    number << 3 | 2
}

/// Everything that a signer vouches for in V0. It names no chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeBodyV0 {
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
    /// Where its copy is: fields `provider_id` and `locator`.
    pub locator: Locator,
    /// Who archived it and signs: 1 to 32 bytes.
    pub archived_by: Vec<u8>,
    /// When, by the signer's clock; here it is signed.
    pub archived_at: u64,
}

/// A signed notice of V0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveNoticeV0 {
    /// What is signed.
    pub body: NoticeBodyV0,
    /// Ed25519 over the SHA-256 of [`NoticeBodyV0::preimage`].
    pub signature: [u8; SIGNATURE_LEN],
}

impl NoticeBodyV0 {
    /// Refuses content that no notice may have.
    pub fn check(&self) -> Result<(), CoreError> {
        self.locator.check()?;
        check_signer(&self.archived_by)
    }

    /// The bytes that are hashed and signed.
    pub fn preimage(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.bytes(DOMAIN_V0);
        self.write(&mut out);
        out.finish()
    }

    /// What it says.
    pub fn claim(&self) -> Claim<'_> {
        Claim {
            chain_id: None,
            height: self.height,
            round: self.round,
            blob_index: self.blob_index,
            kzg_commitment: &self.kzg_commitment,
            blob_keccak: &self.blob_keccak,
            locators: std::slice::from_ref(&self.locator),
            archived_by: &self.archived_by,
        }
    }

    /// The protobuf message; refuses content that no notice may have.
    pub fn encode(&self) -> Result<Vec<u8>, CoreError> {
        self.check()?;
        let mut out = Writer::new();
        self.write(&mut out);
        Ok(out.finish())
    }

    /// Reads the message from its one spelling.
    pub fn decode(bytes: &[u8]) -> Result<Self, CoreError> {
        check_len(bytes.len())?;
        let body = Self::read(&mut Reader::new(WHAT, bytes))?;
        if body.encode()? != bytes {
            return Err(respelled());
        }
        Ok(body)
    }

    fn write(&self, out: &mut Writer) {
        number(out, 1, self.height);
        // A negative number is written as 64 bits, so it takes ten bytes.
        number(out, 2, i64::from(self.round).cast_unsigned());
        number(out, 3, self.blob_index.into());
        bytes_field(out, 4, &self.kzg_commitment);
        bytes_field(out, 5, &self.blob_keccak);
        bytes_field(out, 6, self.locator.provider.as_bytes());
        bytes_field(out, 7, self.locator.key.as_bytes());
        let mut signer = Writer::new();
        bytes_field(&mut signer, 1, &self.archived_by);
        message_field(out, 8, &signer.finish());
        number(out, 9, self.archived_at);
    }

    /// Takes what is where it should be. What is left over or spelled otherwise shows when the
    /// result is written again.
    fn read(reader: &mut Reader<'_>) -> Result<Self, CoreError> {
        let height = read_number(reader, 1)?;
        let round = read_number(reader, 2)?.cast_signed();
        let round = i32::try_from(round)
            .map_err(|_| reader.error("its round is not a number of 32 bits".into()))?;
        let blob_index = u32::try_from(read_number(reader, 3)?)
            .map_err(|_| reader.error("its blob index is not a number of 32 bits".into()))?;
        let kzg_commitment = read_fixed(reader, 4)?;
        let blob_keccak = read_fixed(reader, 5)?;
        let provider = text(read_bytes(reader, 6, MAX_LOCATOR_LEN)?)?;
        let key = text(read_bytes(reader, 7, MAX_LOCATOR_LEN)?)?;
        let mut signer = Reader::new(WHAT, read_bytes(reader, 8, MAX_SIGNER_LEN + 2)?);
        let archived_by = read_bytes(&mut signer, 1, MAX_SIGNER_LEN)?.to_vec();
        let archived_at = read_number(reader, 9)?;
        let locator = Locator { provider, key };
        Ok(Self {
            height,
            round,
            blob_index,
            kzg_commitment,
            blob_keccak,
            locator,
            archived_by,
            archived_at,
        })
    }
}

impl ArchiveNoticeV0 {
    /// Its bytes on the wire; refuses content that no notice may have.
    pub fn encode(&self) -> Result<Vec<u8>, CoreError> {
        let mut out = Writer::new();
        message_field(&mut out, 1, &self.body.encode()?);
        let mut signature = Writer::new();
        bytes_field(&mut signature, 1, &self.signature);
        message_field(&mut out, 2, &signature.finish());
        Ok(out.finish())
    }

    /// Reads a notice of V0 and nothing else.
    pub fn decode(bytes: &[u8]) -> Result<Self, CoreError> {
        check_len(bytes.len())?;
        let mut reader = Reader::new(WHAT, bytes);
        let body = NoticeBodyV0::decode(read_bytes(&mut reader, 1, MAX_NOTICE_LEN)?)?;
        let mut inner = Reader::new(WHAT, read_bytes(&mut reader, 2, SIGNATURE_LEN + 2)?);
        let notice = Self { body, signature: read_fixed(&mut inner, 1)? };
        if notice.encode()? != bytes {
            return Err(respelled());
        }
        Ok(notice)
    }
}

fn respelled() -> CoreError {
    let reason = "a field is unknown, twice, out of order or longer than it must be";
    CoreError::decode(WHAT, reason)
}

/// Appends a number, seven bits in a byte, the lowest first.
fn varint(out: &mut Writer, mut value: u64) {
    while value > 0x7f {
        out.u8(low_bits(value) | 0x80);
        value >>= 7;
    }
    out.u8(low_bits(value));
}

fn low_bits(value: u64) -> u8 {
    let [.., low] = value.to_be_bytes();
    low & 0x7f
}

/// Appends a number, unless it is the default.
fn number(out: &mut Writer, field: u8, value: u64) {
    if value != 0 {
        out.u8(varint_tag(field));
        varint(out, value);
    }
}

/// Appends bytes or a text, unless they are empty.
fn bytes_field(out: &mut Writer, field: u8, bytes: &[u8]) {
    if !bytes.is_empty() {
        message_field(out, field, bytes);
    }
}

/// Appends a message, which is there even if it is empty.
fn message_field(out: &mut Writer, field: u8, bytes: &[u8]) {
    out.u8(len_tag(field));
    varint(out, bytes.len() as u64);
    out.bytes(bytes);
}

/// Takes a tag if it comes next.
fn next_is(reader: &mut Reader<'_>, tag: u8) -> bool {
    let mut ahead = reader.clone();
    let found = ahead.u8() == Ok(tag);
    if found {
        *reader = ahead;
    }
    found
}

fn read_varint(reader: &mut Reader<'_>) -> Result<u64, CoreError> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = reader.u8()?;
        // Of the tenth byte only one bit has room; more of them show when it is written again.
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(reader.error("a number is longer than 64 bits".into()))
}

/// A number, or its default where it is left out.
fn read_number(reader: &mut Reader<'_>, field: u8) -> Result<u64, CoreError> {
    if next_is(reader, varint_tag(field)) { read_varint(reader) } else { Ok(0) }
}

/// At most `max` bytes, or none where they are left out.
fn read_bytes<'a>(reader: &mut Reader<'a>, field: u8, max: usize) -> Result<&'a [u8], CoreError> {
    if !next_is(reader, len_tag(field)) {
        return Ok(&[]);
    }
    let len = read_varint(reader)?;
    match usize::try_from(len) {
        Ok(len) if len <= max => reader.take(len),
        _ => Err(CoreError::TooLong { what: WHAT, len, max: max as u64 }),
    }
}

/// Exactly `N` bytes.
fn read_fixed<const N: usize>(reader: &mut Reader<'_>, field: u8) -> Result<[u8; N], CoreError> {
    let bytes = read_bytes(reader, field, N)?;
    <[u8; N]>::try_from(bytes)
        .map_err(|_| reader.error(format!("field {field} has {} bytes and not {N}", bytes.len())))
}
