//! Who may call what, and what a node says of itself: tokens, limits, health, reflection, audit.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use secateur_proto::export::v1::GetHeadRequest;
use secateur_proto::export::v2::StreamRequest;
use secateur_proto::history::v1 as pb;
use serde_json::Value;
use tokio::time::timeout;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::blobs_rig::write_private;
use crate::grpc::{Clients, Rig, append_request, chain, config};
use crate::node::Node;

const SERVICES: [&str; 4] = [
    "secateur.export.v1.Export",
    "secateur.export.v2.Export",
    "secateur.history.v1.History",
    "secateur.history.v1.Admin",
];

async fn read(clients: &Clients) -> Result<(), Status> {
    clients.export.clone().get_head(GetHeadRequest {}).await.map(drop)
}

async fn write(clients: &Clients) -> Result<(), Status> {
    clients.admin.clone().set_pruning(pb::SetPruningRequest { enabled: true }).await.map(drop)
}

#[track_caller]
fn code(result: Result<(), Status>) -> Code {
    result.map_or_else(|status| status.code(), |()| Code::Ok)
}

#[tokio::test]
async fn without_token_files_reads_are_open_and_changes_need_the_nodes_own_token() {
    let rig = Rig::start("").await;
    let nobody = Clients::to(&rig.node, None).await;
    let wrong = Clients::to(&rig.node, Some(&"0".repeat(64))).await;
    assert_eq!(
        (code(read(&nobody).await), code(write(&nobody).await)),
        (Code::Ok, Code::Unauthenticated)
    );
    assert_eq!(code(read(&wrong).await), Code::Unauthenticated, "a wrong token is worse than none");
    assert_eq!(code(write(&wrong).await), Code::Unauthenticated);
    assert_eq!(code(write(&rig.clients).await), Code::Ok);
    let error = nobody.admin.clone().verify(pb::VerifyRequest {}).await.unwrap_err();
    assert_eq!(error.code(), Code::Unauthenticated);
    assert!(!error.message().contains(&rig.node.token));
}

#[tokio::test]
async fn a_token_that_may_read_may_read_and_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    let (reader, admin) = ("r".repeat(64), "a".repeat(64));
    write_private(&place.path().join("read"), &format!("{reader}\n"));
    write_private(&place.path().join("admin"), &format!("# ours\n{admin}\n"));
    let path = |name: &str| place.path().join(name).display().to_string();
    let text = format!(
        "[auth]\nread_tokens = \"{}\"\nadmin_tokens = \"{}\"\n",
        path("read"),
        path("admin")
    );
    let node = Node::start(&place.path().join("data"), &config(place.path(), &text));
    let nobody = Clients::to(&node, None).await;
    let reader = Clients::to(&node, Some(&reader)).await;
    let admin = Clients::to(&node, Some(&admin)).await;
    assert_eq!(code(read(&nobody).await), Code::Unauthenticated);
    let stream = nobody.stream.clone().stream(StreamRequest::default()).await;
    assert_eq!(stream.unwrap_err().code(), Code::Unauthenticated);
    assert_eq!(services(&nobody).await.unwrap_err().code(), Code::Unauthenticated);
    assert_eq!(code(health(&nobody, "").await.map(drop)), Code::Ok, "health is open");
    assert_eq!(
        (code(read(&reader).await), code(write(&reader).await)),
        (Code::Ok, Code::PermissionDenied)
    );
    assert_eq!((code(read(&admin).await), code(write(&admin).await)), (Code::Ok, Code::Ok));
    tokio::task::spawn_blocking(|| node.stop()).await.unwrap();
}

