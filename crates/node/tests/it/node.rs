//! A node as a process of its own, on ports that nobody else has.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::tool::Running;

/// A running `secateur node`.
#[derive(Debug)]
pub struct Node {
    pub process: Running,
    /// `127.0.0.1:<port>` each.
    pub http: String,
    pub grpc: String,
    /// The token of `node.json`.
    pub token: String,
}

impl Node {
    /// Starts one and waits until it listens. `words` are further flags.
    pub fn start(data: &Path, words: &str) -> Self {
        Self::logging(data, words, Stdio::inherit())
    }

    /// The same, with its log somewhere else.
    pub fn logging(data: &Path, words: &str, log: impl Into<Stdio>) -> Self {
        let words = format!("node --http 127.0.0.1:0 --grpc 127.0.0.1:0 {words}");
        let mut process = Running::logging(data, &words, log);
        let line = process.wait_for("listening");
        let word = |key: &str| {
            let found = line.split_whitespace().find_map(|word| word.strip_prefix(key));
            found.unwrap_or_else(|| panic!("no {key} in {line}")).to_owned()
        };
        let file = std::fs::read_to_string(data.join("node.json")).unwrap();
        let file: Value = serde_json::from_str(&file).unwrap();
        let token = file["admin_token"].as_str().unwrap().to_owned();
        Self { process, http: word("http="), grpc: word("grpc="), token }
    }

    /// Asks it to stop, and waits for a clean end.
    #[track_caller]
    pub fn stop(self) {
        self.process.signal("TERM");
        let (code, _) = self.process.end();
        assert_eq!(code, 0);
    }
}
