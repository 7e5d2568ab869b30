//! The life of blobs in a running node: in over gRPC, archived, pruned, and still served; alone,
//! between two nodes, and after a restart.

use secateur_proto::sidecar::v1 as pb;
use secateur_sidecar::{BLOB_LEN, Inclusion, kzg, testdata};
use serde_json::{Value, json};
use tonic::Code;

use crate::blobs_rig::{BlobNode, Validator, details, parts, proposal, settings, write_private};
use crate::http_client::{get, send};
use crate::http_routes::check_shape;
use crate::json_client::Client;

fn hex(bytes: &[u8]) -> String {
    alloy_primitives::hex::encode_prefixed(bytes)
}

fn call(node: &BlobNode, params: &Value) -> Value {
    let request = json!({
        "jsonrpc": "2.0", "id": 1, "method": "engine_getBlobsV1", "params": params,
    });
    let url = format!("http://{}", node.node.http);
    std::thread::spawn(move || Client::new(&url).post(&request)).join().unwrap()
}

#[tokio::test]
async fn a_blob_comes_in_is_archived_and_pruned_and_is_served_from_its_copy() {
    let place = tempfile::tempdir().unwrap();
    let (data, me) = (place.path().join("data"), Validator::new(place.path(), 1));
    let own = format!("{}read_through = true\n", me.is_me());
    let node = BlobNode::start(&data, &settings(place.path(), &own, &[&me])).await;
    let proposal = proposal(1, &me.id, &[0, 1]);
    assert!(!node.propose(parts(&proposal)).await.unwrap());
    assert!(node.propose(parts(&proposal)).await.unwrap(), "known");
    let undecided = pb::GetUndecidedRequest { height: 1, round: 0 };
    let mut stream = node.blobs.clone().get_undecided(undecided).await.unwrap().into_inner();
    let mut sent_on = Vec::new();
    while let Some(part) = stream.message().await.unwrap() {
        sent_on.push(part);
    }
    assert_eq!(sent_on, parts(&proposal));
    let decided = pb::MarkDecidedRequest { height: 1, round: 0 };
    assert!(!node.blobs.clone().mark_decided(decided).await.unwrap().into_inner().known);
    node.until(1, "archived").await;
    assert!(node.metric("secateur_blob_archived_total") >= 2.0);
    let hashes: Vec<String> = proposal
        .sidecars
        .iter()
        .map(|one| kzg::versioned_hash(&one.commitment).to_string())
        .collect();
    let found = call(&node, &json!([[hashes[1], format!("0x{}", "01".repeat(32))]]));
    assert_eq!(found["result"][0]["blob"], hex(&proposal.sidecars[1].blob), "by its hash");
    assert_eq!(found["result"][0]["proof"], json!(proposal.sidecars[1].proof));
    assert_eq!(found["result"][1], Value::Null);
    let many = vec![hashes[0].clone(); 129];
    assert_eq!(call(&node, &json!([many]))["error"]["code"], -38_004);

    node.finalize(1).await;
    let story = node.until(1, "pruned").await;
    assert_eq!(story["pruned"]["finalized"], 1, "{story}");
    assert_eq!(call(&node, &json!([[hashes[0]]]))["result"], json!([null]), "not here any more");
    let served = node.blobs(1).await.unwrap();
    let bytes: Vec<_> = served.iter().map(|blob| blob.blob.clone()).collect();
    let wanted: Vec<_> = proposal.sidecars.iter().map(|one| one.blob.clone()).collect();
    assert_eq!(bytes, wanted, "from the copies");
    beacon(&node, &wanted, &hashes);
    let explained = get(&node.node, "/v1/blobs/1/0").is(200).json();
    assert_eq!((&explained["state"], &explained["here"]), (&json!("pruned"), &json!(false)));
    let records = get(&node.node, "/v1/blobs/records?limit=1").is(200).json();
    assert_eq!(records["records"][0]["records"][0]["signer"], json!(me.id), "{records}");
    assert_eq!(records["next"], "1:1");
    let rest = get(&node.node, "/v1/blobs/records?from=1:1").is(200).json();
    assert_eq!((rest["records"].as_array().unwrap().len(), &rest["next"]), (1, &Value::Null));
    assert_eq!(get(&node.node, "/v1/blobs/plan").is(200).json()["heights"], 0);
    check_shapes(&node);
    node.stop().await;

    // Without read-through, and after a restart: the flags are kept, and the answer says where.
    let node = BlobNode::start(&data, &settings(place.path(), &me.is_me(), &[&me])).await;
    assert_eq!(node.status(1)["blobs"][0]["state"], "pruned");
    assert_eq!(node.summary()["pruned"], 2);
    let gone = node.blobs(1).await.unwrap_err();
    assert_eq!(gone.code(), Code::OutOfRange, "{gone:?}");
    let told = details(&gone);
    assert_eq!((told.label.as_str(), told.height, told.blob_count), ("pruned", Some(1), 2));
    assert_eq!(told.locators[1].locators[0].provider, "local");
    let gone = get(&node.node, "/eth/v1/beacon/blobs/1").is(410).json();
    assert_eq!((&gone["code"], &gone["blob_count"]), (&json!(410), &json!(2)), "{gone}");
    assert!(gone["locators"][0][0]["key"].as_str().unwrap().contains("blob"), "{gone}");
    let fetched = pb::FetchRequest { height: 1, index: 1 };
    let fetched = node.blobs.clone().fetch(fetched).await.unwrap().into_inner();
    assert_eq!(fetched.blob, wanted[1], "whoever asks for a copy gets it");
    node.stop().await;
    let own = settings(place.path(), &own, &[&me]);
    std::fs::remove_dir_all(place.path().join("copies/chain=7")).unwrap();
    unread(&BlobNode::start(&data, &own).await, &gone);
}

