//! Stable memory as released versions wrote it: an upgrade to this one keeps all of it and goes on. An
//! image is never written again once its layout was released; `docs/format/stable.md` lists them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use ic_stable_structures::VectorMemory;
use secateur_canister::{
    Appended, Error, KeptBlock, PruneOutcome, PrunePolicy, Queued, StopReason, Strength, Trigger,
};
use secateur_store::{Clock, Family, Store, ground::stable};
use serde_bytes::{ByteArray, ByteBuf};

use crate::common::*;
use crate::host::Host;

/// The images, by the layouts that they have. The newest is this version's.
const IMAGES: [&str; 1] = ["layout-1"];

const HEAD: u64 = 130;
/// What the reader of the recipe has, so what was cut: the middle of a prune that goes up to here.
const ACKED: u64 = 100;

fn path(name: &str) -> String {
    format!("{}/tests/golden/{name}.zst", env!("CARGO_MANIFEST_DIR"))
}

fn policy_of_recipe() -> PrunePolicy {
    let trigger = Trigger::EveryNBlocks(1000);
    PrunePolicy { retain_blocks: 20, max_ops_per_tick: 40, trigger, ..policy(8 << 20) }
}

fn small(height: u64) -> secateur_canister::Block {
    let mut block = block(height, 0, 3, 40);
    // Long enough that the first epochs are full (512 KiB), and packs well.
    block.block = ByteBuf::from(vec![u8::try_from(height % 251).unwrap(); 20_000]);
    block
}

fn queued() -> ByteArray<32> {
    ByteArray::new([0x51; 32])
}

/// A message of pruning; whether there is more to do is the answer.
fn prune(host: &mut Host) -> bool {
    let outcome: Result<PruneOutcome, Error> =
        host.update(controller(), "prune_now", (u64::MAX,)).unwrap();
    outcome.unwrap().stop == StopReason::MaxOps
}

/// A history in the middle of a prune: sealed runs and a tombstone, an open epoch, regions that are free
/// and some that are cut and not freed yet, a consumer, a queued transaction, a policy.
fn recipe() -> Host {
    let mut host = installed(Some(policy_of_recipe()));
    let done = |host: &mut Host, method: &str, arg: Vec<u8>| {
        let reply = host.update_raw(controller(), method, &arg).unwrap().reply;
        let said: Result<candid::Reserved, Error> = candid::decode_one(&reply).unwrap();
        said.unwrap_or_else(|error| panic!("{method}: {error:?}"));
    };
    let consumer = candid::encode_args(("reader", Strength::Hard)).unwrap();
    done(&mut host, "register_consumer", consumer);
    for height in 1..=HEAD {
        done(&mut host, "append", candid::encode_one(small(height)).unwrap());
        // Full epochs are sealed; nothing is cut before the reader has it.
        host.settle();
    }
    done(&mut host, "queue_tx", candid::encode_one(queued()).unwrap());
    done(&mut host, "ack_exported", candid::encode_args(("reader", ACKED)).unwrap());
    // Four blocks a message, one message after another, until a region in the middle is cut and not freed.
    loop {
        let now = status(&mut host);
        if now.pruned_before_block >= Some(60) && now.journal_entries > 0 {
            return host;
        }
        host.settle();
        assert!(prune(&mut host), "{now:?}");
    }
}

/// Everything that the recipe left is there, and what it cut says so.
fn check(host: &mut Host, head: u64) {
    let status = status(host);
    let boundary = status.pruned_before_block.expect("the recipe cut something");
    assert!((60..=ACKED).contains(&boundary), "{boundary}");
    assert_eq!((status.chain_id, status.head, status.queued_transactions), (7, Some(head), 1));
    assert_eq!(status.policy, policy_of_recipe());
    let hold = status.holds.iter().find(|hold| hold.name.contains("reader")).unwrap();
    assert_eq!((hold.limit, hold.strength), (Some(ACKED), Strength::Hard));
    let pending: Result<ByteBuf, Error> = host.query("get_receipt", (queued(),)).unwrap();
    assert_eq!(pending, Err(Error::Pending));
    for height in 1..=head {
        let kept: Result<KeptBlock, Error> = host.query("get_block", (height,)).unwrap();
        let id = ByteArray::new(tx_id(height, 1).0);
        let receipt: Result<ByteBuf, Error> = host.query("get_receipt", (id,)).unwrap();
        if height <= boundary {
            let gone = Error::Pruned { pruned_before_block: boundary };
            assert_eq!((kept.unwrap_err(), receipt.unwrap_err()), (gone.clone(), gone));
        } else {
            let kept = kept.unwrap();
            assert_eq!((kept.meta, kept.block), (meta(height), Some(small(height).block)));
            assert_eq!(receipt.unwrap(), noise(height ^ 1, 40));
        }
    }
}

/// The image of a name. With `SECATEUR_TEST_WRITE_GOLDEN=<name>` it is made first, by this version.
fn image(name: &str) -> Vec<u8> {
    if std::env::var("SECATEUR_TEST_WRITE_GOLDEN").is_ok_and(|wanted| wanted == name) {
        assert!(!std::path::Path::new(&path(name)).exists(), "{name} was released");
        let bytes = zstd::encode_all(recipe().image().as_slice(), 19).unwrap();
        std::fs::write(path(name), bytes).unwrap();
    }
    let bytes = std::fs::read(path(name)).unwrap_or_else(|error| panic!("{}: {error}", path(name)));
    zstd::decode_all(bytes.as_slice()).unwrap()
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn what_released_versions_wrote_is_whole_after_an_upgrade_and_goes_on() {
    for name in IMAGES {
        let mut host = Host::with_image(wasm(), vec![controller()], &image(name));
        host.upgrade(wasm(), controller()).unwrap();
        check(&mut host, HEAD);
        let appended = append(&mut host, small(HEAD + 1));
        assert_eq!(appended, Ok(Appended { head: HEAD + 1, written: 1 }), "{name}");
        check(&mut host, HEAD + 1);
        let included: Result<Queued, Error> =
            host.update(controller(), "queue_tx", (ByteArray::new(tx_id(HEAD, 0).0),)).unwrap();
        assert_eq!(included, Ok(Queued::Included(HEAD)), "{name}");
        // Retention goes on at its trigger, or when it is asked to.
        while prune(&mut host) {}
        host.settle();
        let end = status(&mut host);
        assert_eq!((end.pruned_before_block, end.journal_entries), (Some(ACKED), 0), "{name}");
        check(&mut host, HEAD + 1);
    }
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn a_canister_of_today_passes_the_same_checks() {
    check(&mut recipe(), HEAD);
}

/// A clock that stands still.
struct Noon;

impl Clock for Noon {
    fn now_millis(&self) -> u64 {
        1_800_000_000_000
    }
}

/// The store itself reads them too, and finds nothing wrong with a single row, region or run.
#[test]
fn the_store_verifies_what_released_canisters_wrote() {
    for name in IMAGES {
        let memory: VectorMemory = Rc::new(RefCell::new(image(name)));
        let ground = stable::open(memory, Family::History).unwrap();
        let store = Store::open(ground, Arc::new(Noon)).unwrap();
        let report = store.verify(|_, _| {}).unwrap();
        assert!(report.findings.is_empty(), "{name}: {:?}", report.findings);
        let boundary = store.get_prune_status().unwrap().pruned_before_block.unwrap();
        assert_eq!(report.blocks, HEAD - boundary, "{name}");
    }
}
