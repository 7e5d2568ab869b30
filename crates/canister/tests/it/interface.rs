//! The interface: as it is written down, over HTTP, and after an upgrade.

use candid::{CandidType, Deserialize};
use secateur_canister::{Error, InitArgs};
use serde_bytes::ByteBuf;

use crate::common::*;
use crate::host::Host;

const WRITTEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/secateur.did");

#[test]
#[ignore = "needs the wasm: make canister"]
fn the_interface_that_is_written_down_is_the_one_that_the_wasm_has() {
    let has = Host::new(wasm(), vec![controller()]).interface();
    let has = format!("{}\n", has.trim_end());
    if std::env::var_os("SECATEUR_TEST_WRITE_DID").is_some() {
        std::fs::write(WRITTEN, &has).unwrap();
    }
    let written = std::fs::read_to_string(WRITTEN).unwrap();
    assert!(written == has, "SECATEUR_TEST_WRITE_DID=1 writes it anew:\n{has}");
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn a_height_that_is_not_known_has_no_sample() {
    let mut host = installed(None);
    let text: Result<String, Error> = host.query("metrics", ()).unwrap();
    let text = text.unwrap();
    for absent in ["head_height", "pruned_before_height", "oldest_kept_height", "budget_blocks"] {
        assert!(!text.contains(&format!("secateur_canister_{absent}")), "{text}");
    }
    assert!(!text.contains("last_prune_timestamp_seconds"), "{text}");
    assert!(text.contains("\nsecateur_canister_used_bytes 0\n"), "{text}");
}

/// A request with everything that a gateway puts into it.
#[derive(CandidType, Deserialize)]
struct GatewayRequest {
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    body: ByteBuf,
    certificate_version: Option<u16>,
}

/// What a gateway makes of an answer.
#[derive(CandidType, Deserialize)]
struct GatewayResponse {
    status_code: u16,
    headers: Vec<(String, String)>,
    body: ByteBuf,
    upgrade: Option<bool>,
}

fn get(host: &mut Host, method: &str, url: &str) -> GatewayResponse {
    let header = |n: usize| (format!("x-header-{n}"), "v".repeat(100));
    let request = GatewayRequest {
        method: method.into(),
        url: url.into(),
        headers: (0..40).map(header).collect(),
        body: ByteBuf::new(),
        certificate_version: Some(2),
    };
    host.query("http_request", (request,)).unwrap()
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn metrics_come_over_http_and_by_a_call() {
    let mut host = installed(Some(policy(2 << 20)));
    append_up_to(&mut host, 5);
    let answer = get(&mut host, "GET", "/metrics?x=1");
    assert_eq!((answer.status_code, answer.upgrade), (200, None));
    assert!(answer.headers.iter().any(|(_, value)| value.starts_with("text/plain")));
    let text = String::from_utf8(answer.body.into_vec()).unwrap();
    assert!(text.contains("\nsecateur_canister_head_height 5\n"), "{text}");
    assert!(text.contains("\nsecateur_canister_target_bytes 2097152\n"), "{text}");
    assert!(text.contains("# TYPE secateur_canister_used_bytes gauge"), "{text}");
    assert!(text.contains("\nsecateur_canister_budget_blocks "), "{text}");
    assert!(text.contains("\nsecateur_canister_estimated_kept_bytes "), "{text}");
    let called: Result<String, Error> = host.query("metrics", ()).unwrap();
    assert_eq!(called.unwrap(), text);
    assert_eq!(get(&mut host, "GET", "/").status_code, 404);
    assert_eq!(get(&mut host, "POST", "/metrics").status_code, 405);
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn stable_memory_of_another_program_or_of_a_newer_version_is_refused_and_kept() {
    let args = InitArgs { chain_id: 7, ..InitArgs::default() };
    let mut ours = installed(None);
    append_up_to(&mut ours, 3);
    let image = ours.image();
    let mut newer = image.clone();
    let at = newer.windows(8).position(|word| word == b"SECSTABL").unwrap();
    newer[at + 8..at + 12].copy_from_slice(&2_u32.to_be_bytes());
    let foreign = noise(1, 65_536 * 3);
    for (image, says) in [(&newer, "newer secateur"), (&foreign, "another program")] {
        let mut host = Host::with_image(wasm(), vec![controller()], image);
        let trap = host.upgrade(wasm(), controller()).unwrap_err();
        assert!(trap.0.contains(says), "{trap:?}");
        assert!(host.init(controller(), &args).is_err());
        assert_eq!(&host.image(), image);
    }
    let mut again = Host::with_image(wasm(), vec![controller()], &image);
    again.upgrade(wasm(), controller()).unwrap();
    append_up_to(&mut again, 4);
}