/// With read-through and no copy left: the answer has the shape of the one without read-through.
fn unread(node: &BlobNode, gone: &Value) {
    let lost = get(&node.node, "/eth/v1/beacon/blobs/1").is(502).json();
    assert_eq!(lost["locators"], json!([gone["locators"][0]]), "{lost}");
    assert_eq!((&lost["height"], &lost["index"]), (&json!(1), &json!(0)), "{lost}");
    let document = get(&node.node, "/openapi.json").is(200).json();
    for (status, answer) in [("410", gone), ("502", &lost)] {
        let answers = &document["paths"]["/eth/v1/beacon/blobs/{block_id}"]["get"]["responses"];
        let schema = &answers[status]["content"]["application/json"]["schema"];
        check_shape(&document, schema, answer, status);
    }
}

/// Every answer has the shape that the document gives it.
fn check_shapes(node: &BlobNode) {
    let document = get(&node.node, "/openapi.json").is(200).json();
    let mut checked = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        if !path.starts_with("/v1/blobs") && path != "/eth/v1/beacon/blobs/{block_id}" {
            continue;
        }
        let content = &methods["get"]["responses"]["200"]["content"]["application/json"];
        let asked =
            path.replace("{height}", "1").replace("{index}", "0").replace("{block_id}", "1");
        let answer = get(&node.node, &asked).is(200).json();
        check_shape(&document, &content["schema"], &answer, path);
        checked += 1;
    }
    assert_eq!(checked, 6);
}

