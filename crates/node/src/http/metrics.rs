//! What is counted.

/// Everything that is counted.
#[derive(Debug, Default)]
pub(crate) struct Metrics {}
