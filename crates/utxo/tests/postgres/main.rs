//! UTXO records and their pruner, on a real PostgreSQL. One test binary, a module for each theme.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../conformance/mod.rs"]
mod conformance;
mod defensive;
#[path = "../../../sql/tests/it/fixture.rs"]
#[allow(dead_code, reason = "the tests of other crates use the rest")]
mod fixture;
#[path = "../histories/mod.rs"]
mod histories;
mod races;
mod random;
mod restart;
mod suite;
