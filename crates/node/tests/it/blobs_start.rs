//! Whether a node that keeps blobs starts at all, and who may ask it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use secateur_proto::sidecar::v1 as pb;
use secateur_proto::sidecar::v1::gossip_client::GossipClient;
use secateur_proto::sidecar::v1::sidecar_client::SidecarClient;
use serde_json::json;
use tonic::Code;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Endpoint;

use crate::blobs_rig::{BlobNode, Validator, parts, proposal, settings};
use crate::grpc::Bearer;
use crate::http_client::{get, send};
use crate::node::Node;
use crate::tool::{Run, run};

fn attempt(place: &Path, text: &str) -> Run {
    let file = place.join("bad.toml");
    std::fs::write(&file, text).unwrap();
    let words = format!("node --http 127.0.0.1:0 --grpc 127.0.0.1:0 --config {}", file.display());
    run(&place.join("data"), &words)
}

#[test]
fn settings_that_are_wrong_are_named_and_nothing_is_started() {
    let place = tempfile::tempdir().unwrap();
    let (me, other) = (Validator::new(place.path(), 1), Validator::new(place.path(), 2));
    let with = |keys: &str| settings(place.path(), keys, &[&me]);
    let swapped = format!("identity = \"{}\"\nkey_file = \"{}\"\n", me.id, other.file.display());
    let extra = |text: &str| with("") + text;
    for (text, wanted) in [
        (with("max_blobs = 5000\n"), "sidecar.max_blobs"),
        (with("max_blobs = 4000\n"), "limits.answer_bytes"),
        (with("trust = \"hope\"\n"), "sidecar.trust"),
        (with("signers = \"anybody\"\n"), "sidecar.signers"),
        (with("serve_archived = \"maybe\"\n"), "sidecar.serve_archived"),
        (with("identity = \"0x0102\"\n"), "sidecar.key_file"),
        (with(&other.is_me()), "is not in sidecar.validators"),
        (with(&swapped), "another one for"),
        (with(&format!("min_copies = 2\n{}", me.is_me())), "sidecar.min_copies"),
        (with("hunger = 3\n"), "there is no key sidecar.hunger"),
        (extra("[[sidecar.providers]]\nkind = \"ftp\"\nname = \"x\"\n"), "sidecar.providers"),
        (
            extra("[[sidecar.providers]]\nkind = \"fs\"\nname = \"local\"\npath = \"x\"\n"),
            "two are",
        ),
        (
            extra(
                "[[sidecar.providers]]\nkind = \"s3\"\nname = \"s\"\nurl = \"s3://a-b\"\nkey = 1\n",
            ),
            "sidecar.providers",
        ),
        (
            extra("[[sidecar.providers]]\nkind = \"fs\"\nname = \"sha red\"\npath = \"x\"\n"),
            "provider name",
        ),
        (
            extra("[[sidecar.providers]]\nkind = \"fs\"\nname = \"x\"\npath = \"\"\n"),
            "path of x is no directory",
        ),
        (extra("[[sidecar.peers]]\nname = \"x\"\n"), "sidecar.peers"),
        (
            extra(&"[[sidecar.peers]]\nname = \"x\"\nurl = \"http://y\"\n".repeat(2)),
            "two are called x",
        ),
        (extra("[[sidecar.peers]]\nname = \"x\"\nurl = \"ftp://u:hunter2@y\"\n"), "peer"),
        (
            extra("[[sidecar.validators]]\nid = \"0x01\"\npublic_key = \"0x02\"\n"),
            "sidecar.validators",
        ),
    ] {
        let ended = attempt(place.path(), &text);
        assert!(ended.code != 0 && ended.out.is_empty(), "{wanted}: {ended:?}");
        assert!(ended.err.contains(wanted), "no `{wanted}` in {ended:?}");
        assert!(!ended.err.contains("hunter2"), "{ended:?}");
        // Whoever asks first is told the same.
        let file = place.path().join("bad.toml");
        let words = format!("config check --config {}", file.display());
        assert_ne!(run(&place.path().join("data"), &words).code, 0, "{wanted}");
    }
    assert!(!place.path().join("data/sidecars").exists());
}

/// Private uploads are stored in the customer's bucket alone; the gateway does not resolve them. A node that used
/// them uploaded every blob, never read one back, and archived nothing.
#[test]
fn private_uploads_are_refused_at_config_check_with_the_reason() {
    let place = tempfile::tempdir().unwrap();
    let me = Validator::new(place.path(), 1);
    let load = |keys: &str| {
        settings(place.path(), "", &[&me])
            + "[[sidecar.providers]]\nkind = \"load-s3-agent\"\nname = \"load\"\n\
               agent = \"http://127.0.0.1:1\"\ngateway = \"http://127.0.0.1:1\"\n"
            + keys
    };
    let file = place.path().join("load.toml");
    let check = |keys: &str| {
        std::fs::write(&file, load(keys)).unwrap();
        let words = format!("config check --config {}", file.display());
        run(&place.path().join("data"), &words)
    };
    check("").ends(0);
    for keys in ["bucket = \"mine\"\n", "bucket = \"mine\"\nfolder = \"a\"\n", "folder = \"a\"\n"] {
        let refused = check(keys).ends(2).complains("bucket and folder of load");
        assert!(refused.err.contains("no copy could be read back"), "{refused:#?}");
        assert!(refused.err.contains("kind = \"s3\""), "{refused:#?}");
    }
}

