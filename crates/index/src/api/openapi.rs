//! `/openapi.json`: what the routes take and answer, as an `OpenAPI` 3.1 document.

use serde_json::{Map, Value, json};

use secateur_core::{OPENMETRICS_KIND, PLAIN_KIND};

use crate::sink::MAX_PAGE;

const JSON: &str = "application/json";
const HASH: &str = "^0x[0-9a-f]{64}$";

/// A parameter: its name, what it means, and its schema.
struct Parameter {
    name: &'static str,
    about: &'static str,
    form: Form,
}

/// What a parameter may be.
#[derive(Clone, Copy)]
enum Form {
    Pattern(&'static str),
    Number { least: u64, most: u64 },
    OneOf(&'static [&'static str]),
}

/// One route.
struct Route {
    path: &'static str,
    name: &'static str,
    summary: &'static str,
    parameters: &'static [Parameter],
    /// The schema of a good answer; an empty one is no JSON.
    answer: &'static str,
    /// The statuses beside 200.
    others: &'static [u16],
}

const fn at(name: &'static str, about: &'static str, form: Form) -> Parameter {
    Parameter { name, about, form }
}

const WHOLE: Form = Form::Number { least: 0, most: u64::MAX };
const BLOCK_NAME: Form = Form::Pattern("^([0-9]+|(0x)?[0-9a-fA-F]{64})$");
const HASH_NAME: Form = Form::Pattern("^(0x)?[0-9a-fA-F]{64}$");
const ADDRESS: Form = Form::Pattern("^0x[0-9a-fA-F]{40}$");
const PLACE: Form = Form::Pattern("^[0-9]+-[0-9]+$");
const LIMIT: Parameter = at(
    "limit",
    "Rows of a page; 100 if it is not said.",
    Form::Number { least: 1, most: MAX_PAGE as u64 },
);
const BEFORE: Parameter = at("before", "What `next` of the page before said.", WHOLE);
const BEFORE_PLACE: Parameter = at("before", "What `next` of the page before said.", PLACE);
const FROM_BLOCK: Parameter = at("from_block", "The lowest block.", WHOLE);
const TO_BLOCK: Parameter = at("to_block", "The highest block.", WHOLE);
const FROM: Parameter = at("from", "What `next` of the page before said, or a height.", WHOLE);

const ROUTES: &[Route] = &[
    Route {
        path: "/healthz",
        name: "isAlive",
        summary: "Whether the process lives.",
        parameters: &[],
        answer: "Alive",
        others: &[],
    },
    Route {
        path: "/readyz",
        name: "isReady",
        summary: "Whether it answers and keeps up.",
        parameters: &[],
        answer: "Ready",
        others: &[503],
    },
    Route {
        path: "/metrics",
        name: "getMetrics",
        summary: "Everything that is counted; the second for those who do not ask for the first.",
        parameters: &[],
        answer: "",
        others: &[],
    },
    Route {
        path: "/openapi.json",
        name: "getOpenApi",
        summary: "This document.",
        parameters: &[],
        answer: "Anything",
        others: &[],
    },
    Route {
        path: "/v1/meta",
        name: "getMeta",
        summary: "What the index holds, and how far it is.",
        parameters: &[],
        answer: "Meta",
        others: &[503],
    },
    Route {
        path: "/v1/blocks",
        name: "getBlocks",
        summary: "Blocks, the newest first.",
        parameters: &[BEFORE, FROM_BLOCK, LIMIT],
        answer: "Blocks",
        others: &[400, 404, 410, 503],
    },
    Route {
        path: "/v1/blocks/{block}",
        name: "getBlock",
        summary: "One block.",
        parameters: &[at("block", "Its number or its hash.", BLOCK_NAME)],
        answer: "Block",
        others: &[400, 404, 410, 503],
    },
    Route {
        path: "/v1/blocks/{block}/txs",
        name: "getBlockTransactions",
        summary: "The transactions of a block, in its order.",
        parameters: &[at("block", "Its number or its hash.", BLOCK_NAME), FROM, LIMIT],
        answer: "Transactions",
        others: &[400, 404, 410, 503],
    },
    Route {
        path: "/v1/txs/{hash}",
        name: "getTransaction",
        summary: "One transaction.",
        parameters: &[at("hash", "Its hash.", HASH_NAME)],
        answer: "Transaction",
        others: &[400, 404, 410, 503],
    },
    Route {
        path: "/v1/addresses/{address}/txs",
        name: "getAddressTransactions",
        summary: "The transactions of an address, the newest first.",
        parameters: &[
            at("address", "The address.", ADDRESS),
            at("role", "What it is in them.", Form::OneOf(&["any", "from", "to"])),
            FROM_BLOCK,
            TO_BLOCK,
            BEFORE_PLACE,
            LIMIT,
        ],
        answer: "Transactions",
        others: &[400, 404, 410, 503],
    },
    Route {
        path: "/v1/logs",
        name: "getLogs",
        summary: "Logs by address, by first topic, or by both, the newest first.",
        parameters: &[
            at("address", "Whose logs.", ADDRESS),
            at("topic0", "Their first topic.", Form::Pattern("^0x[0-9a-fA-F]{64}$")),
            FROM_BLOCK,
            TO_BLOCK,
            BEFORE_PLACE,
            LIMIT,
        ],
        answer: "Logs",
        others: &[400, 404, 410, 503],
    },
    Route {
        path: "/v1/parts",
        name: "getParts",
        summary: "Archive parts, the oldest first.",
        parameters: &[FROM, LIMIT],
        answer: "Parts",
        others: &[400, 503],
    },
    Route {
        path: "/v1/gaps",
        name: "getGaps",
        summary: "Ranges of blocks that are not here, the oldest first.",
        parameters: &[FROM, LIMIT],
        answer: "Gaps",
        others: &[400, 503],
    },
    Route {
        path: "/v1/days",
        name: "getDays",
        summary: "What each day (UTC) brought, the newest first.",
        parameters: &[BEFORE, LIMIT],
        answer: "Days",
        others: &[400, 503],
    },
];

