//! Random histories through the wasm, against a map with a boundary. `SECATEUR_TEST_SEED` replays one.

use std::collections::BTreeMap;

use secateur_canister::{Block, Error, ExportReply, KeptBlock, PrunePolicy, Strength};
use serde_bytes::{ByteArray, ByteBuf};

use crate::common::*;
use crate::host::Host;

const HISTORIES: u64 = 12;
const STEPS: usize = 60;

/// What should be there.
#[derive(Default)]
struct Model {
    blocks: BTreeMap<u64, Block>,
    boundary: Option<u64>,
    acked: Option<u64>,
    retain: u64,
}

impl Model {
    fn head(&self) -> u64 {
        self.blocks.keys().next_back().copied().unwrap_or(0)
    }

    /// What a prune must cut: past retention, acknowledged, and never the last block. What one message
    /// may cost, and that the first block of it is cut whatever it costs, is the same rule as everywhere.
    fn prune(&mut self, max_ops: Option<u64>) {
        let mut spent = 0;
        while let Some((&oldest, block)) = self.blocks.first_key_value() {
            let head = self.head();
            let ops = 1 + block.tx_index.len() as u64 / 16;
            let due = oldest < (head + 1).saturating_sub(self.retain) && oldest < head;
            let held = self.acked.is_none_or(|acked| oldest > acked);
            let spends = max_ops.is_some_and(|most| spent > 0 && spent + ops > most);
            if !due || held || spends {
                break;
            }
            spent += ops;
            self.blocks.remove(&oldest);
            self.boundary = Some(oldest);
        }
    }
}

/// Chance with a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        let bytes: [u8; 8] = noise(self.0, 8).try_into().unwrap();
        u64::from_be_bytes(bytes) % sides
    }
}

fn retain(blocks: u64) -> PrunePolicy {
    PrunePolicy { retain_blocks: blocks, ..policy(0) }
}

/// An update that may be made to trap first; then it did not happen, and is made again.
fn call(host: &mut Host, dice: &mut Dice, method: &str, arg: &[u8]) -> Vec<u8> {
    if dice.below(3) == 0 {
        let image = host.image();
        host.trap_after_writes(Some(dice.below(40)));
        let ran = host.update_raw(controller(), method, arg);
        host.trap_after_writes(None);
        match ran {
            Ok(ran) => return ran.reply,
            Err(_) => assert_eq!(host.image(), image, "{method}"),
        }
    }
    host.update_raw(controller(), method, arg).unwrap().reply
}

fn step(host: &mut Host, model: &mut Model, dice: &mut Dice) {
    match dice.below(16) {
        0..=6 => {
            let height = model.head() + 1;
            let (len, transactions) = (dice.below(60_000), dice.below(6));
            let block = block(
                height,
                usize::try_from(len).unwrap(),
                u32::try_from(transactions).unwrap(),
                40,
            );
            call(host, dice, "append", &candid::encode_one(&block).unwrap());
            model.blocks.insert(height, block);
        }
        7..=8 => {
            let most = 1 + dice.below(60);
            call(host, dice, "prune_now", &candid::encode_one(most).unwrap());
            model.prune(Some(most));
        }
        9 => {
            // One step of the timer's own, in which a trap may come.
            host.trap_after_writes((dice.below(2) == 0).then(|| dice.below(60)));
            host.advance(60_000);
            host.ring();
            host.trap_after_writes(None);
            host.advance(60_000);
            host.settle();
            model.prune(None);
        }
        10..=11 => {
            let acked = model.head().saturating_sub(dice.below(5));
            if acked > 0 {
                let arg = candid::encode_args(("reader", acked)).unwrap();
                call(host, dice, "ack_exported", &arg);
                model.acked = model.acked.max(Some(acked));
            }
        }
        12 => {
            model.retain = 1 + dice.below(6);
            let arg = candid::encode_one(retain(model.retain)).unwrap();
            call(host, dice, "set_prune_policy", &arg);
            // It looks at once.
            host.settle();
            model.prune(None);
        }
        13 => {
            host.upgrade(wasm(), controller()).unwrap();
            host.settle();
            model.prune(None);
        }
        _ => look(host, model, 1 + dice.below(model.head() + 2)),
    }
}

