//! The binary: command line, data directory, demo.
mod evm;
fn main() {}
