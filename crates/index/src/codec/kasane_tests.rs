//! The bytes of `docs/format/kasane.md` by hand, and everything that is wrong with them.

use alloy_primitives::{Address, B256};
use secateur_core::{BlockHash, Payloads, TxId, TxIndexEntry, Writer, push_receipt, push_tx_index};

use super::{Codec, CodecName, KasaneCodec};
use crate::source::SourceBlock;
use crate::{ErrorClass, LogFilter};

const HEIGHT: u64 = 12;

fn tx_id(index: u8) -> TxId {
    TxId([index.wrapping_add(0x40); 32])
}

/// A block's own bytes.
fn own(txs: u32) -> Vec<u8> {
    let mut bytes = Writer::new();
    bytes.u64(HEIGHT).bytes(&[1; 32]).bytes(&[2; 32]).u64(1_700_000_012);
    bytes.u64(250).u64(30_000_000).u64(63_000);
    bytes.bytes(&[3; 20]).bytes(&[4; 32]).bytes(&[5; 32]).u32(txs);
    for index in 0..txs {
        bytes.bytes(&tx_id(u8::try_from(index % 200).unwrap()).0);
    }
    bytes.finish()
}

/// A log with so many topics.
fn log(bytes: &mut Writer, address: u8, topics: u32, data: &[u8]) {
    bytes.bytes(&[address; 20]).u32(topics);
    for topic in 0..topics {
        bytes.bytes(&[u8::try_from(topic).unwrap(); 32]);
    }
    bytes.u32(u32::try_from(data.len()).unwrap()).bytes(data);
}

/// What comes before a receipt's logs.
fn receipt(index: u8, is_v2: bool, contract: Option<u8>) -> Writer {
    let mut bytes = Writer::new();
    if is_v2 {
        bytes.bytes(b"rcptv2\0\x02");
    }
    bytes.bytes(&tx_id(index).0).u64(HEIGHT).u32(u32::from(index)).u8(index & 1);
    bytes.u64(21_000).u64(300);
    if is_v2 {
        bytes.bytes(&[0; 48]);
    }
    bytes.bytes(&[7; 32]).u32(3).bytes(b"abc");
    bytes.flag(contract.is_some()).bytes(&[contract.unwrap_or(0); 20]);
    bytes
}

/// Three transactions: an old receipt, one that created a contract, and one with logs.
fn block() -> SourceBlock {
    let mut payloads = Payloads { block: own(3), ..Payloads::default() };
    let (mut first, mut second, mut third) =
        (receipt(0, false, None), receipt(1, true, Some(9)), receipt(2, true, None));
    log(first.u32(1), 0xaa, 1, b"first");
    second.u32(0);
    log(third.u32(2), 0xbb, 4, b"");
    log(&mut third, 0xaa, 0, &[6; 4_096]);
    for (index, receipt) in (0..3).zip([first, second, third]) {
        push_receipt(&mut payloads.receipts, &tx_id(index), &receipt.finish()).unwrap();
        let entry = TxIndexEntry { tx_id: tx_id(index), height: HEIGHT, index: u32::from(index) };
        push_tx_index(&mut payloads.tx_index, &entry);
    }
    SourceBlock { height: HEIGHT, meta: None, payloads }
}

fn codec() -> KasaneCodec {
    KasaneCodec::new(LogFilter::All)
}

#[test]
fn rows_are_what_block_and_receipts_of_both_forms_say() {
    let rows = codec().rows(&block()).unwrap();
    let [row] = rows.blocks.as_slice() else { panic!("{:?}", rows.blocks) };
    assert_eq!((row.number, row.ts, row.tx_count), (HEIGHT, Some(1_700_000_012), 3));
    assert_eq!((row.parent_hash, row.hash), (Some(BlockHash([1; 32])), Some(BlockHash([2; 32]))));
    let told: Vec<_> =
        rows.txs.iter().map(|tx| (tx.hash, tx.tx_index, tx.status, tx.contract_address)).collect();
    let contract = Some(Address::new([9; 20]));
    assert_eq!(
        told,
        [
            (tx_id(0), 0, Some(false), None),
            (tx_id(1), 1, Some(true), contract),
            (tx_id(2), 2, Some(false), None)
        ]
    );
    assert!(rows.txs.iter().all(|tx| tx.gas_used == Some(21_000) && tx.from.is_none()));
    let logs: Vec<_> = rows
        .logs
        .iter()
        .map(|log| (log.tx_index, log.log_index, log.address, log.data.len()))
        .collect();
    let (a, b) = (Address::new([0xaa; 20]), Address::new([0xbb; 20]));
    assert_eq!(logs, [(0, 0, a, 5), (2, 1, b, 0), (2, 2, a, 4_096)]);
    assert_eq!(rows.logs[1].topics[3], Some(B256::new([3; 32])));
    assert_eq!(rows.logs[2].topics, [None; 4]);
}

