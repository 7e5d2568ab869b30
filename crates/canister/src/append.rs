//! Blocks that come in pieces: a legal block can be several times as long as a message.
//!
//! One is under way at a time, on the heap: it is nothing before it is committed. An upgrade forgets
//! it, and its sender begins anew.

use std::cell::RefCell;

use secateur_core::{Block, BlockMeta, MAX_SEGMENT_LEN, Payloads, Segment};

use crate::types::{BlockHead, Error, Piece};

struct Upload {
    meta: BlockMeta,
    lens: [u32; 3],
    payloads: Payloads,
}

thread_local! {
    static UPLOAD: RefCell<Option<Upload>> = const { RefCell::new(None) };
}

fn refused(what: &str, reason: impl Into<String>) -> Error {
    Error::Refused { what: what.into(), reason: reason.into() }
}

fn payload(payloads: &mut Payloads, segment: Segment) -> &mut Vec<u8> {
    match segment {
        Segment::Block => &mut payloads.block,
        Segment::Receipts => &mut payloads.receipts,
        Segment::TxIndex => &mut payloads.tx_index,
    }
}

/// Begins a block; one that was under way is dropped.
pub(crate) fn begin(head: BlockHead) -> Result<(), Error> {
    let lens = [head.block_len, head.receipts_len, head.tx_index_len];
    if let Some(len) = lens.iter().find(|len| **len > MAX_SEGMENT_LEN) {
        let reason = format!("a payload of {len} bytes is over the limit of {MAX_SEGMENT_LEN}");
        return Err(Error::Invalid { reason });
    }
    let upload = Upload { meta: head.meta.into(), lens, payloads: Payloads::default() };
    UPLOAD.set(Some(upload));
    Ok(())
}

/// Takes a piece. Pieces of a payload come in order; one that was taken already is passed over, so that
/// a sender who did not hear the answer can send it again. How much of its payload is here is the answer.
pub(crate) fn chunk(piece: &Piece) -> Result<u32, Error> {
    UPLOAD.with_borrow_mut(|upload| {
        let upload = upload.as_mut().ok_or_else(|| refused("append_chunk", NOT_BEGUN))?;
        let segment = Segment::try_from(piece.segment)
            .map_err(|error| Error::Invalid { reason: error.to_string() })?;
        let [block, receipts, tx_index] = upload.lens;
        let len = match segment {
            Segment::Block => block,
            Segment::Receipts => receipts,
            Segment::TxIndex => tx_index,
        };
        let payload = payload(&mut upload.payloads, segment);
        let (start, here) = (piece.start as usize, payload.len());
        // Here a size has 32 bits.
        let end = start.checked_add(piece.bytes.len()).filter(|end| *end <= len as usize);
        if end.is_none() {
            let more = piece.bytes.len();
            let reason = format!("{more} bytes from {start} on of a payload that has {len}");
            return Err(refused("append_chunk", reason));
        }
        if start > here {
            let reason = format!("it begins at byte {start}, and {here} are here");
            return Err(refused("append_chunk", reason));
        }
        let (known, new) = piece.bytes.split_at((here - start).min(piece.bytes.len()));
        if payload.get(start..start + known.len()) != Some(known) {
            let reason = format!("it differs from the {here} bytes that are here");
            return Err(refused("append_chunk", reason));
        }
        payload.extend_from_slice(new);
        Ok(u32::try_from(payload.len()).unwrap_or(u32::MAX))
    })
}

const NOT_BEGUN: &str = "no block is under way (an upgrade forgets one): call append_begin first";

/// Does something with the whole block, if all of it is here. It stays where that fails, so that it
/// need not come again.
pub(crate) fn with_whole<T>(work: impl FnOnce(&Block) -> Result<T, Error>) -> Result<T, Error> {
    let upload = UPLOAD.take().ok_or_else(|| refused("append_commit", NOT_BEGUN))?;
    for (segment, len) in Segment::ALL.into_iter().zip(upload.lens) {
        let here = upload.payloads.segment(segment).len();
        if here < len as usize {
            let name = segment.name();
            let reason = format!("of the {name} payload {here} bytes of {len} are here");
            UPLOAD.set(Some(upload));
            return Err(refused("append_commit", reason));
        }
    }
    let Upload { meta, lens, payloads } = upload;
    let block = Block { meta, payloads };
    let done = work(&block);
    if done.is_err() {
        UPLOAD.set(Some(Upload { meta: block.meta, lens, payloads: block.payloads }));
    }
    done
}
