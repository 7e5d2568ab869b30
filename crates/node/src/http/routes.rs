//! The table of routes. A route is made here together with its role and its description, and no
//! other way leads into the router: a route without a role, or one that the `OpenAPI` document does
//! not know, cannot exist.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, MethodRouter, on};

use super::about::{self, About};
use super::access::Access;
use super::gate::{self, Gate};
use super::{App, beacon, blobs, events, health, lookups, openapi, scrape, v1};
use crate::security::Role;

/// One route.
pub(crate) struct Route<S> {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) role: Role,
    pub(super) about: About,
    handler: MethodRouter<Arc<S>>,
}

/// All routes of a server.
pub(crate) struct Table<S> {
    pub(super) routes: Vec<Route<S>>,
}

impl<S> Default for Table<S> {
    fn default() -> Self {
        Self { routes: Vec::new() }
    }
}

impl<S: Send + Sync + 'static> Table<S> {
    pub(crate) fn get<T: 'static>(
        self,
        path: &'static str,
        role: Role,
        about: About,
        handler: impl Handler<T, Arc<S>>,
    ) -> Self {
        self.add(Method::GET, path, role, about, on(MethodFilter::GET, handler))
    }

    fn post<T: 'static>(
        self,
        path: &'static str,
        role: Role,
        about: About,
        handler: impl Handler<T, Arc<S>>,
    ) -> Self {
        self.add(Method::POST, path, role, about, on(MethodFilter::POST, handler))
    }

    fn add(
        mut self,
        method: Method,
        path: &'static str,
        role: Role,
        about: About,
        handler: MethodRouter<Arc<S>>,
    ) -> Self {
        self.routes.push(Route { method, path, role, about, handler });
        self
    }

    /// The router: every route behind its gate, and a gate where there is none.
    pub(crate) fn router(self, access: &Arc<Access>, state: &Arc<S>) -> Router {
        let mut router = Router::new();
        for route in self.routes {
            let gate = Gate {
                access: Arc::clone(access),
                role: route.role,
                route: route.path,
                takes_body: route.method == Method::POST,
            };
            let guarded = route.handler.route_layer(from_fn_with_state(gate, gate::pass));
            router = router.route(route.path, guarded);
        }
        let (elsewhere, otherwise) = (Arc::clone(access), Arc::clone(access));
        router
            .fallback(move |request: Request| gate::no_route(Arc::clone(&elsewhere), request))
            .method_not_allowed_fallback(move |request: Request| {
                gate::no_method(Arc::clone(&otherwise), request)
            })
            // The gate has measured every body; axum would allow 2 MiB, whatever is configured.
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(state))
    }
}

/// Every route of this node.
pub(super) fn table() -> Table<App> {
    Table::default()
        .get("/healthz", Role::Open, about::ALIVE, health::live)
        .get("/readyz", Role::Open, about::READY, health::ready)
        .get("/metrics", Role::Read, about::METRICS, scrape::scrape)
        .get("/openapi.json", Role::Read, about::OPENAPI, openapi::show)
        .get("/v1/node", Role::Read, about::NODE, v1::node)
        .get("/v1/status", Role::Read, about::STATUS, v1::status)
        .get("/v1/plan", Role::Read, about::PLAN, v1::plan)
        .get("/v1/holds", Role::Read, about::HOLDS, v1::holds)
        .get("/v1/policy", Role::Read, about::POLICY, v1::policy)
        .get("/v1/reports", Role::Read, about::REPORTS, v1::reports)
        .get("/v1/parts", Role::Read, about::PARTS, v1::parts)
        .get("/v1/events", Role::Read, about::EVENTS, events::listen)
        .get("/v1/blocks/{block}", Role::Read, about::BLOCK, lookups::block)
        .get("/v1/transactions/{hash}", Role::Read, about::TRANSACTION, lookups::transaction)
        .get("/v1/receipts/{hash}", Role::Read, about::RECEIPT, lookups::receipt)
        .get("/v1/explain/block/{number}", Role::Read, about::EXPLAIN_BLOCK, v1::explain_block)
        .get("/v1/explain/tx/{hash}", Role::Read, about::EXPLAIN_TX, v1::explain_tx)
        .get("/v1/blobs", Role::Read, about::BLOBS, blobs::summary)
        .get("/v1/blobs/plan", Role::Read, about::BLOB_PLAN, blobs::plan)
        .get("/v1/blobs/records", Role::Read, about::BLOB_RECORDS, blobs::records)
        .get("/v1/blobs/{height}", Role::Read, about::BLOB_HEIGHT, blobs::height)
        .get("/v1/blobs/{height}/{index}", Role::Read, about::BLOB_STORY, blobs::story)
        .get("/eth/v1/beacon/blobs/{block_id}", Role::Read, about::BEACON_BLOBS, beacon::blobs)
        .get(
            "/eth/v1/beacon/blob_sidecars/{block_id}",
            Role::Read,
            about::BEACON_SIDECARS,
            beacon::sidecars,
        )
        .post("/", Role::Read, about::JSON_RPC, v1::json_rpc)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn every_route_is_in_the_document_and_everything_in_the_document_is_a_route() {
        let table = table();
        let document = openapi::example(&table);
        let document: Value = serde_json::from_slice(&document).unwrap();
        let mut told = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for method in methods.as_object().unwrap().keys() {
                told.insert((method.to_uppercase(), path.clone()));
            }
        }
        let made: BTreeSet<_> =
            table.routes.iter().map(|r| (r.method.to_string(), r.path.to_owned())).collect();
        assert_eq!(told, made);
        assert_eq!(made.len(), table.routes.len(), "a route is there twice");
    }

    #[test]
    fn only_health_is_open_and_every_name_is_given_once() {
        let table = table();
        let open: Vec<_> =
            table.routes.iter().filter(|r| r.role == Role::Open).map(|r| r.path).collect();
        assert_eq!(open, ["/healthz", "/readyz"]);
        let names: BTreeSet<_> = table.routes.iter().map(|r| r.about.name).collect();
        assert_eq!(names.len(), table.routes.len());
    }
}
