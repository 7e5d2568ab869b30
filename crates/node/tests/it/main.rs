//! The binary from outside: it is started as an operator would start it, and judged by what it
//! prints, how it ends and what it leaves on the disk. One test binary, a module for each theme.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod anvil;
mod bad_input;
mod commands;
mod demo;
mod disk_full;
mod follow;
mod follow_lies;
mod follow_reorg;
mod followed;
mod http_client;
mod kill;
mod node;
mod proxy;
mod terminal;
mod tool;
mod wallet;