#[test]
fn only_chosen_logs_are_kept_under_their_own_numbers() {
    let filter = LogFilter::chosen(vec![Address::new([0xbb; 20])], vec![]);
    let rows = KasaneCodec::new(filter).rows(&block()).unwrap();
    let kept: Vec<_> = rows.logs.iter().map(|log| log.log_index).collect();
    assert_eq!(kept, [1]);
}

#[test]
fn a_block_says_its_meta_and_a_source_that_says_another_is_not_believed() {
    let mut block = block();
    let meta = codec().meta(&block).unwrap();
    assert_eq!((meta.height, meta.hash), (HEIGHT, BlockHash([2; 32])));
    block.meta = Some(meta.clone());
    codec().rows(&block).unwrap();
    for change in 0..3 {
        let mut other = meta.clone();
        match change {
            0 => other.hash = BlockHash([9; 32]),
            1 => other.parent_hash = BlockHash([9; 32]),
            _ => other.timestamp += 1,
        }
        block.meta = Some(other);
        assert_eq!(codec().rows(&block).unwrap_err().class(), ErrorClass::Decode, "{change}");
    }
}

#[test]
fn every_cut_and_every_added_byte_of_every_payload_is_refused() {
    let whole = block();
    let parts: [fn(&mut Payloads) -> &mut Vec<u8>; 3] =
        [|p| &mut p.block, |p| &mut p.receipts, |p| &mut p.tx_index];
    for (number, part) in parts.into_iter().enumerate() {
        let len = part(&mut whole.clone().payloads).len();
        for cut in 0..len {
            let mut block = whole.clone();
            part(&mut block.payloads).truncate(cut);
            let error = codec().rows(&block).expect_err("a cut payload");
            assert_eq!(error.class(), ErrorClass::Decode, "payload {number} cut at {cut}");
        }
        let mut block = whole.clone();
        part(&mut block.payloads).push(0);
        assert!(codec().rows(&block).is_err(), "payload {number} with a byte more");
    }
}

#[test]
fn counts_over_their_limits_are_refused_before_anything_is_read() {
    let with = |last: Writer| {
        let mut block = block();
        block.payloads = Payloads { block: own(1), ..Payloads::default() };
        push_receipt(&mut block.payloads.receipts, &tx_id(0), &last.finish()).unwrap();
        let entry = TxIndexEntry { tx_id: tx_id(0), height: HEIGHT, index: 0 };
        push_tx_index(&mut block.payloads.tx_index, &entry);
        codec().rows(&block)
    };
    let said = |last: Writer| with(last).unwrap_err().to_string();
    let mut logs = receipt(0, true, None);
    logs.u32(65);
    assert!(said(logs).contains("65 logs"));
    let mut topics = receipt(0, true, None);
    topics.u32(1).bytes(&[1; 20]).u32(5);
    assert!(said(topics).contains("5 topics"));
    let mut data = receipt(0, true, None);
    log(data.u32(1), 1, 0, &[0; 4_097]);
    assert!(said(data).contains("4097 bytes"));
    let mut returned = Writer::new();
    returned.bytes(&tx_id(0).0).u64(HEIGHT).u32(0).u8(1).u64(1).u64(1).bytes(&[0; 32]).u32(32_769);
    assert!(said(returned).contains("32769 bytes returned"));
    let mut status = Writer::new();
    status.bytes(&tx_id(0).0).u64(HEIGHT).u32(0).u8(2);
    assert!(said(status).contains("2 is not a flag"));
    let mut fine = receipt(0, true, None);
    fine.u32(0);
    with(fine).unwrap();
    let mut many = block();
    many.payloads.block = own(1_025);
    assert!(codec().rows(&many).unwrap_err().to_string().contains("1025 transactions"));
}

#[test]
fn payloads_that_speak_of_other_transactions_are_refused() {
    let whole = block();
    for (place, what) in [(7, "number"), (192, "first id")] {
        let mut block = whole.clone();
        block.payloads.block[place] ^= 1;
        assert!(codec().rows(&block).is_err(), "{what}");
    }
    // The receipt's own id, its block and its place, behind the entry's id and length.
    for place in [36, 36 + 32 + 7, 36 + 32 + 8 + 3] {
        let mut block = whole.clone();
        block.payloads.receipts[place] ^= 1;
        assert!(codec().rows(&block).is_err(), "receipt byte {place}");
    }
    for place in [0, 36 + 7, 36 + 8 + 3] {
        let mut block = whole.clone();
        block.payloads.tx_index[place] ^= 1;
        assert!(codec().rows(&block).is_err(), "tx_index byte {place}");
    }
}

#[test]
fn codecs_are_called_by_their_names() {
    for (name, parts) in [("evm", "evm"), ("kasane", "opaque"), ("opaque", "opaque")] {
        let codec: CodecName = name.parse().unwrap();
        let made = codec.codec(1, secateur_evm::Verify::Full, LogFilter::Off);
        assert_eq!(made.name(), name);
        assert_eq!(codec.of_parts().to_string(), parts);
    }
    assert!("Kasane".parse::<CodecName>().is_err());
}
