//! What a canister says, as Candid has it (`crates/canister/secateur.did`), and what that means to a
//! worker. A canister that has only `get_head` and `export_blocks` can be read too.

use candid::{CandidType, DecoderConfig, Deserialize, IDLArgs};
use secateur_core::{
    BlockHash, BlockMeta, Chunk, Cursor, ExportReply, Height, Part, Segment, Strength,
};
use serde_bytes::{ByteArray, ByteBuf};

use crate::IndexError;

/// What decoding a reply may cost: some times what the longest honest one does.
const DECODING: usize = 64 * 1024 * 1024;
/// What passing over fields that are not wanted may cost.
const SKIPPING: usize = 1024 * 1024;
/// How much of an answer that nobody understands is repeated.
const SHOWN: usize = 300;

#[derive(CandidType, Deserialize)]
pub(super) struct CursorOut {
    block_number: u64,
    segment: u8,
    byte_offset: u32,
}

impl From<Cursor> for CursorOut {
    fn from(cursor: Cursor) -> Self {
        let Cursor { block_number, segment, byte_offset } = cursor;
        Self { block_number, segment, byte_offset }
    }
}

#[derive(CandidType, Deserialize)]
pub(super) struct ChunkIn {
    segment: u8,
    start: u32,
    bytes: ByteBuf,
    payload_len: u32,
}

#[derive(CandidType, Deserialize)]
pub(super) struct ReplyIn {
    chunks: Vec<ChunkIn>,
    next_cursor: Option<CursorOut>,
}

impl TryFrom<ReplyIn> for ExportReply {
    type Error = IndexError;

    fn try_from(reply: ReplyIn) -> Result<Self, IndexError> {
        let chunk = |chunk: ChunkIn| {
            let ChunkIn { segment, start, bytes, payload_len } = chunk;
            let segment = segment_in(segment)?;
            Ok(Chunk { segment, start, bytes: bytes.into_vec(), payload_len })
        };
        let cursor = |cursor: CursorOut| {
            let CursorOut { block_number, segment, byte_offset } = cursor;
            let segment = segment_in(segment)?.tag();
            Ok::<_, IndexError>(Cursor { block_number, segment, byte_offset })
        };
        Ok(Self {
            chunks: reply.chunks.into_iter().map(chunk).collect::<Result<_, IndexError>>()?,
            next_cursor: reply.next_cursor.map(cursor).transpose()?,
        })
    }
}

fn segment_in(tag: u8) -> Result<Segment, IndexError> {
    Segment::try_from(tag).map_err(|_| {
        IndexError::InvalidCursor(format!("the canister answers with a segment {tag}"))
    })
}

#[derive(CandidType, Deserialize)]
pub(super) struct MetaIn {
    height: u64,
    hash: ByteArray<32>,
    parent_hash: ByteArray<32>,
    timestamp: u64,
}

impl From<MetaIn> for BlockMeta {
    fn from(meta: MetaIn) -> Self {
        Self {
            height: meta.height,
            hash: BlockHash(meta.hash.into_array()),
            parent_hash: BlockHash(meta.parent_hash.into_array()),
            timestamp: meta.timestamp,
        }
    }
}

/// Of the state of the history what an index asks for.
#[derive(CandidType, Deserialize)]
pub(super) struct StatusIn {
    pub(super) chain_id: u64,
    pub(super) export_head: Option<u64>,
    pub(super) oldest_kept_block: Option<u64>,
    pub(super) pruned_before_block: Option<u64>,
    /// Older canisters do not say it.
    pub(super) archived: Option<u64>,
    pub(super) high_water_bytes: Option<u64>,
    pub(super) draining: bool,
    pub(super) binding_hold: Option<String>,
    pub(super) holds: Vec<HoldIn>,
}

/// A hold of the canister, as far as it is looked at.
#[derive(CandidType, Deserialize)]
pub(super) struct HoldIn {
    pub(super) name: String,
    pub(super) strength: StrengthOut,
}

/// An archive part as it is acknowledged.
#[derive(CandidType)]
pub(super) struct PartOut<'a> {
    first: u64,
    last: u64,
    parent_hash: ByteArray<32>,
    last_hash: ByteArray<32>,
    provider: &'a str,
    key: &'a str,
    sha256: ByteArray<32>,
    size: u64,
}

