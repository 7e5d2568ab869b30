//! How the UTXO service is reached from other machines: HTTP under a node's rules, health by one setting without any of
//! them; and when it does not start.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use secateur_proto::teranode::pruner::EmptyMessage;
use secateur_proto::teranode::pruner::pruner_api_client::PrunerApiClient;
use secateur_proto::utxo::v1 as pb;
use secateur_proto::utxo::v1::pruner_client::PrunerClient;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::http_client::{Reply, connect, request, send};
use crate::http_guard::{ADMIN, READ, certificate, private};
use crate::tool::{Running, run, secateur};
use crate::utxo_rig::{Home, coinbase, spend};

const SERVE: &str = "utxo serve --listen 127.0.0.1:0 --log warn";

/// The port behind a word of the line that says where a service listens.
fn address(line: &str, key: &str) -> String {
    let found = line.split_whitespace().find_map(|word| word.strip_prefix(key));
    let port = found.unwrap_or_else(|| panic!("no {key} in {line}")).rsplit(':').next().unwrap();
    format!("127.0.0.1:{port}")
}

fn channel(address: &str) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy()
}

/// The metrics of the service could only be read on its own machine, whatever guarded it.
#[tokio::test]
async fn beyond_loopback_http_wants_tls_and_tokens_and_open_health_neither() {
    let place = tempfile::tempdir().unwrap();
    let (tls, client) = certificate(place.path());
    let (read, admin) = (place.path().join("read"), place.path().join("admin"));
    private(&read, READ);
    private(&admin, ADMIN);
    let tokens = format!(
        "[auth]\nread_tokens = \"{}\"\nadmin_tokens = \"{}\"\n",
        read.display(),
        admin.display()
    );
    let settings = "open_health = \"0.0.0.0:0\"\n";
    for lacking in ["", &tokens, &tls] {
        let home = Home::new(&format!("{settings}{lacking}"));
        let refused = run(&home.data, &format!("{SERVE} --http 0.0.0.0:0"));
        refused.ends(11).complains("utxo.http");
    }
    let home = Home::new(&format!("{settings}{tls}{tokens}"));
    let mut process = Running::start(&home.data, &format!("{SERVE} --http 0.0.0.0:0"));
    let line = process.wait_for("listening");
    let http = address(&line, "http=");
    let ask = |path: &str, headers: &[&str]| {
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(Arc::clone(&client), name).unwrap();
        let mut stream = StreamOwned::new(session, connect(&http));
        stream.write_all(&request(&http, &format!("GET {path}"), headers, b"")).unwrap();
        Reply::read(&mut stream)
    };
    ask("/metrics", &[]).refuses(401, "unauthenticated");
    let shown = format!("authorization: Bearer {READ}");
    let page = ask("/metrics", &[&shown]).is(200);
    assert!(page.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    ask("/healthz", &[]).is(200);
    ask("/readyz", &[]).is(200);

    // A kubelet and a Teranode ask in the clear and show nothing.
    let health = address(&line, "health=");
    for path in ["/healthz", "/readyz"] {
        send(&health, &format!("GET {path}"), &[], b"").is(200);
    }
    for path in ["/metrics", "/nothing"] {
        send(&health, &format!("GET {path}"), &[], b"").refuses(401, "unauthenticated");
    }
    let open = channel(&health);
    let answer = PrunerApiClient::new(open.clone()).health_grpc(EmptyMessage {}).await.unwrap();
    assert!(answer.into_inner().ok);
    for service in ["", "pruner.PrunerAPI", "secateur.utxo.v1.Store"] {
        let request = HealthCheckRequest { service: service.into() };
        let mut watch = HealthClient::new(open.clone()).watch(request).await.unwrap().into_inner();
        // It serves, once its records are open.
        while watch.message().await.unwrap().unwrap().status != 1 {}
    }
    // And nothing else is there.
    PrunerClient::new(open.clone()).status(pb::StatusRequest {}).await.unwrap_err();
    let reflection =
        tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient::new;
    let asked = futures_util::stream::empty();
    // A stream begins with whatever answers; what is no gRPC shows with its first message.
    if let Ok(stream) = reflection(open).server_reflection_info(asked).await {
        stream.into_inner().message().await.unwrap_err();
    }
    process.signal("TERM");
    assert_eq!(process.end().0, 0);
}

/// The whole served from the start on, and a kubelet sent calls to a service that had no records open.
#[tokio::test]
async fn while_the_database_is_waited_for_open_health_says_no_and_gives_no_cause() {
    let settings =
        "store = \"postgres://secateur@127.0.0.1:1/utxo\"\nopen_health = \"127.0.0.1:0\"";
    let home = Home::new(settings);
    let serve = "utxo serve --listen 127.0.0.1:0 --http 127.0.0.1:0 --log info";
    let mut words = secateur(&home.data, serve);
    let mut waiting = words.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(waiting.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = log.find(|line| line.contains("health answers here")).expect("it does not start");
    let open = address(&line, "address=");
    let line = log.find(|line| line.contains("are waited for")).expect("it does not wait");
    let http = address(&line, "http=");
    for service in ["", "pruner.PrunerAPI", "secateur.utxo.v1.Store"] {
        let request = HealthCheckRequest { service: service.into() };
        let answer = HealthClient::new(channel(&open)).check(request).await.unwrap().into_inner();
        assert_eq!(answer.status, 2, "{service:?} serves");
    }
    let answer = PrunerApiClient::new(channel(&open)).health_grpc(EmptyMessage {}).await;
    let answer = answer.unwrap().into_inner();
    assert!(!answer.ok && answer.details.contains("/readyz at utxo.http"), "{answer:?}");
    // A caller of this machine may read why, and does so at the other address.
    let ready = |address: &str| {
        let reply = send(address, "GET /readyz", &[], b"").is(503);
        String::from_utf8(reply.body).unwrap()
    };
    let cause = "127.0.0.1:1";
    assert!(ready(&http).contains(cause), "{}", ready(&http));
    assert!(!ready(&open).contains(cause), "{}", ready(&open));
    assert!(ready(&open).contains("/readyz at utxo.http"));
    waiting.kill().unwrap();
    waiting.wait().unwrap();
}

#[tokio::test]
async fn without_the_setting_no_health_is_served_in_the_clear() {
    let home = Home::new("");
    let mut process = Running::start(&home.data, &format!("{SERVE} --http 127.0.0.1:0"));
    let line = process.wait_for("listening");
    assert!(!line.contains("health="), "{line}");
    let http = address(&line, "http=");
    PrunerApiClient::new(channel(&http)).health_grpc(EmptyMessage {}).await.unwrap_err();
    send(&http, "GET /metrics", &[], b"").is(200);
    send(&http, "GET /metrics", &["host: evil.example"], b"").refuses(421, "wrong_host");
    process.signal("TERM");
    assert_eq!(process.end().0, 0);
}

/// The setting that the documentation names for a Teranode's `startPruner` only kept events from setting prunes off.
#[test]
fn with_start_false_nothing_is_opened_and_nothing_listens() {
    let home = Home::new("start = false");
    let told = run(&home.data, &format!("{SERVE} --http 127.0.0.1:0")).ends(0);
    assert_eq!(told.out, "not started: utxo.start is false\n");
    assert!(!home.data.join("utxo").exists());
}

/// The first run had not completed, so that nothing in the store said how far the chain was: after a crash all records
/// looked as if they were not due.
#[tokio::test]
async fn past_due_records_are_counted_right_after_a_crash_before_the_first_completed_run() {
    let home = Home::new("");
    // A guard that never answers keeps every run from beginning.
    let served = home.serve("--assembly http://127.0.0.1:1");
    served.create(1, vec![coinbase(1, 1, 1)]).await;
    served.create(5, vec![spend(11, &[(1, 0)], Some(5))]).await;
    served.block(15).await;
    let skipped = async {
        while served.status().await.last_skip.as_deref() != Some("assembly_unreachable") {}
    };
    tokio::time::timeout(crate::utxo_rig::PATIENCE, skipped).await.expect("it is never skipped");
    assert_eq!(served.status().await.counts.unwrap().due, 1);
    served.process.signal("KILL");
    served.process.end();
    let served = home.serve("--assembly http://127.0.0.1:1");
    let (_, metrics) = served.get("/metrics");
    let line = "secateur_utxo_past_due_records 1";
    assert!(metrics.lines().any(|found| found == line), "no {line} in\n{metrics}");
    let status = served.status().await;
    assert_eq!((status.head, status.processed), (None, None));
    served.stop();
}

#[test]
fn a_key_for_the_chain_is_read_from_a_private_file_and_config_check_reads_it_too() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("key");
    let home = Home::new(&format!("api_key_file = \"{}\"", file.display()));
    let check = format!("config check --config {}/secateur.toml", home.data.display());
    let both = |complaint: &str| {
        run(&home.data, &format!("{SERVE} --http 127.0.0.1:0")).ends(2).complains(complaint);
        run(&home.data, &check).ends(2).complains(complaint);
    };
    both("there is no file");
    private(&file, "# of the chain\n");
    both("it holds no key");
    private(&file, "two words\n");
    both("utxo.api_key_file");
    // What is cut off would be another key.
    private(&file, &"k".repeat(4_097));
    both("longer than 4096 bytes");
    private(&file, "s3cret\n");
    let warned = run(&home.data, &check).ends(0).out;
    assert!(warned.contains("shown to no chain") && !warned.contains("s3cret"), "{warned}");
    let chain = "blockchain_url = \"http://10.0.0.7:8087\"\nassembly_url = \"http://127.0.0.1:1\"";
    let other = Home::new(&format!("api_key_file = \"{}\"\n{chain}", file.display()));
    let check_other = format!("config check --config {}/secateur.toml", other.data.display());
    let warned = run(&other.data, &check_other).ends(0).out;
    assert!(warned.contains("in the clear") && !warned.contains("assembly_url"), "{warned}");
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    both("chmod 600");
}
