//! What a canister must let us do, asked before anything is pulled: its list of consumers and its
//! controllers are there for everybody to read, and so is whether it waits for parts.

use candid::Principal;
use ic_agent::AgentError;
use secateur_core::HoldKind;

use super::wire::{Said, StrengthOut};
use super::{Failure, IcSource};
use crate::IndexError;
use crate::source::Right;
use crate::source::rights::refusal;

/// Whom a canister lets acknowledge, as far as it says so.
#[derive(Debug, Default)]
struct Allowed {
    consumers: Option<Vec<Principal>>,
    controllers: Option<Vec<Principal>>,
}

impl Allowed {
    /// Whether this caller is refused for certain. What the canister does not say is found when it is
    /// needed.
    fn refuses(&self, caller: &Principal) -> bool {
        let lacks = |list: &Option<Vec<Principal>>| {
            list.as_ref().is_some_and(|list| !list.contains(caller))
        };
        lacks(&self.consumers) && lacks(&self.controllers)
    }
}

/// Refuses with all that is missing.
pub(super) async fn check(source: &IcSource, wanted: &[Right]) -> Result<(), IndexError> {
    if wanted.is_empty() {
        return Ok(());
    }
    if source.options.identity.is_none() {
        return check_without_key(source, wanted).await;
    }
    let caller = source
        .agent
        .get_principal()
        .map_err(|reason| IndexError::Refused(format!("the key of --ic-identity: {reason}")))?;
    let consumers = consumers(source).await?;
    if consumers.as_ref().is_some_and(|list| list.contains(&caller)) {
        return Ok(());
    }
    let controllers = controllers(source).await?;
    if !(Allowed { consumers, controllers }).refuses(&caller) {
        return Ok(());
    }
    let why = format!("to {caller}, which is neither one of its consumers nor a controller");
    let remedy = "Name the file with the key of one with --ic-identity, or let a controller put this \
                  principal into the list (set_consumer_principals)";
    Err(refusal(wanted, &why, remedy))
}

/// Without a key nothing can be acknowledged. That matters for parts only where the canister waits for them.
async fn check_without_key(source: &IcSource, wanted: &[Right]) -> Result<(), IndexError> {
    let mut missing = Vec::new();
    for right in wanted {
        let is_needed = match right {
            Right::AckExported => true,
            Right::AckArchived => source.waits_for_parts().await?,
        };
        if is_needed {
            missing.push(*right);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let remedy =
        "Name a file with the key (PEM) of one of its consumers or controllers with --ic-identity";
    Err(refusal(&missing, "without a key", remedy))
}

/// The canister's list; none if it has no such call.
async fn consumers(source: &IcSource) -> Result<Option<Vec<Principal>>, IndexError> {
    let arg = candid::encode_args(());
    match source.ask::<Result<Vec<Principal>, Said>>("get_consumer_principals", arg).await {
        Ok(said) => said.map(Some).map_err(|said| said.explain(0)),
        Err(Failure::Unknown(_)) => Ok(None),
        Err(Failure::Other(error)) => Err(error),
    }
}

/// Who controls the canister, as the network certifies it; none if it does not say.
async fn controllers(source: &IcSource) -> Result<Option<Vec<Principal>>, IndexError> {
    const METHOD: &str = "reading the canister's controllers";
    let canister = source.options.canister;
    let asked = async {
        match source.agent.read_state_canister_controllers(canister).await {
            Ok(list) => Ok(Some(list)),
            Err(AgentError::LookupPathAbsent(_) | AgentError::LookupPathUnknown(_)) => Ok(None),
            Err(error) => Err(error),
        }
    };
    match source.in_time(source.options.timeout, METHOD, asked).await {
        Ok(list) => Ok(list),
        Err(failure) => match IndexError::from(failure) {
            error if error.is_retryable() => Err(error),
            // A network that does not let this be read leaves it to the first acknowledgement.
            _ => Ok(None),
        },
    }
}

impl IcSource {
    /// Whether the canister cuts nothing that is in no acknowledged part. One that says nothing of its
    /// history holds nothing back.
    pub(super) async fn waits_for_parts(&self) -> Result<bool, IndexError> {
        match self.has_hold(&HoldKind::Archive, StrengthOut::Soft).await {
            Err(Failure::Unknown(_)) => Ok(false),
            waits => Ok(waits?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_neither_list_is_refused_and_a_list_that_is_not_told_refuses_no_one() {
        let [us, other] = [[1; 29], [2; 29]].map(|bytes| Principal::from_slice(&bytes));
        let list = |who: &[Principal]| Some(who.to_vec());
        for (consumers, controllers, refused) in [
            (list(&[other]), list(&[other]), true),
            (list(&[]), list(&[]), true),
            (list(&[us]), list(&[other]), false),
            (list(&[other]), list(&[us]), false),
            (None, list(&[other]), false),
            (list(&[other]), None, false),
            (None, None, false),
        ] {
            let allowed = Allowed { consumers, controllers };
            assert_eq!(allowed.refuses(&us), refused, "{allowed:?}");
        }
    }
}