fn look(host: &mut Host, model: &Model, height: u64) {
    let kept: Result<KeptBlock, Error> = host.query("get_block", (height,)).unwrap();
    let id = ByteArray::new(tx_id(height, 0).0);
    let receipt: Result<ByteBuf, Error> = host.query("get_receipt", (id,)).unwrap();
    let Some(block) = model.blocks.get(&height) else {
        let error = kept.unwrap_err();
        match model.boundary.filter(|boundary| height <= *boundary) {
            Some(pruned_before_block) => {
                assert_eq!(error, Error::Pruned { pruned_before_block });
            }
            None => assert!(matches!(error, Error::NotFound { .. }), "{error:?}"),
        }
        assert!(receipt.is_err());
        return;
    };
    let kept = kept.unwrap();
    assert_eq!((&kept.meta, kept.block.as_ref()), (&block.meta, Some(&block.block)));
    assert_eq!(receipt.is_ok(), !block.tx_index.is_empty(), "{receipt:?}");
}

/// The export gives exactly the blocks that are kept.
fn exported(host: &mut Host, model: &Model) {
    let mut got: BTreeMap<u64, [Vec<u8>; 3]> = BTreeMap::new();
    let mut cursor = None;
    loop {
        let args = (cursor, 100_000_u32);
        let reply: Result<ExportReply, Error> = host.query("export_blocks", args).unwrap();
        let reply = reply.unwrap();
        let at = cursor.map(|cursor: secateur_canister::Cursor| cursor.block_number);
        let at = at.unwrap_or(model.boundary.map_or(1, |boundary| boundary + 1));
        if reply.chunks.is_empty() && reply.next_cursor.map(|next| next.block_number) == Some(at) {
            break;
        }
        for chunk in reply.chunks {
            let payload = &mut got.entry(at).or_default()[usize::from(chunk.segment)];
            assert_eq!(payload.len(), chunk.start as usize);
            payload.extend_from_slice(&chunk.bytes);
        }
        if reply.next_cursor.is_none() {
            break;
        }
        cursor = reply.next_cursor;
    }
    let whole = |block: &Block| {
        [&block.block, &block.receipts, &block.tx_index].map(|payload| payload.to_vec())
    };
    let wanted: BTreeMap<u64, [Vec<u8>; 3]> = model
        .blocks
        .iter()
        .map(|(height, block)| (*height, whole(block)))
        .filter(|(_, payloads)| payloads.iter().any(|payload| !payload.is_empty()))
        .collect();
    assert!(got == wanted, "the export is not what is kept");
}

fn history(seed: u64) {
    let mut dice = Dice(seed << 32);
    let mut model = Model { retain: 3, ..Model::default() };
    let mut host = installed(Some(retain(3)));
    let arg = candid::encode_args(("reader", Strength::Hard)).unwrap();
    call(&mut host, &mut dice, "register_consumer", &arg);
    for _ in 0..STEPS {
        step(&mut host, &mut model, &mut dice);
        let status = status(&mut host);
        let head = Some(model.head()).filter(|head| *head > 0);
        assert_eq!((status.head, status.pruned_before_block), (head, model.boundary));
    }
    for height in 1..=model.head() + 1 {
        look(&mut host, &model, height);
    }
    exported(&mut host, &model);
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn a_canister_is_a_map_with_a_boundary_whatever_traps_and_upgrades_come() {
    let replay = std::env::var("SECATEUR_TEST_SEED").ok().map(|seed| seed.parse().unwrap());
    for seed in replay.map_or(0..HISTORIES, |seed| seed..seed + 1) {
        eprintln!("replay: SECATEUR_TEST_SEED={seed} scripts/canister test model");
        history(seed);
    }
}
