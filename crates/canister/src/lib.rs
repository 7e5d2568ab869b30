//! A chain's history as a canister: the store of the node on the ground of stable memory.
//!
//! What lives here: the Candid interface (`secateur.did` beside this crate), who may call what, blocks
//! that come in pieces because a message is smaller than a legal block, and the work that is cut into
//! messages of its own: sealing and pruning. What deliberately does not live here: any rule about what
//! is kept or cut (that is `secateur-store`), and anything about what is inside a block.
//!
//! A message is the transaction. A trap undoes all of it, heap and stable memory alike, so nothing
//! here needs to be taken back by hand.

mod access;
mod append;
mod calls;
mod metrics;
mod state;
mod types;
mod work;

pub use metrics::{HttpRequest, HttpResponse};
pub use serde_bytes::{ByteArray, ByteBuf};
pub use types::*;

/// The interface as the code has it, for tools that ask the wasm for it.
#[allow(clippy::wildcard_imports, reason = "whatever the interface names")]
mod interface {
    use candid::Principal;

    use crate::*;

    ic_cdk::export_candid!();
}
