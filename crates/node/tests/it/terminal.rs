//! What needs a terminal: the live view and the question before a prune.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::tempdir;

use crate::indexed::Bench;
use crate::tool::{SECATEUR, ask, run};

/// Runs a command on a terminal of 80 columns where somebody types; the exit code and all that
/// the screen was sent.
fn on_a_terminal(data: &Path, words: &str, typed: &str) -> Option<(i32, String)> {
    let mut script = start_on_a_terminal(data, words)?;
    let mut keyboard = script.stdin.take().unwrap();
    keyboard.write_all(typed.as_bytes()).unwrap();
    let ran = script.wait_with_output().unwrap();
    drop(keyboard);
    let screen = String::from_utf8_lossy(&ran.stdout).into_owned();
    Some((ran.status.code().unwrap_or(-1), screen))
}

fn start_on_a_terminal(data: &Path, words: &str) -> Option<Child> {
    let command =
        format!("stty cols 80 rows 30 -echo; exec {SECATEUR} --data {} {words}", data.display());
    let started = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env("TERM", "xterm-256color")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    if started.is_err() {
        eprintln!("SKIPPED: `script` is not installed");
    }
    started.ok()
}

#[test]
fn the_live_view_shows_the_budget_bar_and_gives_the_cursor_back() {
    let place = tempdir().unwrap();
    let data = place.path().join("demo");
    let Some((code, screen)) = on_a_terminal(&data, "demo --blocks 1500 --budget 8MiB", "") else {
        return;
    };
    assert_eq!(code, 0, "{screen}");
    for text in ["budget    █", "L low 6.4 MiB", "boundary ", "blocks/s", "← binds", "Ctrl-C"] {
        assert!(screen.contains(text), "no `{text}` in {screen}");
    }
    let (hidden, shown) = (screen.rfind("\u{1b}[?25l"), screen.rfind("\u{1b}[?25h"));
    assert!(hidden.is_some() && shown > hidden, "the cursor stays hidden: {screen}");
    assert!(screen.contains("appended   1,500 blocks"), "{screen}");
    // A command with an id in it is as long as it is, so that it can be pasted.
    for line in screen.lines().filter(|line| !line.contains("utxo explain")) {
        assert!(console::measure_text_width(line) <= 80, "too wide: {line}");
    }
}

#[test]
fn a_prune_on_a_terminal_asks_and_does_nothing_unless_the_answer_is_yes() {
    let place = tempdir().unwrap();
    let data = place.path().join("demo");
    run(&data, "demo --no-archive --blocks 300").ends(0);
    run(&data, "policy set target_bytes=4MiB").ends(0);
    let plan = ask(&data, "plan");
    let Some((code, screen)) = on_a_terminal(&data, "prune", "n\n") else {
        return;
    };
    assert_eq!(code, 1, "{screen}");
    assert!(screen.contains("[y/N]") && screen.contains("nothing was changed"), "{screen}");
    assert_eq!(ask(&data, "plan"), plan);
    let (code, screen) = on_a_terminal(&data, "prune", "y\n").unwrap();
    assert_eq!(code, 0, "{screen}");
    assert_eq!(ask(&data, "status")["used_bytes"], plan["used_after"]);
}

#[test]
fn a_prune_cuts_no_more_than_the_plan_that_was_agreed_to_whatever_came_meanwhile() {
    let mut bench = Bench::start("", 1);
    run(&bench.data(), "pruning off").ends(0);
    run(&bench.data(), "policy set retain_blocks=10").ends(0);
    bench.grow(60);
    let Some(mut script) = start_on_a_terminal(&bench.data(), "prune") else { return };
    let (mut keyboard, mut output) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
    let mut screen = Vec::new();
    while !String::from_utf8_lossy(&screen).contains("Cut 50 blocks") {
        let mut some = [0; 512];
        let len = output.read(&mut some).unwrap();
        assert!(len > 0, "{}", String::from_utf8_lossy(&screen));
        screen.extend_from_slice(&some[..len]);
    }
    bench.grow(40);
    keyboard.write_all(b"y\n").unwrap();
    output.read_to_end(&mut screen).unwrap();
    assert!(script.wait().unwrap().success());
    let screen = String::from_utf8_lossy(&screen);
    assert!(screen.contains("the limit that was asked for is reached"), "{screen}");
    assert_eq!(ask(&bench.data(), "status")["pruned_before_block"], 49, "{screen}");
    assert_eq!(ask(&bench.data(), "plan")["last"], 89, "the rest is due still");
}
