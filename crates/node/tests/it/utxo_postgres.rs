//! The UTXO service on a real PostgreSQL: it serves, waits for one that is down, and goes on after one
//! that was.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use secateur_proto::teranode::pruner::EmptyMessage;
use secateur_proto::teranode::pruner::pruner_api_client::PrunerApiClient;
use secateur_proto::utxo::v1 as pb;
use tonic::Code;

use crate::http_client::send;
use crate::postgres::{self, Server, Stop};
use crate::tool::{ask, run, secateur};
use crate::utxo_rig::{Home, coinbase, id, shown, spend};

fn home(url: &str) -> Home {
    Home::new(&format!("store = \"{url}\""))
}

#[tokio::test]
async fn records_in_postgresql_are_fed_pruned_and_explained() {
    let home = home(&postgres::database());
    let served = home.serve("");
    served.create(1, vec![coinbase(1, 1, 1), coinbase(2, 1, 1)]).await;
    let spends = vec![spend(11, &[(1, 0)], Some(5)), spend(12, &[(1, 0)], Some(5))];
    assert_eq!(served.create(5, spends).await, ["OUTCOME_NEW", "double_spend"]);
    served.block(15).await;
    let status = served.processed(15).await;
    assert!(status.store.starts_with("postgres"), "{status:?}");
    assert!(!served.is_here(1).await && served.is_here(2).await);
    assert_eq!(ask(&home.data, "utxo status")["processed"], 15);
    served.stop();
    // Without the service the commands ask the database.
    assert_eq!(ask(&home.data, "utxo status")["processed"], 15);
    assert_eq!(ask(&home.data, "utxo jobs")["jobs"][0]["done"]["deleted"], 1);
    let story = run(&home.data, &format!("utxo explain {}", shown(11))).ends(0);
    assert!(story.out.contains("Output 0 is unspent."), "{story:#?}");
    assert!(!home.data.join("utxo/utxo.sqlite").exists());
}

#[tokio::test]
async fn a_database_that_is_down_is_waited_for_at_the_start_and_survived_afterwards() {
    // It falls over below: what it acknowledged must be on the medium.
    let mut server = Server::with(&[]);
    let home = home(&server.database());
    server.stop(Stop::Fast);
    run(&home.data, "utxo status").ends(7).complains("cannot be opened");
    let mut words = secateur(&home.data, "utxo serve --listen 127.0.0.1:0 --http 127.0.0.1:0");
    let mut waiting = words.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(waiting.stderr.take().unwrap()).lines();
    let line = log.find(|line| line.as_ref().unwrap().contains("are waited for"));
    let line = line.expect("it does not wait").unwrap();
    // Meanwhile it lives, says what it waits for, and leaves nobody without an answer.
    let http = line.split_whitespace().find_map(|word| word.strip_prefix("http=")).expect(&line);
    assert_eq!(send(http, "GET /healthz", &[], b"").status, 200);
    let told = send(http, "GET /readyz", &[], b"");
    let reason = String::from_utf8(told.body).unwrap();
    assert_eq!(told.status, 503, "{reason}");
    assert!(reason.contains("waited for: ") && reason.contains("PostgreSQL"), "{reason}");
    assert_eq!(send(http, "GET /metrics", &[], b"").status, 503);
    run(&home.data, "utxo status").ends(10).complains("waits for its database");
    server.run();
    assert!(log.any(|line| line.unwrap().contains("the UTXO service is up")), "it never comes up");
    waiting.kill().unwrap();
    waiting.wait().unwrap();

    let served = home.serve("");
    served.create(1, vec![coinbase(1, 1, 1)]).await;
    served.create(5, vec![spend(11, &[(1, 0)], Some(5))]).await;
    server.stop(Stop::Crash);
    let request = served.asked(pb::SpendRequest { height: 6, txid: id(11).to_vec().into() });
    let refused = served.store().spend(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    // Whoever asks how it is hears of it; that it lives is not in doubt.
    served.health("", false).await;
    let (code, told) = served.get("/readyz");
    assert_eq!(code, 503, "{told}");
    assert!(told.contains("the store does not answer: "), "{told}");
    let mut api = PrunerApiClient::new(served.channel.clone());
    let health = api.health_grpc(EmptyMessage {}).await.unwrap().into_inner();
    assert!(!health.ok && health.details.contains("does not answer"), "{health:?}");
    assert_eq!(served.get("/healthz").0, 200);
    // The run fails, and is tried again by itself.
    assert!(served.block(15).await);
    server.run();
    served.health("", true).await;
    assert_eq!(served.get("/readyz").0, 200);
    served.processed(15).await;
    assert!(!served.is_here(1).await && served.is_here(11).await);
    served.stop();
}
