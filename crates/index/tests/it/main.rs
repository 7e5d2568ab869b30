//! The worker end to end: a real store, a real SQLite file, and a wire between them where it
//! matters. The binary itself is tested in `crates/node`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod archive;
mod chain;
mod grpc;
mod live;
mod lost;
mod metrics;
mod other_chain;
mod pipeline;
mod refill;
mod resume;
mod trouble;
mod worker;
