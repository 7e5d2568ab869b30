//! Who may call what: everybody reads, consumers acknowledge, controllers do everything.
//!
//! Consumers are a list of principals that controllers keep, so that an index or an archiver can say what it
//! has without a key that could upgrade the canister or stop it.

use candid::Principal;
use secateur_store::StoreError;

use crate::state::{self, History};
use crate::types::Error;

/// Principals that a canister knows as consumers at most.
const MAX_CONSUMERS: usize = 64;

/// What consumers may call.
const OF_CONSUMERS: [&str; 2] = ["ack_exported", "ack_archived"];

/// Refuses a caller that is not a controller; the anonymous one never is.
pub(crate) fn controllers_only() -> Result<(), Error> {
    let caller = ic_cdk::api::msg_caller();
    if is_controller(&caller) {
        return Ok(());
    }
    let reason = format!("{caller} is not a controller of this canister; nothing was changed");
    Err(Error::Forbidden { reason })
}

/// Refuses a caller that is neither a consumer nor a controller.
pub(crate) fn consumers_only() -> Result<(), Error> {
    let caller = ic_cdk::api::msg_caller();
    if is_controller(&caller) || is_consumer(&caller)? {
        return Ok(());
    }
    let reason = format!(
        "{caller} is not a consumer of this canister (set_consumer_principals), nor a controller; nothing \
         was changed"
    );
    Err(Error::Forbidden { reason })
}

fn is_controller(caller: &Principal) -> bool {
    *caller != Principal::anonymous() && ic_cdk::api::is_controller(caller)
}

fn is_consumer(caller: &Principal) -> Result<bool, Error> {
    Ok(state::with(consumers)?.contains(caller))
}

/// The principals that may acknowledge.
pub(crate) fn consumers(store: &History) -> Result<Vec<Principal>, StoreError> {
    let Some(bytes) = store.embedder_bytes()? else { return Ok(Vec::new()) };
    candid::decode_one(&bytes).map_err(|error| StoreError::Corrupt {
        what: "list of consumers",
        detail: error.to_string(),
    })
}

/// Keeps another list of principals that may acknowledge.
pub(crate) fn set_consumers(
    store: &History,
    mut principals: Vec<Principal>,
) -> Result<(), StoreError> {
    let refuse =
        |reason: String| Err(StoreError::Refused { what: "set_consumer_principals", reason });
    principals.sort_unstable();
    principals.dedup();
    if principals.len() > MAX_CONSUMERS {
        return refuse(format!("{} principals; at most {MAX_CONSUMERS}", principals.len()));
    }
    if principals.contains(&Principal::anonymous()) {
        return refuse("the anonymous principal is everybody, and cannot be a consumer".into());
    }
    match candid::encode_one(principals) {
        Ok(bytes) => store.set_embedder_bytes(&bytes),
        Err(error) => refuse(error.to_string()),
    }
}

/// Asked of every message from outside that goes through consensus, before it costs anything. Queries
/// do not come by here, so whoever only reads is never asked; a query that is sent as such a message
/// would be paid for by the canister. Calls of other canisters do not come by either, so every write
/// asks again.
#[ic_cdk::inspect_message]
fn inspect_message() {
    let method = ic_cdk::api::msg_method_name();
    let may =
        if OF_CONSUMERS.contains(&method.as_str()) { consumers_only() } else { controllers_only() };
    if may.is_ok() {
        ic_cdk::api::accept_message();
    }
}
