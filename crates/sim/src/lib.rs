//! Secateur's reliability programme: a simulated medium, the states a crash can leave on it, and
//! checkers that compare what a store says with what it promised.
//!
//! Test-only. Nothing depends on this crate but its own tests and its command
//! (`cargo run --release -p secateur-sim`). All randomness is seeded; a failure prints the
//! command that replays it.

pub mod chain;
mod clock;
pub mod crash;
pub mod enumerate;
pub mod grounds;
pub mod image;
pub mod model;
pub mod rng;
pub mod script;
pub mod world;

pub use clock::SimClock;
