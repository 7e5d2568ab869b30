//! What messages cost, and that the dearest stay under the limit.

use candid::Principal;
use secateur_canister::{Appended, Block, Cursor, Error, ExportReply, PrunePolicy, Trigger};
use secateur_core::MAX_SEGMENT_LEN;
use serde_bytes::ByteBuf;

use crate::common::*;
use crate::host::{Bill, Host, LIMIT};

/// Prices of a subnet with 13 nodes, in cycles: a message, an instruction, what comes from outside and
/// each of its bytes, a call and each of its bytes.
const PER_MESSAGE: u64 = 5_000_000;
const PER_INSTRUCTION: u64 = 1;
const PER_INGRESS: (u64, u64) = (1_200_000, 2_000);
const PER_CALL: (u64, u64) = (260_000, 1_000);

/// What some work costs, in millions of cycles.
fn cycles(bill: Bill) -> u64 {
    let of = |(count, bytes): (u64, u64), (each, byte): (u64, u64)| count * each + bytes * byte;
    let all = bill.messages * PER_MESSAGE
        + bill.fuel * PER_INSTRUCTION
        + of(bill.ingress, PER_INGRESS)
        + of(bill.calls, PER_CALL);
    all.div_ceil(1_000_000)
}

/// What all messages of some work cost, in millions of cycles.
fn priced(host: &mut Host, work: impl FnOnce(&mut Host)) -> u64 {
    host.bill = Bill::default();
    work(host);
    cycles(host.bill)
}

/// Entries of a transaction index that fill a segment.
const MOST_TRANSACTIONS: u32 = MAX_SEGMENT_LEN / 48;

/// A block with three full segments: no legal one is larger.
fn largest(height: u64) -> Block {
    let longest = MAX_SEGMENT_LEN as usize;
    let mut block = block(height, longest, MOST_TRANSACTIONS, 12);
    assert!(block.tx_index.len() + 48 > longest && block.tx_index.len() <= longest);
    assert!(block.receipts.len() + 48 > longest && block.receipts.len() <= longest);
    block.block = ByteBuf::from(noise(height, longest));
    block
}

/// What the dearest message of some work took.
fn dearest(host: &mut Host, work: impl FnOnce(&mut Host)) -> (u64, String) {
    host.dearest = (0, String::new());
    work(host);
    host.dearest.clone()
}

