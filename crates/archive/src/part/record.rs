//! One block in a part's raw stream: `hash 32 · parent_hash 32 · timestamp u64be · bundle`.
//!
//! The height is not in the record: it follows from the part's first height.

use secateur_core::{
    BUNDLE_PREFIX_LEN, Block, BlockHash, BlockMeta, CoreError, Height, MAX_SEGMENT_LEN, Reader,
    Segment, decode_bundle, encode_bundle,
};

const WHAT: &str = "part record";
/// Bytes of a record besides its payloads.
pub const RECORD_HEAD_LEN: u64 = 32 + 32 + 8 + BUNDLE_PREFIX_LEN as u64;

/// Bytes that a block takes in the raw stream.
pub(crate) fn record_len(block: &Block) -> u64 {
    RECORD_HEAD_LEN + block.payloads.total_len()
}

/// Appends a block's record.
pub(super) fn encode_record(block: &Block, to: &mut Vec<u8>) -> Result<(), CoreError> {
    let bundle = encode_bundle(&block.payloads)?;
    to.extend_from_slice(&block.meta.hash.0);
    to.extend_from_slice(&block.meta.parent_hash.0);
    to.extend_from_slice(&block.meta.timestamp.to_be_bytes());
    to.extend_from_slice(&bundle);
    Ok(())
}

/// Reads `count` records that are the whole of `raw`; the first is block `first`.
pub(super) fn decode_records(
    raw: &[u8],
    first: Height,
    count: u64,
) -> Result<Vec<Block>, CoreError> {
    let wrong = |reason: String| CoreError::decode(WHAT, reason);
    let most = raw.len() as u64 / RECORD_HEAD_LEN;
    if count > most {
        return Err(wrong(format!("{count} records do not fit into {} bytes", raw.len())));
    }
    let mut rest = Reader::new(WHAT, raw);
    // At most one for each 84 bytes of `raw`.
    let mut blocks = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
    for at in 0..count {
        let height = first.checked_add(at).ok_or_else(|| wrong("no such height".to_owned()))?;
        let meta = BlockMeta {
            height,
            hash: BlockHash(rest.array()?),
            parent_hash: BlockHash(rest.array()?),
            timestamp: rest.u64()?,
        };
        let payloads = decode_bundle(take_bundle(&mut rest)?, MAX_SEGMENT_LEN)?;
        blocks.push(Block { meta, payloads });
    }
    rest.finish()?;
    Ok(blocks)
}

/// The bytes of the bundle that comes next.
fn take_bundle<'a>(rest: &mut Reader<'a>) -> Result<&'a [u8], CoreError> {
    let mut ahead = rest.clone();
    let mut len = 0usize;
    for segment in Segment::ALL {
        let next = ahead.u32()?;
        if next > MAX_SEGMENT_LEN {
            let (len, max) = (u64::from(next), u64::from(MAX_SEGMENT_LEN));
            return Err(CoreError::TooLong { what: segment.name(), len, max });
        }
        ahead.take(next as usize)?;
        len += 4 + next as usize;
    }
    rest.take(len)
}
