//! Codecs: what a chain's payloads mean to an index.

mod evm;
mod kasane;
#[cfg(test)]
mod kasane_tests;
mod name;
mod opaque;
#[cfg(test)]
mod tests;

use secateur_core::BlockMeta;

pub use evm::EvmCodec;
pub use kasane::KasaneCodec;
pub use name::CodecName;
pub use opaque::OpaqueCodec;

use crate::source::SourceBlock;
use crate::{IndexError, Rows};

/// Turns blocks into rows. It runs on many threads at once.
pub trait Codec: Send + Sync + 'static {
    /// Its name in configuration and in `meta`.
    fn name(&self) -> &'static str;

    /// Whether it needs a source to tell a block's meta, because the payloads do not.
    fn wants_meta(&self) -> bool;

    /// The rows of one block.
    fn rows(&self, block: &SourceBlock) -> Result<Rows, IndexError>;

    /// What names the block: as its source says, or as its payloads do.
    fn meta(&self, block: &SourceBlock) -> Result<BlockMeta, IndexError>;
}
