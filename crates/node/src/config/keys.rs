//! The one table of configuration keys: their names, their defaults and what they mean.
//!
//! A key `section.name` is read from `[section] name` of the file and from
//! `SECATEUR_SECTION_NAME` of the environment.

/// One key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    /// Its dotted name.
    pub(crate) name: &'static str,
    /// Its value where nobody sets it; an empty one means unset.
    pub(crate) default: &'static str,
    /// What it means, for `config show` and the documentation.
    pub(crate) help: &'static str,
}

impl Key {
    /// Whether it is an address, which may hold a password.
    pub(crate) fn is_address(&self) -> bool {
        let last = self.name.rsplit('.').next();
        ADDRESSES.iter().any(|address| last == Some(address))
    }

    /// Whether it is a list of tables, written as TOML: `[{ name = "a", url = "…" }]`. Addresses in
    /// it may hold a password too.
    pub(crate) fn is_list(&self) -> bool {
        LISTS.contains(&self.name)
    }

    /// The environment variable that sets it.
    pub(crate) fn variable(&self) -> String {
        format!("{PREFIX}{}", self.name.replace('.', "_").to_uppercase())
    }
}

/// What every environment variable of ours begins with.
pub(crate) const PREFIX: &str = "SECATEUR_";

/// Variables that are not keys: they are read before the configuration, or by tests.
pub(crate) const OTHER_VARIABLES: [&str; 4] =
    ["SECATEUR_DATA", "SECATEUR_CONFIG", "SECATEUR_FIXTURES", "SECATEUR_TEST_"];

/// What keys of addresses end with.
const ADDRESSES: [&str; 9] = [
    "url",
    "execution_url",
    "blockchain_url",
    "assembly_url",
    "source",
    "sink",
    "endpoint",
    "store",
    "files",
];

/// Keys whose values are lists of tables.
const LISTS: [&str; 3] = ["sidecar.validators", "sidecar.providers", "sidecar.peers"];

const fn key(name: &'static str, default: &'static str, help: &'static str) -> Key {
    Key { name, default, help }
}

