//! A real EVM node: anvil, as `scripts/prepare` installs it, on a port that nobody else has.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::json_client::Client;

/// Where it is among the tools.
const PLACE: &str = "node_modules/@foundry-rs/anvil-linux-amd64/bin/anvil";

/// A running anvil. It mines only when it is told to.
#[derive(Debug)]
pub struct Anvil {
    child: Child,
    pub url: String,
    client: Client,
}

/// Where `scripts/prepare` puts what the tests need from npm.
pub fn tools() -> PathBuf {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    cache.unwrap_or_default().join("secateur/tools")
}

fn binary() -> PathBuf {
    match std::env::var_os("SECATEUR_TEST_ANVIL") {
        Some(named) => named.into(),
        None => tools().join(PLACE),
    }
}

impl Anvil {
    /// Starts one whose final block is two below its newest.
    pub fn start() -> Self {
        Self::with("--slots-in-an-epoch 1")
    }

    /// Starts one whose final block is eight below its newest.
    pub fn slow() -> Self {
        Self::with("--slots-in-an-epoch 4")
    }

    /// Starts one that wants its transactions' blobs, and serves them like a beacon node.
    pub fn with_blobs() -> Self {
        Self::run("--slots-in-an-epoch 1")
    }

    /// Starts one with further flags.
    pub fn with(words: &str) -> Self {
        // It looks for blobs unless it impersonates; signatures are what they are.
        Self::run(&format!("--auto-impersonate {words}"))
    }

    fn run(words: &str) -> Self {
        let path = binary();
        assert!(
            path.is_file(),
            "there is no anvil at {}: run `make prepare`, or name one in SECATEUR_TEST_ANVIL",
            path.display()
        );
        let mut child = Command::new(&path)
            .args("--port 0 --no-mining --order fifo".split(' '))
            .args(["--hardfork", "prague", "--timestamp", "1700000000", "--accounts", "4"])
            .args(words.split_whitespace())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let listening = lines
            .by_ref()
            .map(Result::unwrap)
            .find_map(|line| line.strip_prefix("Listening on ").map(str::to_owned));
        let url = format!("http://{}", listening.expect("anvil listens"));
        // It must not stop because nobody reads what it says.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, client: Client::new(&url), url }
    }

    /// One that keeps its chain in a file, from one start to the next.
    pub fn keeping(state: &Path) -> Self {
        Self::with(&format!("--slots-in-an-epoch 1 --state {}", state.display()))
    }

    /// Asks it something that must work.
    #[track_caller]
    pub fn ask(&self, method: &str, params: &Value) -> Value {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let answer = self.client.post(&call);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Mines so many blocks; the first takes the transactions that wait.
    pub fn mine(&self, blocks: u64) {
        self.ask("anvil_mine", &json!([format!("{blocks:#x}"), "0xc"]));
    }

    pub fn head(&self) -> u64 {
        number(&self.ask("eth_blockNumber", &json!([])))
    }

    /// A block with its transactions' hashes.
    pub fn block(&self, height: u64) -> Value {
        self.ask("eth_getBlockByNumber", &json!([format!("{height:#x}"), false]))
    }

    pub fn hash(&self, height: u64) -> String {
        self.block(height)["hash"].as_str().unwrap().to_owned()
    }

    /// Ends it as an operator would, so that it writes its state.
    pub fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &pid]).status().unwrap().success());
        self.child.wait().unwrap();
    }
}

impl Drop for Anvil {
    fn drop(&mut self) {
        // Ended already, or ended now: either way it is gone.
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

/// A number as JSON-RPC writes it.
pub fn number(value: &Value) -> u64 {
    let digits = value.as_str().and_then(|text| text.strip_prefix("0x")).unwrap();
    u64::from_str_radix(digits, 16).unwrap()
}
