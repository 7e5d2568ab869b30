//! Providers against real servers, and gossip over real sockets; all on this machine.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod agent;
mod archiving;
mod blob;
mod book;
mod bounds;
mod cable;
mod early;
mod in_process;
mod leftovers;
mod lies;
mod lives;
mod load_s3;
mod mesh;
mod nodes;
mod object;
mod pruning;
#[allow(dead_code, reason = "the archive's own tests use more of it")]
#[path = "../../../archive/tests/it/s3.rs"]
mod s3;
mod serving;
mod signing;
#[cfg(feature = "libp2p")]
mod swarm;
mod troubles;
mod validators;
mod watched;
mod wrapped;
