//! Who may call what: everybody reads, controllers write.

use crate::types::Error;

/// Refuses whoever is no controller; the anonymous caller never is one.
pub(crate) fn controllers_only() -> Result<(), Error> {
    let caller = ic_cdk::api::msg_caller();
    if caller != candid::Principal::anonymous() && ic_cdk::api::is_controller(&caller) {
        return Ok(());
    }
    let reason = format!("{caller} is not a controller of this canister; nothing was changed");
    Err(Error::Forbidden { reason })
}

/// Asked of every message from outside that goes through consensus, before it costs anything. Queries
/// do not come by here, so whoever only reads is never asked; a query that is sent as such a message
/// would be paid for by the canister. Calls of other canisters do not come by either, so every write
/// asks again.
#[ic_cdk::inspect_message]
fn inspect_message() {
    if controllers_only().is_ok() {
        ic_cdk::api::accept_message();
    }
}
