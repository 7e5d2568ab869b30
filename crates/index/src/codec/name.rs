//! Which codec: by the name that an operator gives it.

use std::str::FromStr;
use std::sync::Arc;

use secateur_archive::Codec as PartCodec;
use secateur_core::CoreError;
use secateur_evm::Verify;

use super::{Codec, EvmCodec, KasaneCodec, OpaqueCodec};
use crate::LogFilter;

/// A codec's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CodecName {
    /// Blocks of an EVM chain.
    Evm,
    /// Blocks of the Kasane chain.
    Kasane,
    /// Blocks whose payloads mean nothing to us.
    Opaque,
}

impl CodecName {
    /// The codec, for a chain and with the chosen logs; `verify` is for those that can.
    pub fn codec(self, chain_id: u64, verify: Verify, logs: LogFilter) -> Arc<dyn Codec> {
        match self {
            Self::Evm => Arc::new(EvmCodec::new(chain_id, verify, logs)),
            Self::Kasane => Arc::new(KasaneCodec::new(logs)),
            Self::Opaque => Arc::new(OpaqueCodec),
        }
    }

    /// How parts of such blocks are written. Hashes of other chains than Ethereum's cannot be computed
    /// again, so their parts are linked by the hashes that the blocks came with.
    pub fn of_parts(self) -> PartCodec {
        match self {
            Self::Evm => PartCodec::Evm,
            Self::Kasane | Self::Opaque => PartCodec::Opaque,
        }
    }
}

impl FromStr for CodecName {
    type Err = CoreError;

    fn from_str(text: &str) -> Result<Self, CoreError> {
        match text {
            "evm" => Ok(Self::Evm),
            "kasane" => Ok(Self::Kasane),
            "opaque" => Ok(Self::Opaque),
            _ => Err(CoreError::InvalidInput {
                what: "codec",
                reason: format!("{text:?} is none of evm, kasane and opaque"),
            }),
        }
    }
}
