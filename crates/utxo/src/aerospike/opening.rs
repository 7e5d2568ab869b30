//! Opening, against something that answers `info` as servers were recorded to and can do nothing else. It is no
//! Aerospike server: it shows what is asked before anything is written, and what is made of the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::AerospikeStore;
use super::cluster::Cluster;
use crate::UtxoError;
use crate::conformance::rig::RULES;

/// What one node says: of itself, of the namespace, and to `sindex-create`.
#[derive(Debug, Clone, Copy)]
struct Says {
    build: &'static str,
    edition: &'static str,
    namespaces: &'static str,
    namespace: &'static str,
    create: &'static str,
}

const DEVICE: &str = "ns_cluster_size=1;tombstones=0;stop_writes=false;storage-engine=device;\
    storage-engine.file[0]=/data/test.dat;storage-engine.cold-start-empty=false";
const MEMORY: &str = "ns_cluster_size=1;tombstones=0;stop_writes=false;storage-engine=memory;\
    storage-engine.stripe[0]=stripe-0;storage-engine.filesize=0";
const COMMUNITY: Says = Says {
    build: "6.4.0.34",
    edition: "Aerospike Community Edition",
    namespaces: "test;other",
    namespace: MEMORY,
    create: "OK",
};

/// What was asked, and when first.
type Asked = Arc<Mutex<BTreeMap<String, Instant>>>;

#[derive(Clone)]
struct Node {
    says: Says,
    asked: Asked,
}

impl Node {
    fn answer(&self, command: &str) -> String {
        self.asked.lock().entry(command.to_owned()).or_insert_with(Instant::now);
        match command {
            "node" => "BB9000000000000".into(),
            "build" => self.says.build.into(),
            "edition" => self.says.edition.into(),
            "namespaces" => self.says.namespaces.into(),
            "namespace/test" => self.says.namespace.into(),
            "partition-generation" | "peers-generation" => "1".into(),
            "cluster-name" | "peers-clear-std" => String::new(),
            // One copy of each of the 4096 partitions, all of them here.
            "replicas" => format!("test:0,1,{}//8=", "/".repeat(680)),
            _ if command.starts_with("sindex-create:") => self.says.create.into(),
            _ if command.starts_with("truncate:") || command.starts_with("sindex-delete:") => {
                self.says.create.into()
            }
            _ if command.starts_with("sindex") => "keys=0;load_pct=100".into(),
            _ => "ERROR:4:unrecognized command".into(),
        }
    }

    /// Answers until something else than `info` is asked.
    async fn serve(self, mut peer: TcpStream) -> std::io::Result<()> {
        loop {
            let head = peer.read_u64().await?;
            let (kind, len) = (head >> 48, head & 0xffff_ffff_ffff);
            if kind != 0x0201 {
                self.asked.lock().insert("a record".into(), Instant::now());
                return Ok(());
            }
            let mut commands = vec![0; usize::try_from(len).unwrap()];
            peer.read_exact(&mut commands).await?;
            let commands = String::from_utf8(commands).unwrap();
            let lines = commands.lines().map(|one| format!("{one}\t{}\n", self.answer(one)));
            let answer: String = lines.collect();
            peer.write_u64(0x0201 << 48 | answer.len() as u64).await?;
            peer.write_all(answer.as_bytes()).await?;
        }
    }
}

/// Begins to serve; answers the port, and what will be asked.
async fn serve(says: Says) -> (u16, Asked, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let node = Node { says, asked: Arc::default() };
    let asked = Arc::clone(&node.asked);
    let serving = tokio::spawn(async move {
        while let Ok((peer, _)) = listener.accept().await {
            tokio::spawn(node.clone().serve(peer));
        }
    });
    (port, asked, serving)
}

/// Opens a store there; answers how that ended, and what was asked.
async fn open(says: Says, query: &str) -> (UtxoError, BTreeSet<String>) {
    let (port, asked, serving) = serve(says).await;
    let opened =
        AerospikeStore::open(&format!("aerospike://127.0.0.1:{port}/{query}"), RULES).await;
    serving.abort();
    let asked = asked.lock().keys().cloned().collect();
    (opened.expect_err("it has no records"), asked)
}

fn is_written(asked: &BTreeSet<String>) -> bool {
    asked.iter().any(|one| one == "a record" || one.starts_with("sindex-create"))
}

