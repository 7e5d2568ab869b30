//! An index of a canister: the real binary, the real client of the Internet Computer, and the real wasm
//! behind a network of one node. `make canister` builds the wasm; without it these tests are not run
//! (`scripts/canister test` says so).

mod chain;
#[path = "../../../../canister/tests/host/mod.rs"]
#[allow(dead_code, reason = "the canister's own tests use all of it")]
mod host;
mod replica;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use secateur_canister::{Error, Strength};
use secateur_index::source::{Blocks as _, IcOptions, IcSource, Source as _};
use secateur_index::{ErrorClass, IndexError};

use self::chain::{append_up_to, installed, status, tx_id, txs};
use self::replica::{Mood, Replica};
use crate::tool::run;

fn key_file(data: &Path, pem: &str) -> PathBuf {
    let path = data.join("key.pem");
    std::fs::write(&path, pem).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// The words of an index of this network's canister, all of which ends when everything is written.
fn words(replica: &Replica, data: &Path, more: &str) -> String {
    let (source, url, data) = (replica.source(), replica.url(), data.display());
    format!(
        "index --source {source} --ic-url {url} --sink sqlite:{data}/index.sqlite --retention-days 0 \
         --once {more}"
    )
}

/// The numbers of a table's rows, and of one column's distinct values in them.
fn counted(data: &Path, sql: &str) -> i64 {
    let index = Connection::open(data.join("index.sqlite")).unwrap();
    index.query_row(sql, [], |row| row.get(0)).unwrap()
}

const BLOCKS: &str = "SELECT count(*) FROM blocks";

/// A controller puts the consumer's principal into the list.
fn let_acknowledge(replica: &Replica) {
    replica.host(|host| {
        let may: Result<(), Error> = host
            .update(chain::controller(), "set_consumer_principals", (vec![chain::consumer()],))
            .unwrap();
        may.unwrap();
    });
}

fn all_txs(blocks: std::ops::RangeInclusive<u64>) -> i64 {
    blocks.map(|height| i64::from(txs(height))).sum()
}

fn source(replica: &Replica) -> IcSource {
    let mut options = IcOptions::parse(&replica.source()).unwrap();
    options.url = replica.url();
    IcSource::new(&options).unwrap()
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn a_canister_is_pulled_into_sqlite_and_cuts_only_what_the_index_has() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    let replica = Replica::start(installed(10));
    let key = key_file(data, chain::KEY);
    let consumer = format!(
        "--codec kasane --log-address all --consumer reader --hard --ic-identity {}",
        key.display()
    );
    // The consumer is there before the first block, so that nothing is cut ahead of it.
    run(data, &words(&replica, data, &consumer)).ends(0);
    replica.host(|host| append_up_to(host, 120));
    assert_eq!(replica.host(status).pruned_before_block, None, "a hard consumer has nothing yet");
    run(data, &words(&replica, data, &consumer)).ends(0);
    assert_eq!(counted(data, "SELECT count(*) FROM blocks"), 120);
    assert_eq!(counted(data, "SELECT count(*) FROM txs"), all_txs(1..=120));
    assert_eq!(counted(data, "SELECT count(*) FROM logs"), all_txs(1..=120));
    assert_eq!(counted(data, "SELECT min(number) FROM blocks"), 1);
    let index = Connection::open(data.join("index.sqlite")).unwrap();
    let found: (i64, i64) = index
        .query_row(
            "SELECT block_number, gas_used FROM txs WHERE hash = ?1",
            [tx_id(5, 899).0],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!(found, (5, 21_899));
    // What it has is acknowledged, so the canister's next trigger cuts it.
    replica.host(|host| append_up_to(host, 204));
    let boundary = replica.host(status).pruned_before_block;
    assert_eq!(boundary, Some(120));
    run(data, &words(&replica, data, &consumer)).ends(0);
    assert_eq!(counted(data, "SELECT count(*) FROM blocks"), 204);
    assert_eq!(counted(data, "SELECT count(*) FROM txs"), all_txs(1..=204));
    // The canister's chain begins with block 1: what is below is all that is missing.
    assert_eq!(counted(data, "SELECT count(*) FROM gaps"), 1);
    assert_eq!(counted(data, "SELECT max(block_to) FROM gaps"), 0);
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn blocks_that_a_canister_has_cut_stop_an_index_or_leave_a_gap() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    let replica = Replica::start(installed(20));
    replica.host(|host| append_up_to(host, 10));
    run(data, &words(&replica, data, "--codec kasane")).ends(0);
    replica.host(|host| append_up_to(host, 84));
    assert_eq!(replica.host(status).pruned_before_block, Some(64));
    let stopped = run(data, &words(&replica, data, "--codec kasane"));
    assert_ne!(stopped.code, 0);
    let stopped = stopped.complains("block 11 is pruned");
    assert!(stopped.err.contains("64"), "{stopped:?}");
    run(data, &words(&replica, data, "--codec kasane --on-pruned rebase")).ends(0);
    assert_eq!(counted(data, "SELECT count(*) FROM blocks"), 30);
    assert_eq!(counted(data, "SELECT block_to FROM gaps WHERE block_from = 11"), 64);
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn without_looking_into_blocks_an_index_has_their_names_from_the_canister() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    let replica = Replica::start(installed(0));
    replica.host(|host| append_up_to(host, 12));
    run(data, &words(&replica, data, "--codec opaque")).ends(0);
    assert_eq!(counted(data, "SELECT count(hash) FROM blocks"), 12);
    assert_eq!(counted(data, "SELECT ts FROM blocks WHERE number = 12"), 1_700_000_012);
    // A canister that has the export and nothing else is read without them.
    let other = data.join("other");
    std::fs::create_dir(&other).unwrap();
    for method in ["get_block_meta", "get_prune_status"] {
        replica.hide(method);
    }
    run(data, &words(&replica, &other, "--codec opaque")).ends(11).complains("--chain-id");
    run(data, &words(&replica, &other, "--codec opaque --chain-id 77")).ends(0);
    assert_eq!(counted(&other, "SELECT count(*) FROM blocks"), 12);
    assert_eq!(counted(&other, "SELECT count(hash) FROM blocks"), 0);
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn only_a_controllers_key_registers_a_consumer() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    let replica = Replica::start(installed(0));
    let consumer = "--codec kasane --consumer reader";
    let refused = run(data, &words(&replica, data, consumer));
    assert_ne!(refused.code, 0);
    refused.complains("--ic-identity");
    let key = key_file(data, &chain::consumer_key());
    let consumer = format!("{consumer} --ic-identity {}", key.display());
    let refused = run(data, &words(&replica, data, &consumer)).ends(11);
    refused.complains("neither one of its consumers nor a controller");
    // One that is in the list may acknowledge, and not register.
    let_acknowledge(&replica);
    run(data, &words(&replica, data, &consumer))
        .ends(11)
        .complains("no hold of the consumer reader");
    assert_eq!(
        replica.host(status).holds.iter().filter(|hold| hold.name.contains("reader")).count(),
        0
    );
}

/// A worker of a canister needed a controller's key, which can also upgrade the canister and delete it, and
/// what it had indexed was all that released blocks: the canister knew of no parts. A consumer's key
/// acknowledges both, and the archive hold moves by parts alone.
#[test]
#[ignore = "needs the wasm: make canister"]
fn an_index_with_a_consumers_key_acknowledges_and_parts_release_the_archive_hold() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    let replica = Replica::start(installed(0));
    let key = key_file(data, &chain::consumer_key());
    let indexing =
        format!("--codec kasane --consumer reader --hard --ic-identity {}", key.display());
    let archive = data.join("archive");
    let archiving = format!("{indexing} --archive {} --part-blocks 40", archive.display());
    // Whoever is not in the list is refused, and so is a consumer that no controller has registered.
    run(data, &words(&replica, data, &indexing)).ends(11).complains("set_consumer_principals");
    let_acknowledge(&replica);
    run(data, &words(&replica, data, &indexing)).ends(11).complains("no hard hold");
    replica.host(|host| {
        let hold: Result<(), Error> = host
            .update(chain::controller(), "register_consumer", ("reader", Strength::Hard))
            .unwrap();
        hold.unwrap();
        let held: Result<(), Error> =
            host.update(chain::controller(), "set_archive_hold", (true,)).unwrap();
        held.unwrap();
        let mut policy = status(host).policy;
        policy.retain_blocks = 10;
        let set: Result<(), Error> =
            host.update(chain::controller(), "set_prune_policy", (policy,)).unwrap();
        set.unwrap();
        append_up_to(host, 120);
    });
    // The index has everything, and not a block is cut for it.
    run(data, &words(&replica, data, &indexing)).ends(0);
    let held = replica.host(|host| {
        append_up_to(host, 204);
        status(host)
    });
    assert_eq!((held.pruned_before_block, held.archived), (None, None));
    assert_eq!(held.binding_hold.as_deref(), Some("archive"));
    // Parts of 40 blocks: what they hold may be cut.
    run(data, &words(&replica, data, &archiving)).ends(0);
    let archived = replica.host(|host| {
        host.advance(600_000);
        host.settle();
        status(host)
    });
    assert_eq!((archived.archived, archived.pruned_before_block), (Some(200), Some(194)));
}

/// What a canister lets only its consumers do was refused when the first part was whole, a day after the
/// start, and that of a consumer at the first acknowledgement.
#[test]
#[ignore = "needs the wasm: make canister"]
fn a_canisters_right_that_will_be_needed_is_named_before_a_part_is_made() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    let replica = Replica::start(installed(0));
    replica.host(|host| append_up_to(host, 12));
    let archive = data.join("archive");
    let nothing = || !data.join("index.sqlite").exists() || counted(data, BLOCKS) == 0;
    let archiving = format!("--codec kasane --archive {} --part-blocks 10", archive.display());
    replica.host(|host| {
        let held: Result<(), Error> =
            host.update(chain::controller(), "set_archive_hold", (true,)).unwrap();
        held.unwrap();
    });
    let refused = run(data, &words(&replica, data, &archiving)).ends(11);
    refused.complains("AckArchived").complains("without a key").complains("--ic-identity");
    let consumer = format!("{archiving} --consumer reader");
    let refused = run(data, &words(&replica, data, &consumer)).ends(11);
    refused.complains("AckExported (for --consumer) and AckArchived");
    let key = key_file(data, &chain::consumer_key());
    let with_key = format!("{archiving} --ic-identity {}", key.display());
    let refused = run(data, &words(&replica, data, &with_key)).ends(11);
    refused.complains("set_consumer_principals").complains(&chain::consumer().to_text());
    assert!(nothing() && !archive.exists(), "no block and no part");
    let_acknowledge(&replica);
    run(data, &words(&replica, data, &with_key)).ends(0);
    // A canister that waits for no part needs no key.
    replica.host(|host| {
        let held: Result<(), Error> =
            host.update(chain::controller(), "set_archive_hold", (false,)).unwrap();
        held.unwrap();
    });
    run(data, &words(&replica, data, &archiving)).ends(0);
}

