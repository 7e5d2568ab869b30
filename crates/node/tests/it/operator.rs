//! What an operator is told: by `config check` and a node alike, in a log that programs read, and on a
//! full disk.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::tempdir;

use crate::grpc::{Clients, append_request, chain};
use crate::http_client::get;
use crate::indexed::Bench;
use crate::node::Node;
use crate::tool::{Run, Running, SECATEUR, SmallDisk, ask, open_store, run, secateur};

fn in_directory(directory: &Path, words: &str) -> Run {
    let mut command = Command::new(SECATEUR);
    command.current_dir(directory).env_remove("SECATEUR_DATA").stdin(Stdio::null());
    Run::of(command.args(words.split_whitespace()).output().unwrap())
}

/// `config check` passed what `node` refused, one mistake at a time and without its line. Each value
/// was judged where it was used; now both run one validation.
#[test]
fn config_check_and_a_node_refuse_the_same_file_with_all_its_mistakes() {
    let place = tempdir().unwrap();
    let text = "[policy]\ntarget_bytes = 1\n\n[follow]\nurl = \"htp://x\"\n\n[http]\n\
                addr = \"127.0.0.1:7741\"\n\n[log]\nlevel = \"loud\"\n";
    std::fs::write(place.path().join("secateur.toml"), text).unwrap();
    let check = in_directory(place.path(), "config check").ends(2);
    let file = place.path().canonicalize().unwrap().join("secateur.toml");
    let read = format!("the configuration has 4 errors (read from {})", file.display());
    for wanted in [
        read.as_str(),
        "secateur.toml:2: ",
        "secateur.toml:5: follow.url = `…`: http:// or https:// is wanted at its beginning; did you \
         mean http?",
        "secateur.toml:8: http.addr = 127.0.0.1:7741 and grpc.addr = 127.0.0.1:7741",
        "secateur.toml:11: log.level = `loud`",
    ] {
        assert!(check.err.contains(wanted), "no `{wanted}` in {check:#?}");
    }
    let node = in_directory(place.path(), "node --data made").ends(2);
    assert_eq!(node.err, check.err);
    assert!(!place.path().join("made").exists(), "nothing was changed");
    let utxo = in_directory(place.path(), "utxo serve --data made").ends(2);
    assert!(utxo.err.contains("secateur.toml:11: log.level"), "{utxo:#?}");
    let index = in_directory(place.path(), "index --sink sqlite:x --data made").ends(2);
    assert!(index.err.contains("secateur.toml:11: log.level"), "{index:#?}");
    let archive = in_directory(place.path(), "archive ls --archive parts").ends(2);
    assert!(archive.err.contains("secateur.toml:11: log.level"), "{archive:#?}");
}

#[test]
fn config_check_says_which_file_it_read() {
    let place = tempdir().unwrap();
    let sound = in_directory(place.path(), "config check").ends(0);
    assert!(sound.out.contains("no file was read"), "{sound:#?}");
    std::fs::write(place.path().join("secateur.toml"), "[http]\naddr = \"127.0.0.1:0\"\n").unwrap();
    let sound = in_directory(place.path(), "config check").ends(0);
    let file = place.path().canonicalize().unwrap().join("secateur.toml");
    assert!(sound.out.contains(&format!("read from {}", file.display())), "{sound:#?}");
    let json = in_directory(place.path(), "config check --json").ends(0).json();
    assert_eq!((&json["sound"], &json["file"]), (&true.into(), &"secateur.toml".into()));
    let show = in_directory(place.path(), "config show").ends(0);
    assert!(show.out.contains("secateur.toml:2"), "{show:#?}");
}

