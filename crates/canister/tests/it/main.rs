//! The canister's real wasm in a host that meters it. `make canister` builds it; without it these
//! tests are not run (`scripts/canister test` says so).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "../host/mod.rs"]
mod host;

mod access;
mod blocks;
mod common;
mod costs;
mod golden;
mod interface;
mod model;
mod prune;
mod settings;
