//! Who may call what: everybody reads, controllers write.

use crate::types::Error;

/// Calls that change something.
const WRITES: [&str; 12] = [
    "ack_exported",
    "append",
    "append_begin",
    "append_chunk",
    "append_commit",
    "drop_tx",
    "prune_now",
    "queue_tx",
    "register_consumer",
    "remove_consumer",
    "set_prune_policy",
    "set_pruning_enabled",
];

/// Refuses whoever is no controller; the anonymous caller never is one.
pub(crate) fn controllers_only() -> Result<(), Error> {
    let caller = ic_cdk::api::msg_caller();
    if caller != candid::Principal::anonymous() && ic_cdk::api::is_controller(&caller) {
        return Ok(());
    }
    let reason = format!("{caller} is not a controller of this canister; nothing was changed");
    Err(Error::Forbidden { reason })
}

/// Asked of calls from outside before they cost anything. Calls of other canisters do not come by
/// here, so every write asks again.
#[ic_cdk::inspect_message]
fn inspect_message() {
    let method = ic_cdk::api::msg_method_name();
    let writes = WRITES.contains(&method.as_str());
    if !writes || controllers_only().is_ok() {
        ic_cdk::api::accept_message();
    }
}
