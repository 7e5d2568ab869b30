//! The store's behaviour, told as sentences. The long programmes (crash, corruption, faults,
//! saboteurs) are commands of this crate; here are their small forms and everything else.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod append;
mod budget;
mod common;
mod concurrency;
mod damage;
mod desk;
mod disk;
mod ground;
mod holds;
mod images;
mod lookups;
mod model;
mod pace;
mod parts;
mod pipeline;
mod plans;
mod programme;
mod recovery;
mod runs;
mod runs_strain;
mod shared_commit;
mod sidecar;
mod ticks;
mod tidy;
mod together;
