//! The commands beside a running node: they ask it, and the answers are those of the directory.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::node::Node;
use crate::tool::{ask, run, secateur, small_demo};

/// A data directory with some history, pruned already.
fn history() -> (tempfile::TempDir, std::path::PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    small_demo(&data, 400);
    (place, data)
}

/// What must not depend on who is asked: everything but memory that fills as one asks, and the
/// length of the index's file, which opening changes.
fn stable(data: &Path, words: &str) -> Value {
    let mut answer = ask(data, words);
    if let Some(status) = answer.as_object_mut() {
        status.remove("index_bytes");
        // What else runs on this machine takes of it meanwhile.
        status.remove("free_bytes");
        status.get_mut("ids").and_then(Value::as_object_mut).map(|ids| ids.remove("memory_bytes"));
    }
    answer
}

#[test]
fn reading_commands_answer_beside_a_node_what_they_answer_without_one() {
    let (_place, data) = history();
    run(&data, "pruning off").ends(0);
    let commands = [
        "status",
        "plan",
        "holds",
        "policy show",
        "explain block 0",
        "explain block 399",
        "explain block 99999",
        "verify",
    ];
    let alone: Vec<Value> = commands.iter().map(|words| stable(&data, words)).collect();
    let node = Node::start(&data, "--log warn");
    for (words, alone) in commands.iter().zip(alone) {
        assert_eq!(stable(&data, words), alone, "{words}");
        let text = run(&data, words).ends(0).out;
        assert!(!text.is_empty(), "{words}");
    }
    let unknown = "11".repeat(32);
    let story = ask(&data, &format!("explain tx 0x{unknown}"));
    assert_eq!(story["answer"], "not_found", "{story}");
    node.stop();
}

#[test]
fn changing_commands_beside_a_node_change_its_store_for_good() {
    let (_place, data) = history();
    let node = Node::start(&data, "--log warn");
    run(&data, "policy set min_keep_blocks=7 retain_days=30").ends(0);
    run(&data, "holds add reader --hard").ends(0);
    run(&data, "pruning off").ends(0);
    let held = run(&data, "holds add reader --soft").ends(11);
    assert!(held.err.contains("hard hold"), "{held:?}");
    run(&data, "policy set min_keep_blocks=0").ends(2).complains("min_keep_blocks");
    run(&data, "policy set no_such_key=1").ends(2).complains("no policy key");
    run(&data, "verify --repair").ends(0);
    node.stop();
    let status = ask(&data, "status");
    assert_eq!(status["pruning_enabled"], false);
    assert!(status["holds"].to_string().contains("export:reader"), "{status}");
    assert_eq!(ask(&data, "policy show")["min_keep_blocks"], 7);
}

#[test]
fn pruning_that_was_switched_off_stays_off_also_while_no_block_is_here() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let words = "--log warn --budget 64MiB";
    let node = Node::start(&data, words);
    assert_eq!(ask(&data, "status")["pruning_enabled"], true);
    run(&data, "pruning off").ends(0);
    node.stop();
    let node = Node::start(&data, words);
    assert_eq!(ask(&data, "status")["pruning_enabled"], false);
    node.stop();
}

/// What a node says on standard error until it listens and is told to stop.
fn said_at_the_start(data: &Path, words: &str) -> String {
    let words = format!("node --http 127.0.0.1:0 --grpc 127.0.0.1:0 --log warn {words}");
    let mut child =
        secateur(data, &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let stop = Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status();
    assert!(stop.unwrap().success(), "{line}");
    String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap()
}

#[test]
fn a_budget_that_holds_less_than_a_part_is_told_at_the_start() {
    let place = tempfile::tempdir().unwrap();
    let archive = place.path().join("archive");
    std::fs::create_dir(&archive).unwrap();
    let told = "a part may be larger";
    for (name, part, tells) in [("one", "", true), ("two", "part_bytes = \"8MiB\"\n", false)] {
        let text = format!("[archive]\nurl = \"{}\"\n{part}", archive.display());
        let config = crate::grpc::config(place.path(), &text);
        let words = format!("--budget 64MiB {config}");
        let said = said_at_the_start(&place.path().join(name), &words);
        assert_eq!(said.contains(told), tells, "{said}");
    }
}

#[test]
fn a_prune_beside_a_node_cuts_what_is_due_and_tells_its_report() {
    let (_place, data) = history();
    run(&data, "pruning off").ends(0);
    let node = Node::start(&data, "--log warn");
    let before = ask(&data, "status");
    let kept = before["head"].as_u64().unwrap() - before["oldest_kept_block"].as_u64().unwrap();
    run(&data, &format!("policy set retain_blocks={}", kept / 2)).ends(0);
    let planned = ask(&data, "prune --dry-run");
    let due = planned["blocks"].as_u64().unwrap();
    assert!(due > 0, "{planned}");
    let pruned = ask(&data, "prune --yes --max-ops 50");
    assert_eq!(pruned["blocks"], due, "{pruned}");
    assert!(pruned["ticks"].as_u64() > Some(1), "{pruned}");
    assert_eq!(pruned["report"]["by"], "operator", "{pruned}");
    assert_eq!(pruned["stop"]["reason"], "done", "{pruned}");
    let after = ask(&data, "status");
    assert_eq!(after["pruned_before_block"], planned["last"], "{after}");
    node.stop();
}

#[test]
fn what_needs_the_directory_for_itself_is_refused_beside_a_node() {
    let (_place, data) = history();
    let node = Node::start(&data, "--log warn");
    run(&data, "demo --blocks 1").ends(10).complains("in use");
    run(&data, "node --http 127.0.0.1:0 --grpc 127.0.0.1:0").ends(10).complains("in use");
    node.stop();
}

#[test]
fn a_node_that_was_killed_leaves_nothing_in_the_way() {
    let (_place, data) = history();
    let mut node = Node::start(&data, "--log warn");
    node.process.child.kill().unwrap();
    node.process.child.wait().unwrap();
    assert!(data.join("node.json").exists(), "a kill leaves it behind");
    assert_eq!(ask(&data, "status")["head"], 399);
    let node = Node::start(&data, "--log warn");
    assert_eq!(ask(&data, "status")["head"], 399);
    node.stop();
    assert!(!data.join("node.json").exists());
}

#[test]
fn the_demo_answers_commands_while_it_runs() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let mut demo =
        crate::tool::Running::start(&data, "demo --plain --http 127.0.0.1:0 --grpc 127.0.0.1:0");
    demo.wait_for("listening");
    demo.wait_for("head");
    let status = ask(&data, "status");
    assert!(status["head"].as_u64().is_some(), "{status}");
    demo.signal("INT");
    assert_eq!(demo.end().0, 0);
}
