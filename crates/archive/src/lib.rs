//! Raw history as immutable parts on object storage.