/// What the route of the Beacon API says of height 1.
fn beacon(node: &BlobNode, wanted: &[bytes::Bytes], hashes: &[String]) {
    let all = get(&node.node, "/eth/v1/beacon/blobs/1").is(200).json();
    let digits: Vec<String> = wanted.iter().map(|blob| hex(blob)).collect();
    assert_eq!(all["data"], json!(digits));
    assert_eq!((&all["finalized"], &all["execution_optimistic"]), (&json!(true), &json!(false)));
    for name in ["head", "finalized"] {
        assert_eq!(get(&node.node, &format!("/eth/v1/beacon/blobs/{name}")).is(200).json(), all);
    }
    let one = format!("/eth/v1/beacon/blobs/1?versioned_hashes={}", hashes[1]);
    assert_eq!(get(&node.node, &one).is(200).json()["data"], json!([digits[1]]));
    // Named twice or with a comma, in any order: they come in the order of the block.
    for between in [",", "&versioned_hashes="] {
        let both = format!("{one}{between}{}", hashes[0]);
        assert_eq!(get(&node.node, &both).is(200).json(), all, "{both}");
    }
    let accept = ["accept: application/octet-stream"];
    let raw = send(&node.node.http, "GET /eth/v1/beacon/blobs/1", &accept, b"").is(200);
    assert_eq!(raw.body, [&wanted[0][..], &wanted[1][..]].concat());
    let none = format!("/eth/v1/beacon/blobs/1?versioned_hashes=0x{}", "01".repeat(32));
    for (path, status) in [
        (none.as_str(), 404),
        ("/eth/v1/beacon/blobs/2", 404),
        ("/eth/v1/beacon/blobs/genesis", 404),
        ("/eth/v1/beacon/blobs/current", 400),
        ("/eth/v1/beacon/blobs/1?indices=0", 400),
        ("/eth/v1/beacon/blobs/1?versioned_hashes=0x01", 400),
        // No source gave a header.
        ("/eth/v1/beacon/blob_sidecars/1", 404),
    ] {
        let error = get(&node.node, path).is(status).json();
        assert_eq!(error["code"], status, "{path}: {error}");
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{path}");
    }
}

