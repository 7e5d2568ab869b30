//! The index in PostgreSQL, against a real server. One test binary, a module for each theme.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod chain;
mod covered;
#[path = "../../../sql/tests/it/fixture.rs"]
#[allow(dead_code, reason = "the tests of `secateur-sql` use the rest")]
mod fixture;
mod leases;
mod ops;
mod plans;
mod promote;
mod ranges;
mod refill;
mod restart;
mod schema;
mod speed;
mod writes;
