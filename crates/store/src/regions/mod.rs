//! What every family on a ground needs and the history began with: regions and their states,
//! allocation, cut and free, readers' pins, rows on top of rows, aligned buffers, the arena's
//! header, what a failed write leaves behind, and the census that `verify` compares with.
//!
//! Nothing here knows what is in a region, or which rows refer to it.

pub(crate) mod alloc;
pub(crate) mod buffer;
pub(crate) mod census;
pub(crate) mod cut;
pub(crate) mod finding;
pub(crate) mod header;
pub(crate) mod overlay;
pub(crate) mod pins;
pub(crate) mod poison;
pub(crate) mod region;
