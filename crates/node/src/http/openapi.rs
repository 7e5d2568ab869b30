//! `/openapi.json`: the table of routes as an `OpenAPI` 3.1 document.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use axum::extract::State;
use axum::http::StatusCode;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::about::{Form, Parameter};
use super::answers::{self, JSON};
use super::routes::{Route, Table};
use super::v1::Answer;
use super::{App, schemas};
use crate::security::Role;

pub(super) async fn show(State(app): State<Arc<App>>) -> Answer {
    Ok(answers::body(StatusCode::OK, JSON, app.openapi.clone()))
}

/// The document of a table whose routes answer at an address.
pub(super) fn document(
    table: &Table<App>,
    address: SocketAddr,
    tls: bool,
) -> Result<Bytes, anyhow::Error> {
    let mut paths: Map<String, Value> = Map::new();
    for route in &table.routes {
        let methods = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Some(methods) = methods.as_object_mut() {
            methods.insert(route.method.as_str().to_lowercase(), operation(route));
        }
    }
    let scheme = if tls { "https" } else { "http" };
    let mut servers = vec![json!({"url": "/", "description": "where this document was read"})];
    // The address for "every interface" is none that a client could call.
    if !address.ip().is_unspecified() {
        let url = format!("{scheme}://{address}");
        servers.push(json!({"url": url, "description": "where this node listens"}));
    }
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Secateur",
            "version": env!("CARGO_PKG_VERSION"),
            "description": format!(
                "The history of a chain inside a byte budget. What was pruned answers 410 and says \
                 from where on there is more; what is queued answers 202; what is unknown answers \
                 404. This node speaks {scheme}."
            ),
            "license": {"name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT"},
        },
        "servers": servers,
        "paths": paths,
        "components": {
            "schemas": schemas::all(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    });
    let mut text = serde_json::to_vec_pretty(&document).context("writing the OpenAPI document")?;
    text.push(b'\n');
    Ok(text.into())
}

fn operation(route: &Route<App>) -> Value {
    let about = &route.about;
    let mut responses = Map::new();
    responses.insert("200".into(), good(about.answer));
    let guarded = route.role != Role::Open;
    let usual: &[u16] = if guarded { &[401, 421, 429, 500, 503] } else { &[421] };
    for status in about.others.iter().chain(usual) {
        responses.insert(status.to_string(), other(route, *status));
    }
    let parameters: Vec<Value> =
        about.parameters.iter().map(|one| parameter(route.path, one)).collect();
    let mut operation = json!({
        "operationId": about.name,
        "summary": about.summary,
        "parameters": parameters,
        "responses": responses,
        // A token where the node asks for one.
        "security": if guarded { json!([{"token": []}, {}]) } else { json!([]) },
    });
    if route.method == axum::http::Method::POST
        && let Some(operation) = operation.as_object_mut()
    {
        let content = json!({JSON: {"schema": schemas::named("Anything")}});
        operation.insert("requestBody".into(), json!({"required": true, "content": content}));
    }
    operation
}

fn good(kinds: &[(&str, &str)]) -> Value {
    let content: Map<String, Value> = kinds
        .iter()
        .map(|(kind, schema)| {
            let what = match *schema {
                "" => json!({}),
                schema => json!({"schema": schemas::named(schema)}),
            };
            ((*kind).to_owned(), what)
        })
        .collect();
    json!({"description": "The answer.", "content": content})
}

fn other(route: &Route<App>, status: u16) -> Value {
    let description = match status {
        202 => "Pending: the transaction is queued and in no block yet.",
        204 => "There is nothing to say: only notifications were sent.",
        304 => "The client has these bytes already.",
        400 => "The request is not one.",
        401 => "A token is needed.",
        404 => "Not known.",
        408 => "The body did not arrive in time.",
        410 => "Pruned: it was here and was cut.",
        502 => {
            "The archive cannot be read or does not answer (`retry-after` then says when to ask again), \
             or gives what it must not; that is never served."
        }
        413 => "The body is too large.",
        415 => "The body is not JSON.",
        421 => "The request was sent to another name than this node's.",
        429 => "Too many requests from this address.",
        503 if route.role == Role::Open => "It is not; the reasons are given.",
        503 => "Too much is going on, or it took too long; try again later.",
        _ => "Something in the node is broken.",
    };
    let of_beacon = route.path.starts_with("/eth/v1/");
    let schema = match status {
        204 | 304 => return json!({"description": description}),
        410 if route.path.starts_with("/v1/") => schemas::named("Pruned"),
        410 if of_beacon => schemas::named("BlobsPruned"),
        // Some name the copies that could not be read.
        502 if of_beacon => either(["BlobUnread", "BeaconError"]),
        400 | 404 if of_beacon => schemas::named("BeaconError"),
        // What the route says has its shape, and what stands before every route has that of all of them.
        500 | 503 if of_beacon => either(["BeaconError", "Error"]),
        503 if route.role == Role::Open => schemas::named("Ready"),
        _ => schemas::named("Error"),
    };
    let content = json!({JSON: {"schema": schema}});
    json!({"description": description, "content": content})
}