#[tokio::test]
#[ignore = "needs the wasm: make canister"]
async fn answers_that_are_forged_or_old_are_not_believed_and_failed_nodes_are_asked_again() {
    let replica = Replica::start(installed(0));
    replica.host(|host| append_up_to(host, 3));
    let before = source(&replica);
    assert_eq!(before.head().await, Ok(Some(3)));
    for mood in [Mood::Forges, Mood::Stale] {
        replica.mood(mood);
        // One that knows the node's key already, and one that has to ask for it.
        for source in [before.clone(), source(&replica)] {
            let error = source.head().await.expect_err("it was believed");
            assert!(error.is_retryable() && error.class() == ErrorClass::Net, "{mood:?}: {error}");
            assert!(error.to_string().contains("not believed"), "{mood:?}: {error}");
        }
    }
    replica.mood(Mood::Fails(0));
    let failed = before.head().await;
    assert!(matches!(&failed, Err(error) if error.is_retryable()), "{failed:?}");
    assert_eq!(before.head().await, Ok(Some(3)));
    let mut blocks = before.blocks(None, true);
    let mut came = Vec::new();
    while let Some(block) = blocks.next().await.unwrap() {
        assert_eq!(block.payloads.block, chain::block(block.height).block.into_vec());
        came.push((block.height, block.meta.map(|meta| meta.height)));
    }
    assert_eq!(came, [(1, Some(1)), (2, Some(2)), (3, Some(3))]);
    // What comes later is there when it is asked for again.
    replica.host(|host| append_up_to(host, 9));
    for height in 4..=9 {
        assert_eq!(blocks.next().await.unwrap().map(|block| block.height), Some(height));
    }
    assert_eq!(blocks.next().await, Ok(None));
}

#[tokio::test]
#[ignore = "needs the wasm: make canister"]
async fn a_canister_that_is_not_there_is_told() {
    let replica = Replica::start(installed(0));
    replica.hide("get_head");
    let error = source(&replica).head().await.unwrap_err();
    assert!(
        matches!(&error, IndexError::Refused(reason) if reason.contains("get_head")),
        "{error}"
    );
    let url = replica.url();
    drop(replica);
    let mut options = IcOptions::parse("ic://rrkah-fqaaa-aaaaa-aaaaq-cai").unwrap();
    options.url = url;
    let error = IcSource::new(&options).unwrap().head().await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    options.url = "http://example.invalid".into();
    let error = IcSource::new(&options).unwrap_err().to_string();
    assert!(error.contains("https://"), "{error}");
}
