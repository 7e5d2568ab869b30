//! A node that follows a source, watched through its log.

use std::cell::Cell;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::anvil::Anvil;
use crate::tool::{open_store, secateur};

/// Nothing that is waited for takes longer.
const PATIENCE: Duration = Duration::from_mins(1);

/// A running node. Its log is read line by line.
#[derive(Debug)]
pub struct Followed {
    child: Child,
    log: Receiver<Value>,
    /// Everything that was read so far.
    seen: Vec<Value>,
}

impl Followed {
    /// Starts one that asks often and has little patience.
    pub fn start(data: &Path, url: &str) -> Self {
        Self::with(data, url, "", &[])
    }

    /// The same with further flags and variables.
    pub fn with(data: &Path, url: &str, words: &str, variables: &[(&str, &str)]) -> Self {
        let words = format!(
            "node --http 127.0.0.1:0 --grpc 127.0.0.1:0 --json-logs \
             --log info,secateur::follow=debug --follow {url} {words}"
        );
        let mut command: Command = secateur(data, &words);
        let mut child = command
            .env("SECATEUR_FOLLOW_POLL_MS", "50")
            .env("SECATEUR_FOLLOW_TIMEOUT_SECONDS", "1")
            .envs(variables.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (send, log) = channel();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // A line that is not JSON stays a text, and fails the test that meets it.
                let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if send.send(value).is_err() {
                    break;
                }
            }
        });
        Self { child, log, seen: Vec::new() }
    }

    /// Waits for a line of the log.
    #[track_caller]
    pub fn wait(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.log.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    assert!(line.is_object(), "not JSON: {line}");
                    self.seen.push(line.clone());
                    if wanted(&line) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("no {what}: {:#?}", self.seen),
                Err(RecvTimeoutError::Disconnected) => panic!("it ended: {:#?}", self.seen),
            }
        }
    }

    /// Waits for a line whose message says this.
    #[track_caller]
    pub fn says(&mut self, text: &str) -> Value {
        self.wait(text, |line| message(line).contains(text))
    }

    /// Where it answers over HTTP and gRPC, as its `node.json` says.
    #[track_caller]
    pub fn addresses(&self, data: &Path) -> (String, String) {
        let until = Instant::now() + PATIENCE;
        loop {
            let text = std::fs::read_to_string(data.join("node.json")).unwrap_or_default();
            if let Ok(file) = serde_json::from_str::<Value>(&text) {
                let address = |name: &str| file[name].as_str().unwrap().to_owned();
                return (address("http"), address("grpc"));
            }
            assert!(Instant::now() < until, "it does not come up: {:#?}", self.seen);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until its newest block is this one.
    #[track_caller]
    pub fn reaches(&mut self, height: u64, hash: &str) {
        let what = format!("block {height} {hash}");
        self.wait(&what, |line| {
            let fields = &line["fields"];
            message(line) == "here" && fields["head"] == height && same(&fields["hash"], hash)
        });
    }

    /// Waits until it has everything of a source.
    #[track_caller]
    pub fn catches_up(&mut self, anvil: &Anvil) {
        let head = anvil.head();
        self.reaches(head, &anvil.hash(head));
    }

    /// Waits until it has said that its trouble is over, and until it has everything of a source. Either
    /// may come first: an answer ends silence, and only a whole round ends what is deeper.
    #[track_caller]
    pub fn recovers(&mut self, anvil: &Anvil) {
        let head = anvil.head();
        let hash = anvil.hash(head);
        let (over, here) = (Cell::new(false), Cell::new(false));
        self.wait("end of the trouble, and everything of the source", |line| {
            let fields = &line["fields"];
            over.set(over.get() || message(line).contains("the trouble is over"));
            let is_here = message(line) == "here" && fields["head"] == head;
            here.set(here.get() || (is_here && same(&fields["hash"], &hash)));
            over.get() && here.get()
        });
    }

    /// What it said so far, in one text.
    pub fn said(&mut self) -> String {
        self.seen.extend(self.log.try_iter());
        self.seen.iter().map(Value::to_string).collect::<Vec<_>>().join("\n")
    }

    /// Asks it to stop, and waits for a clean end.
    #[track_caller]
    pub fn stop(mut self) -> String {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
        let code = self.child.wait().unwrap().code();
        assert_eq!(code, Some(0), "{}", self.said());
        self.said()
    }

    /// Waits for an end of its own accord.
    #[track_caller]
    pub fn ends(mut self, code: i32) -> String {
        self.wait("end", |line| line["fields"]["exit_code"] == code);
        let ended = self.child.wait().unwrap().code();
        // The log is whole once its reader is done.
        self.seen.extend(self.log.iter());
        assert_eq!(ended, Some(code), "{}", self.said());
        self.said()
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        // Ended already, or ended now: either way it is gone.
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

fn message(line: &Value) -> &str {
    line["fields"]["message"].as_str().unwrap_or_default()
}

/// Whether two texts are the same hash, with or without `0x`.
fn same(logged: &Value, hash: &str) -> bool {
    let bare = |text: &str| text.trim_start_matches("0x").to_owned();
    logged.as_str().is_some_and(|logged| bare(logged) == bare(hash))
}

/// The hash of a stored block as JSON-RPC writes it.
pub fn stored_hash(data: &Path, height: u64) -> Option<String> {
    let block = open_store(data).get_block(height).ok()?;
    Some(alloy_primitives::hex::encode_prefixed(block.meta.hash.0))
}