/// Every call of the administration, by its answer to a token. Only the acknowledgements are let in
/// with a consumer's token; then they are judged by the store like anyone's.
#[tokio::test]
async fn a_consumers_token_acknowledges_over_grpc_and_every_other_change_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let consumer = "c".repeat(64);
    write_private(&place.path().join("consumer"), &format!("{consumer}\n"));
    let path = place.path().join("consumer").display().to_string();
    let text = format!("[auth]\nconsumer_tokens = \"{path}\"\n");
    let node = Node::start(&place.path().join("data"), &config(place.path(), &text));
    let admin = Clients::to(&node, Some(&node.token)).await;
    let nobody = Clients::to(&node, None).await;
    let consumer = Clients::to(&node, Some(&consumer)).await;
    admin.append(&chain(0..=9, 100, 0)).await;
    let named = |name: &str| pb::RegisterConsumerRequest {
        name: name.into(),
        strength: pb::Strength::Hard.into(),
    };
    admin.admin.clone().register_consumer(named("index")).await.unwrap();

    assert_eq!(code(read(&nobody).await), Code::Unauthenticated, "any token file closes reading");
    assert_eq!(code(read(&consumer).await), Code::Ok);
    let ack = pb::AckExportedRequest { consumer: "index".into(), block_number: 7 };
    let acked = consumer.admin.clone().ack_exported(ack.clone()).await.unwrap().into_inner();
    assert_eq!(acked.acked, 7);
    assert_eq!(
        nobody.admin.clone().ack_exported(ack).await.unwrap_err().code(),
        Code::Unauthenticated
    );
    // Let in, and refused for what it says: an empty part is none.
    let part = pb::AckArchivedRequest::default();
    let judged = consumer.admin.clone().ack_archived(part).await.unwrap_err();
    assert_eq!(judged.code(), Code::InvalidArgument, "{judged:?}");

    let mut calls = consumer.admin.clone();
    let refused = [
        calls.append(append_request(&chain(10..=10, 100, 0))).await.err(),
        calls.queue_transactions(pb::QueueTransactionsRequest::default()).await.err(),
        calls.set_finalized(pb::SetFinalizedRequest::default()).await.err(),
        calls.rollback(pb::RollbackRequest::default()).await.err(),
        calls.set_policy(pb::SetPolicyRequest::default()).await.err(),
        calls.set_pruning(pb::SetPruningRequest { enabled: true }).await.err(),
        calls.prune(pb::PruneRequest::default()).await.err(),
        calls.register_consumer(named("another")).await.err(),
        calls.remove_consumer(pb::RemoveConsumerRequest { name: "index".into() }).await.err(),
        calls.verify(pb::VerifyRequest {}).await.err(),
    ];
    for status in refused {
        assert_eq!(status.expect("it was done").code(), Code::PermissionDenied);
    }
    tokio::task::spawn_blocking(|| node.stop()).await.unwrap();
}

#[tokio::test]
async fn a_method_that_no_table_names_is_not_there() {
    let rig = Rig::start("").await;
    for path in ["/secateur.history.v1.Admin/Drop", "/secateur.history.v2.History/GetBlock", "/x"] {
        let mut grpc = tonic::client::Grpc::new(rig.clients.plain.clone());
        grpc.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<pb::VerifyRequest, pb::VerifyResponse>::default();
        let path = PathAndQuery::from_static(path);
        let answer = grpc.unary(Request::new(pb::VerifyRequest {}), path, codec).await;
        assert_eq!(answer.unwrap_err().code(), Code::Unimplemented);
    }
}

#[tokio::test]
async fn more_requests_than_the_rate_allows_are_refused_and_health_still_answers() {
    let rig = Rig::configured("[limits]\nrequests_per_second = 5\n").await;
    let mut codes = Vec::new();
    for _ in 0..40 {
        codes.push(code(read(&rig.clients).await));
    }
    assert!(codes.contains(&Code::ResourceExhausted), "{codes:?}");
    assert_eq!(codes[0], Code::Ok);
    assert_eq!(code(health(&rig.clients, "").await.map(drop)), Code::Ok);
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused_and_changes_nothing() {
    let rig = Rig::configured("[limits]\nmessage_bytes = \"1MiB\"\n").await;
    rig.clients.append(&chain(0..=0, 900_000, 0)).await;
    let over = append_request(&chain(1..=1, 1_100_000, 0));
    let error = rig.clients.admin.clone().append(over).await.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted, "{error:?}");
    assert_eq!(rig.clients.status().await.head, Some(0));
    // What is asked for is small, so a question may not be large.
    let question = pb::GetReceiptRequest { tx_id: vec![0; 300_000].into() };
    let error = rig.clients.history.clone().get_receipt(question).await.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted, "{error:?}");
}

#[tokio::test]
async fn blocks_larger_than_a_message_still_come_through_the_exports() {
    let rig = Rig::configured("[limits]\nmessage_bytes = \"300KiB\"\n").await;
    let mut large = chain(0..=1, 200_000, 0);
    for block in &mut large {
        let id = crate::grpc::tx_of(block.meta.height, 0);
        let receipt = vec![3; 90_000];
        secateur_core::push_receipt(&mut block.payloads.receipts, &id, &receipt).unwrap();
    }
    rig.clients.append(&large[..1]).await;
    rig.clients.append(&large[1..]).await;
    let reply = rig.clients.pull(None, Some(1_500_000)).await.unwrap();
    let bytes: usize = reply.chunks.iter().map(|chunk| chunk.bytes.len()).sum();
    assert_eq!(bytes, 290_036);
    let stream = rig.clients.stream.clone().stream(StreamRequest::default()).await;
    let mut stream = stream.unwrap().into_inner();
    let mut bytes = 0;
    while let Some(response) = stream.message().await.unwrap() {
        bytes += response.frames.iter().map(|frame| frame.bytes.len()).sum::<usize>();
    }
    assert_eq!(bytes, 2 * 290_036);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_calls_than_may_wait_are_refused_and_the_rest_is_answered() {
    let rig = Rig::configured("[limits]\nconcurrency = 1\nwaiting = 1\n").await;
    rig.clients.append(&chain(0..=0, 8 << 20, 0)).await;
    let mut pulls = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let clients = rig.clients.clone();
        pulls.spawn(async move { code(clients.pull(None, None).await.map(drop)) });
    }
    let codes = pulls.join_all().await;
    assert!(codes.contains(&Code::Ok) && codes.contains(&Code::ResourceExhausted), "{codes:?}");
    assert!(codes.iter().all(|code| matches!(code, Code::Ok | Code::ResourceExhausted)));
    assert_eq!(code(read(&rig.clients).await), Code::Ok, "and then it goes on");
}

