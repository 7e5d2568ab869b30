//! The way to a Teranode-shaped chain, against a real gRPC server that plays one: it tells the truth,
//! lies, falls silent, breaks off and comes back.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![allow(clippy::little_endian_bytes, reason = "Bitcoin's numbers are little-endian")]

mod assembly;
mod events;
mod lies;
mod losses;
mod teranode;
mod world;
