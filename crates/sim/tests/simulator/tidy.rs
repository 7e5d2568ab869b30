//! The rules of the house that a compiler does not know.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    Path::new(&here).join("../..").canonicalize().unwrap()
}

fn sources(dir: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut dirs = vec![root().join(dir)];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty());
    found
}

#[test]
fn no_source_file_is_longer_than_500_lines_and_each_says_what_lives_in_it() {
    for (path, text) in sources("crates") {
        let lines = text.lines().count();
        assert!(lines <= 500, "{} has {lines} lines: a room is missing", path.display());
        let is_test_module = path.file_name().is_some_and(|name| {
            let name = name.to_string_lossy();
            name == "tests.rs" || name.ends_with("_tests.rs")
        });
        let documented = text.starts_with("//!") || is_test_module;
        assert!(documented, "{} has no module doc", path.display());
    }
}

#[test]
fn core_and_store_name_no_file_thread_or_clock_outside_the_disk_ground() {
    let banned = ["std::fs", "std::thread", "std::time", "SystemTime", "Instant::now", "std::net"];
    let allowed = ["ground/disk", "history/daemon.rs", "history/workers.rs", "store/src/clock.rs"];
    for dir in ["crates/core/src", "crates/store/src"] {
        for (path, text) in sources(dir) {
            let shown = path.to_string_lossy().into_owned();
            if allowed.iter().any(|part| shown.contains(part)) {
                continue;
            }
            for word in banned {
                assert!(!text.contains(word), "{shown} names {word}");
            }
        }
    }
}

#[test]
fn every_invariant_is_cited_by_a_test_or_checker() {
    let mut texts = String::new();
    for dir in ["crates/sim/src", "crates/sim/tests", "crates/store/src"] {
        for (path, text) in sources(dir) {
            if !path.ends_with("tidy.rs") {
                texts.push_str(&text);
            }
        }
    }
    let cited = |number: u32| {
        let name = format!("I{number}");
        texts.match_indices(&name).any(|(at, _)| {
            let rest = &texts[at + name.len()..];
            !rest.starts_with(|c: char| c.is_alphanumeric())
        })
    };
    let listed = std::fs::read_to_string(root().join("INVARIANTS.md")).unwrap();
    for number in 1..=10 {
        assert!(listed.contains(&format!("| I{number} |")), "I{number} is not listed");
        assert!(cited(number), "I{number} is cited by no test");
    }
}

/// The arguments of every line that a source logs.
fn logged(text: &str) -> impl Iterator<Item = &str> {
    let shipped = text.split("#[cfg(test)]").next().unwrap_or(text);
    ["trace", "debug", "info", "warn", "error"].into_iter().flat_map(move |level| {
        let begins = format!("tracing::{level}!(");
        let after: Vec<&str> = shipped.split(begins.as_str()).skip(1).collect();
        after.into_iter().map(|rest| {
            let mut depth = 1;
            let end = rest.find(|c| {
                depth += i32::from(c == '(') - i32::from(c == ')');
                depth == 0
            });
            &rest[..end.unwrap_or(rest.len())]
        })
    })
}

/// `old=PrunePolicy { target_bytes: 0, … }` is for whoever wrote the type. A reader of the log gets
/// words, numbers with units, and names.
#[test]
fn no_line_of_the_log_has_a_debug_format() {
    let mut lines = 0;
    for (path, text) in sources("crates") {
        for line in logged(&text) {
            lines += 1;
            let field = line.match_indices('?').any(|(at, _)| {
                let before = line[..at].trim_end();
                let named = line[at + 1..].starts_with(|c: char| c.is_alphabetic());
                named && (before.is_empty() || before.ends_with([',', '=', '(']))
            });
            let braces = line.contains(":?}") || line.contains(":#?}");
            assert!(!field && !braces, "{}: {line}", path.display());
        }
    }
    assert!(lines > 100, "{lines} lines were found");
}

/// Sources whose debug format is no text of a type: most quote a word that a reader wrote.
const QUOTES: [&str; 9] = [
    "archive/src/key.rs",
    "index/src/codec/name.rs",
    "index/src/cursor.rs",
    "index/src/filter.rs",
    "index/src/postgres/read.rs",
    "index/src/postgres/tally.rs",
    "index/src/source/ic/mod.rs",
    "node/src/demo/utxo/chain.rs",
    "node/src/http/metrics.rs",
];

/// Debug formats reached the log through the texts of errors.
#[test]
fn no_text_for_readers_has_a_debug_format() {
    let mut quoting = 0;
    for (path, text) in sources("crates") {
        let shown = path.to_string_lossy().into_owned();
        let shipped = text.split("#[cfg(test)]").next().unwrap_or(&text);
        let is_test = ["test", "/sim/", "/examples/"].iter().any(|part| shown.contains(part));
        if is_test || !shipped.contains(":?}") {
            continue;
        }
        let mut lines = shipped.lines().filter(|line| line.contains(":?}"));
        // Modules of tests that have another name make nothing but assertions.
        if lines.all(|line| line.contains("assert") || line.contains("panic!")) {
            continue;
        }
        assert!(QUOTES.iter().any(|quotes| shown.ends_with(quotes)), "{shown} has a debug format");
        quoting += 1;
    }
    assert_eq!(quoting, QUOTES.len(), "a source of the list has no debug format any more");
}
