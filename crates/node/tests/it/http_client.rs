//! An HTTP client that does what it is told: raw requests over sockets of its own, so that a test
//! can be as slow, as large or as wrong as it wants. And the directory that most tests serve.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use secateur_core::{BlockHash, Locator, Part, Segment, TxId, tx_index};
use serde_json::Value;

use crate::node::Node;
use crate::tool::{open_store, run, small_demo};

/// No answer of a test takes longer.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    /// Reads an answer to its end. A body without a length ends with the connection.
    pub fn read(from: &mut impl Read) -> Self {
        let mut from = BufReader::new(from);
        let mut reply = Self::head(&mut from);
        match reply.header("content-length").map(|len| len.parse().unwrap()) {
            Some(len) => {
                reply.body = vec![0; len];
                from.read_exact(&mut reply.body).unwrap();
            }
            None => {
                from.read_to_end(&mut reply.body).unwrap();
            }
        }
        reply
    }

    /// Reads status and headers only.
    pub fn head(from: &mut impl BufRead) -> Self {
        let mut line = || {
            let mut line = String::new();
            from.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        };
        let first = line();
        let status = first.split(' ').nth(1).unwrap_or_else(|| panic!("no status in {first:?}"));
        let mut reply =
            Self { status: status.parse().unwrap(), headers: Vec::new(), body: Vec::new() };
        loop {
            let header = line();
            let Some((name, value)) = header.split_once(':') else { return reply };
            reply.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub fn is(self, status: u16) -> Self {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status, status, "{text}\n{:#?}", self.headers);
        self
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts status and error code, and gives the body.
    #[track_caller]
    pub fn refuses(self, status: u16, code: &str) -> Value {
        let body = self.is(status).json();
        assert_eq!(body["code"], code, "{body}");
        assert!(body["error"].as_str().is_some_and(|error| !error.is_empty()), "{body}");
        body
    }
}

pub fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a request with these header lines and reads its answer.
pub fn send(address: &str, first: &str, headers: &[&str], body: &[u8]) -> Reply {
    let mut stream = connect(address);
    stream.write_all(&request(address, first, headers, body)).unwrap();
    Reply::read(&mut stream)
}

/// The bytes of a request; the connection ends with it.
pub fn request(address: &str, first: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let has = |name: &str| headers.iter().any(|line| line.to_lowercase().starts_with(name));
    let mut lines = vec![format!("{first} HTTP/1.1"), "connection: close".into()];
    if !has("host:") {
        lines.push(format!("host: {address}"));
    }
    if !body.is_empty() && !has("content-length:") {
        lines.push(format!("content-length: {}", body.len()));
    }
    lines.extend(headers.iter().map(|line| (*line).to_owned()));
    let text = lines.join("\r\n") + "\r\n\r\n";
    [text.as_bytes(), body].concat()
}

pub fn get(node: &Node, path: &str) -> Reply {
    send(&node.http, &format!("GET {path}"), &[], b"")
}

/// Writes a configuration file and starts a node with it.
pub fn start_with(data: &Path, config: &str) -> Node {
    let file = data.with_extension("toml");
    std::fs::write(&file, config).unwrap();
    Node::start(data, &format!("--config {}", file.display()))
}

/// What is known of a directory before a node serves it.
#[derive(Debug)]
pub struct Filled {
    /// The first ten blocks are in this archive part, and pruned.
    pub part: Part,
    /// A transaction of block 5, and that block's hash.
    pub cut: (TxId, BlockHash),
    /// A transaction of the head, and the head's hash.
    pub kept: (TxId, BlockHash),
    pub head: u64,
    /// A transaction that is queued and in no block.
    pub pending: TxId,
}

/// Fills a directory with blocks of which the first are archived and pruned.
pub fn fill(data: &Path) -> Filled {
    small_demo(data, 30);
    let store = open_store(data);
    let transaction = |height| {
        let (record, payload) = store.get_payload(height, Segment::TxIndex).unwrap();
        (tx_index(&payload).next().unwrap().unwrap().tx_id, record.meta.hash)
    };
    let part = Part {
        first: 0,
        last: 9,
        parent_hash: store.get_record(0).unwrap().meta.parent_hash,
        last_hash: store.get_record(9).unwrap().meta.hash,
        locator: Locator { provider: "file".into(), key: "parts/0-9.part".into() },
        sha256: "ab".repeat(32),
        size: 1_000,
    };
    store.ack_archived(&part).unwrap();
    let cut = transaction(5);
    drop(store);
    run(data, "demo --no-archive --blocks 300").ends(0);
    let store = open_store(data);
    let head = store.head().unwrap();
    let (record, payload) = store.get_payload(head, Segment::TxIndex).unwrap();
    let kept = (tx_index(&payload).next().unwrap().unwrap().tx_id, record.meta.hash);
    let pending = TxId([7; 32]);
    store.queue_tx(pending).unwrap();
    Filled { part, cut, kept, head, pending }
}
