//! The shapes of JSON answers, for the `OpenAPI` document.

use serde_json::{Map, Value, json};

/// A reference to a shape.
pub(super) fn named(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// Fields with their types: `int`, `bool`, `text`, `hash`, `[Name]` for a list, or a shape's name;
/// a `?` behind it allows null.
type Fields = &'static [(&'static str, &'static str)];

const ERROR: Fields = &[("error", "text"), ("code", "text")];
const PRUNED: Fields = &[
    ("error", "text"),
    ("code", "text"),
    ("pruned_before_block", "int"),
    ("first_available", "int"),
    ("locator", "Locator?"),
];
const ALIVE: Fields = &[("alive", "bool"), ("version", "text")];
const READY: Fields = &[
    ("ready", "bool"),
    ("reasons", "[text]"),
    ("warnings", "[text]"),
    ("budget", "text"),
    ("head", "int?"),
    ("following", "bool"),
    ("source_head", "int?"),
    ("caught_up", "bool?"),
    ("lag_blocks", "int?"),
    ("refused_block", "int?"),
    ("beacon", "bool"),
    ("beacon_head", "int?"),
    ("beacon_caught_up", "bool?"),
];
const LOCATOR: Fields = &[("provider", "text"), ("key", "text")];
const PART: Fields = &[
    ("first", "int"),
    ("last", "int"),
    ("parent_hash", "hash"),
    ("last_hash", "hash"),
    ("provider", "text"),
    ("key", "text"),
    ("sha256", "text"),
    ("size", "int"),
];
const NODE: Fields = &[
    ("chain_id", "int"),
    ("version", "text"),
    ("layout", "text"),
    ("format", "int"),
    ("following", "bool"),
    ("source", "Source?"),
];
const SOURCE: Fields = &[
    ("address", "text"),
    ("head", "int?"),
    ("head_age_seconds", "int?"),
    ("caught_up", "bool"),
    ("lag_blocks", "int?"),
    ("ends_below_final", "bool"),
    ("trouble", "text?"),
    ("refused_block", "int?"),
];
const PARTS: Fields = &[("parts", "[Part]"), ("next", "int?")];
const HOLD: Fields =
    &[("name", "text"), ("strength", "text"), ("limit", "int?"), ("active", "bool")];
const HOLDS: Fields = &[("holds", "[Hold]"), ("binding_hold", "text?"), ("draining", "bool")];
const POLICY: Fields = &[
    ("target_bytes", "int"),
    ("retain_days", "int"),
    ("retain_blocks", "int"),
    ("headroom_ratio", "Anything"),
    ("hard_emergency_ratio", "Anything"),
    ("max_ops_per_tick", "int"),
    ("trigger", "Anything"),
    ("min_keep_blocks", "int"),
    ("clock", "text"),
];
const CLASS_BYTES: Fields = &[("class", "int"), ("regions", "int"), ("bytes", "int")];
const REPORT: Fields = &[
    ("seq", "int"),
    ("at", "int"),
    ("by", "text"),
    ("cause", "text"),
    ("first", "int"),
    ("last", "int"),
    ("blocks", "int"),
    ("transactions", "int"),
    ("ops", "int"),
    ("ticks", "int"),
    ("overruns", "int"),
    ("used_before", "int"),
    ("used_after", "int"),
    ("by_class", "[ClassBytes]"),
    ("millis", "int"),
    ("stop", "Anything"),
];
const REPORTS: Fields = &[("reports", "[Report]")];
const PLAN: Fields = &[
    ("cause", "text?"),
    ("first", "int?"),
    ("last", "int?"),
    ("blocks", "int"),
    ("transactions", "int"),
    ("ops", "int"),
    ("bytes", "int"),
    ("last_bytes", "int"),
    ("overrun", "bool"),
    ("by_class", "[ClassBytes]"),
    ("used_before", "int"),
    ("used_after", "int"),
    ("ticks", "int"),
    ("blocks_per_tick", "int?"),
    ("blocks_between_ticks", "int?"),
    ("stop", "Anything"),
    ("holds", "[Hold]"),
    ("binding_hold", "text?"),
];
const CLASS_USE: Fields = &[
    ("class", "int"),
    ("used", "int"),
    ("quarantine", "int"),
    ("free", "int"),
    ("punched", "int"),
];
const ID_USE: Fields = &[
    ("runs", "int"),
    ("sealed_ids", "int"),
    ("tombstones", "int"),
    ("tombstone_bytes", "int"),
    ("searched_from", "int?"),
    ("memory_bytes", "int"),
];
const STATUS: Fields = &[
    ("head", "int?"),
    ("export_head", "int?"),
    ("finalized", "int?"),
    ("archived", "int?"),
    ("pruned_before_block", "int?"),
    ("oldest_kept_block", "int?"),
    ("oldest_kept_timestamp", "int?"),
    ("estimated_kept_bytes", "int"),
    ("used_bytes", "int"),
    ("quarantined_bytes", "int"),
    ("arena_bytes", "int"),
    ("disk_bytes", "int"),
    ("index_bytes", "int"),
    ("free_bytes", "int?"),
    ("disk_full", "bool"),
    ("least_target_bytes", "int"),
    ("classes", "[ClassUse]"),
    ("layout", "text"),
    ("ids", "IdUse"),
    ("target_bytes", "int"),
    ("high_water_bytes", "int?"),
    ("low_water_bytes", "int?"),
    ("hard_water_bytes", "int?"),
    ("draining", "bool"),
    ("emergency", "bool"),
    ("pruning_enabled", "bool"),
    ("prune_running", "bool"),
    ("need_prune", "bool"),
    ("cause", "text?"),
    ("blocked_by", "Anything?"),
    ("holds", "[Hold]"),
    ("binding_hold", "text?"),
    ("last_prune_at", "int?"),
    ("last_report", "Report?"),
    ("bytes_per_block", "int"),
    ("budget_blocks", "int?"),
    ("budget_seconds", "int?"),
    ("seconds_to_high_water", "int?"),
    ("blocks_per_tick", "int?"),
    ("blocks_between_ticks", "int?"),
    ("retention_behind_blocks", "int?"),
    ("queued_transactions", "int"),
    ("journal_entries", "int"),
    ("oldest_pin_age", "int"),
    ("decreasing_timestamps", "int"),
    ("implausible_timestamps", "int"),
    ("overruns", "int"),
    ("alarms", "[text]"),
];
const PAYLOAD: Fields = &[("bytes", "int"), ("crc32c", "text")];
const BLOCK: Fields = &[
    ("height", "int"),
    ("hash", "hash"),
    ("parent_hash", "hash"),
    ("timestamp", "int"),
    ("tx_count", "int"),
    ("payload_bytes", "int"),
    ("region_bytes", "int"),
    ("block", "Payload"),
    ("receipts", "Payload"),
    ("tx_index", "Payload"),
    ("locator", "Locator?"),
];
const TRANSACTION: Fields =
    &[("tx_id", "hash"), ("height", "int"), ("index", "int"), ("block_hash", "hash")];
const RECEIPT: Fields = &[
    ("tx_id", "hash"),
    ("height", "int"),
    ("index", "int"),
    ("block_hash", "hash"),
    ("receipt_bytes", "int"),
];
/// Which other fields a story has depends on how it goes.
const BLOCK_STORY: Fields = &[("state", "text")];
const TRANSACTION_STORY: Fields = &[("tx_id", "hash")];

const BLOBS_SUMMARY: Fields = &[
    ("heights", "int"),
    ("pending", "int"),
    ("archived", "int"),
    ("pruned", "int"),
    ("prune_failures", "int"),
    ("rounds", "int"),
    ("undecided", "int"),
    ("latest_decided", "int?"),
    ("latest_archived", "int?"),
    ("finalized", "int?"),
    ("oldest_unarchived", "int?"),
    ("jobs", "int"),
    ("oldest_job", "int?"),
    ("announcements", "int"),
    ("pruner_backlog", "int?"),
    ("used_bytes", "int"),
    ("budget_bytes", "int"),
    ("disk_bytes", "int"),
    ("over_budget", "bool"),
    ("archival_lag", "int"),
    ("peers", "[Peer]"),
];
const PEER: Fields = &[("name", "text"), ("connected", "bool")];
const BLOBS_PLAN: Fields = &[
    ("limit", "int?"),
    ("heights", "int"),
    ("blobs", "int"),
    ("bytes", "int"),
    ("first", "int?"),
    ("last", "int?"),
    ("held", "Anything?"),
    ("more", "bool"),
];
const BLOB_RECORD: Fields = &[
    ("height", "int"),
    ("index", "int"),
    ("commitment", "text"),
    ("versioned_hash", "hash"),
    ("keccak", "hash"),
    ("records", "[Anything]"),
];
const BLOB_RECORDS: Fields = &[("records", "[BlobRecord]"), ("next", "text?")];
const BLOBS_OF_HEIGHT: Fields = &[
    ("height", "int"),
    ("round", "Anything?"),
    ("proposer", "text?"),
    ("undecided", "[Anything]"),
    ("blobs", "[Anything]"),
    ("hold", "text?"),
    ("pruned", "Anything?"),
    ("no_signer", "bool"),
];
const BLOB_STORY: Fields = &[
    ("height", "int"),
    ("index", "int"),
    ("round", "Anything"),
    ("proposer", "text"),
    ("blob_count", "int"),
    ("stored_at", "int"),
    ("decided_at", "int"),
    ("state", "text"),
    ("commitment", "text"),
    ("versioned_hash", "hash"),
    ("keccak", "hash"),
    ("records", "[Anything]"),
    ("fetched_at", "int?"),
    ("job", "Anything?"),
    ("here", "bool"),
    ("hold", "text?"),
    ("pruned", "Anything?"),
    ("no_signer", "bool"),
];
const BEACON_BLOBS: Fields =
    &[("execution_optimistic", "bool"), ("finalized", "bool"), ("data", "[text]")];
/// Every error of the Beacon API.
const BEACON_ERROR: Fields = &[("code", "int"), ("message", "text")];
/// Where the blobs of a height are, a list for each.
const BLOBS_PRUNED: Fields = &[
    ("code", "int"),
    ("message", "text"),
    ("height", "int"),
    ("blob_count", "int"),
    ("locators", "[[Locator]]"),
];
/// Where a blob should be and could not be read: one list.
const BLOB_UNREAD: Fields = &[
    ("code", "int"),
    ("message", "text"),
    ("height", "int"),
    ("index", "int"),
    ("locators", "[[Locator]]"),
];
const BEACON_SIDECARS: Fields = &[
    ("version", "text"),
    ("execution_optimistic", "bool"),
    ("finalized", "bool"),
    ("data", "[Anything]"),
];

const SHAPES: &[(&str, Fields)] = &[
    ("Error", ERROR),
    ("Pruned", PRUNED),
    ("Alive", ALIVE),
    ("Ready", READY),
    ("Locator", LOCATOR),
    ("Part", PART),
    ("Parts", PARTS),
    ("Hold", HOLD),
    ("Holds", HOLDS),
    ("Node", NODE),
    ("Source", SOURCE),
    ("Policy", POLICY),
    ("ClassBytes", CLASS_BYTES),
    ("Report", REPORT),
    ("Reports", REPORTS),
    ("Plan", PLAN),
    ("ClassUse", CLASS_USE),
    ("IdUse", ID_USE),
    ("Status", STATUS),
    ("Payload", PAYLOAD),
    ("Block", BLOCK),
    ("Transaction", TRANSACTION),
    ("Receipt", RECEIPT),
    ("BlockStory", BLOCK_STORY),
    ("TransactionStory", TRANSACTION_STORY),
    ("BlobsSummary", BLOBS_SUMMARY),
    ("Peer", PEER),
    ("BlobsPlan", BLOBS_PLAN),
    ("BlobRecord", BLOB_RECORD),
    ("BlobRecords", BLOB_RECORDS),
    ("BlobsOfHeight", BLOBS_OF_HEIGHT),
    ("BlobStory", BLOB_STORY),
    ("BeaconBlobs", BEACON_BLOBS),
    ("BeaconSidecars", BEACON_SIDECARS),
    ("BeaconError", BEACON_ERROR),
    ("BlobsPruned", BLOBS_PRUNED),
    ("BlobUnread", BLOB_UNREAD),
];

/// Every shape by its name.
pub(super) fn all() -> Value {
    let mut shapes: Map<String, Value> =
        SHAPES.iter().map(|(name, fields)| ((*name).to_owned(), object(fields))).collect();
    shapes.insert("Anything".into(), json!({"description": "Any JSON value."}));
    Value::Object(shapes)
}

fn object(fields: Fields) -> Value {
    let properties: Map<String, Value> =
        fields.iter().map(|(name, kind)| ((*name).to_owned(), shape(kind))).collect();
    let required: Vec<_> = fields.iter().map(|(name, _)| name).collect();
    json!({"type": "object", "properties": properties, "required": required})
}

fn shape(kind: &str) -> Value {
    if let Some(kind) = kind.strip_suffix('?') {
        return json!({"anyOf": [shape(kind), {"type": "null"}]});
    }
    if let Some(of) = kind.strip_prefix('[').and_then(|kind| kind.strip_suffix(']')) {
        return json!({"type": "array", "items": shape(of)});
    }
    match kind {
        "int" => json!({"type": "integer", "format": "uint64", "minimum": 0, "maximum": u64::MAX}),
        "bool" => json!({"type": "boolean"}),
        "text" => json!({"type": "string"}),
        "hash" => json!({"type": "string", "pattern": "^0x[0-9a-f]{64}$"}),
        name => named(name),
    }
}