/// `config check` read the key of the validator and no other file of `[sidecar]`, and the node then
/// refused what it had passed. Both open every file and judge every address of a place or a peer.
#[test]
fn config_check_reads_the_files_of_places_and_peers_as_a_node_does() {
    let place = tempfile::tempdir().unwrap();
    let me = Validator::new(place.path(), 1);
    let file = place.path().join("sidecar.toml");
    let load = "[[sidecar.providers]]\nkind = \"load-s3-agent\"\nname = \"load\"\n\
                agent = \"http://127.0.0.1:1\"\ngateway = \"http://127.0.0.1:1\"\n";
    let missing = place.path().join("missing");
    let named = |key: &str| format!("{key} = \"{}\"\n", missing.display());
    for (keys, more) in [
        (String::new(), format!("{load}{}", named("token_file"))),
        (String::new(), load.replace("http://127.0.0.1:1", "http://agent.example")),
        (
            named("token_file"),
            "[[sidecar.peers]]\nname = \"b\"\nurl = \"http://127.0.0.1:2\"\n".into(),
        ),
    ] {
        std::fs::write(&file, settings(place.path(), &keys, &[&me]) + &more).unwrap();
        let words = |verb: &str| format!("{verb} --config {}", file.display());
        let checked = run(&place.path().join("data"), &words("config check"));
        let node = run(&place.path().join("data"), &words("node"));
        assert!(checked.code == 2 || checked.code == 11, "{more}: {checked:#?}");
        assert_eq!((node.code, &node.err), (checked.code, &checked.err), "{more}");
        assert!(!place.path().join("data").exists(), "nothing was made");
    }
}

#[test]
fn the_example_of_the_documentation_works_as_it_stands() {
    let place = tempfile::tempdir().unwrap();
    let page = include_str!("../../../../docs/sidecar.md");
    let example = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let file = place.path().join("secateur.toml");
    std::fs::write(&file, example).unwrap();
    let words = format!("config check --config {}", file.display());
    run(&place.path().join("data"), &words).ends(0);
    let shown = format!("config show --json --config {}", file.display());
    let shown = run(&place.path().join("data"), &shown).ends(0).json();
    let rows = shown.as_array().unwrap();
    let value = |key: &str| rows.iter().find(|row| row["key"] == key).unwrap()["value"].clone();
    assert_eq!(value("sidecar.enabled"), "true");
    assert!(value("sidecar.providers").as_str().unwrap().contains("shared"));
}

#[test]
fn a_key_file_that_others_can_read_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let me = Validator::new(place.path(), 1);
    std::fs::set_permissions(&me.file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let text = settings(place.path(), &me.is_me(), &[&me]);
    attempt(place.path(), &text).ends(2).complains("chmod 600");
    let missing = text.replace("key-1", "key-9");
    attempt(place.path(), &missing).ends(2).complains("there is no such file");
}

#[tokio::test]
async fn peers_show_their_token_and_only_admins_change_things() {
    let place = tempfile::tempdir().unwrap();
    let me = Validator::new(place.path(), 1);
    let token = place.path().join("token");
    std::fs::write(&token, "t".repeat(64)).unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let keys = format!("token_file = \"{}\"\n", token.display());
    let data = place.path().join("data");
    let node = BlobNode::start(&data, &settings(place.path(), &keys, &[&me])).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", node.node.grpc)).unwrap();
    let channel = endpoint.connect().await.unwrap();
    let mut codes = Vec::new();
    for token in ["t".repeat(64), "x".repeat(64), String::new()] {
        let secured = InterceptedService::new(channel.clone(), Bearer::showing(&token));
        let asked = pb::MissingRequest { heights: Vec::new(), skip: 0 };
        let asked = GossipClient::new(secured.clone()).missing(asked).await;
        let told = parts(&proposal(1, &me.id, &[]));
        let told = SidecarClient::new(secured).store_decided(tokio_stream::iter(told)).await;
        let code = |failed: Option<tonic::Status>| failed.map_or(Code::Ok, |status| status.code());
        codes.push((code(asked.err()), code(told.err())));
    }
    let no = Code::Unauthenticated;
    assert_eq!(codes, [(Code::Ok, Code::PermissionDenied), (no, no), (no, no)]);
    assert_eq!(node.summary()["heights"], 0);
    node.decide(parts(&proposal(1, &me.id, &[]))).await.unwrap();
    let audit = std::fs::read_to_string(data.join("audit.log")).unwrap();
    assert!(audit.contains("/secateur.sidecar.v1.Sidecar/StoreDecided"), "{audit}");
    assert!(audit.contains("height 1 round 0, 0 blobs"), "{audit}");
    node.stop().await;
}

#[tokio::test]
async fn a_node_that_keeps_no_blobs_says_so() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let node = Node::start(&data, "");
    get(&node, "/v1/blobs").refuses(404, "no_blobs");
    assert_eq!(get(&node, "/eth/v1/beacon/blobs/1").is(404).json()["code"], 404);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "engine_getBlobsV1", "params": [[]]});
    let kind = ["content-type: application/json"];
    let reply = send(&node.http, "POST /", &kind, body.to_string().as_bytes()).is(200).json();
    assert!(reply["error"]["message"].as_str().unwrap().contains("sidecar.enabled"), "{reply}");
    let endpoint = Endpoint::from_shared(format!("http://{}", node.grpc)).unwrap();
    let channel = endpoint.connect().await.unwrap();
    let secured = InterceptedService::new(channel, Bearer::showing(&node.token));
    let asked = pb::GetBlobsRequest { height: 1, indexes: Vec::new() };
    let refused = SidecarClient::new(secured).get_blobs(asked).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(!data.join("sidecars").exists());
    tokio::task::spawn_blocking(|| node.stop()).await.unwrap();
}
