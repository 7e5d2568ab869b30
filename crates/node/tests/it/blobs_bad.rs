//! Bad input: whatever is wrong has its own rejection, is counted, and changes nothing.

use bytes::Bytes;
use secateur_core::Locator;
use secateur_core::notice::NoticeBody;
use secateur_proto::sidecar::v1::proposal_part::Part;
use secateur_proto::sidecar::v1::{self as pb, Verdict};
use secateur_sidecar::gossip::{Kind, Message};
use secateur_sidecar::notice::sign;
use secateur_sidecar::{Proof, testdata};
use serde_json::Value;
use tonic::codegen::Service as _;
use tonic::transport::Endpoint;
use tonic::{Code, Status};

use crate::blobs_rig::{BlobNode, CHAIN, Validator, details, parts, proposal, settings};

/// Everything that a bad request must not change.
fn picture(node: &BlobNode) -> Value {
    let mut summary = node.summary();
    // What the medium takes may move by itself.
    summary.as_object_mut().unwrap().remove("disk_bytes");
    summary
}

/// Changes the first blob of a proposal.
fn with(
    mut parts: Vec<pb::ProposalPart>,
    change: impl Fn(&mut pb::BlobSidecar),
) -> Vec<pb::ProposalPart> {
    for part in &mut parts {
        if let Some(Part::Sidecar(sidecar)) = &mut part.part {
            change(sidecar);
            break;
        }
    }
    parts
}

#[tokio::test]
async fn a_proposal_that_is_wrong_is_refused_for_its_reason_and_nothing_is_stored() {
    let place = tempfile::tempdir().unwrap();
    let me = Validator::new(place.path(), 1);
    let config = settings(place.path(), "max_blobs = 3\n", &[&me]);
    let node = BlobNode::start(&place.path().join("data"), &config).await;
    node.decide(parts(&proposal(1, &me.id, &[0]))).await.unwrap();
    let good = |height| parts(&proposal(height, &me.id, &[0, 1]));
    let before = picture(&node);
    let other = testdata::pooled(5);
    let cases: Vec<(&str, Vec<pb::ProposalPart>)> = vec![
        ("wrong_length", with(good(2), |one| one.blob = one.blob.slice(1..))),
        ("wrong_length", with(good(2), |one| one.blob = Bytes::new())),
        ("bad_commitment", {
            // Without a proof the commitment is computed again.
            with(good(2), |one| {
                one.kzg_commitment = Bytes::copy_from_slice(&other.commitment.0);
                one.kzg_proof = Bytes::new();
            })
        }),
        (
            "bad_proof",
            with(good(2), |one| {
                one.kzg_proof = Bytes::copy_from_slice(&other.proof.0);
            }),
        ),
        (
            "bad_blob",
            with(good(2), |one| {
                one.blob = Bytes::from(vec![0xff; one.blob.len()]);
            }),
        ),
        ("wrong_index", with(good(2), |one| one.index = 1)),
        ("too_many_blobs", parts(&proposal(2, &me.id, &[0, 1, 2, 3]))),
        ("malformed", with(good(2), |one| one.kzg_commitment = Bytes::from_static(b"short"))),
        ("malformed", good(2).split_off(1)),
        ("malformed", [good(2), good(2)].concat()),
        ("malformed", vec![pb::ProposalPart { part: None }]),
        ("malformed", Vec::new()),
        ("bad_round", parts(&testdata::proposal(2, -2, &me.id, &[0]))),
        ("bad_round", parts(&testdata::proposal(2, i32::MIN, &me.id, &[]))),
        ("decided_otherwise", parts(&proposal(1, &me.id, &[1]))),
    ];
    for (label, parts) in cases {
        let counter = format!("secateur_blob_refused_total{{reason=\"{label}\"}}");
        let counted = node.metric(&counter);
        let error = node.decide(parts.clone()).await.unwrap_err();
        assert_eq!(details(&error).label, label, "{error:?}");
        let code = if label == "decided_otherwise" {
            Code::FailedPrecondition
        } else {
            Code::InvalidArgument
        };
        assert_eq!(error.code(), code, "{label}: {error:?}");
        assert!(node.propose(parts).await.is_err(), "{label}");
        assert!((node.metric(&counter) - counted - 2.0).abs() < 0.1, "{label} is counted");
        assert_eq!(picture(&node), before, "{label} changes nothing");
    }
    // A message that is too long for anything is refused before it is read.
    let long = with(good(2), |one| one.blob = Bytes::from(vec![0; 1 << 20]));
    let error = node.decide(long).await.unwrap_err();
    assert!(matches!(error.code(), Code::ResourceExhausted | Code::OutOfRange), "{error:?}");
    let unknown = pb::MarkDecidedRequest { height: 9, round: 0 };
    let error = node.blobs.clone().mark_decided(unknown).await.unwrap_err();
    assert_eq!((error.code(), details(&error).label.as_str()), (Code::NotFound, "unknown_round"));
    assert_eq!(picture(&node), before);
    // What is right is taken as before.
    node.decide(good(2)).await.unwrap();
    node.stop().await;
}