type Fields = &'static [(&'static str, &'static str)];

/// Fields with their types: `int`, `signed`, `bool`, `text`, `hash`, `[Name]` for a list, or another shape's name; a `?`
/// behind it allows null.
const SHAPES: &[(&str, Fields)] = &[
    ("Span", &[("from_block", "int"), ("to_block", "int")]),
    ("Error", &[("error", "text"), ("code", "text"), ("covered", "[Span]?")]),
    ("Alive", &[("alive", "bool"), ("version", "text")]),
    ("Ready", &[("ready", "bool"), ("reasons", "[text]")]),
    (
        "Meta",
        &[
            ("schema_version", "int"),
            ("chain_id", "int?"),
            ("codec", "text?"),
            ("logs", "text?"),
            ("logs_since", "int?"),
            ("next_block", "int?"),
            ("kept_from", "int?"),
            ("last_head", "int?"),
            ("head_age_seconds", "int?"),
            ("lag_blocks", "int?"),
            ("lag_seconds", "int?"),
            ("last_ingest_at", "int?"),
            ("last_error", "Anything?"),
        ],
    ),
    (
        "Block",
        &[
            ("number", "int"),
            ("hash", "hash?"),
            ("parent_hash", "hash?"),
            ("timestamp", "int?"),
            ("tx_count", "int"),
        ],
    ),
    ("Blocks", &[("items", "[Block]"), ("next", "text?"), ("covered", "Span?")]),
    (
        "Transaction",
        &[
            ("hash", "hash"),
            ("block_number", "int"),
            ("tx_index", "int"),
            ("from", "text?"),
            ("to", "text?"),
            ("nonce", "int?"),
            ("value", "text?"),
            ("gas", "int?"),
            ("status", "bool?"),
            ("gas_used", "int?"),
            ("contract_address", "text?"),
        ],
    ),
    ("Transactions", &[("items", "[Transaction]"), ("next", "text?"), ("covered", "Span?")]),
    (
        "Log",
        &[
            ("block_number", "int"),
            ("log_index", "int"),
            ("tx_index", "int"),
            ("tx_hash", "hash"),
            ("address", "text"),
            ("topics", "[text]"),
            ("data", "text"),
        ],
    ),
    ("Logs", &[("items", "[Log]"), ("next", "text?"), ("covered", "Span?")]),
    (
        "Part",
        &[
            ("first", "int"),
            ("last", "int"),
            ("provider", "text"),
            ("key", "text"),
            ("codec", "text"),
            ("size", "int"),
            ("sha256", "text"),
            ("parent_hash", "hash"),
            ("last_hash", "hash"),
        ],
    ),
    ("Parts", &[("items", "[Part]"), ("next", "text?"), ("covered", "Span?")]),
    ("Gap", &[("first", "int"), ("last", "int"), ("reason", "text"), ("noted_at", "int")]),
    ("Gaps", &[("items", "[Gap]"), ("next", "text?"), ("covered", "Span?")]),
    (
        "Day",
        &[
            ("day", "text"),
            ("raw_bytes", "int"),
            ("compressed_bytes", "int"),
            ("growth_bytes", "signed"),
            ("blocks_ingested", "int"),
            ("errors", "int"),
        ],
    ),
    ("Days", &[("items", "[Day]"), ("next", "text?"), ("covered", "Span?")]),
];

