//! The binary from outside: it is started as an operator would start it, and judged by what it
//! prints, how it ends and what it leaves on the disk. One test binary, a module for each theme.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../../../sidecar/tests/net/agent.rs"]
#[allow(dead_code, reason = "the sidecar crate's own tests use all of it")]
mod agent;
mod anvil;
mod archive_commands;
mod archive_loop;
mod archive_silent;
mod archive_slow;
mod bad_input;
mod beacon_anvil;
mod blob_commands;
mod blobs;
mod blobs_bad;
mod blobs_lost;
mod blobs_places;
mod blobs_rig;
mod blobs_rules;
mod blobs_start;
mod blobs_told;
mod clients;
mod commands;
mod demo;
mod demo_blobs;
mod demo_utxo;
mod disk_full;
mod e2e_s3;
mod fixtures;
mod follow;
mod follow_lies;
mod follow_reorg;
mod follow_secateur;
mod followed;
mod grpc;
mod grpc_export_v1;
mod grpc_export_v2;
mod grpc_gate;
mod grpc_history;
mod grpc_readers;
mod http_browsers;
mod http_client;
mod http_documents;
mod http_guard;
mod http_metrics;
mod http_routes;
#[cfg(feature = "ic")]
mod ic;
mod index_anvil;
mod index_backfill;
mod index_chain;
mod index_consumer;
mod index_kill;
mod index_meets;
mod index_memory;
mod index_postgres;
mod index_pruned;
mod indexed;
mod json_client;
mod kill;
mod longest;
mod node;
mod node_pressure;
mod node_start;
mod operator;
#[path = "../../../sql/tests/it/fixture.rs"]
#[allow(dead_code, reason = "the tests of `secateur-sql` use the rest")]
mod postgres;
mod proxy;
mod prune_pace;
mod published;
mod remote;
#[path = "../../../archive/tests/it/s3.rs"]
#[allow(dead_code, reason = "the archive's own tests use all of it")]
mod s3;
mod terminal;
mod tool;
mod utxo;
#[cfg(feature = "aerospike")]
mod utxo_aerospike;
mod utxo_bad;
mod utxo_commands;
mod utxo_files;
mod utxo_postgres;
mod utxo_reached;
mod utxo_rig;
mod wallet;