/// Sends these bytes as the body of a call, and reads how it was refused.
async fn send_bytes(node: &BlobNode, call: &str, body: &'static [u8]) -> Status {
    let address = format!("http://{}", node.node.grpc);
    let mut channel = Endpoint::from_shared(address.clone()).unwrap().connect().await.unwrap();
    let request =
        axum::http::Request::post(format!("{address}/secateur.sidecar.v1.Sidecar/{call}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("authorization", format!("Bearer {}", node.node.token))
            .body(tonic::body::Body::new(axum::body::Body::from(body)))
            .unwrap();
    std::future::poll_fn(|context| channel.poll_ready(context)).await.unwrap();
    let answer = channel.call(request).await.unwrap();
    Status::from_header_map(answer.headers()).unwrap()
}

#[tokio::test]
async fn bytes_that_are_no_message_are_bad_input_like_any_other_and_are_counted() {
    let place = tempfile::tempdir().unwrap();
    let me = Validator::new(place.path(), 1);
    let config = settings(place.path(), "", &[&me]);
    let node = BlobNode::start(&place.path().join("data"), &config).await;
    let before = picture(&node);
    let malformed = || node.metric("secateur_blob_refused_total{reason=\"malformed\"}");
    let cases: [(&str, &'static [u8]); 4] = [
        ("no protobuf", b"\0\0\0\0\x04\x0a\xff\xff\xff"),
        ("a frame that is cut short", b"\0\0\0\0\x10\x0a\x02"),
        ("half a frame's head", b"\0\0"),
        ("a flag that there is not", b"\x07\0\0\0\0"),
    ];
    for (what, body) in cases {
        for call in ["StoreProposal", "StoreDecided"] {
            let counted = malformed();
            let refused = send_bytes(&node, call, body).await;
            assert_eq!(refused.code(), Code::InvalidArgument, "{what}: {refused:?}");
            assert_eq!(details(&refused).label, "malformed", "{what}");
            assert!((malformed() - counted - 1.0).abs() < 0.1, "{what} is counted");
        }
    }
    assert_eq!(picture(&node), before);
    node.stop().await;
}

#[tokio::test]
async fn a_notice_that_is_wrong_is_refused_for_its_reason_and_archives_nothing() {
    let place = tempfile::tempdir().unwrap();
    let [me, other, stranger] = [1, 2, 3].map(|name| Validator::new(place.path(), name));
    let config = settings(place.path(), "", &[&me, &other]);
    let node = BlobNode::start(&place.path().join("data"), &config).await;
    node.decide(parts(&proposal(1, &me.id, &[0]))).await.unwrap();
    node.finalize(1).await;
    let keccak = alloy_primitives::keccak256(&testdata::pooled(0).blob).0;
    let body = NoticeBody {
        chain_id: CHAIN,
        height: 1,
        round: 0,
        blob_index: 0,
        kzg_commitment: testdata::pooled(0).commitment.0,
        blob_keccak: keccak,
        locators: vec![Locator { provider: "local".into(), key: "somewhere".into() }],
        archived_by: me.id.as_bytes().to_vec(),
        archived_at_height: 1,
    };
    let signed = |body: NoticeBody, by: &Validator| {
        Bytes::from(sign(body, 5, &by.key).unwrap().encode().unwrap())
    };
    let by = |by: &Validator| NoticeBody { archived_by: by.id.as_bytes().to_vec(), ..body.clone() };
    let cases = [
        ("wrong_chain", signed(NoticeBody { chain_id: CHAIN + 1, ..body.clone() }, &me)),
        ("unknown_validator", signed(by(&stranger), &stranger)),
        ("bad_signature", signed(body.clone(), &other)),
        ("index_out_of_range", signed(NoticeBody { blob_index: 1, ..body.clone() }, &me)),
        ("not_proposer", signed(by(&other), &other)),
        ("wrong_round", signed(NoticeBody { round: 1, ..body.clone() }, &me)),
        ("commitment_mismatch", {
            let kzg_commitment = testdata::pooled(1).commitment.0;
            signed(NoticeBody { kzg_commitment, ..body.clone() }, &me)
        }),
        ("keccak_mismatch", signed(NoticeBody { blob_keccak: [1; 32], ..body.clone() }, &me)),
        ("malformed", Bytes::from_static(b"\x01 this is no notice")),
        ("v0_disabled", Bytes::from_static(b"\x0a\x00")),
    ];
    let before = picture(&node);
    for (label, notice) in cases {
        let counter = format!("secateur_notice_rejected_total{{reason=\"{label}\"}}");
        let counted = node.metric(&counter);
        let (verdict, reason) = publish(&node, Message::notice(notice).unwrap().encode()).await;
        assert_eq!((verdict, reason.as_str()), (Verdict::Refused, label));
        assert!((node.metric(&counter) - counted - 1.0).abs() < 0.1, "{label} is counted");
        assert_eq!(picture(&node), before, "{label} changes nothing");
    }
    // Too early is no reason to refuse it for good; too long is.
    let early = signed(NoticeBody { height: 2, ..body.clone() }, &me);
    let early = publish(&node, Message::notice(early).unwrap().encode()).await;
    assert_eq!((early.0, early.1.as_str()), (Verdict::Later, "no_metadata"));
    let envelope = Message::new(Kind::Notice, Bytes::from_static(b"x")).unwrap().encode();
    let mut long = envelope.to_vec();
    long.resize(20_000, 0);
    let request = pb::PublishRequest { messages: vec![long.into()] };
    let error = node.gossip.clone().publish(request).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument, "{error:?}");
    let (verdict, _) = publish(&node, Bytes::from_static(b"no envelope")).await;
    assert_eq!(verdict, Verdict::Refused);
    assert_eq!(picture(&node), before);
    // The right one is taken, once, and another of the same signer is a conflict.
    let right = Message::notice(signed(body.clone(), &me)).unwrap().encode();
    assert_eq!(publish(&node, right.clone()).await.0, Verdict::New);
    assert_eq!(publish(&node, right).await.0, Verdict::Known);
    let otherwise = Locator { provider: "local".into(), key: "elsewhere".into() };
    let otherwise = signed(NoticeBody { locators: vec![otherwise], ..body.clone() }, &me);
    let (verdict, reason) = publish(&node, Message::notice(otherwise).unwrap().encode()).await;
    assert_eq!((verdict, reason.as_str()), (Verdict::Refused, "conflict"));
    node.until(1, "pruned").await;
    node.stop().await;
}

async fn publish(node: &BlobNode, message: Bytes) -> (Verdict, String) {
    let request = pb::PublishRequest { messages: vec![message] };
    let answer = node.gossip.clone().publish(request).await.unwrap().into_inner();
    (answer.acked[0].verdict(), answer.acked[0].reason.clone())
}

#[test]
fn the_pool_has_other_proofs_than_zero() {
    assert!((0..testdata::POOL).all(|at| testdata::pooled(at).proof != Proof([0; 48])));
}
