//! The bundle: a block's three payloads in file form, each behind its length (`u32be`).

use crate::{CoreError, Payloads, Reader, Segment, Writer};

/// Bytes a bundle adds to its payloads: three length fields.
pub const BUNDLE_PREFIX_LEN: usize = 12;

/// Writes a bundle.
pub fn encode_bundle(payloads: &Payloads) -> Result<Vec<u8>, CoreError> {
    let mut out = Writer::new();
    for segment in Segment::ALL {
        let bytes = payloads.segment(segment);
        let len = u32::try_from(bytes.len()).map_err(|_| CoreError::TooLong {
            what: segment.name(),
            len: bytes.len() as u64,
            max: u64::from(u32::MAX),
        })?;
        out.u32(len).bytes(bytes);
    }
    Ok(out.finish())
}

/// Reads a bundle whose segments are at most `max_segment_len` long; nothing may be left over.
pub fn decode_bundle(bytes: &[u8], max_segment_len: u32) -> Result<Payloads, CoreError> {
    let mut reader = Reader::new("bundle", bytes);
    let mut next = |segment: Segment| {
        let len = reader.u32()?;
        if len > max_segment_len {
            let (len, max) = (u64::from(len), u64::from(max_segment_len));
            return Err(CoreError::TooLong { what: segment.name(), len, max });
        }
        Ok(reader.take(len as usize)?.to_vec())
    };
    let payloads = Payloads {
        block: next(Segment::Block)?,
        receipts: next(Segment::Receipts)?,
        tx_index: next(Segment::TxIndex)?,
    };
    reader.finish()?;
    Ok(payloads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bundle_reads_back_what_was_written(
            block in prop::collection::vec(any::<u8>(), 0..200),
            receipts in prop::collection::vec(any::<u8>(), 0..200),
            tx_index in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let payloads = Payloads { block, receipts, tx_index };
            let bytes = encode_bundle(&payloads).unwrap();
            prop_assert_eq!(bytes.len() as u64, payloads.total_len() + BUNDLE_PREFIX_LEN as u64);
            prop_assert_eq!(decode_bundle(&bytes, 200).unwrap(), payloads);
        }

        #[test]
        fn a_truncated_bundle_is_an_error(block in prop::collection::vec(any::<u8>(), 1..50)) {
            let payloads = Payloads { block, ..Payloads::default() };
            let bytes = encode_bundle(&payloads).unwrap();
            for cut in 0..bytes.len() {
                prop_assert!(decode_bundle(&bytes[..cut], 50).is_err());
            }
        }
    }

    #[test]
    fn a_segment_over_the_limit_is_refused_before_it_is_copied() {
        let payloads = Payloads { block: vec![0; 10], ..Payloads::default() };
        let bytes = encode_bundle(&payloads).unwrap();
        assert!(matches!(
            decode_bundle(&bytes, 9),
            Err(CoreError::TooLong { len: 10, max: 9, .. })
        ));
    }
}