#[tokio::test]
async fn a_request_that_never_becomes_whole_is_given_up() {
    let rig = Rig::configured("[limits]\ntimeout_seconds = 1\n").await;
    let mut grpc = tonic::client::Grpc::new(rig.clients.plain.clone());
    grpc.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<pb::GetPlanRequest, pb::GetPlanResponse>::default();
    let path = PathAndQuery::from_static("/secateur.history.v1.History/GetPlan");
    let never = Request::new(futures_util::stream::pending());
    let answer = timeout(Duration::from_secs(10), grpc.client_streaming(never, path, codec));
    let error = answer.await.expect("an answer in time").unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded, "{error:?}");
}

#[tokio::test]
async fn with_a_certificate_everything_is_encrypted_and_the_key_must_be_private() {
    let place = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (place.path().join("cert.pem"), place.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    write_private(&key, &made.signing_key.serialize_pem());
    let text = format!("[tls]\ncert = \"{}\"\nkey = \"{}\"\n", cert.display(), key.display());
    let flags = config(place.path(), &text);
    let node = Node::start(&place.path().join("data"), &flags);
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(made.cert.pem()))
        .domain_name("localhost");
    let address = format!("https://{}", node.grpc);
    let endpoint = Endpoint::from_shared(address).unwrap().tls_config(tls).unwrap();
    let clients = Clients::over(endpoint.connect().await.unwrap(), Some(&node.token));
    clients.append(&chain(0..=3, 5_000, 1)).await;
    assert_eq!(clients.pull(None, None).await.unwrap().chunks.len(), 3);
    let audit = std::fs::read_to_string(place.path().join("data/audit.log")).unwrap();
    assert!(audit.contains("\"peer\":\"127.0.0.1\""), "{audit}");
    let plain = Endpoint::from_shared(format!("http://{}", node.grpc)).unwrap();
    let plain = Clients::over(plain.connect_lazy(), None);
    let refused = timeout(Duration::from_secs(15), read(&plain)).await.expect("a prompt no");
    refused.expect_err("nothing is said in the clear");
    tokio::task::spawn_blocking(|| node.stop()).await.unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let words = format!("node --http 127.0.0.1:0 --grpc 127.0.0.1:0 {flags}");
    crate::tool::run(&place.path().join("data"), &words).ends(2).complains("chmod 600");
}

async fn health(clients: &Clients, service: &str) -> Result<ServingStatus, Status> {
    let request = HealthCheckRequest { service: service.into() };
    let answer = HealthClient::new(clients.plain.clone()).check(request).await?;
    Ok(answer.into_inner().status())
}

#[tokio::test]
async fn every_service_is_healthy_until_the_node_stops_and_watchers_hear_of_it() {
    let rig = Rig::start("").await;
    for service in SERVICES.into_iter().chain([""]) {
        assert_eq!(health(&rig.clients, service).await.unwrap(), ServingStatus::Serving);
    }
    let unknown = health(&rig.clients, "nobody.Knows").await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    let request = HealthCheckRequest { service: String::new() };
    let watch = HealthClient::new(rig.clients.plain.clone()).watch(request).await.unwrap();
    let mut watch = watch.into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    rig.node.process.signal("TERM");
    let next = timeout(Duration::from_secs(5), watch.message()).await.expect("word in time");
    assert_eq!(next.unwrap().unwrap().status(), ServingStatus::NotServing);
    let (code, _) = rig.node.process.end();
    assert_eq!(code, 0);
}

async fn services(clients: &Clients) -> Result<Vec<String>, Status> {
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let requests = futures_util::stream::iter([request]);
    let mut client = ServerReflectionClient::new(clients.plain.clone());
    let mut answers = client.server_reflection_info(requests).await?.into_inner();
    let answer = answers.message().await?.unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(list) = answer else { panic!("{answer:?}") };
    Ok(list.service.into_iter().map(|service| service.name).collect())
}

