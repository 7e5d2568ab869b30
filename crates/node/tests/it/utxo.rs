//! The UTXO service as a process: fed over gRPC, told of the chain, pruning by itself, saying how it
//! stands.

use secateur_proto::teranode::blockassembly::block_assembly_api_server::{
    BlockAssemblyApi, BlockAssemblyApiServer,
};
use secateur_proto::teranode::blockassembly::{EmptyMessage as AssemblyQuestion, StateMessage};
use secateur_proto::teranode::pruner::EmptyMessage;
use secateur_proto::teranode::pruner::pruner_api_client::PrunerApiClient;
use secateur_proto::utxo::v1 as pb;
use tokio::sync::watch;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::utxo_rig::{Home, coinbase, id, shown, spend};

const NEW: &str = "OUTCOME_NEW";

#[tokio::test]
async fn a_spent_record_goes_at_its_height_and_nothing_else_does() {
    let home = Home::new("");
    let served = home.serve("");
    assert_eq!(served.create(1, vec![coinbase(1, 1, 1), coinbase(2, 2, 1)]).await, [NEW, NEW]);
    let spends = vec![spend(11, &[(1, 0)], Some(5)), spend(12, &[(2, 0)], Some(5))];
    assert_eq!(served.create(5, spends).await, [NEW, NEW]);
    // All of 1 is spent at height 5, so it goes at 15; 2 has a coin left.
    assert!(served.block(14).await);
    served.processed(14).await;
    assert_eq!(served.explain(1).await.record.unwrap().delete_at_height, Some(15));
    assert!(served.block(15).await);
    let status = served.processed(15).await;
    assert_eq!(status.counts.unwrap().due, 0);
    let gone = served.explain(1).await;
    assert!(gone.record.is_none());
    let told = ["Its record was pruned by a run up to height 15."];
    assert_eq!((gone.verdict.as_slice(), gone.pruned_at), (&told.map(str::to_owned)[..], Some(15)));
    let never = served.explain(99).await.verdict;
    let told = ["It was never created, or its record is pruned (heights up to 15 are processed)."];
    assert_eq!(never, told);
    for kept in [2, 11, 12] {
        assert!(served.is_here(kept).await, "{kept}");
    }
    let jobs = served.jobs().await;
    assert_eq!(jobs.iter().map(|job| job.height).collect::<Vec<_>>(), [15, 14]);
    assert_eq!(jobs[0].done.as_ref().unwrap().deleted, 1);
    served.stop();
}

#[tokio::test]
async fn a_parent_stays_while_an_unmined_child_spends_it_and_goes_after_it_is_mined() {
    let home = Home::new("unmined_tx_retention = 100");
    let served = home.serve("");
    served.create(1, vec![coinbase(1, 1, 1)]).await;
    served.create(5, vec![spend(11, &[(1, 0)], None)]).await;
    served.block(15).await;
    served.processed(15).await;
    let story = served.explain(1).await;
    assert_eq!(story.record.as_ref().unwrap().held_by, [shown(11)]);
    assert!(
        story.verdict.join(" ").contains("past its delete-at-height 15, and is kept"),
        "{story:?}"
    );
    assert_eq!(served.jobs().await[0].done.as_ref().unwrap().kept["held"], 1);
    let request = pb::SetMinedRequest {
        height: 16,
        txids: vec![id(11).to_vec().into()],
        block: Some(crate::utxo_rig::block(16)),
    };
    served.store().set_mined(served.asked(request)).await.unwrap();
    served.block(16).await;
    served.processed(16).await;
    assert!(!served.is_here(1).await);
    assert!(served.is_here(11).await);
    served.stop();
}

#[tokio::test]
async fn a_persister_that_reported_is_the_trigger_and_the_limit() {
    let home = Home::new("persister_stale_blocks = 3");
    let served = home.serve("");
    served.create(1, vec![coinbase(1, 1, 1)]).await;
    served.create(5, vec![spend(11, &[(1, 0)], Some(5))]).await;
    assert!(served.persisted(14).await);
    served.processed(14).await;
    assert!(!served.block(20).await, "blocks are only noted now");
    let status = served.status().await;
    assert!(status.persister_stale);
    assert!(served.is_here(1).await, "its height is not persisted");
    assert!(served.get("/metrics").1.contains("secateur_pruner_persister_stale 1"));
    assert!(served.persisted(20).await);
    let status = served.processed(20).await;
    assert!(!status.persister_stale);
    assert!(!served.is_here(1).await);
    served.stop();
}

/// A block assembly that answers when it is let.
struct Gatekeeper(watch::Receiver<bool>);

#[tonic::async_trait]
impl BlockAssemblyApi for Gatekeeper {
    async fn get_block_assembly_state(
        &self,
        _: Request<AssemblyQuestion>,
    ) -> Result<Response<StateMessage>, Status> {
        self.0.clone().wait_for(|open| *open).await.unwrap();
        let (block_assembly_state, current_height) = ("RUNNING".into(), u32::MAX);
        Ok(Response::new(StateMessage { block_assembly_state, current_height }))
    }
}

