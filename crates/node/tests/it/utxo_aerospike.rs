//! The UTXO service on Aerospike, as far as it goes without a cluster: what is refused, and what is
//! waited for.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::tool::{run, secateur};
use crate::utxo_rig::Home;

/// Nobody listens there.
const NOBODY: &str = "aerospike://127.0.0.1:1/test";

#[test]
fn an_address_of_aerospike_that_is_malformed_is_refused_without_being_shown() {
    for (address, complaint) in [
        ("aerospike://", "it names no namespace"),
        ("aerospike://host", "it names no namespace"),
        ("aerospike://host:port/test", "a port is not a number"),
        ("aerospike://host/test?tls=on", "only set, durable_delete and wiped_before_rejoin"),
        ("aerospike://me:hidden@host/test", "AEROSPIKE_USER and AEROSPIKE_PASSWORD"),
    ] {
        let home = Home::new(&format!("store = \"{address}\""));
        let told = run(&home.data, "utxo serve").ends(2).complains(complaint);
        assert!(told.err.contains("utxo.store") && !told.err.contains("hidden"), "{told:?}");
        assert!(!home.data.join("utxo").exists());
        let home = Home::new("");
        let told = run(&home.data, &format!("utxo status --store {address}")).ends(2);
        assert!(told.err.contains("--store") && !told.err.contains("hidden"), "{told:?}");
        assert!(told.err.contains(complaint), "{told:?}");
    }
}

#[test]
fn a_cluster_that_is_away_fails_a_command_and_is_waited_for_by_the_service() {
    let home = Home::new(&format!("store = \"{NOBODY}\""));
    let told = run(&home.data, "utxo status").ends(7).complains("cannot be opened");
    assert!(told.err.contains("Aerospike") && told.err.contains("127.0.0.1:1"), "{told:?}");
    // Only what may pass is waited for.
    let mut words = secateur(&home.data, "utxo serve --listen 127.0.0.1:0 --http 127.0.0.1:0");
    let mut waiting = words.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(waiting.stderr.take().unwrap()).lines();
    let waited = log.by_ref().filter(|line| line.as_ref().unwrap().contains("are waited for"));
    assert_eq!(waited.take(2).count(), 2, "it does not wait");
    waiting.kill().unwrap();
    waiting.wait().unwrap();
}
