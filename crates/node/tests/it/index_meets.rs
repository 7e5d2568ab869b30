//! What a worker finds out about its source, and says of itself, before it pulls the first block.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

use crate::http_client::send;
use crate::indexed::Bench;
use crate::tool::{Run, Running, files, run, secateur};

/// Runs a worker that is told of its source by an address only.
fn apart(bench: &Bench, name: &str, more: &str) -> Run {
    let source = format!("--source http://{} --once {more}", bench.node.grpc);
    run(Path::new("/nonexistent"), &bench.words(name, &source))
}

fn private(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

fn has_blocks(bench: &Bench, name: &str) -> bool {
    bench.rows(name).iter().any(|row| row.starts_with("blocks"))
}

// The first part is whole when its day is over: the worker ended then, with all of the day pulled,
// because it had no token to acknowledge it with.
#[test]
fn a_right_that_will_be_needed_is_named_at_the_start_and_nothing_is_pulled() {
    let mut bench = Bench::start("", 2);
    bench.grow(40);
    let archive = bench.archive();
    let told = apart(&bench, "x", &format!("--archive {archive}")).ends(11);
    let told = told.complains("AckArchived").complains("without a token").complains("--token-file");
    told.complains("archive.acknowledge = false");
    assert!(!has_blocks(&bench, "x"));
    let more = format!("--archive {archive} --consumer taker");
    let told = apart(&bench, "x", &more).ends(11).complains("AckExported (for --consumer)");
    told.complains("AckArchived").complains("leave --consumer out");
    assert!(!has_blocks(&bench, "x"));
    assert!(!bench.path("archive").exists() || files(&bench.path("archive")).is_empty());
    // A token that the node does not know is none.
    let unknown = bench.path("unknown.token");
    private(&unknown, "0123456789abcdef0123456789abcdef\n");
    let with = |path: &Path| format!("{more} --token-file {}", path.display());
    apart(&bench, "x", &with(&unknown)).ends(11).complains("AckArchived");
    // With what is missing, or without what needs it, it goes on.
    apart(&bench, "x", &with(&bench.data().join("node.json"))).ends(0);
    assert!(has_blocks(&bench, "x"));
    let words = format!("--archive {archive} --source http://{} --once", bench.node.grpc);
    let mut copy = secateur(Path::new("/nonexistent"), &bench.words("copy", &words));
    let output = copy.env("SECATEUR_ARCHIVE_ACKNOWLEDGE", "false").output().unwrap();
    Run::of(output).ends(0);
}

#[test]
fn an_archive_that_cannot_be_written_to_is_named_at_the_start() {
    let mut bench = Bench::start("", 2);
    bench.grow(40);
    std::fs::write(bench.path("archive"), "no directory").unwrap();
    let archive = bench.archive();
    let told = bench.index("x", &format!("--archive {archive} --once")).ends(6);
    told.complains(&archive);
    assert!(!has_blocks(&bench, "x"));
}

// Nothing listened until the source had answered: what the index had could not be read, and neither why
// it did not grow.
#[test]
fn an_index_whose_source_is_dead_at_the_start_answers_and_says_why_it_is_not_ready() {
    let mut bench = Bench::start("", 2);
    bench.grow(10);
    bench.index("x", "--once").ends(0);
    let words = |grpc: &str| {
        bench.words("x", &format!("--http 127.0.0.1:0 --json-logs --source http://{grpc}"))
    };
    let words = words(&bench.node.grpc);
    let Bench { place, node, .. } = bench;
    node.stop();
    let mut index = Running::start(&place.path().join("data"), &words);
    // The line is JSON, as those of the log are.
    let line: Value = serde_json::from_str(&index.wait_for("{")).unwrap();
    assert_eq!((&line["event"], &line["service"]), (&"listening".into(), &"index".into()));
    let address = line["http"].as_str().unwrap().to_owned();
    let get = |path: &str| send(&address, &format!("GET {path}"), &[], b"");
    let ready = get("/readyz").is(503).json();
    let reasons = ready["reasons"].to_string();
    assert!(reasons.contains("the source has not answered since the start"), "{reasons}");
    assert_eq!(get("/v1/blocks/9").is(200).json()["number"], 9);
    assert_eq!(get("/v1/meta").is(200).json()["lag_blocks"], Value::Null, "it is not known");
    index.signal("TERM");
    assert_eq!(index.end().0, 0);
}

// Where a directory had no node, the node on the usual port was read instead, and asked for ever.
#[test]
fn a_directory_without_a_node_is_refused_and_no_other_node_is_asked() {
    let mut bench = Bench::start("", 2);
    bench.grow(10);
    let empty = bench.path("empty");
    std::fs::create_dir(&empty).unwrap();
    let absent = bench.path("absent");
    for data in [&empty, &absent] {
        let told = run(data, &bench.words("x", "--once")).ends(1);
        let told = told.complains("no node is running on").complains("--source");
        told.complains(data.to_str().unwrap());
    }
    assert!(!bench.path("x").exists(), "nothing was begun");
    let words = bench.words("x", "--once");
    let Bench { place, node, .. } = bench;
    node.stop();
    run(&place.path().join("data"), &words).ends(1).complains("no node is running on");
}

/// A directory that says what these two say.
fn directory(bench: &Bench, name: &str, store_of: &Bench, change: impl Fn(&mut Value)) -> Run {
    let data = bench.path(name);
    std::fs::create_dir(&data).unwrap();
    std::fs::copy(store_of.data().join("store.toml"), data.join("store.toml")).unwrap();
    let file = std::fs::read_to_string(bench.data().join("node.json")).unwrap();
    let mut file: Value = serde_json::from_str(&file).unwrap();
    change(&mut file);
    private(&data.join("node.json"), &file.to_string());
    run(&data, &bench.words(&format!("of-{name}"), "--once"))
}

// A node that was killed leaves its address behind, and another one may be there by now.
#[test]
fn a_node_that_is_not_the_one_of_the_directory_is_refused() {
    let mut bench = Bench::start("", 2);
    bench.grow(10);
    let other = Bench::start_chain(77, "", 2);
    let node_json = |bench: &Bench| -> Value {
        let text = std::fs::read_to_string(bench.data().join("node.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let (ours, theirs) = (node_json(&bench), node_json(&other));
    assert_ne!(ours["store_id"], theirs["store_id"]);
    directory(&bench, "same", &bench, |_| {}).ends(0);
    let told = directory(&bench, "store", &bench, |file| {
        file["store_id"] = theirs["store_id"].clone();
    });
    told.ends(11).complains("are two stores");
    let told = directory(&bench, "chain", &other, |_| {}).ends(11);
    told.complains("holds chain 77, and the source has chain 1337");
    let told = directory(&bench, "token", &bench, |file| {
        file["admin_token"] = "0123456789abcdef0123456789abcdef".into();
    });
    told.ends(11).complains("is another node there by now?");
    assert!(!has_blocks(&bench, "of-store") && !has_blocks(&bench, "of-chain"));
    // A directory that is named beside a source is compared as well, as far as it says something.
    let source = format!("--once --source http://{}", bench.node.grpc);
    let told = run(&other.data(), &bench.words("y", &source)).ends(11);
    told.complains("holds chain 77, and the source has chain 1337");
    let twin = Bench::start("", 2);
    run(&twin.data(), &bench.words("y", &source)).ends(11).complains("are two stores");
    // A node that has stopped leaves word of its store in the directory.
    std::fs::remove_file(twin.data().join("node.json")).unwrap();
    run(&twin.data(), &bench.words("y", &source)).ends(11).complains("are two stores");
    // A file that does not read is not a directory without a node.
    private(&twin.data().join("node.json"), "{ \"pid\": ");
    run(&twin.data(), &bench.words("y", "--once")).complains("node.json");
}

#[test]
fn a_fresh_index_says_where_it_begins_which_logs_it_keeps_and_for_how_long() {
    let mut bench = Bench::start("", 2);
    bench.grow(60);
    let whole = bench.index("whole", "--once").ends(0);
    assert!(!whole.out.contains("begins"), "{whole:?}");
    let boundary = bench.prune(15).unwrap();
    let sink = bench.path("late").join("index.sqlite");
    let words = format!("index --sink sqlite:{} --once", sink.display());
    let told = run(&bench.data(), &words).ends(0);
    let told = told.complains("the index begins above block 0").complains("what this index keeps");
    let told = told.complains("none; --log-address").complains("for 90 days");
    let begins = told.out.lines().find(|line| line.trim_start().starts_with("begins"));
    assert!(begins.unwrap().contains(&format!("block {};", boundary + 1)), "{}", told.out);
    assert!(told.out.contains("none (--log-address"), "{}", told.out);
    assert!(told.out.contains("90 days"), "{}", told.out);
    let gap = format!("gaps: 0|{boundary}|below the first block that the source had");
    assert!(bench.rows("late").iter().any(|row| row.starts_with(&gap)), "{:?}", bench.rows("late"));
    let more = "--once --json --log-address all --retention-days 0";
    let done = bench.index("late", more).ends(0).json();
    assert_eq!(done["begins_at"], boundary + 1);
    assert_eq!((&done["retention_days"], &done["logs"]), (&Value::Null, &"all".into()));
}
