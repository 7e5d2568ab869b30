//! Who may call what, and calls that make no sense.

use candid::Principal;
use secateur_canister::{Appended, Error, InitArgs, Strength};
use serde_bytes::ByteArray;

use crate::common::*;
use crate::host::Host;

/// Every call that changes something, with an argument that a controller could give.
fn writes() -> Vec<(&'static str, Vec<u8>)> {
    let encode = |args: Result<Vec<u8>, candid::Error>| args.unwrap();
    let id = ByteArray::<32>::new([1; 32]);
    let piece =
        secateur_canister::Piece { segment: 0, start: 0, bytes: b"a".as_slice().to_vec().into() };
    let head = secateur_canister::BlockHead {
        meta: meta(4),
        block_len: 1,
        receipts_len: 0,
        tx_index_len: 0,
    };
    vec![
        ("append", encode(candid::encode_one(block(4, 10, 1, 5)))),
        ("append_begin", encode(candid::encode_one(head))),
        ("append_chunk", encode(candid::encode_one(piece))),
        ("append_commit", encode(candid::encode_args(()))),
        ("queue_tx", encode(candid::encode_one(id))),
        ("drop_tx", encode(candid::encode_one(id))),
        ("set_prune_policy", encode(candid::encode_one(policy(0)))),
        ("set_pruning_enabled", encode(candid::encode_one(false))),
        ("prune_now", encode(candid::encode_one(0_u64))),
        ("register_consumer", encode(candid::encode_args(("reader", Strength::Hard)))),
        ("remove_consumer", encode(candid::encode_one("reader"))),
        ("ack_exported", encode(candid::encode_args(("reader", 1_u64)))),
        ("ack_archived", encode(candid::encode_one(part(1, 3)))),
        ("set_archive_hold", encode(candid::encode_one(false))),
        ("set_consumer_principals", encode(candid::encode_one(vec![consumer()]))),
    ]
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn only_controllers_write_whoever_lets_the_call_in() {
    let mut host = installed(None);
    append_up_to(&mut host, 3);
    let (image, before) = (host.image(), status(&mut host));
    let mut exported: Vec<_> = host.interface().lines().filter_map(update_name).collect();
    exported.sort();
    let mut tried: Vec<_> = writes().into_iter().map(|(method, _)| method.to_owned()).collect();
    tried.sort();
    assert_eq!(exported, tried, "every update is tried here");
    for (method, arg) in writes() {
        for caller in [Principal::anonymous(), stranger(), host.id()] {
            assert!(!host.is_let_in(caller, method), "{method}");
            // As another canister calls, whom nobody asks at the door.
            let ran = host.update_raw(caller, method, &arg).unwrap();
            let Err(error) = candid::decode_one::<Result<candid::Reserved, Error>>(&ran.reply)
                .unwrap_or_else(|error| panic!("{method}: {error}"))
            else {
                panic!("{method} was done for {caller}");
            };
            assert!(matches!(error, Error::Forbidden { .. }), "{method}: {error:?}");
            assert_eq!(host.image(), image, "{method}");
        }
        assert!(host.is_let_in(controller(), method), "{method}");
    }
    assert_eq!(status(&mut host), before);
    // Everybody reads, by queries; sent through consensus they would be at the canister's cost.
    let head: Result<Option<u64>, Error> = host.query("get_head", ()).unwrap();
    assert_eq!(head, Ok(Some(3)));
    for method in ["get_head", "prune_plan", "get_receipt", "<ic-cdk internal> timer_executor"] {
        assert!(!host.is_let_in(stranger(), method), "{method}");
    }
}

/// The name of an update, if a line of the interface is one.
fn update_name(line: &str) -> Option<String> {
    let (name, rest) = line.trim().split_once(" : (")?;
    let is_update = rest.contains("-> (") && !rest.ends_with("query;");
    is_update.then(|| name.to_owned())
}

/// An index needed a controller's key to acknowledge, and with it could do everything. A consumer's principal
/// is let in for acknowledgements alone, until a controller takes it out of the list; an upgrade keeps it.
#[test]
#[ignore = "needs the wasm: make canister"]
fn a_consumers_principal_acknowledges_and_may_nothing_else_also_after_an_upgrade() {
    let mut host = installed(None);
    append_up_to(&mut host, 3);
    let listed = |host: &mut Host| -> Vec<Principal> {
        host.query::<Result<Vec<Principal>, Error>>("get_consumer_principals", ()).unwrap().unwrap()
    };
    let set = |host: &mut Host, list: Vec<Principal>| -> Result<(), Error> {
        host.update(controller(), "set_consumer_principals", (list,)).unwrap()
    };
    let registered: Result<(), Error> =
        host.update(controller(), "register_consumer", ("reader", Strength::Hard)).unwrap();
    registered.unwrap();
    assert_eq!(listed(&mut host), []);
    set(&mut host, vec![consumer(), consumer()]).unwrap();
    host.upgrade(wasm(), controller()).unwrap();
    assert_eq!(listed(&mut host), [consumer()]);

    for (method, arg) in writes() {
        let may = method.starts_with("ack_");
        assert_eq!(host.is_let_in(consumer(), method), may, "{method}");
        let image = host.image();
        let ran = host.update_raw(consumer(), method, &arg).unwrap();
        let done = candid::decode_one::<Result<candid::Reserved, Error>>(&ran.reply).unwrap();
        if may {
            assert!(done.is_ok(), "{method}: {done:?}");
        } else {
            assert!(matches!(done, Err(Error::Forbidden { .. })), "{method}");
            assert_eq!(host.image(), image, "{method}");
        }
    }
    let refused = set(&mut host, vec![Principal::anonymous()]);
    assert!(matches!(&refused, Err(Error::Refused { reason, .. }) if reason.contains("anonymous")));
    assert!(!host.is_let_in(Principal::anonymous(), "ack_exported"));
    let crowd = (0..65).map(|n| Principal::self_authenticating([n; 32])).collect();
    assert!(matches!(set(&mut host, crowd), Err(Error::Refused { .. })));
    assert_eq!(listed(&mut host), [consumer()], "what is refused changes nothing");
    set(&mut host, Vec::new()).unwrap();
    assert!(!host.is_let_in(consumer(), "ack_exported"));
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn consumers_and_the_archive_hold_can_be_chosen_at_the_installation() {
    let mut host = Host::new(wasm(), vec![controller()]);
    let args = InitArgs {
        chain_id: 7,
        archive_hold: Some(true),
        consumer_principals: Some(vec![consumer()]),
        ..InitArgs::default()
    };
    host.init(controller(), &args).unwrap();
    assert!(host.is_let_in(consumer(), "ack_archived"));
    append_up_to(&mut host, 3);
    let holds = status(&mut host).holds;
    assert!(holds.iter().any(|hold| hold.name == "archive" && hold.active), "{holds:?}");
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn malformed_candid_traps_and_changes_nothing() {
    let mut host = installed(None);
    append_up_to(&mut host, 3);
    let (image, before) = (host.image(), status(&mut host));
    let reads = ["export_blocks", "get_block", "get_receipt", "http_request"];
    let methods: Vec<(&str, bool)> = writes()
        .iter()
        .filter(|(method, _)| *method != "append_commit")
        .map(|(method, _)| (*method, true))
        .chain(reads.map(|method| (method, false)))
        .collect();
    let deep = [b"DIDL".as_slice(), &[0xff; 40]].concat();
    // A vector that says it has a thousand million entries of no bytes.
    let bomb = [b"DIDL\x01\x6d\x7f\x01\x00".as_slice(), &[0x80, 0x94, 0xeb, 0xdc, 0x03]].concat();
    let other = candid::encode_args((("a", 1_u8), true)).unwrap();
    for arg in [&b""[..], b"DIDL", b"garbage", &deep, &bomb, &other] {
        for (method, is_update) in &methods {
            let ran = if *is_update {
                host.update_raw(controller(), method, arg)
            } else {
                host.query_raw(controller(), method, arg)
            };
            assert!(ran.is_err(), "{method} took {arg:?}");
            assert_eq!(host.image(), image, "{method}");
        }
    }
    assert_eq!(status(&mut host), before);
    assert_eq!(append(&mut host, block(4, 10, 1, 5)), Ok(Appended { head: 4, written: 1 }));
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn a_policy_that_contradicts_itself_is_refused() {
    let mut host = installed(None);
    let mut wrong = policy(2 << 20);
    wrong.max_ops_per_tick = 0;
    let refused: Result<(), Error> =
        host.update(controller(), "set_prune_policy", (wrong.clone(),)).unwrap();
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    for ops in [20_001, u64::MAX] {
        let wrong = secateur_canister::PrunePolicy { max_ops_per_tick: ops, ..wrong.clone() };
        let refused: Result<(), Error> =
            host.update(controller(), "set_prune_policy", (wrong,)).unwrap();
        assert!(matches!(&refused, Err(Error::Invalid { reason }) if reason.contains("20000")));
    }
    wrong.max_ops_per_tick = 10;
    let trigger = secateur_canister::Trigger::Timer(u64::MAX);
    let timer = secateur_canister::PrunePolicy { trigger, ..wrong.clone() };
    let refused: Result<(), Error> =
        host.update(controller(), "set_prune_policy", (timer,)).unwrap();
    assert!(matches!(&refused, Err(Error::Invalid { reason }) if reason.contains("30 days")));
    wrong.headroom_basis_points = 10_001;
    let refused: Result<(), Error> =
        host.update(controller(), "set_prune_policy", (wrong,)).unwrap();
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    let name = "n".repeat(300);
    let refused: Result<(), Error> =
        host.update(controller(), "register_consumer", (name, Strength::Soft)).unwrap();
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
}
