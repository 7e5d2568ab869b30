//! What is counted: calls of every interface, by names that are known, and how long they took.
//! (What the history says of itself is read when somebody asks for it, in `scrape`.)

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use secateur_store::PruneOutcome;

use crate::security::grpc_role;

/// Seconds that durations are sorted by.
const BUCKETS: [f64; 12] =
    [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0];

/// Whatever is not known by its name is counted under this one.
const OTHER: &str = "other";

/// JSON-RPC methods that are counted by their names.
const RPC_METHODS: [&str; 21] = [
    "eth_chainId",
    "eth_blockNumber",
    "eth_getBlockByNumber",
    "eth_getBlockByHash",
    "eth_getTransactionByHash",
    "eth_getTransactionReceipt",
    "eth_getBlockReceipts",
    "eth_getLogs",
    "eth_capabilities",
    "eth_syncing",
    "web3_clientVersion",
    "net_version",
    "eth_getBlockTransactionCountByNumber",
    "eth_getBlockTransactionCountByHash",
    "eth_getTransactionByBlockNumberAndIndex",
    "eth_getTransactionByBlockHashAndIndex",
    "eth_getUncleByBlockNumberAndIndex",
    "eth_getUncleByBlockHashAndIndex",
    "eth_getUncleCountByBlockNumber",
    "eth_getUncleCountByBlockHash",
    "engine_getBlobsV1",
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HttpCall {
    route: &'static str,
    code: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HttpRoute {
    route: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RpcCall {
    method: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RpcMethod {
    method: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GrpcCall {
    method: String,
    code: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GrpcMethod {
    method: String,
}

/// How a lookup in the archive ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadThrough {
    /// The block was found, recomputed and answered.
    Served,
    /// No part is known to hold it.
    Missing,
    /// As many lookups as may were asking the archive already.
    Busy,
    /// The archive took too long.
    Timeout,
    /// The archive failed, or a part is not what it must be.
    Failed,
}

impl ReadThrough {
    const ALL: [Self; 5] = [Self::Served, Self::Missing, Self::Busy, Self::Timeout, Self::Failed];

    const fn labels(self) -> ReadThroughLabels {
        let result = match self {
            Self::Served => "served",
            Self::Missing => "missing",
            Self::Busy => "busy",
            Self::Timeout => "timeout",
            Self::Failed => "failed",
        };
        ReadThroughLabels { result }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReadThroughLabels {
    result: &'static str,
}

/// How often something was called, and how long it took.
#[derive(Debug)]
struct Calls<C, M> {
    count: Family<C, Counter>,
    seconds: Family<M, Histogram, fn() -> Histogram>,
}

impl<C, M> Calls<C, M>
where
    C: Clone + Hash + Eq + EncodeLabelSet + Debug + Send + Sync + 'static,
    M: Clone + Hash + Eq + EncodeLabelSet + Debug + Send + Sync + 'static,
{
    fn new(registry: &mut Registry, name: &str, what: &str) -> Self {
        let calls = Self {
            count: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        };
        registry.register(
            format!("secateur_{name}_requests"),
            format!("{what} that were answered, or refused"),
            calls.count.clone(),
        );
        registry.register(
            format!("secateur_{name}_request_duration_seconds"),
            format!("How long {what} took"),
            calls.seconds.clone(),
        );
        calls
    }

    fn note(&self, call: &C, method: &M, seconds: f64) {
        self.count.get_or_create(call).inc();
        self.seconds.get_or_create(method).observe(seconds);
    }
}

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    http: Calls<HttpCall, HttpRoute>,
    rpc: Calls<RpcCall, RpcMethod>,
    grpc: Calls<GrpcCall, GrpcMethod>,
    connections: Gauge,
    refused_connections: Counter,
    read_through: Family<ReadThroughLabels, Counter>,
    pruned: Pruned,
}

/// What prunes cut since the start, by whomever they were asked for, and how long they took.
#[derive(Debug)]
struct Pruned {
    blocks: Counter,
    bytes: Counter,
    seconds: Histogram,
}

impl Pruned {
    fn new(registry: &mut Registry) -> Self {
        let pruned = Self {
            blocks: Counter::default(),
            bytes: Counter::default(),
            seconds: Histogram::new(BUCKETS),
        };
        registry.register(
            "secateur_history_cut_blocks",
            "Blocks that were cut since the start",
            pruned.blocks.clone(),
        );
        registry.register(
            "secateur_history_cut_bytes",
            "Bytes of regions that they released",
            pruned.bytes.clone(),
        );
        registry.register(
            "secateur_history_prune_duration_seconds",
            "How long a tick that cut something selected and cut, without its commit",
            pruned.seconds.clone(),
        );
        pruned
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("secateur_build", "Which program this is", build);
        let (connections, refused_connections) = (Gauge::default(), Counter::default());
        registry.register(
            "secateur_http_connections",
            "HTTP connections that are open",
            connections.clone(),
        );
        registry.register(
            "secateur_http_refused_connections",
            "HTTP connections that were one too many",
            refused_connections.clone(),
        );
        let read_through = Family::default();
        for result in ReadThrough::ALL {
            drop(read_through.get_or_create(&result.labels()));
        }
        registry.register(
            "secateur_archive_read_through",
            "Lookups of pruned blocks that asked the archive, by result",
            read_through.clone(),
        );
        Self {
            http: Calls::new(&mut registry, "http", "HTTP requests"),
            rpc: Calls::new(&mut registry, "rpc", "JSON-RPC calls"),
            grpc: Calls::new(&mut registry, "grpc", "gRPC calls"),
            pruned: Pruned::new(&mut registry),
            connections,
            refused_connections,
            read_through,
            registry,
        }
    }
}

/// Counts an open connection until it is dropped.
#[derive(Debug)]
pub(super) struct Counted(Gauge);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    /// Counts an HTTP request by its route in the table.
    pub(super) fn http(&self, route: &'static str, code: u16, seconds: f64) {
        let code = u32::from(code);
        self.http.note(&HttpCall { route, code }, &HttpRoute { route }, seconds);
    }

    /// Counts a JSON-RPC call; a batch is as many calls as it has.
    pub(crate) fn rpc(&self, method: &str, ok: bool, seconds: f64) {
        let known = RPC_METHODS.iter().find(|known| **known == method);
        let method = known.copied().unwrap_or(OTHER);
        let outcome = if ok { "ok" } else { "error" };
        self.rpc.note(&RpcCall { method, outcome }, &RpcMethod { method }, seconds);
    }

    /// Counts a gRPC call by its path, `/package.Service/Method`.
    pub(crate) fn grpc(&self, path: &str, code: tonic::Code, seconds: f64) {
        let known = grpc_role(path).and(path.strip_prefix('/'));
        let method = known.unwrap_or(OTHER).to_owned();
        let code = format!("{code:?}");
        let call = GrpcCall { method: method.clone(), code };
        self.grpc.note(&call, &GrpcMethod { method }, seconds);
    }

    /// Counts what a tick of a prune cut; one that cut nothing is not counted.
    pub(crate) fn pruned(&self, outcome: &PruneOutcome) {
        if outcome.totals.blocks > 0 {
            self.pruned.blocks.inc_by(outcome.totals.blocks);
            self.pruned.bytes.inc_by(outcome.totals.bytes);
            self.pruned.seconds.observe(Duration::from_millis(outcome.millis).as_secs_f64());
        }
    }

    /// Counts a lookup in the archive.
    pub(crate) fn read_through(&self, result: ReadThrough) {
        self.read_through.get_or_create(&result.labels()).inc();
    }

    /// Counts a connection for as long as the answer lives.
    pub(super) fn connection(&self) -> Counted {
        self.connections.inc();
        Counted(self.connections.clone())
    }

    /// Counts a connection that found no place.
    pub(super) fn refused_connection(&self) {
        self.refused_connections.inc();
    }

    /// Writes what was counted so far; what follows it, and the end, are the caller's.
    pub(crate) fn write(&self, to: &mut String) -> Result<(), std::fmt::Error> {
        text::encode_registry(to, &self.registry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_nobody_knows_share_one_label() {
        let metrics = Metrics::default();
        for stranger in 0..1_000 {
            metrics.rpc(&format!("eth_{stranger}"), false, 0.1);
            metrics.grpc(&format!("/a.B/{stranger}"), tonic::Code::Unimplemented, 0.1);
        }
        metrics.rpc("eth_chainId", true, 0.1);
        metrics.grpc("/secateur.export.v1.Export/GetHead", tonic::Code::Ok, 0.1);
        let mut text = String::new();
        metrics.write(&mut text).unwrap();
        for line in [
            "secateur_rpc_requests_total{method=\"other\",outcome=\"error\"} 1000",
            "secateur_rpc_requests_total{method=\"eth_chainId\",outcome=\"ok\"} 1",
            "secateur_grpc_requests_total{method=\"other\",code=\"Unimplemented\"} 1000",
            "secateur_grpc_requests_total{method=\"secateur.export.v1.Export/GetHead\",code=\"Ok\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
        assert!(text.lines().count() < 200, "{text}");
    }
}
