//! What the fuzz targets share: a heap with a limit, the formats written a second time, a store
//! to damage, and files in memory.

#![forbid(unsafe_code)]

pub mod fixture;
pub mod format;
pub mod runs;
pub mod source;
pub mod volume;

use std::alloc::System;

use cap::Cap;

/// The heap of every target. libFuzzer's own limit on a single allocation needs a sanitizer's
/// hooks; this one needs nothing, and it counts what is live, to the byte.
#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

/// Runs `call`, which may have at most `bytes` more live on the heap than there are now. One
/// byte more aborts the process with "memory allocation of … failed", which is a crash.
pub fn within<T>(bytes: usize, call: impl FnOnce() -> T) -> T {
    let limit = HEAP.allocated().saturating_add(bytes);
    assert!(HEAP.set_limit(limit).is_ok(), "the limit is below what is live");
    let result = call();
    assert!(HEAP.set_limit(usize::MAX).is_ok(), "no limit is above every limit");
    result
}

/// Room for an error's message, beside what a decoder needs for its value.
pub const MESSAGE: usize = 4096;
