//! What the tests of `index` and `archive` share: a node with a generated chain, a worker as a
//! process of its own, and an index read as rows.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use secateur_core::{Block, BlockHash};
use secateur_evm::{ChainSpec, Generator};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::grpc::Clients;
use crate::node::Node;
use crate::tool::{Run, SECATEUR, run, secateur};

/// A chain that a seed decides, made as far as it is wanted.
pub struct Chain {
    generator: Generator,
    tip: (u64, BlockHash),
}

impl Chain {
    pub fn new(transactions: u32) -> Self {
        let spec = ChainSpec { transactions_per_block: transactions, ..ChainSpec::default() };
        Self { generator: Generator::new(spec).unwrap(), tip: (0, BlockHash::default()) }
    }

    /// The next blocks.
    pub fn next(&mut self, count: u64) -> Vec<Block> {
        let mut make = || {
            let block = self.generator.block(self.tip.0, self.tip.1).unwrap();
            self.tip = (self.tip.0 + 1, block.meta.hash);
            block
        };
        (0..count).map(|_| make()).collect()
    }
}

/// A node with a generated chain, and places for an index and an archive beside it.
pub struct Bench {
    pub place: TempDir,
    pub node: Node,
    pub clients: Clients,
    pub runtime: Runtime,
    pub chain: Chain,
}

impl Bench {
    /// A node whose configuration is this text; `ARCHIVE` in it is the archive's directory.
    pub fn start(config: &str, transactions: u32) -> Self {
        Self::start_chain(1337, config, transactions)
    }

    /// The same with a chain of this number, which the generator's blocks are not of.
    pub fn start_chain(id: u64, config: &str, transactions: u32) -> Self {
        let place = tempfile::tempdir().unwrap();
        let runtime = Runtime::new().unwrap();
        let archive = place.path().join("archive");
        let text = format!("[chain]\nid = {id}\n{config}");
        let text = text.replace("ARCHIVE", archive.to_str().unwrap());
        let words = crate::grpc::config(place.path(), &text);
        let node = Node::start(&place.path().join("data"), &words);
        let clients = runtime.block_on(Clients::to(&node, Some(&node.token)));
        Self { place, node, clients, runtime, chain: Chain::new(transactions) }
    }

    /// Appends the next blocks.
    pub fn grow(&mut self, count: u64) -> Vec<Block> {
        let blocks = self.chain.next(count);
        self.runtime.block_on(self.clients.append(&blocks));
        blocks
    }

    pub fn data(&self) -> PathBuf {
        self.place.path().join("data")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub fn archive(&self) -> String {
        self.path("archive").to_str().unwrap().to_owned()
    }

    /// The flags of a worker: an index of this name, and more.
    pub fn words(&self, name: &str, more: &str) -> String {
        let sink = self.path(name).join("index.sqlite");
        format!("index --sink sqlite:{} --log warn {more}", sink.display())
    }

    /// Runs a worker to its end.
    pub fn index(&self, name: &str, more: &str) -> Run {
        run(&self.data(), &self.words(name, more))
    }

    /// Runs `secateur archive` on the bench's archive.
    pub fn ask_archive(&self, words: &str) -> Run {
        archive(&self.archive(), words)
    }

    pub fn rows(&self, name: &str) -> Vec<String> {
        rows(&self.path(name).join("index.sqlite"))
    }

    /// Cuts everything but the newest blocks, as far as holds allow; the boundary is the answer.
    pub fn prune(&self, keep: u64) -> Option<u64> {
        self.runtime.block_on(async {
            use secateur_proto::history::v1::SetPruningRequest;
            let mut admin = self.clients.admin.clone();
            // The daemon would do it too, at the same time.
            admin.set_pruning(SetPruningRequest { enabled: false }).await.unwrap();
            self.clients.policy(&[("retain_blocks", &keep.to_string())]).await;
            let request = secateur_proto::history::v1::PruneRequest { max_ops: 0, to: None };
            while admin.prune(request).await.unwrap().into_inner().more {}
            self.clients.status().await.pruned_before_block
        })
    }
}

/// Runs `secateur archive` on an archive.
pub fn archive(url: &str, words: &str) -> Run {
    let nowhere = Path::new("/nonexistent");
    run(nowhere, &format!("archive --archive {url} {words}"))
}

/// Starts a worker that is to be killed.
pub fn start(data: &Path, words: &str) -> Child {
    let mut command: Command = secateur(data, words);
    command.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap()
}

/// The memory that a process took at most, in KiB.
pub fn peak_kib(words: &[&str]) -> u64 {
    // A shell's own children are measured by the kernel: the largest of them is the worker.
    let output = Command::new("/usr/bin/env")
        .args([
            "sh",
            "-c",
            "\"$@\" >/dev/null 2>&1 & pid=$!; peak=0; \
               while line=$(grep VmHWM /proc/$pid/status 2>/dev/null); do peak=$line; \
               sleep 0.02; done; wait $pid; echo $? $peak",
            "sh",
            SECATEUR,
        ])
        .args(words)
        .env_remove("SECATEUR_DATA")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let fields: Vec<&str> = said.split_whitespace().collect();
    assert_eq!(fields[0], "0", "the worker failed: {said}");
    fields[2].parse().unwrap()
}

/// Every row of an index that must be the same however it came about.
pub fn rows(path: &Path) -> Vec<String> {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let mut found = Vec::new();
    for (table, query) in [
        (
            "meta",
            "select key, value from meta where key in \
             ('cursor', 'schema_version', 'chain_id', 'codec', 'logs') order by key",
        ),
        ("blocks", "select * from blocks order by number"),
        ("txs", "select * from txs order by id"),
        ("logs", "select * from logs order by id"),
        (
            "archive_parts",
            "select block_from, block_to, object_key, codec, size_bytes, sha256, parent_hash, \
             last_hash from archive_parts order by block_from",
        ),
        ("gaps", "select block_from, block_to, reason from gaps order by block_from"),
        ("metrics_daily", "select sum(raw_bytes), sum(blocks_ingested) from metrics_daily"),
    ] {
        let mut statement = db.prepare(query).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let cells: Vec<String> = (0..columns).map(|c| cell(row.get_ref(c).unwrap())).collect();
            found.push(format!("{table}: {}", cells.join("|")));
        }
    }
    found
}

fn cell(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "null".into(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Blob(bytes) => alloy_primitives::hex::encode(bytes),
    }
}

/// Compares two lists of rows; the first that differs is named.
#[track_caller]
pub fn assert_same(found: &[String], wanted: &[String], context: &str) {
    for (found, wanted) in found.iter().zip(wanted) {
        assert_eq!(found, wanted, "{context}");
    }
    assert_eq!(found.len(), wanted.len(), "{context}: the number of rows");
}

/// The keys of an archive's parts.
pub fn keys(url: &str) -> Vec<String> {
    let listed = archive(url, "ls --json").ends(0).json();
    let key = |part: &Value| part["key"].as_str().unwrap().to_owned();
    listed.as_array().unwrap().iter().map(key).collect()
}
