//! What is said of each route in the `OpenAPI` document.

use secateur_core::{OPENMETRICS_KIND, PLAIN_KIND};
use secateur_store::{MAX_PARTS, MAX_REPORTS};

use super::answers::{BYTES, JSON};
use super::{blobs, events};

/// One parameter of a route.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameter {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) form: Form,
}

/// What a parameter may be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    /// A text of this pattern.
    Pattern(&'static str),
    /// A whole number. A `limit` above the most is taken for the most.
    Number { least: u64, most: u64 },
    /// One of a few words.
    OneOf(&'static [&'static str]),
}

/// A height, or another number of 64 bits.
const WHOLE: Form = Form::Number { least: 0, most: u64::MAX };
const HASH_PATTERN: &str = "^(0x)?[0-9a-fA-F]{64}$";

/// Kinds of an answer, and for JSON the name of its schema.
pub(crate) type Kinds = &'static [(&'static str, &'static str)];

/// What is said of a route, beside its path and role.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About {
    /// Its name, for clients that are generated.
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    /// Parameters in the path come first, in its order.
    pub(super) parameters: &'static [Parameter],
    /// What a good answer is.
    pub(super) answer: Kinds,
    /// The statuses beside 200 and those that every route can have.
    pub(super) others: &'static [u16],
}

const NUMBER: Parameter = Parameter { name: "number", about: "A block's number.", form: WHOLE };
const HASH: Parameter = Parameter {
    name: "hash",
    about: "A transaction's hash, 64 hexadecimal digits with or without 0x.",
    form: Form::Pattern(HASH_PATTERN),
};
const LIMIT: Parameter = limit(0, MAX_REPORTS);
const PARTS_LIMIT: Parameter = limit(0, MAX_PARTS as u64);
const BLOBS_LIMIT: Parameter = limit(1, blobs::MOST as u64);

const fn limit(least: u64, most: u64) -> Parameter {
    let form = Form::Number { least, most };
    Parameter { name: "limit", about: "How many are listed at most.", form }
}
const FROM: Parameter =
    Parameter { name: "from", about: "Only parts that begin at this block or above.", form: WHOLE };
const BLOCK_NAME: Parameter = Parameter {
    name: "block",
    about: "A number, a hash, `latest`, `finalized` or `earliest`.",
    form: Form::Pattern("^([0-9]+|(0x)?[0-9a-fA-F]{64}|latest|finalized|earliest)$"),
};
const PAYLOAD: Parameter = Parameter {
    name: "payload",
    about: "Asks for the bytes of one payload instead.",
    form: Form::OneOf(&["block", "receipts", "tx_index"]),
};
const RECEIPT_PAYLOAD: Parameter = Parameter {
    name: "payload",
    about: "Asks for the receipt's bytes instead.",
    form: Form::OneOf(&["receipt"]),
};

impl About {
    pub(crate) const fn new(name: &'static str, summary: &'static str, answer: Kinds) -> Self {
        Self { name, summary, parameters: &[], answer, others: &[] }
    }

    pub(crate) const fn with(
        self,
        parameters: &'static [Parameter],
        others: &'static [u16],
    ) -> Self {
        Self { parameters, others, ..self }
    }
}

pub(crate) const ALIVE: About =
    About::new("isAlive", "Whether the process lives.", &[(JSON, "Alive")]);
pub(crate) const READY: About =
    About::new("isReady", "Whether it answers and keeps up; if not, why not.", &[(JSON, "Ready")])
        .with(&[], &[503]);
pub(crate) const METRICS: About = About::new(
    "getMetrics",
    "Everything that is counted; the second for those who do not ask for the first.",
    &[(OPENMETRICS_KIND, ""), (PLAIN_KIND, "")],
);
pub(super) const OPENAPI: About = About::new("getOpenApi", "This document.", &[(JSON, "Anything")]);
pub(super) const STATUS: About =
    About::new("getStatus", "The state of the history in one value.", &[(JSON, "Status")]);
pub(super) const NODE: About =
    About::new("getNode", "What node this is, and of which chain.", &[(JSON, "Node")]);
pub(super) const PLAN: About =
    About::new("getPlan", "What a prune would do now; nothing is done.", &[(JSON, "Plan")]);
pub(super) const HOLDS: About =
    About::new("getHolds", "Who keeps what from being cut.", &[(JSON, "Holds")]);
pub(super) const POLICY: About =
    About::new("getPolicy", "The prune policy in force.", &[(JSON, "Policy")]);
pub(super) const REPORTS: About =
    About::new("getReports", "What prunes did, the newest first.", &[(JSON, "Reports")])
        .with(&[LIMIT], &[400]);
pub(super) const PARTS: About =
    About::new("getParts", "Archive parts, the oldest first.", &[(JSON, "Parts")])
        .with(&[FROM, PARTS_LIMIT], &[400]);