#[tokio::test]
async fn a_cluster_that_brings_deleted_records_back_is_refused_before_anything_is_written() {
    let device = Says { namespace: DEVICE, ..COMMUNITY };
    let (refused, asked) = open(device, "test").await;
    assert!(refused.to_string().contains("come back unspent"), "{refused}");
    assert!(!refused.is_retryable() && !is_written(&asked), "{asked:?}");
    let (refused, asked) = open(COMMUNITY, "test?durable_delete=on").await;
    assert!(refused.to_string().contains("no durable deletes"), "{refused}");
    assert!(!refused.is_retryable() && !is_written(&asked), "{asked:?}");
    let (refused, asked) = open(device, "nowhere").await;
    assert!(refused.to_string().contains("it has other, test"), "{refused}");
    assert!(!is_written(&asked), "{asked:?}");
    // What the operator says is believed, and what an edition can do: the next thing is an index.
    let enterprise = Says { edition: "Aerospike Enterprise Edition", ..device };
    for (says, query) in [(device, "test?wiped_before_rejoin=yes"), (enterprise, "test")] {
        let (failed, asked) = open(says, query).await;
        assert!(failed.is_retryable() && is_written(&asked), "{failed}: {asked:?}");
    }
}

/// It was taken for a cluster without the namespace, and the service ended instead of waiting.
#[tokio::test]
async fn a_node_that_does_not_say_its_namespaces_yet_is_waited_for() {
    for namespaces in ["", "ERROR:4:unrecognized command"] {
        let (failed, asked) = open(Says { namespaces, ..COMMUNITY }, "test").await;
        assert!(failed.is_retryable() && !is_written(&asked), "{failed}: {asked:?}");
        assert!(failed.to_string().contains("which namespaces it has"), "{failed}");
    }
}

#[tokio::test]
async fn a_server_before_7_2_that_answers_ok_in_capitals_has_made_an_index() {
    for create in ["OK", "ok", "FAIL:200:Index already exists"] {
        let (failed, asked) = open(Says { create, ..COMMUNITY }, "test").await;
        let made = asked.iter().filter(|one| one.starts_with("sindex-create:")).count();
        assert_eq!(made, 5, "{create}: {failed}");
        assert!(asked.contains("a record"), "{create}: what comes after the indexes: {failed}");
    }
}

#[tokio::test]
async fn an_index_that_a_node_does_not_know_yet_is_waited_for_and_a_full_namespace_is_full() {
    let (missing, _) = open(Says { create: "FAIL:201:no index", ..COMMUNITY }, "test").await;
    assert!(missing.is_retryable() && !missing.is_disk_full(), "{missing}");
    let (full, _) = open(Says { create: "FAIL:8:out of space", ..COMMUNITY }, "test").await;
    assert!(full.is_retryable() && full.is_disk_full(), "{full}");
    assert!(full.to_string().contains("takes no more writes"), "{full}");
    let (too_many, _) =
        open(Says { create: "FAIL:206:at sindex definition limit", ..COMMUNITY }, "test").await;
    assert!(!too_many.is_retryable(), "{too_many}");
    let text = too_many.to_string();
    assert!(text.contains("256") && !text.contains('\n'), "{text}");
}

/// A server truncates what is older than now in milliseconds, so a record that was written in the same one stayed for
/// ever. And servers before 7.2 answer `OK`, which was taken for a failure that left the indexes behind.
#[tokio::test]
async fn erasing_waits_for_the_next_millisecond_and_removes_sets_and_indexes() {
    for create in ["OK", "ok"] {
        let (port, asked, serving) = serve(Says { create, ..COMMUNITY }).await;
        let address = format!("aerospike://127.0.0.1:{port}/test").parse().unwrap();
        let cluster = Cluster::open(&address).await.unwrap();
        let began = Instant::now();
        cluster.erase().await.unwrap();
        serving.abort();
        let asked = asked.lock();
        let first = asked.iter().filter(|(one, _)| one.starts_with("truncate:")).map(|(_, at)| *at);
        let waited = first.min().map(|at| at.duration_since(began));
        assert!(waited.is_some_and(|waited| waited >= Duration::from_millis(20)), "{waited:?}");
        let count = |name: &str| asked.keys().filter(|one| one.starts_with(name)).count();
        assert_eq!((count("truncate:"), count("sindex-delete:")), (3, 5), "{asked:?}");
    }
}
