//! The pull worker: history into a sink.