/// Errors at the start and at the end were printed as plain text into a log of JSON.
#[test]
fn with_json_logs_every_line_of_both_outputs_is_json() {
    let place = tempdir().unwrap();
    let lines = |text: &str| -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    };
    let last_code = |run: &Run| {
        let all = lines(&run.err);
        let last = all.last().unwrap();
        assert_eq!(last["level"], "ERROR", "{last}");
        assert!(last["fields"]["message"].is_string() && last["timestamp"].is_string(), "{last}");
        last["fields"]["exit_code"].as_i64().unwrap()
    };
    // A value that is refused, a flag that does not exist, a port that is taken.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    for (words, code) in [
        ("node --json-logs --log loud".to_owned(), 2),
        ("node --json-logs --no-such-flag".to_owned(), 2),
        (format!("node --json-logs --grpc 127.0.0.1:0 --http 127.0.0.1:{port}"), 1),
    ] {
        let ended = run(&place.path().join("data"), &words).ends(code);
        assert_eq!(last_code(&ended), i64::from(code), "{words}");
    }
    let mut node = Running::start(
        &place.path().join("data"),
        "node --json-logs --http 127.0.0.1:0 --grpc 127.0.0.1:0",
    );
    let line: Value = serde_json::from_str(&node.wait_for("{")).unwrap();
    assert_eq!(line["event"], "listening");
    assert!(line["http"].is_string() && line["grpc"].is_string(), "{line}");
    node.signal("TERM");
    assert_eq!(node.end(), (0, String::new()));
    let settings = place.path().join("utxo.toml");
    std::fs::write(&settings, "[utxo]\nstart = false\n").unwrap();
    let words = format!("utxo --config {} serve --json-logs", settings.display());
    let none = run(&place.path().join("records"), &words).ends(0);
    assert_eq!(lines(&none.out)[0]["event"], "not_started", "{none:?}");
    std::fs::write(&settings, "[utxo]\nopen_health = \"127.0.0.1:0\"\n").unwrap();
    let mut utxo = Running::start(
        &place.path().join("records"),
        &format!("{words} --listen 127.0.0.1:0 --http 127.0.0.1:0"),
    );
    let line: Value = serde_json::from_str(&utxo.wait_for("{")).unwrap();
    assert_eq!(line["event"], "listening");
    assert!(line["http"].is_string() && line["health"].is_string(), "{line}");
    utxo.signal("TERM");
    assert_eq!(utxo.end(), (0, String::new()));
}

/// The demo took any free port where one that was named was taken, and its operator talked to what
/// had the named one.
#[test]
fn a_named_port_that_is_taken_is_an_error_in_the_demo_too() {
    let place = tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for flag in ["http", "grpc"] {
        let words = format!("demo --no-archive --blocks 5 --{flag} {address}");
        let refused = run(&place.path().join("demo"), &words).ends(1);
        let said = format!("{flag}.addr = {address} cannot be listened on");
        assert!(refused.err.contains(&said), "{refused:#?}");
        assert!(!place.path().join("demo").exists(), "nothing was changed");
    }
}

#[test]
fn a_policy_is_set_and_shown_in_units() {
    let place = tempdir().unwrap();
    let data = place.path().join("demo");
    crate::tool::small_demo(&data, 20);
    let set =
        run(&data, "policy set target_bytes=24M retain_days=14d trigger=both:84:1min").ends(0);
    assert!(set.out.contains("→ 24MiB (25,165,824 bytes)"), "{set:#?}");
    let shown = run(&data, "policy show").ends(0).out;
    for line in ["target_bytes          24MiB (", "retain_days           14d", "both:84:1min"] {
        assert!(shown.contains(line), "no `{line}` in {shown}");
    }
    assert_eq!(ask(&data, "policy show")["target_bytes"], 24 << 20);
}

/// A restored store had the regions of a store without a budget, and refused a small one afterwards.
#[test]
fn restore_takes_a_budget_and_makes_regions_that_suit_it() {
    let mut bench = Bench::start("[archive]\nurl = \"ARCHIVE\"\n", 3);
    bench.grow(60);
    let more = format!("--archive {} --part-blocks 25 --once", bench.archive());
    bench.index("index", &more).ends(0);
    let place = tempdir().unwrap();
    let into = place.path().join("restored");
    let words = format!("restore 0..20 --into {} --budget 8M", into.display());
    bench.ask_archive(&words).ends(0);
    let store = open_store(&into);
    assert_eq!(store.policy().target_bytes, 8 << 20);
    assert_eq!(store.header().classes.largest(), 64 << 10);
    drop(store);
    run(&into, "policy set target_bytes=512K").ends(0);
    // The same flag goes on with the same store; another budget is not taken in silence.
    let words = format!("restore 21..30 --into {} --budget 8M", into.display());
    bench.ask_archive(&words).ends(2).complains("policy set target_bytes");
    let tiny = place.path().join("tiny");
    let words = format!("restore 0..20 --into {} --budget 1", tiny.display());
    bench.ask_archive(&words).ends(2).complains("the least is 512KiB");
    assert!(!tiny.exists(), "nothing was changed");
}