pub(super) const EVENTS: About = About::new(
    "getEvents",
    "Server-sent events: `status` every second, and `report` for every report that is new or has \
     grown.",
    &[(events::KIND, "")],
);
pub(super) const BLOCK: About = About::new(
    "getBlock",
    "What is known of a block, or one of its payloads.",
    &[(JSON, "Block"), (BYTES, "")],
)
.with(&[BLOCK_NAME, PAYLOAD], &[304, 400, 404, 410, 502]);
pub(super) const TRANSACTION: About =
    About::new("getTransaction", "Where a transaction is.", &[(JSON, "Transaction")])
        .with(&[HASH], &[202, 400, 404, 410, 502]);
pub(super) const RECEIPT: About = About::new(
    "getReceipt",
    "Where a receipt is, or its bytes.",
    &[(JSON, "Receipt"), (BYTES, "")],
)
.with(&[HASH, RECEIPT_PAYLOAD], &[202, 400, 404, 410, 502]);
pub(super) const EXPLAIN_BLOCK: About = About::new(
    "explainBlock",
    "The story of a block: here, cut (when and why), not yet, or never.",
    &[(JSON, "BlockStory")],
)
.with(&[NUMBER], &[400]);
pub(super) const EXPLAIN_TX: About =
    About::new("explainTransaction", "The story of a transaction.", &[(JSON, "TransactionStory")])
        .with(&[HASH], &[400]);
const HEIGHT: Parameter = Parameter { name: "height", about: "A height.", form: WHOLE };
const INDEX: Parameter = Parameter {
    name: "index",
    about: "A blob's place in its block.",
    form: Form::Number { least: 0, most: 4_294_967_295 },
};
const FROM_BLOB: Parameter = Parameter {
    name: "from",
    about: "The first blob of the page: a height, or a height and an index with a colon between.",
    form: Form::Pattern("^[0-9]+(:[0-9]+)?$"),
};
const BLOCK_ID: Parameter = Parameter {
    name: "block_id",
    about: "A height, `head`, `finalized`, `genesis`, or the 0x root of one of the newest blocks.",
    form: Form::Pattern("^([0-9]+|head|finalized|genesis|0x[0-9a-fA-F]{64})$"),
};
const VERSIONED_HASHES: Parameter = Parameter {
    name: "versioned_hashes",
    about: "Only these, set apart by commas or given several times.",
    form: Form::Pattern("^0x[0-9a-fA-F]{64}(,0x[0-9a-fA-F]{64})*$"),
};
const INDICES: Parameter = Parameter {
    name: "indices",
    about: "Only these, set apart by commas or given several times.",
    form: Form::Pattern("^[0-9]+(,[0-9]+)*$"),
};
pub(super) const BLOBS: About =
    About::new("getBlobsSummary", "The blobs in figures.", &[(JSON, "BlobsSummary")])
        .with(&[], &[404]);
pub(super) const BLOB_PLAN: About = About::new(
    "getBlobsPlan",
    "What a prune of blobs would do now; nothing is done.",
    &[(JSON, "BlobsPlan")],
)
.with(&[], &[404]);
pub(super) const BLOB_RECORDS: About = About::new(
    "getBlobRecords",
    "Who signed for which copies, the lowest height first, page by page.",
    &[(JSON, "BlobRecords")],
)
.with(&[FROM_BLOB, BLOBS_LIMIT], &[400, 404]);
pub(super) const BLOB_HEIGHT: About = About::new(
    "getBlobsOfHeight",
    "Where each blob of a height is in its life.",
    &[(JSON, "BlobsOfHeight")],
)
.with(&[HEIGHT], &[400, 404]);
pub(super) const BLOB_STORY: About =
    About::new("explainBlob", "The story of a blob.", &[(JSON, "BlobStory")])
        .with(&[HEIGHT, INDEX], &[400, 404]);
pub(super) const BEACON_BLOBS: About = About::new(
    "getBlobs",
    "A block's blobs, as the Beacon API has them.",
    &[(JSON, "BeaconBlobs"), (BYTES, "")],
)
.with(&[BLOCK_ID, VERSIONED_HASHES], &[400, 404, 410, 502]);
pub(super) const BEACON_SIDECARS: About = About::new(
    "getBlobSidecars",
    "A block's blob sidecars, as the Beacon API has them, where the source gave headers and proofs.",
    &[(JSON, "BeaconSidecars"), (BYTES, "")],
)
.with(&[BLOCK_ID, INDICES], &[400, 404, 410, 502]);
pub(super) const JSON_RPC: About =
    About::new("callJsonRpc", "JSON-RPC 2.0: a call or a batch.", &[(JSON, "Anything")])
        .with(&[], &[204, 408, 413, 415]);