#[tokio::test]
async fn reflection_lists_every_service() {
    let rig = Rig::start("").await;
    let listed = services(&rig.clients).await.unwrap();
    for service in SERVICES.into_iter().chain(["grpc.health.v1.Health"]) {
        assert!(listed.iter().any(|name| name == service), "no {service} in {listed:?}");
    }
}

#[tokio::test]
async fn every_change_leaves_a_line_in_the_audit_log_and_no_read_does() {
    let rig = Rig::start("").await;
    let mut admin = rig.clients.admin.clone();
    rig.clients.append(&chain(5..=9, 100, 1)).await;
    admin.append(append_request(&chain(20..=20, 10, 0))).await.unwrap_err();
    let consumer = pb::RemoveConsumerRequest { name: "x\n\"y\"".repeat(1_000) };
    admin.remove_consumer(consumer).await.unwrap();
    admin.verify(pb::VerifyRequest {}).await.unwrap();
    read(&rig.clients).await.unwrap();
    let nobody = Clients::to(&rig.node, None).await;
    write(&nobody).await.unwrap_err();
    let log = std::fs::read_to_string(rig.place.path().join("data/audit.log")).unwrap();
    assert!(!log.contains(&rig.node.token));
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> = lines
        .iter()
        .map(|line| {
            let text = |key: &str| line[key].as_str().unwrap().to_owned();
            assert_eq!(text("peer"), "127.0.0.1");
            assert_eq!(text("token").len(), 8);
            (text("call"), text("what"), text("outcome"))
        })
        .collect();
    let [appended, refused, removed, verified] = told.as_slice() else { panic!("{told:?}") };
    let append = "/secateur.history.v1.Admin/Append";
    assert_eq!(*appended, (append.into(), "blocks 5..9".into(), "done".into()));
    assert_eq!((refused.0.as_str(), refused.1.as_str()), (append, "blocks 20..20"));
    assert!(refused.2.contains("leaves a gap"), "{refused:?}");
    assert!(removed.1.starts_with("consumer x\n") && removed.1.len() <= 200, "{removed:?}");
    assert_eq!(verified.0, "/secateur.history.v1.Admin/Verify");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_does_not_say_what_it_wants_is_cut_off_however_it_trickles() {
    use std::io::{Read as _, Write as _};
    let rig = Rig::start("").await;
    let address = rig.node.grpc.clone();
    let trickle = tokio::task::spawn_blocking(move || {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let begun = std::time::Instant::now();
        for byte in b"PRI * HTTP/2.0\r\n\r\nSM".chunks(1) {
            let gone =
                stream.write_all(byte).is_err() || matches!(stream.read(&mut [0; 64]), Ok(0));
            if gone {
                break;
            }
        }
        begun.elapsed()
    });
    let lasted = trickle.await.unwrap();
    assert!((8..14).contains(&lasted.as_secs()), "{lasted:?}");
    assert_eq!(code(read(&rig.clients).await), Code::Ok, "others are not concerned");
}

#[tokio::test]
async fn answers_that_nobody_takes_have_bounded_memory_and_lose_their_connection() {
    let text = "[limits]\nanswer_bytes = \"4MiB\"\ntimeout_seconds = 2\n";
    let rig = Rig::configured(text).await;
    rig.clients.append(&chain(0..=0, 900_000, 0)).await;
    let question = || pb::GetBlockRequest {
        block: Some(pb::BlockRef { r#ref: Some(pb::block_ref::Ref::Number(0)) }),
        without_payloads: false,
    };
    let endpoint = Endpoint::from_shared(format!("http://{}", rig.node.grpc)).unwrap();
    let channel = endpoint.initial_stream_window_size(1_000).connect().await.unwrap();
    let mut waiting = Vec::new();
    while waiting.len() < 20 {
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        grpc.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<pb::GetBlockRequest, pb::GetBlockResponse>::default();
        let path = PathAndQuery::from_static("/secateur.history.v1.History/GetBlock");
        // Its answer begins, and is not read.
        match grpc.server_streaming(Request::new(question()), path, codec).await {
            Ok(answer) => waiting.push(answer.into_inner()),
            Err(error) => {
                assert_eq!(error.code(), Code::ResourceExhausted, "{error:?}");
                break;
            }
        }
    }
    assert_eq!(waiting.len(), 4, "each has 900 kB of 4 MiB");
    let get = || async { rig.clients.history.clone().get_block(question()).await.map(drop) };
    assert_eq!(code(get().await), Code::ResourceExhausted);
    assert_eq!(code(read(&rig.clients).await), Code::Ok, "what is short is answered");
    let freed = async {
        while get().await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(10), freed).await.expect("room again, in time");
    for mut answer in waiting {
        assert!(answer.message().await.is_err(), "its connection was closed");
    }
}