/// `archive restore` made a packed store whatever `history.layout` said, and the node that read the
/// same file refused that store for ever. Both make a store from the configuration in one place now.
#[test]
fn a_restored_store_has_the_layout_of_the_configuration() {
    let mut bench = Bench::start("[archive]\nurl = \"ARCHIVE\"\n", 3);
    bench.grow(20);
    let more = format!("--archive {} --part-blocks 10 --once", bench.archive());
    bench.index("index", &more).ends(0);
    let place = tempdir().unwrap();
    let text = "[history]\nlayout = \"per-block\"\nchallenge_blocks = 7\n";
    std::fs::write(place.path().join("secateur.toml"), text).unwrap();
    let words = format!("archive --archive {} restore 0..9 --into restored", bench.archive());
    in_directory(place.path(), &words).ends(0);
    let store = open_store(&place.path().join("restored"));
    assert_eq!(store.header().layout.name(), "per-block");
    assert_eq!(store.settings().challenge_blocks, 7);
    assert!(!store.pruning_enabled());
}

/// A node whose disk filled up was ready, or blamed its source.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_on_a_full_disk_names_the_disk_in_readiness_and_metrics() {
    let Some(disk) = SmallDisk::mount(24) else {
        return;
    };
    let node = Node::start(&disk.data(), "--budget 1G");
    let clients = Clients::to(&node, Some(&node.token)).await;
    get(&node, "/readyz").is(200);
    let sample = |name: &str| {
        let page = String::from_utf8(get(&node, "/metrics").is(200).body).unwrap();
        let line = page.lines().find(|line| line.starts_with(name)).expect(name).to_owned();
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    assert!(sample("secateur_history_free_bytes ") > f64::from(1 << 20));
    assert!(sample("secateur_history_disk_full ") < 0.5);
    disk.fill();
    let mut refused = None;
    for block in chain(0..=200, 200_000, 1) {
        if let Err(status) = clients.admin.clone().append(append_request(&[block])).await {
            refused = Some(status);
            break;
        }
    }
    let refused = refused.expect("a disk of 24 MiB took 40 MB");
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{refused:?}");
    let ready = get(&node, "/readyz").is(503).json();
    assert!(ready["reasons"].to_string().contains("disk"), "{ready}");
    assert!(sample("secateur_history_disk_full ") > 0.5);
    assert!(sample("secateur_history_free_bytes ") < f64::from(1 << 20));
    drop(clients);
    tokio::task::spawn_blocking(|| node.stop()).await.unwrap();
}

/// On a full disk the status said "steady" and no alarm, and the budget that the error advised was
/// refused. Free space was in no status at all.
#[test]
fn a_full_disk_is_in_the_status_and_what_is_advised_is_accepted_and_helps() {
    let Some(disk) = SmallDisk::mount(24) else {
        return;
    };
    let data = disk.data();
    run(&data, "demo --no-archive --blocks 100000 --budget 1GiB")
        .ends(8)
        .complains("secateur status");
    disk.fill();
    let status = ask(&data, "status");
    assert_eq!(status["disk_full"], true, "{status}");
    assert!(status["free_bytes"].as_u64().unwrap() < 1 << 20, "{status}");
    let alarms = status["alarms"].to_string();
    assert!(alarms.contains("the disk is full") && alarms.contains("free"), "{alarms}");
    let text = run(&data, "status").ends(0).out;
    assert!(text.contains("DISK FULL") && !text.contains("steady"), "{text}");
    let advice = text.split_once("`secateur ").expect("an advice").1.split_once('`').unwrap().0;
    assert!(advice.starts_with("policy set target_bytes="), "{advice}");
    run(&data, advice).ends(0);
    let pruned = ask(&data, "prune --yes");
    assert!(pruned["blocks"].as_u64().unwrap() > 0, "{pruned}");
    run(&data, "demo --no-archive --blocks 50").ends(0);
}

#[test]
fn an_alarm_is_in_units_that_people_read() {
    let Some(disk) = SmallDisk::mount(24) else {
        return;
    };
    let mut node = secateur(&disk.data(), "node --http 127.0.0.1:0 --grpc 127.0.0.1:0 --budget 1G");
    let mut child = node.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    let alarms = ask(&disk.data(), "status")["alarms"].to_string();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(alarms.contains("the disk is too small for the budget: "), "{alarms}");
    assert!(alarms.contains(" MiB are free, and the arena may grow by "), "{alarms}");
}
