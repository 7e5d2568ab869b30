//! The receipts and transaction-index payloads: repeats of `tx_id 32 · len u32be · bytes`.

use crate::{CoreError, Height, Reader, TxId};

/// Bytes of one transaction-index entry: id, length field, height, index.
pub const TX_INDEX_ENTRY_LEN: usize = 48;
const TX_INDEX_BODY_LEN: u32 = 12;
/// Bytes of a receipt's entry before the receipt itself: id and length.
pub const RECEIPT_HEAD_LEN: usize = 36;

/// One receipt inside a receipts payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiptEntry<'a> {
    /// The transaction the receipt belongs to.
    pub tx_id: TxId,
    /// The receipt's own bytes.
    pub bytes: &'a [u8],
}

/// One entry of a transaction-index payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxIndexEntry {
    /// The transaction.
    pub tx_id: TxId,
    /// The block it is in.
    pub height: Height,
    /// Its place in that block.
    pub index: u32,
}

/// Appends one receipt to a receipts payload.
pub fn push_receipt(payload: &mut Vec<u8>, tx_id: &TxId, receipt: &[u8]) -> Result<(), CoreError> {
    let len = u32::try_from(receipt.len()).map_err(|_| CoreError::TooLong {
        what: "receipt",
        len: receipt.len() as u64,
        max: u64::from(u32::MAX),
    })?;
    payload.extend_from_slice(&tx_id.0);
    payload.extend_from_slice(&len.to_be_bytes());
    payload.extend_from_slice(receipt);
    Ok(())
}

/// Appends one entry to a transaction-index payload.
pub fn push_tx_index(payload: &mut Vec<u8>, entry: &TxIndexEntry) {
    payload.extend_from_slice(&entry.tx_id.0);
    payload.extend_from_slice(&TX_INDEX_BODY_LEN.to_be_bytes());
    payload.extend_from_slice(&entry.height.to_be_bytes());
    payload.extend_from_slice(&entry.index.to_be_bytes());
}

/// Walks a receipts payload; the first error ends the walk.
pub fn receipts(payload: &[u8]) -> impl Iterator<Item = Result<ReceiptEntry<'_>, CoreError>> {
    walk(Reader::new("receipts payload", payload), |reader| {
        let tx_id = TxId(reader.array()?);
        let len = reader.u32()? as usize;
        Ok(ReceiptEntry { tx_id, bytes: reader.take(len)? })
    })
}

/// Walks a transaction-index payload; the first error ends the walk.
pub fn tx_index(payload: &[u8]) -> impl Iterator<Item = Result<TxIndexEntry, CoreError>> {
    walk(Reader::new("tx_index payload", payload), |reader| {
        let tx_id = TxId(reader.array()?);
        let len = reader.u32()?;
        if len != TX_INDEX_BODY_LEN {
            return Err(reader.error(format!("an entry of {len} bytes; 12 are wanted")));
        }
        Ok(TxIndexEntry { tx_id, height: reader.u64()?, index: reader.u32()? })
    })
}

fn walk<'a, T>(
    mut reader: Reader<'a>,
    mut next: impl FnMut(&mut Reader<'a>) -> Result<T, CoreError>,
) -> impl Iterator<Item = Result<T, CoreError>> {
    let mut ended = false;
    std::iter::from_fn(move || {
        if ended || reader.remaining() == 0 {
            return None;
        }
        let item = next(&mut reader);
        ended = item.is_err();
        Some(item)
    })
}

impl ReceiptEntry<'_> {
    /// Bytes the entry takes in its payload.
    pub fn encoded_len(&self) -> usize {
        RECEIPT_HEAD_LEN + self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipts_of_any_length_read_back_including_an_empty_one() {
        let mut payload = Vec::new();
        let all: Vec<(TxId, Vec<u8>)> =
            (0u8..5).map(|i| (TxId([i; 32]), vec![i; i as usize])).collect();
        for (id, bytes) in &all {
            push_receipt(&mut payload, id, bytes).unwrap();
        }
        let read: Vec<_> = receipts(&payload)
            .map(|entry| entry.map(|e| (e.tx_id, e.bytes.to_vec())).unwrap())
            .collect();
        assert_eq!(read, all);
    }

    #[test]
    fn a_tx_index_entry_whose_length_is_not_12_stops_the_walk() {
        let mut payload = Vec::new();
        push_tx_index(&mut payload, &TxIndexEntry { tx_id: TxId([1; 32]), height: 7, index: 0 });
        push_tx_index(&mut payload, &TxIndexEntry { tx_id: TxId([2; 32]), height: 7, index: 1 });
        payload[48 + 35] = 13;
        let read: Vec<_> = tx_index(&payload).collect();
        assert_eq!(read.len(), 2);
        assert!(read[0].is_ok() && read[1].is_err());
    }

    #[test]
    fn a_truncated_receipts_payload_is_an_error_at_every_length() {
        let mut payload = Vec::new();
        push_receipt(&mut payload, &TxId([9; 32]), b"abc").unwrap();
        for cut in 1..payload.len() {
            assert!(receipts(&payload[..cut]).any(|e| e.is_err()), "cut at {cut}");
        }
    }

    #[test]
    fn length_field_cannot_reserve_memory() {
        let mut payload = vec![0u8; 32];
        payload.extend_from_slice(&u32::MAX.to_be_bytes());
        assert!(receipts(&payload).next().unwrap().is_err());
    }
}
