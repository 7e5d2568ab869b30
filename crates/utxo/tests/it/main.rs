//! UTXO records and their pruner, on SQLite. One test binary, a module for each theme.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../conformance/mod.rs"]
mod conformance;
#[path = "../histories/mod.rs"]
mod histories;
mod random;
mod sqlite;
