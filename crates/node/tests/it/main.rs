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
mod clients;
mod commands;
mod demo;
mod disk_full;
mod follow;
mod follow_lies;
mod follow_reorg;
mod followed;
mod grpc;
mod grpc_export_v1;
mod grpc_export_v2;
mod grpc_gate;
mod grpc_history;
mod grpc_readers;
mod http_client;
mod http_guard;
mod http_metrics;
mod http_routes;
mod json_client;
mod kill;
mod node;
mod proxy;
mod remote;
mod terminal;
mod tool;
mod wallet;
