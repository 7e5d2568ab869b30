//! The archive against a directory, memory and a real S3 server with a fault injector at its door.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod chain;
mod crash;
mod damage;
mod endpoint;
mod faults;
mod grain;
mod listing;
mod part;
mod rivals;
mod s3;
mod vector;
mod whole;
