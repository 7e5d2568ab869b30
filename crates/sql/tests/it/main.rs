//! Databases as they are: a real PostgreSQL server, real SQLite files. One test binary, a module for
//! each theme.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[allow(dead_code, reason = "tests of other crates use the rest")]
mod fixture;
mod postgres;
mod sqlite;
mod tls;
