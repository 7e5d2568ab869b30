//! The decision at open as a table, over what servers of three versions answered when they were asked.

use super::*;

const COMMUNITY: &str = "Aerospike Community Edition";
const ENTERPRISE: &str = "Aerospike Enterprise Edition";
/// What every recorded answer has in common.
const COMMON: &str = "ns_cluster_size=1;tombstones=0;stop_writes=false;\
    conflict-resolution-policy=generation;default-ttl=0;strong-consistency=false;index-type=mem;\
    nsup-period=0;";
/// 8.1.2.0 and 7.2.0.1.
const MEMORY: &str = "storage-engine=memory;storage-engine.stripe[0]=stripe-0;\
    storage-engine.stripe[1]=stripe-1;storage-engine.filesize=0;storage-engine.data-size=1073741824";
const BACKED: &str = "storage-engine=memory;storage-engine.stripe[0]=stripe-0;\
    storage-engine.file[0]=/data/test.dat;storage-engine.data-size=0;storage-engine.filesize=1073741824";
const FILE: &str = "storage-engine=device;storage-engine.file[0]=/data/test.dat;\
    storage-engine.cold-start-empty=false;storage-engine.commit-to-device=false";
/// 6.4.0.34.
const FILE_6: &str = "storage-engine=device;storage-engine.file[0]=/data/test.dat;\
    storage-engine.cold-start-empty=false;storage-engine.commit-to-device=false;\
    storage-engine.data-in-memory=false";
/// Not recorded: from the names of the settings.
const DEVICE: &str = "storage-engine=device;storage-engine.device[0]=/dev/nvme0n1;\
    storage-engine.cold-start-empty=false";
const EMPTY: &str = "storage-engine=device;storage-engine.file[0]=/data/test.dat;\
    storage-engine.cold-start-empty=true";
const PMEM: &str = "storage-engine=pmem;storage-engine.file[0]=/mnt/pmem/test.dat";

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Durable,
    NotDurable,
    Warned,
    Refused,
    Waits,
}
use Answer::{Durable as Tombstones, NotDurable, Refused, Waits, Warned};

fn decide(query: &str, edition: &str, namespaces: &[String]) -> Answer {
    let address: Address = format!("aerospike://host/test?{query}").parse().unwrap();
    let node = |namespace| Node { edition, release: "ERROR:4:unrecognized command", namespace };
    let nodes: Vec<Node<'_>> = namespaces.iter().map(|text| node(text.as_str())).collect();
    match deletes(&address, &nodes) {
        Ok(Deletes { durable: true, warning: None }) => Tombstones,
        Ok(Deletes { warning: Some(_), .. }) => Warned,
        Ok(_) => NotDurable,
        Err(error) => {
            assert!(error.to_string().contains("nothing was changed"), "{error}");
            if error.is_retryable() { Waits } else { Refused }
        }
    }
}

fn of(storage: &str, more: &str) -> String {
    format!("{COMMON}{storage};{more}")
}

#[test]
fn a_community_edition_that_brings_deleted_records_back_is_refused_at_open() {
    let cluster = "replication-factor=2;effective_replication_factor=2;ns_cluster_size=3";
    // The first one counts: what is common says one node.
    let two = |storage: &str| format!("{cluster};{storage}");
    let on = "durable_delete=on";
    let off = "durable_delete=off";
    let wiped = "wiped_before_rejoin=yes";
    for (query, edition, namespace, wanted) in [
        // As recorded.
        ("", COMMUNITY, of(MEMORY, ""), Warned),
        ("", COMMUNITY, of(BACKED, ""), Refused),
        ("", COMMUNITY, of(FILE, ""), Refused),
        ("", COMMUNITY, of(FILE_6, ""), Refused),
        ("", COMMUNITY, of(DEVICE, ""), Refused),
        ("", COMMUNITY, of(PMEM, ""), Refused),
        // A replication factor does not help a node that reads its device again.
        ("", COMMUNITY, two(FILE), Refused),
        ("", COMMUNITY, two(FILE_6), Refused),
        ("", COMMUNITY, two(DEVICE), Refused),
        ("", COMMUNITY, two(BACKED), Refused),
        ("", COMMUNITY, two(MEMORY), NotDurable),
        // A node that starts empty takes its records from the others, if there are others.
        ("", COMMUNITY, two(EMPTY), NotDurable),
        ("", COMMUNITY, of(EMPTY, "replication-factor=1"), Refused),
        ("", COMMUNITY, of(EMPTY, ""), Refused),
        ("", COMMUNITY, of(EMPTY, "replication-factor=2"), Waits),
        ("", COMMUNITY, of(EMPTY, "replication-factor=2;effective_replication_factor=1"), Waits),
        // The operator says it. That deletions leave no tombstones says nothing of it.
        (wiped, COMMUNITY, of(FILE, ""), Warned),
        (wiped, COMMUNITY, of(BACKED, ""), Warned),
        ("wiped_before_rejoin=no", COMMUNITY, of(FILE, ""), Refused),
        (off, COMMUNITY, of(FILE, ""), Refused),
        (off, COMMUNITY, two(MEMORY), NotDurable),
        // What the edition cannot do is refused before a record is cut.
        (on, COMMUNITY, of(MEMORY, ""), Refused),
        (on, COMMUNITY, two(EMPTY), Refused),
        ("durable_delete=on&wiped_before_rejoin=yes", COMMUNITY, of(FILE, ""), Refused),
        // An edition that has tombstones, and one where they are not wanted.
        ("", ENTERPRISE, of(FILE, ""), Tombstones),
        ("", "Aerospike Federal Edition", of(DEVICE, ""), Tombstones),
        (on, ENTERPRISE, of(MEMORY, ""), Tombstones),
        (wiped, ENTERPRISE, of(FILE, ""), Tombstones),
        (off, ENTERPRISE, of(FILE, ""), Refused),
        (off, ENTERPRISE, two(MEMORY), NotDurable),
        // What does not say what it is, is not trusted.
        ("", "", of(FILE, ""), Refused),
        ("", COMMUNITY, COMMON.to_owned(), Refused),
        ("", COMMUNITY, String::new(), Refused),
        ("", COMMUNITY, "ERROR:20:unknown namespace".to_owned(), Refused),
    ] {
        let found = decide(query, edition, std::slice::from_ref(&namespace));
        assert_eq!(found, wanted, "{query} {edition} {namespace}");
    }
}