impl<'a> PartOut<'a> {
    pub(super) fn of(part: &'a Part, sha256: [u8; 32]) -> Self {
        Self {
            first: part.first,
            last: part.last,
            parent_hash: ByteArray::new(part.parent_hash.0),
            last_hash: ByteArray::new(part.last_hash.0),
            provider: &part.locator.provider,
            key: &part.locator.key,
            sha256: ByteArray::new(sha256),
            size: part.size,
        }
    }
}

#[derive(CandidType, Deserialize, Clone, Copy, PartialEq, Eq)]
pub(super) enum StrengthOut {
    Hard,
    Soft,
}

impl From<Strength> for StrengthOut {
    fn from(strength: Strength) -> Self {
        match strength {
            Strength::Hard => Self::Hard,
            Strength::Soft => Self::Soft,
        }
    }
}

/// Why a canister has nothing to answer, as far as these calls can meet it.
#[derive(CandidType, Deserialize)]
pub(super) enum Said {
    Pruned { pruned_before_block: u64 },
    NotFound { searched_from: Option<u64> },
    Pending,
    InvalidCursor { reason: String },
    Invalid { reason: String },
    Limit { reason: String },
    Forbidden { reason: String },
    Refused { what: String, reason: String },
    Broken { reason: String },
    Full { reason: String },
}

impl Said {
    /// What it means to a worker that wanted a block.
    pub(super) fn explain(self, wanted: Height) -> IndexError {
        let says = |reason: &str| {
            // A refusal says here, too, that nothing was changed.
            format!("the canister says: {}", reason.trim_end_matches("; nothing was changed"))
        };
        match self {
            Self::Pruned { pruned_before_block } => {
                IndexError::Pruned { wanted, pruned_before_block }
            }
            Self::InvalidCursor { reason } | Self::Invalid { reason } | Self::Limit { reason } => {
                IndexError::InvalidCursor(says(&reason))
            }
            Self::NotFound { .. } | Self::Pending => {
                IndexError::InvalidCursor(says("it knows nothing of that"))
            }
            Self::Forbidden { reason } => IndexError::Refused(format!(
                "{} (here: the key of a consumer or controller is named with --ic-identity)",
                says(&reason)
            )),
            Self::Refused { what, reason } => {
                IndexError::Refused(says(&format!("{what}: {reason}")))
            }
            Self::Broken { reason } | Self::Full { reason } => IndexError::Refused(says(&reason)),
        }
    }
}

/// Decodes a reply, with a limit to what that may cost.
pub(super) fn decode<T: CandidType + for<'d> Deserialize<'d>>(
    method: &str,
    reply: &[u8],
) -> Result<T, IndexError> {
    let mut config = DecoderConfig::new();
    config.set_decoding_quota(DECODING).set_skipping_quota(SKIPPING).set_full_error_message(false);
    candid::utils::decode_one_with_config(reply, &config).map_err(|error| {
        let said = IDLArgs::from_bytes_with_config(reply, &config)
            .map_or_else(|_| error.to_string(), |said| said.to_string());
        let said: String = said.chars().take(SHOWN).collect();
        let told = format!("the canister answers {method} with something else: {said}");
        IndexError::InvalidCursor(told)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Export = Result<ReplyIn, Said>;

    #[test]
    fn an_answer_that_is_something_else_is_shown_and_not_believed() {
        let other = candid::encode_one(Err::<u8, &str>("closed for the day")).unwrap();
        let Err(error) = decode::<Export>("export_blocks", &other) else { panic!("decoded") };
        assert!(error.to_string().contains("closed for the day"), "{error}");
        let Err(error) = decode::<Export>("export_blocks", b"garbage") else { panic!("decoded") };
        assert!(!error.is_retryable(), "{error}");
    }

    #[test]
    fn an_answer_that_is_dear_to_decode_is_refused() {
        // A vector that says it has a thousand million entries of no bytes.
        let bomb =
            [b"DIDL\x01\x6d\x7f\x01\x00".as_slice(), &[0x80, 0x94, 0xeb, 0xdc, 0x03]].concat();
        assert!(decode::<Vec<()>>("get_head", &bomb).is_err());
        assert!(decode::<Export>("export_blocks", &bomb).is_err());
    }

    #[test]
    fn what_was_cut_is_told_with_the_boundary() {
        let said =
            candid::encode_one(Err::<u8, _>(Said::Pruned { pruned_before_block: 9 })).unwrap();
        let said = decode::<Export>("export_blocks", &said).unwrap().err().unwrap();
        assert_eq!(said.explain(4), IndexError::Pruned { wanted: 4, pruned_before_block: 9 });
    }
}