/// One of two shapes.
fn either(names: [&str; 2]) -> Value {
    let shapes = names.map(schemas::named);
    json!({"anyOf": shapes})
}

fn parameter(path: &str, parameter: &Parameter) -> Value {
    let in_path = path.contains(&format!("{{{}}}", parameter.name));
    let schema = match parameter.form {
        Form::Pattern(pattern) => json!({"type": "string", "pattern": pattern}),
        Form::Number { least, most } => {
            json!({"type": "integer", "format": "uint64", "minimum": least, "maximum": most})
        }
        Form::OneOf(values) => json!({"type": "string", "enum": values}),
    };
    json!({
        "name": parameter.name,
        "in": if in_path { "path" } else { "query" },
        "required": in_path,
        "description": parameter.about,
        "schema": schema,
    })
}

/// A document, for tests.
#[cfg(test)]
pub(super) fn example(table: &Table<App>) -> Bytes {
    document(table, SocketAddr::from(([127, 0, 0, 1], 7740)), false).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::routes;
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
    fn every_reference_leads_somewhere_and_every_path_parameter_is_described() {
        let document = example(&routes::table());
        let document: Value = serde_json::from_slice(&document).unwrap();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 20);
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
        }
        for (path, methods) in document["paths"].as_object().unwrap() {
            let wanted = path.matches('{').count();
            for operation in methods.as_object().unwrap().values() {
                let parameters = operation["parameters"].as_array().unwrap();
                let described = parameters.iter().filter(|one| one["in"] == "path").count();
                assert_eq!(described, wanted, "{path}");
            }
        }
    }

    #[test]
    fn the_document_says_where_the_node_is_and_what_its_parameters_and_errors_look_like() {
        let table = routes::table();
        let read = |bytes: Bytes| serde_json::from_slice::<Value>(&bytes).unwrap();
        let made = read(example(&table));
        assert_eq!(made["servers"][0]["url"], "/");
        assert_eq!(made["servers"][1]["url"], "http://127.0.0.1:7740");
        let everywhere = SocketAddr::from(([0, 0, 0, 0], 7740));
        let wide = read(document(&table, everywhere, true).unwrap());
        assert_eq!(wide["servers"].as_array().unwrap().len(), 1);
        let metrics = &made["paths"]["/metrics"]["get"]["responses"]["200"]["content"];
        let kinds: Vec<_> = metrics.as_object().unwrap().keys().collect();
        assert_eq!(kinds, [secateur_core::OPENMETRICS_KIND, secateur_core::PLAIN_KIND]);
        for (path, methods) in made["paths"].as_object().unwrap() {
            for operation in methods.as_object().unwrap().values() {
                for parameter in operation["parameters"].as_array().unwrap() {
                    let schema = &parameter["schema"];
                    let bounded = match schema["type"].as_str() {
                        Some("integer") => schema["maximum"].is_u64() && schema["minimum"].is_u64(),
                        _ => schema["pattern"].is_string() || schema["enum"].is_array(),
                    };
                    assert!(bounded, "{path}: {parameter}");
                }
                let refused = &operation["responses"]["404"]["content"][JSON]["schema"];
                if path.starts_with("/eth/v1/") {
                    assert_eq!(*refused, schemas::named("BeaconError"), "{path}");
                }
            }
        }
        let of_beacon = &made["components"]["schemas"]["BeaconError"]["properties"];
        assert_eq!(of_beacon["code"]["type"], "integer");
        assert_eq!(of_beacon["message"]["type"], "string");
    }
}