fn export(host: &mut Host, cursor: Option<Cursor>) -> (ExportReply, u64, usize) {
    let arg = candid::encode_args((cursor, u32::MAX)).unwrap();
    let ran = host.query_raw(Principal::anonymous(), "export_blocks", &arg).unwrap();
    let reply = candid::decode_one::<Result<ExportReply, Error>>(&ran.reply).unwrap().unwrap();
    (reply, ran.fuel, ran.reply.len())
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn every_message_of_the_largest_legal_block_stays_under_the_limit() {
    let mut policy = policy(0);
    policy.retain_blocks = 1;
    let mut host = installed(Some(policy));
    let mut costs = Vec::new();
    for height in 1..=3 {
        let block = largest(height);
        host.bill = Bill::default();
        let cost = dearest(&mut host, |host| {
            let appended = append_in_pieces(host, &block).unwrap();
            assert_eq!(appended, Ok(Appended { head: height, written: 1 }));
        });
        eprintln!("the whole append: {} million cycles", cycles(host.bill));
        costs.push(("append", cost));
        host.bill = Bill::default();
        let cost = dearest(&mut host, |host| {
            host.settle();
            host.advance(60_000);
            host.settle();
        });
        costs.push(("seal and prune", cost));
        eprintln!("sealing, and cutting the one before it: {} million cycles", cycles(host.bill));
    }
    let mut cursor = None;
    let (mut most_fuel, mut most_bytes) = (0, 0);
    loop {
        let (reply, fuel, bytes) = export(&mut host, cursor);
        (most_fuel, most_bytes) = (most_fuel.max(fuel), most_bytes.max(bytes));
        if reply.chunks.is_empty() {
            break;
        }
        cursor = reply.next_cursor;
    }
    costs.push(("export", (most_fuel, "export_blocks".into())));
    assert!(most_bytes < 1_600_000, "a reply of {most_bytes} bytes");
    let cost = dearest(&mut host, |host| {
        host.advance(60_000);
        host.settle();
    });
    costs.push(("prune", cost));
    assert_eq!(status(&mut host).pruned_before_block, Some(2));
    let cost = dearest(&mut host, |host| {
        host.upgrade(wasm(), controller()).unwrap();
        host.settle();
        let id = serde_bytes::ByteArray::new(tx_id(3, MOST_TRANSACTIONS - 1).0);
        let receipt: Result<ByteBuf, Error> = host.query("get_receipt", (id,)).unwrap();
        receipt.unwrap();
    });
    costs.push(("upgrade and look up", cost));
    for (what, (fuel, name)) in &costs {
        eprintln!("{what}: at most {fuel} in {name}");
        assert!(*fuel < LIMIT, "{what}: {fuel}");
    }
}

/// What an upgrade reads back at most: an epoch that is nearly full, of many blocks or of many bytes.
#[test]
#[ignore = "needs the wasm: make canister"]
fn the_dearest_upgrades_stay_under_the_limit() {
    let receipts = 8_000_000;
    let cases = [
        ("4,095 blocks of one transaction", (1..=4095, 500, 1, 50)),
        ("two blocks with 8 MB of receipts", (1..=2, 0, 1, receipts)),
        ("one block with 65,000 transactions", (1..=1, 100, 65_000, 12)),
    ];
    for (what, (heights, len, transactions, receipt_len)) in cases {
        let trigger = Trigger::EveryNBlocks(1_000_000);
        let mut host = installed(Some(PrunePolicy { trigger, ..policy(0) }));
        let last = *heights.end();
        for height in heights {
            let block = block(height, len, transactions, receipt_len);
            append_as_usual(&mut host, &block);
        }
        assert!(!host.timer_is_due(), "{what}: nothing is sealed yet");
        let cost = dearest(&mut host, |host| {
            host.upgrade(wasm(), controller()).unwrap();
        });
        eprintln!("upgrade over {what}: {} million", cost.0.div_ceil(1_000_000));
        assert!(cost.0 < LIMIT, "{what}: {}", cost.0);
        let cost = dearest(&mut host, |host| {
            let id = serde_bytes::ByteArray::new(tx_id(last, 0).0);
            let receipt: Result<ByteBuf, Error> = host.query("get_receipt", (id,)).unwrap();
            assert!(receipt.is_ok() || receipt_len > 1_500_000, "{receipt:?}");
        });
        eprintln!("a lookup after it: {} million", cost.0.div_ceil(1_000_000));
    }
}

/// Prints the table of `docs/canister.md`.
#[test]
#[ignore = "needs the wasm: make canister"]
fn costs_at_several_block_sizes() {
    eprintln!("| block | append | export of a block | prune tick | upgrade and first lookup |");
    let mut in_cycles = Vec::new();
    for (len, transactions, receipt_len, blocks) in [
        (2_000, 10, 100, 400),
        (20_000, 100, 100, 200),
        (200_000, 1_000, 100, 60),
        (1_000_000, 2_000, 100, 20),
    ] {
        let mut policy = policy(0);
        policy.retain_blocks = 1;
        let mut host = installed(Some(policy));
        set_pruning(&mut host, false);
        let mut appends = Vec::new();
        let appended = priced(&mut host, |host| {
            for height in 1..=blocks {
                let block = block(height, len, transactions, receipt_len);
                let cost = dearest(host, |host| append_as_usual(host, &block));
                appends.push(cost.0);
            }
            host.settle();
        });
        let cursor = Some(Cursor { block_number: 1, segment: 0, byte_offset: 0 });
        let (_, exported, _) = export(&mut host, cursor);
        let upgraded = dearest(&mut host, |host| {
            host.upgrade(wasm(), controller()).unwrap();
            let id = serde_bytes::ByteArray::new(tx_id(1, 0).0);
            let receipt: Result<ByteBuf, Error> = host.query("get_receipt", (id,)).unwrap();
            receipt.unwrap();
        });
        let mut cut = 0;
        let pruned = dearest(&mut host, |host| {
            cut = priced(host, |host| {
                set_pruning(host, true);
                host.settle();
                // Retention goes on at its trigger.
                while status(host).pruned_before_block < Some(blocks - 1) {
                    host.advance(60_000);
                    host.settle();
                }
            });
        });
        assert_eq!(status(&mut host).pruned_before_block, Some(blocks - 1));
        appends.sort_unstable();
        let million = |fuel: u64| fuel.div_ceil(1_000_000);
        eprintln!(
            "| {len} bytes, {transactions} transactions | {} | {} | {} | {} |",
            million(appends[appends.len() / 2]),
            million(exported),
            million(pruned.0),
            million(upgraded.0),
        );
        assert!(host.dearest.0 < LIMIT);
        in_cycles.push(format!(
            "| {len} bytes, {transactions} transactions | {} | {} |",
            appended.div_ceil(blocks),
            cut.div_ceil(blocks - 1)
        ));
    }
    eprintln!("| block | appended and sealed | cut and freed | in million cycles for each block");
    eprintln!("{}", in_cycles.join("\n"));
}

/// As a sender would: in one message if it fits.
fn append_as_usual(host: &mut Host, block: &Block) {
    let len = block.block.len() + block.receipts.len() + block.tx_index.len();
    let appended = if len < PIECE {
        append(host, block.clone())
    } else {
        append_in_pieces(host, block).unwrap()
    };
    assert!(appended.is_ok_and(|appended| appended.written == 1));
}
