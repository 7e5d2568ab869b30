//! The binary `secateur`: command line, data directory, demo.
//!
//! What lives here: reading the command line, opening a data directory, showing what the store
//! says to people and to programs, and a demo that drives the store with a generated chain. What
//! deliberately does not: any decision about what is kept or cut. That is in `secateur-core` and
//! `secateur-store`, and this crate only asks.

mod agreed;
mod blobs;
mod cli;
mod commands;
mod config;
mod data_dir;
mod demo;
mod desk;
mod durable;
mod error;
mod exit;
mod follow;
mod grpc;
mod http;
mod indexer;
mod made;
mod rpc;
mod security;
mod service;
mod ui;
mod utxo;
mod vault;

use std::process::ExitCode;

/// A process that runs for weeks keeps its size with this one: see
/// `docs/adr/0011-the-allocator.md`.
#[cfg(unix)]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    ui::log::is_json(ui::log::is_json_asked_for());
    exit::quiet_index_panics();
    let cli = match cli::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let json = cli.json;
    match commands::run(cli) {
        Ok(()) => exit::Exit::Done.into(),
        Err(error) => exit::report(&error, json),
    }
}