#[tokio::test]
async fn sidecars_of_the_legacy_route_have_the_header_and_the_proofs_of_their_source() {
    let place = tempfile::tempdir().unwrap();
    let me = Validator::new(place.path(), 1);
    let node =
        BlobNode::start(&place.path().join("data"), &settings(place.path(), "", &[&me])).await;
    let mut told = proposal(5, &me.id, &[2]);
    let mut header = vec![5, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
    header.extend([0xaa; 96 + 96]);
    told.signed_header = Some(header.clone().into());
    told.sidecars[0].inclusion = Some(Inclusion { proof: vec![[0xbb; 32]; 17] });
    node.decide(parts(&told)).await.unwrap();
    let reply = get(&node.node, "/eth/v1/beacon/blob_sidecars/5").is(200);
    assert_eq!(reply.header("eth-consensus-version"), Some("deneb"));
    let body = reply.json();
    let sidecar = &body["data"][0];
    assert_eq!((&body["version"], &body["finalized"]), (&json!("deneb"), &json!(false)));
    assert_eq!(sidecar["index"], "0");
    assert_eq!(sidecar["blob"], hex(&testdata::pooled(2).blob));
    assert_eq!(sidecar["kzg_commitment"], json!(testdata::pooled(2).commitment));
    assert_eq!(sidecar["kzg_proof"], json!(testdata::pooled(2).proof));
    let message = &sidecar["signed_block_header"]["message"];
    assert_eq!((&message["slot"], &message["proposer_index"]), (&json!("5"), &json!("9")));
    assert_eq!(sidecar["kzg_commitment_inclusion_proof"].as_array().unwrap().len(), 17);
    let accept = ["accept: application/octet-stream"];
    let raw = send(&node.node.http, "GET /eth/v1/beacon/blob_sidecars/5", &accept, b"").is(200);
    assert_eq!(raw.body.len(), 8 + BLOB_LEN + 48 + 48 + 208 + 17 * 32);
    // By its root, as every library computes it.
    let root = |tail: &str| format!("/eth/v1/beacon/blobs/0x{tail}");
    get(&node.node, &root(&root_of(&header))).is(200);
    get(&node.node, &root(&"00".repeat(32))).is(404);
    // A height that truly has none says so, in both routes; one that is not known does not.
    node.decide(parts(&proposal(6, &me.id, &[]))).await.unwrap();
    for route in ["blobs", "blob_sidecars"] {
        let empty = get(&node.node, &format!("/eth/v1/beacon/{route}/6")).is(200).json();
        assert_eq!(empty["data"], json!([]));
        get(&node.node, &format!("/eth/v1/beacon/{route}/7")).is(404);
    }
    get(&node.node, "/eth/v1/beacon/blob_sidecars/5?indices=1").is(404);
    node.stop().await;
}

/// The root of a header, computed another way than the node does: level by level over a list.
fn root_of(header: &[u8]) -> String {
    use sha2::{Digest as _, Sha256};
    let leaf = |bytes: &[u8]| {
        let mut leaf = bytes.to_vec();
        leaf.resize(32, 0);
        leaf
    };
    let fields = [0..8, 8..16, 16..48, 48..80, 80..112];
    let mut level: Vec<Vec<u8>> = fields.into_iter().map(|at| leaf(&header[at])).collect();
    level.resize(8, vec![0; 32]);
    while level.len() > 1 {
        level = level.chunks(2).map(|two| Sha256::digest(two.concat()).to_vec()).collect();
    }
    alloy_primitives::hex::encode(&level[0])
}

#[tokio::test]
async fn two_nodes_agree_over_the_mesh_and_both_prune_what_one_of_them_archived() {
    let place = tempfile::tempdir().unwrap();
    let (a, b) = (Validator::new(place.path(), 1), Validator::new(place.path(), 2));
    let token = place.path().join("token");
    write_private(&token, &"t".repeat(64));
    let token = format!("token_file = \"{}\"\nask_seconds = 1\n", token.display());
    let follows = format!("{}{token}", b.is_me());
    let follows = settings(place.path(), &follows, &[&a, &b]);
    let follower = BlobNode::start(&place.path().join("b"), &follows).await;
    let peers =
        format!("[[sidecar.peers]]\nname = \"b\"\nurl = \"http://{}\"\n", follower.node.grpc);
    let proposes = format!("{}{token}", a.is_me());
    let proposes = settings(place.path(), &proposes, &[&a, &b]) + &peers;
    let proposer = BlobNode::start(&place.path().join("a"), &proposes).await;
    for (height, blobs) in [(1, &[0usize, 1, 2][..]), (2, &[]), (3, &[3])] {
        let told = parts(&proposal(height, &a.id, blobs));
        // The notice may come before the decision does.
        for node in [&proposer, &follower] {
            node.decide(told.clone()).await.unwrap();
        }
    }
    for node in [&proposer, &follower] {
        node.until(1, "archived").await;
        node.until(3, "archived").await;
        node.finalize(2).await;
        node.until(1, "pruned").await;
        let later = node.status(3);
        assert_eq!(
            (&later["blobs"][0]["state"], &later["hold"]),
            (&json!("archived"), &json!("not_finalized"))
        );
        let signer = &node.status(1)["blobs"][2]["records"][0];
        assert_eq!(
            (&signer["signer"], &signer["locators"][0]["provider"]),
            (&json!(a.id), &json!("local"))
        );
    }
    assert_eq!(follower.status(1)["blobs"][0]["records"][0]["form"], "v1", "from a notice");
    assert_eq!(proposer.summary()["peers"], json!([{"name": "b", "connected": true}]));
    // Those that came too early were taken later.
    let came = ["taken", "later"].map(|what| format!("secateur_gossip_{what}_total"));
    assert!(came.iter().map(|name| follower.metric(name)).sum::<f64>() >= 4.0);
    // The follower reads what it pruned from the copy that the proposer made.
    let fetch = pb::FetchRequest { height: 1, index: 2 };
    let fetched = follower.blobs.clone().fetch(fetch).await.unwrap().into_inner();
    assert_eq!(fetched.blob, testdata::pooled(2).blob);
    proposer.stop().await;
    follower.stop().await;
}