/// Every key, in the order in which it is shown.
pub(crate) const KEYS: &[Key] = &[
    key("chain.id", "", "the chain's number; a new data directory asks the followed node, else 1"),
    key(
        "chain.finality",
        "",
        "instant: a block is final when it is appended; explicit: when somebody says so \
         (following: explicit, else instant)",
    ),
    key(
        "chain.codec",
        "",
        "how blocks are read: evm, kasane or opaque; a block that is appended without the bytes that \
         this needs is refused",
    ),
    key(
        "chain.blob_update_fraction",
        "",
        "the blob fee's update fraction, where the chain's forks are not known",
    ),
    key("http.addr", "127.0.0.1:7740", "HTTP, JSON-RPC and metrics"),
    key(
        "http.cors_origins",
        "",
        "origins whose pages may read what HTTP answers, set apart by commas, or *; unset: none",
    ),
    key("grpc.addr", "127.0.0.1:7741", "gRPC"),
    key("tls.cert", "", "a PEM file with the certificate chain, for both"),
    key("tls.key", "", "a PEM file with its key, readable by its owner alone"),
    key("auth.read_tokens", "", "a file of tokens that may read, a line each"),
    key(
        "auth.consumer_tokens",
        "",
        "a file of tokens that may read and acknowledge (an index, an archiver), a line each",
    ),
    key("auth.admin_tokens", "", "a file of tokens that may do everything, a line each"),
    key("limits.body_bytes", "5MiB", "the largest HTTP request"),
    key("limits.message_bytes", "64MiB", "the largest gRPC message"),
    key("limits.answer_bytes", "256MiB", "memory of all answers under way; more are refused"),
    key("limits.concurrency", "64", "requests that are answered at once; more wait"),
    key("limits.waiting", "1024", "requests that wait at most; more are refused"),
    key("limits.requests_per_second", "0", "of one address; 0 means no limit"),
    key("limits.timeout_seconds", "30", "the longest that one request may take"),
    key("limits.batch", "1000", "calls of one JSON-RPC batch; limits.body_bytes binds as well"),
    key("limits.log_blocks", "10000", "blocks that one eth_getLogs looks through"),
    key("limits.log_results", "10000", "logs that one eth_getLogs returns"),
    key("log.level", "info", "error, warn, info, debug or trace, or a tracing filter"),
    key("log.json", "false", "one JSON object a line"),
    key("follow.url", "", "the JSON-RPC address of an EVM node whose chain is followed"),
    key("follow.start", "0", "the first block of a new store: a number, or `finalized`"),
    key(
        "follow.confirmations",
        "",
        "blocks until one is final, where the node has no finality; without either none is",
    ),
    key("follow.batch", "16", "blocks that are asked for in one request"),
    key("follow.concurrency", "4", "requests that are under way at once"),
    key("follow.poll_ms", "1000", "how often a caught-up follower asks for news"),
    key("follow.timeout_seconds", "30", "how long the node may be silent before it is asked again"),
    key("beacon.url", "", "the address of a beacon node whose finalised blobs are followed"),
    key(
        "beacon.execution_url",
        "",
        "the JSON-RPC address of an EVM node whose blocks name the blobs, where the beacon node has \
         no beacon blocks and serves blobs by block number (anvil)",
    ),
    key("beacon.start", "finalized", "the first slot of new blobs: a number, or `finalized`"),
    key(
        "beacon.proposer",
        "",
        "whose notices count for followed blobs, 0x… (this node's own, if sidecar.identity is set)",
    ),
    key("beacon.concurrency", "4", "slots that are asked for at once"),
    key("beacon.poll_ms", "4000", "how often a caught-up follower asks what is final"),
    key("beacon.timeout_seconds", "30", "how long the beacon node may be silent"),
    key(
        "pruning.enabled",
        "",
        "whether the prune daemon of a new store works (true where a budget or a retention is \
         named); later only a change of it is applied",
    ),
    key(
        "pruning.backpressure",
        "false",
        "whether pushed blocks are refused while the budget is in an emergency",
    ),
    key(
        "history.layout",
        "",
        "how a new store lays bytes into regions: packed or per-block (packed); fixed then",
    ),
    key("history.challenge_blocks", "", "blocks that final blocks are held longer (0)"),
    key("history.challenge_seconds", "", "seconds that final blocks are held longer (0)"),
    key(
        "history.consumer_expiry_blocks",
        "",
        "blocks without an acknowledgement after which a soft consumer no longer holds (50000)",
    ),
    key(
        "history.tombstone_bytes",
        "",
        "what filters of pruned blocks may take, so that their ids answer `pruned` (64MiB)",
    ),
    key("policy.target_bytes", "", "the byte budget of the history; 0 means none"),
    key("policy.retain_days", "", "keep this many days; 0 means off"),
    key("policy.retain_blocks", "", "keep this many blocks; 0 means off"),
    key("policy.headroom_ratio", "", "share of the budget that is kept clear"),
    key("policy.hard_emergency_ratio", "", "share of the budget at which pruning is urgent"),
    key("policy.max_ops_per_tick", "", "nominal operations of one prune tick"),
    key("policy.trigger", "", "when the prune daemon looks"),
    key("policy.min_keep_blocks", "", "blocks that always stay"),
    key("policy.clock", "", "whose time retention goes by: chain or wall"),
    key("archive.url", "", "the archive: a directory, file:///… or s3://bucket/prefix"),
    key(
        "archive.verify_acks",
        "",
        "whether the node reads an acknowledged part back itself (true where archive.url is set)",
    ),
    key(
        "archive.hold",
        "",
        "whether pruning waits for the archive (true where archive.url is set, else as the store \
         remembers)",
    ),
    key("archive.read_through", "false", "whether lookups of pruned blocks ask the archive"),
    key("archive.read_through_concurrency", "4", "lookups that ask the archive at once"),
    key(
        "archive.endpoint",
        "",
        "the S3 service's address [default: AWS_ENDPOINT_URL, or Amazon's]",
    ),
    key("archive.region", "", "its region [default: AWS_REGION, or us-east-1]"),
    key("archive.allow_http", "false", "whether its address may be http:// on another machine"),
    key(
        "archive.credentials",
        "",
        "a file with aws_access_key_id and aws_secret_access_key, readable by its owner alone \
         [default: the environment]",
    ),
    key("archive.timeout_seconds", "60", "how long one request to it may take"),
    key("archive.acknowledge", "true", "whether an index tells its node of the parts it archives"),
    key("archive.stage", "", "where parts are made [default: stage/ beside the index or archive]"),
    key("archive.daily", "true", "whether a new day (UTC) begins a new part"),
    key("archive.part_blocks", "", "the most blocks of a part"),
    key("archive.part_bytes", "1GiB", "the most bytes of a part before compression"),
    key(
        "index.source",
        "http://127.0.0.1:7741",
        "the gRPC address of the node to index; an archive; or, in a program built with it, ic://<canister id>",
    ),
    key("index.ic_url", "https://icp-api.io", "where the network of an ic:// source answers"),
    key(
        "index.ic_identity",
        "",
        "a file with the key (PEM) of a consumer or controller of an ic:// source, its owner's alone",
    ),
    key("index.sink", "", "where rows go: sqlite:<file> or postgres://…"),
    key("index.codec", "evm", "evm, kasane, or opaque for other chains"),
    key("index.verify", "full", "how far blocks are recomputed: full, hash or off"),
    key("index.on_pruned", "stop", "what to do about pruned blocks: stop, or rebase above them"),
    key("index.consumer", "", "the name of a hold that the node keeps for this index"),
    key("index.token_file", "", "a file with the token for the node, readable by its owner alone"),
    key("index.retention_days", "90", "days that rows are kept; 0 means for ever"),
    key("index.log_addresses", "", "contracts whose logs are kept, set apart by commas; or `all`"),
    key("index.log_topics", "", "first topics whose logs are kept, set apart by commas"),
    key("index.workers", "1", "workers that share a backfill (PostgreSQL)"),
    key("index.budget_bytes", "16MiB", "payload bytes that wait between source and sink at most"),
    key(
        "index.alarm_seconds",
        "60",
        "how long source, index or archive may fail before the alarm; attempts are index.pause_seconds \
         apart from then on, and a run with --once ends",
    ),
    key("index.pause_seconds", "60", "seconds between attempts behind index.alarm_seconds"),
    key("index.http", "", "where the read-only API and the metrics of the index listen"),
    key("sidecar.enabled", "false", "whether the node keeps blob sidecars"),
    key("sidecar.budget_bytes", "0", "bytes that blobs should not pass; it only alarms; 0: none"),
    key("sidecar.retain_blocks", "0", "heights that keep their blobs after they are final"),
    key("sidecar.max_blobs", "64", "blobs of one height, at most"),
    key(
        "sidecar.max_undecided_blobs",
        "4096",
        "blobs of proposals that are not decided, and such proposals, at most",
    ),
    key(
        "sidecar.trust",
        "signature",
        "what must be true of a copy before bytes go: signature (somebody signed for it) or fetch \
         (this node fetched and compared it)",
    ),
    key(
        "sidecar.signers",
        "proposer_only",
        "who may sign for a blob: proposer_only or any_validator_after:<blocks>",
    ),
    key("sidecar.accept_v0", "false", "whether notices in Ultramarine's form are read"),
    key(
        "sidecar.also_send_v0",
        "false",
        "whether this node's own notices are told in Ultramarine's form too",
    ),
    key(
        "sidecar.serve_archived",
        "until_pruned",
        "whether blobs that are archived are served: until_pruned or refuse",
    ),
    key("sidecar.read_through", "false", "whether pruned blobs are served from their copies"),
    key("sidecar.identity", "", "this node's validator id, 0x and 2 to 64 hexadecimal digits"),
    key(
        "sidecar.key_file",
        "",
        "the key that it signs notices with, readable by its owner alone (`secateur blob keygen`)",
    ),
    key(
        "sidecar.validators",
        "",
        "a list of { id, public_key, from_height, to_height }: whose notices count, and when",
    ),
    key(
        "sidecar.providers",
        "",
        "a list of { kind, name, … }: where copies go; kind is fs, s3 or load-s3-agent",
    ),
    key("sidecar.min_copies", "1", "copies that are read back before a blob counts as archived"),
    key("sidecar.at_once", "8", "blobs that are archived, or fetched from their copies, at once"),
    key(
        "sidecar.rebroadcast_blocks",
        "16",
        "blocks after which a notice that not everybody has is told again",
    ),
    key("sidecar.peers", "", "a list of { name, url }: the gRPC addresses of the other nodes"),
    key(
        "sidecar.token_file",
        "",
        "the token that is sent to peers and wanted of them, readable by its owner alone",
    ),
    key("sidecar.ca_file", "", "certificates (PEM) of peers that the system does not know"),
    key("sidecar.ask_seconds", "30", "how often a peer is asked for notices that are lacking"),
    key("utxo.enabled", "true", "whether events of the chain set prunes of UTXO records off"),
    key("utxo.start", "true", "whether `secateur utxo serve` starts the service at all"),
    key("utxo.listen", "127.0.0.1:8096", "gRPC of the UTXO service"),
    key("utxo.http", "127.0.0.1:8097", "its metrics, /healthz and /readyz"),
    key(
        "utxo.open_health",
        "",
        "an address where its health (HealthGRPC, grpc.health.v1, /healthz, /readyz), and nothing else, \
         answers without TLS and token",
    ),
    key(
        "utxo.store",
        "",
        "where records are: sqlite:///path, postgres://… or, in a program built with it, aerospike://… \
         [default: utxo/utxo.sqlite in the data directory]",
    ),
    key(
        "utxo.files",
        "",
        "the place of external files: a directory, file:///… or s3://bucket/prefix [default: files/ \
         beside an SQLite store]",
    ),
    key("utxo.inline_bytes", "64KiB", "transactions above this size become external files"),
    key("utxo.block_height_retention", "288", "blocks between all spent and a record's end"),
    key("utxo.coinbase_maturity", "100", "blocks before a coinbase's outputs can be spent"),
    key(
        "utxo.unmined_tx_retention",
        "",
        "blocks after which an unmined transaction's parents are preserved (half the retention)",
    ),
    key("utxo.parent_preservation_blocks", "1440", "for how many blocks they are preserved"),
    key("utxo.chunk_size", "1000", "records in one chunk"),
    key("utxo.chunk_group_limit", "10", "chunks at the same time; 1: each is a step of its own"),
    key("utxo.defensive", "false", "whether every spender must be mined and deep"),
    key("utxo.defensive_batch_read", "10000", "spenders that are read at a time then"),
    key("utxo.delete", "true", "whether records are deleted at all"),
    key(
        "utxo.missing_files_are_gone",
        "false",
        "whether records go though none of the files that must be there is there",
    ),
    key(
        "utxo.safe_height",
        "persisted",
        "up to which height records go: persisted, persisted_plus_retention or trigger",
    ),
    key("utxo.job_timeout_seconds", "600", "how long a run may take; the next event goes on"),
    key("utxo.progress_seconds", "30", "how often a run tells how far it is; 0: never"),
    key("utxo.trigger", "auto", "what sets a prune off: auto, persisted or mined"),
    key("utxo.persister_absent", "false", "whether the chain has no block persister"),
    key(
        "utxo.persister_stale_blocks",
        "100",
        "blocks behind the head after which a persister that reported once is an alarm",
    ),
    key("utxo.max_lag_blocks", "144", "blocks behind the head after which it is not ready"),
    key(
        "utxo.max_jump_blocks",
        "10000",
        "blocks that the chain may be ahead of what was known before it is taken for a mistake; 0: any",
    ),
    key(
        "utxo.max_unfed_blocks",
        "6",
        "blocks of a followed chain without a fed record after which it is not ready; 0: any",
    ),
    key("utxo.blockchain_url", "", "the gRPC address of a blockchain service to listen to"),
    key("utxo.assembly_url", "", "the gRPC address of a block assembly that is asked before a run"),
    key(
        "utxo.api_key_file",
        "",
        "a file with the key that both are sent as `x-api-key`, readable by its owner alone",
    ),
    key("utxo.timeout_seconds", "10", "how long either may take to answer"),
];

/// A key by its name.
pub(crate) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}
