//! The store's behaviour on the ground of a canister: the same sentences as on the other grounds, but
//! for those about threads, of which a canister has one.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "../it/append.rs"]
mod append;
#[path = "../it/budget.rs"]
mod budget;
#[path = "../it/common.rs"]
mod common;
#[path = "../it/damage.rs"]
mod damage;
mod full;
mod ground;
#[path = "../it/holds.rs"]
mod holds;
#[path = "../it/lookups.rs"]
mod lookups;
#[path = "../it/model.rs"]
mod model;
#[path = "../it/parts.rs"]
mod parts;
#[path = "../it/runs.rs"]
mod runs;