#[test]
fn one_node_that_brings_records_back_is_enough_to_refuse_a_cluster() {
    let cluster = |storage| format!("replication-factor=2;ns_cluster_size=2;{storage}");
    let (memory, file) = (cluster(MEMORY), cluster(FILE));
    assert_eq!(decide("", COMMUNITY, &[memory.clone(), memory.clone()]), NotDurable);
    assert_eq!(decide("", COMMUNITY, &[memory.clone(), file.clone()]), Refused);
    assert_eq!(decide("", COMMUNITY, &[file, memory]), Refused);
    assert_eq!(decide("durable_delete=on", ENTERPRISE, &[]), Refused, "nobody has said anything");
}

#[test]
fn a_refusal_says_what_would_happen_and_what_to_do() {
    let address: Address = "aerospike://host/test".parse().unwrap();
    let namespace = of(BACKED, "");
    let node = Node { edition: COMMUNITY, release: "", namespace: &namespace };
    let refused = deletes(&address, &[node]).unwrap_err().to_string();
    for part in [
        "namespace test keeps records in memory, backed by a file",
        "Aerospike Community Edition has no durable deletes",
        "come back unspent",
        "cold-start-empty=true",
        "wiped_before_rejoin=yes",
    ] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
}

#[test]
fn a_namespace_is_an_alarm_before_it_refuses_writes() {
    let new = "storage-engine.stop-writes-used-pct=70;storage-engine.stop-writes-avail-pct=5";
    let old = "stop-writes-pct=90;storage-engine.max-used-pct=70;storage-engine.min-avail-pct=5";
    let kind = |room: Room| match room {
        Room::Enough => "enough",
        Room::Low(_) => "low",
        Room::Full(_) => "full",
    };
    for (namespace, wanted) in [
        (of(FILE, new), "enough"),
        (of(FILE, ""), "enough"),
        (format!("data_used_pct=62;data_avail_pct=30;{new}"), "enough"),
        (format!("data_used_pct=63;data_avail_pct=30;{new}"), "low"),
        (format!("data_used_pct=40;data_avail_pct=11;{new}"), "enough"),
        (format!("data_used_pct=40;data_avail_pct=10;{new}"), "low"),
        (format!("memory_free_pct=20;device_free_pct=40;{old}"), "enough"),
        (format!("memory_free_pct=19;device_free_pct=40;{old}"), "low"),
        (format!("memory_free_pct=50;device_free_pct=37;{old}"), "low"),
        (format!("device_available_pct=9;{old}"), "low"),
        ("data_used_pct=99;storage-engine.stop-writes-used-pct=0".to_owned(), "enough"),
        ("data_used_pct=40;stop_writes=true".to_owned(), "full"),
        ("clock_skew_stop_writes=true;stop_writes=false".to_owned(), "full"),
        ("data_used_pct=x;storage-engine.stop-writes-used-pct=70".to_owned(), "enough"),
        (String::new(), "enough"),
    ] {
        assert_eq!(kind(room(&namespace)), wanted, "{namespace}");
    }
}

/// A node that did not answer hid that another one took no more writes.
#[test]
fn a_node_that_is_silent_does_not_hide_what_the_others_say() {
    let full = || Ok("stop_writes=true".to_owned());
    let low = || Ok("data_used_pct=69;storage-engine.stop-writes-used-pct=70".to_owned());
    let away = || Err(silent(Duration::from_secs(3)));
    for said in [[away(), full(), low()], [low(), full(), away()], [full(), away(), low()]] {
        let look = worst(said);
        assert!(matches!(look.room, Room::Full(_)) && look.failed.is_some(), "{look:?}");
    }
    let look = worst([low(), low()]);
    assert!(matches!(look.room, Room::Low(_)) && look.failed.is_none(), "{look:?}");
    let look = worst([away()]);
    assert!(look.room == Room::Enough && look.failed.is_some(), "{look:?}");
}
