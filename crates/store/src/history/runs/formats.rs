//! The decoders of runs, as functions over plain bytes: for fuzzing, and for tools that look at
//! an arena from outside. A store does not need them.

use secateur_core::CoreError;

use super::format::{Summary, decode_page, find_in_page};

/// How many entries a page of a run holds, if it is a sound one.
pub fn run_page(run: u64, page: u32, bytes: &[u8]) -> Result<usize, CoreError> {
    decode_page(run, page, bytes).map(|entries| entries.len())
}

/// How many entries of a page have this key.
pub fn run_find(run: u64, page: u32, bytes: &[u8], key: u64) -> Result<usize, CoreError> {
    find_in_page(run, page, bytes, key).map(|entries| entries.len())
}

/// How many entries the run of a summary has; the summary is also asked where a key would be.
pub fn run_summary(bytes: &[u8]) -> Result<u64, CoreError> {
    let summary = Summary::decode(bytes)?;
    let far = summary.pages_of(u64::MAX >> 8).map_or(0, |(_, last)| u64::from(last));
    Ok(summary.entries.max(far))
}
