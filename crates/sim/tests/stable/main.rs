//! The store's behaviour on the ground of a canister: the same sentences as on the other grounds, but
//! for those about threads, of which a canister has one.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "../simulator/append.rs"]
mod append;
#[path = "../simulator/budget.rs"]
mod budget;
#[path = "../simulator/common.rs"]
mod common;
#[path = "../simulator/damage.rs"]
mod damage;
mod full;
mod ground;
#[path = "../simulator/holds.rs"]
mod holds;
#[path = "../simulator/lookups.rs"]
mod lookups;
#[path = "../simulator/model.rs"]
mod model;
#[path = "../simulator/parts.rs"]
mod parts;
#[path = "../simulator/runs.rs"]
mod runs;