fn named(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn shape(kind: &str) -> Value {
    if let Some(kind) = kind.strip_suffix('?') {
        return json!({"anyOf": [shape(kind), {"type": "null"}]});
    }
    if let Some(of) = kind.strip_prefix('[').and_then(|kind| kind.strip_suffix(']')) {
        return json!({"type": "array", "items": shape(of), "maxItems": MAX_PAGE});
    }
    match kind {
        "int" => json!({"type": "integer", "format": "uint64", "minimum": 0, "maximum": u64::MAX}),
        "signed" => json!({"type": "integer", "format": "int64"}),
        "bool" => json!({"type": "boolean"}),
        "text" => json!({"type": "string"}),
        "hash" => json!({"type": "string", "pattern": HASH}),
        name => named(name),
    }
}

fn schemas() -> Value {
    let object = |fields: Fields| {
        let properties: Map<String, Value> =
            fields.iter().map(|(name, kind)| ((*name).to_owned(), shape(kind))).collect();
        let required: Vec<_> = fields.iter().map(|(name, _)| name).collect();
        json!({"type": "object", "properties": properties, "required": required})
    };
    let mut shapes: Map<String, Value> =
        SHAPES.iter().map(|(name, fields)| ((*name).to_owned(), object(fields))).collect();
    shapes.insert("Anything".into(), json!({"description": "Any JSON value."}));
    Value::Object(shapes)
}

fn parameter(path: &str, Parameter { name, about, form }: &Parameter) -> Value {
    let in_path = path.contains(&format!("{{{name}}}"));
    let schema = match *form {
        Form::Pattern(pattern) => json!({"type": "string", "pattern": pattern}),
        Form::Number { least, most } => {
            json!({"type": "integer", "format": "uint64", "minimum": least, "maximum": most})
        }
        Form::OneOf(values) => json!({"type": "string", "enum": values}),
    };
    json!({
        "name": name,
        "in": if in_path { "path" } else { "query" },
        "required": in_path,
        "description": about,
        "schema": schema,
    })
}

fn operation(route: &Route) -> Value {
    let content = match route.answer {
        "" => json!({OPENMETRICS_KIND: {}, PLAIN_KIND: {}}),
        schema => json!({JSON: {"schema": named(schema)}}),
    };
    let mut responses = Map::new();
    responses.insert("200".into(), json!({"description": "The answer.", "content": content}));
    for status in route.others {
        let description = match status {
            400 => "The request is not one.",
            404 => "Not known, or not indexed yet.",
            410 => "Not complete in the index; `covered` says of which blocks it is.",
            _ => "Not now.",
        };
        let schema = if route.path == "/readyz" { "Ready" } else { "Error" };
        let content = json!({JSON: {"schema": named(schema)}});
        let answer = json!({"description": description, "content": content});
        responses.insert(status.to_string(), answer);
    }
    let parameters: Vec<Value> =
        route.parameters.iter().map(|one| parameter(route.path, one)).collect();
    json!({
        "operationId": route.name,
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses,
        "security": [],
    })
}

/// The document.
pub(super) fn document() -> Value {
    let paths: Map<String, Value> = ROUTES
        .iter()
        .map(|route| (route.path.to_owned(), json!({"get": operation(route)})))
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Secateur index",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Blocks, transactions, logs, parts and gaps of an index. Lists come page by page: \
                            `next` of a page is what the following one is asked with.",
            "license": {"name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT"},
        },
        "servers": [{"url": "/", "description": "where this document was read"}],
        "paths": paths,
        "components": {"schemas": schemas()},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every `$ref` below a value.
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_route_of_the_router_is_in_the_document_and_every_reference_leads_somewhere() {
        let document = document();
        let router = include_str!("mod.rs");
        let routes = router.split(".route(\"").skip(1).map(|rest| rest.split('"').next().unwrap());
        let mut routes: Vec<_> = routes.collect();
        let mut told: Vec<_> = document["paths"].as_object().unwrap().keys().collect();
        routes.sort_unstable();
        told.sort_unstable();
        assert_eq!(told, routes);
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 20);
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
        }
        for (path, methods) in document["paths"].as_object().unwrap() {
            let parameters = methods["get"]["parameters"].as_array().unwrap();
            let in_path = parameters.iter().filter(|one| one["in"] == "path").count();
            assert_eq!(in_path, path.matches('{').count(), "{path}");
        }
    }
}