#[tokio::test]
async fn ten_thousand_heights_in_a_burst_run_a_handful_of_prunes_and_end_at_the_last() {
    let (open, gate) = watch::channel(false);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    let server = Server::builder().add_service(BlockAssemblyApiServer::new(Gatekeeper(gate)));
    tokio::spawn(server.serve_with_incoming(incoming));
    let home = Home::new("timeout_seconds = 600");
    let served = home.serve(&format!("--assembly http://{address}"));
    served.create(1, vec![coinbase(1, 1, 1)]).await;
    served.create(5, vec![spend(11, &[(1, 0)], Some(5))]).await;
    for height in 1..=10_000 {
        assert!(served.block(height).await);
    }
    assert!(served.jobs().await.is_empty(), "no run has passed its guard");
    assert!(served.is_here(1).await);
    open.send_replace(true);
    let status = served.processed(10_000).await;
    assert_eq!((status.head, status.lag_blocks), (Some(10_000), Some(0)));
    assert!(!served.is_here(1).await);
    // The first height was under way; the one that waited behind it was replaced until the last.
    let jobs = served.jobs().await;
    assert!(jobs.len() <= 3, "{jobs:?}");
    let (_, metrics) = served.get("/metrics");
    let replaced = metrics.lines().find_map(|l| l.strip_prefix("secateur_pruner_replaced_total "));
    assert!(replaced.unwrap().parse::<u64>().unwrap() >= 9_990, "{metrics}");
    served.stop();
}

#[tokio::test]
async fn health_and_readiness_follow_the_lag() {
    // Nothing is pruned, so the lag grows.
    let home = Home::new("max_lag_blocks = 5\ntrigger = \"persisted\"");
    let served = home.serve("");
    let pruner = "secateur.utxo.v1.Pruner";
    served.health("", true).await;
    assert_eq!(served.get("/readyz").0, 200);
    served.persisted(10).await;
    served.processed(10).await;
    served.health(pruner, true).await;
    served.block(16).await;
    for service in ["", pruner, "pruner.PrunerAPI"] {
        served.health(service, false).await;
    }
    served.health("secateur.utxo.v1.Store", true).await;
    let (code, body) = served.get("/readyz");
    assert_eq!(code, 503, "{body}");
    assert!(body.contains("6 blocks behind the head"), "{body}");
    assert_eq!(served.get("/healthz").0, 200);
    let mut teranode = PrunerApiClient::new(served.channel.clone());
    let health = teranode.health_grpc(EmptyMessage {}).await.unwrap().into_inner();
    assert!(!health.ok && health.details.contains("behind"), "{health:?}");
    served.persisted(16).await;
    served.health("", true).await;
    assert_eq!(served.get("/readyz").0, 200);
    let health = teranode.health_grpc(EmptyMessage {}).await.unwrap().into_inner();
    assert!(health.ok, "{health:?}");
    served.stop();
}

#[tokio::test]
async fn the_past_due_gauge_tells_what_is_left_when_nothing_is_deleted() {
    let home = Home::new("delete = false");
    let served = home.serve("");
    served.create(1, vec![coinbase(1, 1, 1)]).await;
    served.create(5, vec![spend(11, &[(1, 0)], Some(5))]).await;
    served.block(30).await;
    let status = served.processed(30).await;
    assert_eq!(status.counts.unwrap().due, 1);
    let (code, metrics) = served.get("/metrics");
    assert_eq!(code, 200);
    for line in [
        "secateur_utxo_past_due_records 1",
        "secateur_pruner_lag_blocks 0",
        "secateur_pruner_last_completed_height 30",
    ] {
        assert!(metrics.lines().any(|found| found == line), "no {line} in\n{metrics}");
    }
    assert!(metrics.contains("secateur_grpc_requests_total"), "{metrics}");
    served.stop();
}

#[tokio::test]
async fn large_transactions_are_files_that_go_with_their_records() {
    let home = Home::new("");
    let served = home.serve("");
    let body = vec![9; 100_000];
    let large = |mut tx: pb::NewTransaction| {
        tx.body = body.clone().into();
        tx
    };
    served.create(1, vec![large(coinbase(1, 1, 1))]).await;
    let kept = large(spend(11, &[(1, 0)], Some(5)));
    let lost = large(spend(12, &[(1, 0)], Some(5)));
    assert_eq!(served.create(5, vec![kept, lost]).await, [NEW, "double_spend"]);
    let files = home.data.join("utxo/files");
    let there = |number: u32, kind: &str| files.join(format!("{}.{kind}", shown(number))).is_file();
    assert!(there(1, "outputs") && there(11, "tx"));
    assert!(!there(12, "tx"), "no record names it");
    let request = served.asked(pb::GetRequest { txid: id(11).to_vec().into(), body: true });
    assert_eq!(served.store().get(request).await.unwrap().into_inner().body, body);
    served.block(15).await;
    served.processed(15).await;
    assert!(!there(1, "outputs") && there(11, "tx"));
    assert_eq!(served.jobs().await[0].done.as_ref().unwrap().files_deleted, 1);
    served.stop();
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_kill() {
    let home = Home::new("");
    let mut served = home.serve("");
    served.create(1, vec![coinbase(1, 1, 1), coinbase(2, 1, 1)]).await;
    served.block(3).await;
    served.processed(3).await;
    served.process.child.kill().unwrap();
    served.process.child.wait().unwrap();
    let again = home.serve("");
    assert!(again.is_here(1).await && again.is_here(2).await);
    assert_eq!(again.status().await.processed, Some(3));
    again.stop();
}

#[tokio::test]
async fn reflection_lists_what_is_served_and_nothing_else() {
    let home = Home::new("");
    let served = home.serve("");
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let requests = futures_util::stream::iter([request]);
    let mut client = ServerReflectionClient::new(served.channel.clone());
    let mut answers = client.server_reflection_info(requests).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(list) = answer else { panic!("{answer:?}") };
    let names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    for wanted in [
        "secateur.utxo.v1.Pruner",
        "secateur.utxo.v1.Store",
        "pruner.PrunerAPI",
        "grpc.health.v1.Health",
    ] {
        assert!(names.iter().any(|name| name == wanted), "no {wanted} in {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("history") || name.contains("blockchain")));
    served.stop();
}
