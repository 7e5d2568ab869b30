//! What operators and consumers change: policy, settings, the kill switch, finality, consumers.

use secateur_core::{
    Height, Pressure, PrunePolicy, Strength, check_consumer_name, format_bytes, spell_bytes,
};
use serde::{Deserialize, Serialize};

use super::state::{
    EMBEDDER_KEY, Finality, Header, Layout, POLICY_KEY, SETTINGS_KEY, Settings, State,
    load_document,
};
use super::store::Store;
use crate::StoreError;
use crate::ground::{Arena, Index, Table};
use crate::rows::Rows as _;

/// Consumers that a store knows at most.
const MAX_CONSUMERS: usize = 256;

/// Bytes of an embedder's own that a store keeps at most.
const MAX_EMBEDDER_BYTES: usize = 64 * 1024;

/// A packed store's budget is at least so many regions: three streams have an open one each.
const FEWEST_REGIONS: u64 = 8;

/// A named reader of the export whose progress can hold pruning back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Consumer {
    /// Whether its hold can give way.
    pub strength: Strength,
    /// Everything up to here it has.
    pub acked: Option<Height>,
    /// The head when it last acknowledged something, or registered.
    pub head_at_ack: Option<Height>,
}

/// The newest block that consumers may export: the newest final one.
pub(crate) fn export_head(state: &State, settings: &Settings) -> Option<Height> {
    match settings.finality {
        Finality::Instant => state.head.map(|tip| tip.height),
        Finality::Explicit => state.finalized,
    }
}

impl Header {
    /// Refuses a policy that cannot work here: besides its own rules, a packed store needs a
    /// budget of some regions, or open ones alone would push all history out.
    pub(crate) fn check_policy(&self, policy: &PrunePolicy) -> Result<(), StoreError> {
        policy.check()?;
        let least = self.least_target();
        if (1..least).contains(&policy.target_bytes) {
            let reason = format!(
                "a target of {} is less than {FEWEST_REGIONS} regions of {}; name at least {}, or \
                 make the store with smaller classes",
                format_bytes(policy.target_bytes),
                format_bytes(self.stretch_len()),
                spell_bytes(least)
            );
            return Err(StoreError::refused("policy", reason));
        }
        Ok(())
    }

    /// The smallest budget that this store can have.
    pub(crate) fn least_target(&self) -> u64 {
        match self.layout {
            Layout::Packed => FEWEST_REGIONS * self.stretch_len(),
            Layout::PerBlock => 1,
        }
    }
}

impl<A: Arena, I: Index> Store<A, I> {
    /// The policy in force.
    pub fn policy(&self) -> PrunePolicy {
        self.control.lock().policy.clone()
    }

    /// The settings in force.
    pub fn settings(&self) -> Settings {
        self.control.lock().settings.clone()
    }

    /// The kill switch.
    pub fn pruning_enabled(&self) -> bool {
        self.control.lock().state.pruning_enabled
    }

    /// Whether the budget is draining, and whether it is an emergency, as of what is staged.
    pub fn pressure(&self) -> Pressure {
        self.control.lock().state.pressure
    }

    /// Changes the policy; an invalid one is refused with the reason and nothing changes.
    pub fn set_prune_policy(&self, policy: PrunePolicy) -> Result<(), StoreError> {
        self.header.check_policy(&policy)?;
        let mut control = self.writer()?;
        let mut txn = self.begin(&mut control)?;
        txn.put_document(Table::Meta, POLICY_KEY, &policy)?;
        txn.mirrors.policy = Some(policy);
        self.commit(&mut control, txn)?;
        self.forget_behind();
        drop(control);
        self.ring();
        Ok(())
    }

    /// Changes the settings. What was final stays final.
    pub fn set_settings(&self, settings: Settings) -> Result<(), StoreError> {
        let mut control = self.writer()?;
        let mut txn = self.begin(&mut control)?;
        if control.settings.finality == Finality::Instant && settings.finality == Finality::Explicit
        {
            txn.state.finalized = txn.state.head.map(|tip| tip.height);
        }
        if settings.finality == Finality::Instant
            && let Some(head) = txn.state.head
        {
            // Every block is final now, so no queued transaction can come back.
            control.finalize_queue(&mut txn, head.height);
        }
        txn.put_document(Table::Meta, SETTINGS_KEY, &settings)?;
        txn.mirrors.settings = Some(settings);
        self.commit(&mut control, txn)?;
        drop(control);
        self.released();
        Ok(())
    }

    /// Keeps bytes of the embedder beside the history, such as who may call it; they replace those that
    /// were kept before. The store does not look into them.
    pub fn set_embedder_bytes(&self, bytes: &[u8]) -> Result<(), StoreError> {
        if bytes.len() > MAX_EMBEDDER_BYTES {
            let reason = format!("{} bytes; at most {MAX_EMBEDDER_BYTES} are kept", bytes.len());
            return Err(StoreError::refused("set_embedder_bytes", reason));
        }
        let mut control = self.writer()?;
        let mut txn = self.begin(&mut control)?;
        txn.put(Table::Meta, EMBEDDER_KEY, bytes.to_vec());
        self.commit(&mut control, txn)
    }

    /// The bytes that the embedder has the store keep; none if it never handed any in.
    pub fn embedder_bytes(&self) -> Result<Option<Vec<u8>>, StoreError> {
        self.index.snapshot()?.row(Table::Meta, EMBEDDER_KEY)
    }

    /// The kill switch: whether the daemon prunes.
    pub fn set_pruning_enabled(&self, enabled: bool) -> Result<(), StoreError> {
        let mut control = self.writer()?;
        let mut txn = self.begin(&mut control)?;
        txn.state.pruning_enabled = enabled;
        self.commit(&mut control, txn)?;
        self.forget_behind();
        drop(control);
        self.ring();
        Ok(())
    }

    /// Moves finality up to `height`. A lower height than before changes nothing.
    pub fn set_finalized(&self, height: Height) -> Result<(), StoreError> {
        let mut control = self.writer()?;
        let head = control.state.head.map(|tip| tip.height);
        if head.is_none_or(|head| height > head) {
            let reason = format!("block {height} is not here; the head is {}", show(head));
            return Err(StoreError::refused("set_finalized", reason));
        }
        if control.settings.finality == Finality::Instant
            || control.state.finalized.is_some_and(|before| height <= before)
        {
            return Ok(());
        }
        if let Some(oldest) = control.state.oldest_kept().filter(|oldest| height < *oldest) {
            let reason = format!("block {height} is not here; the oldest is block {oldest}");
            return Err(StoreError::refused("set_finalized", reason));
        }
        let mut txn = self.begin(&mut control)?;
        txn.state.finalized = Some(height);
        control.finalize_queue(&mut txn, height);
        self.commit(&mut control, txn)?;
        drop(control);
        self.released();
        Ok(())
    }

    /// Registers a consumer whose progress holds pruning back, or makes a soft one hard. From now
    /// on nothing that it has not acknowledged is cut; a soft one gives way while draining.
    pub fn register_consumer(&self, name: &str, strength: Strength) -> Result<(), StoreError> {
        check_consumer_name(name)?;
        let mut control = self.writer()?;
        let mut txn = self.begin(&mut control)?;
        let head_at_ack = control.state.head.map(|tip| tip.height);
        let known: Option<Consumer> = load_document(&txn, Table::Consumers, name.as_bytes())?;
        if known.is_none() && self.consumers()?.len() >= MAX_CONSUMERS {
            let reason = format!("{MAX_CONSUMERS} consumers are registered already");
            return Err(StoreError::refused("register_consumer", reason));
        }
        let demoted =
            |known: &Consumer| known.strength == Strength::Hard && strength == Strength::Soft;
        if known.as_ref().is_some_and(demoted) {
            let reason = format!("`{name}` is a hard hold; remove it first to make it a soft one");
            return Err(StoreError::refused("register_consumer", reason));
        }
        let consumer = match known {
            Some(known) => Consumer { strength, ..known },
            None => Consumer { strength, acked: None, head_at_ack },
        };
        txn.put_document(Table::Consumers, name.as_bytes(), &consumer)?;
        self.commit(&mut control, txn)
    }

    /// Removes a consumer and its hold; whether it was there is the answer.
    pub fn remove_consumer(&self, name: &str) -> Result<bool, StoreError> {
        let mut control = self.writer()?;
        let mut txn = self.begin(&mut control)?;
        let known: Option<Consumer> = load_document(&txn, Table::Consumers, name.as_bytes())?;
        if known.is_none() {
            return Ok(false);
        }
        txn.delete(Table::Consumers, name.as_bytes());
        self.commit(&mut control, txn)?;
        drop(control);
        self.released();
        Ok(true)
    }

    /// Notes that a consumer has everything up to `height`. It never moves back; the height
    /// acknowledged now is the answer.
    pub fn ack_exported(&self, name: &str, height: Height) -> Result<Height, StoreError> {
        let mut control = self.writer()?;
        let head = export_head(&control.state, &control.settings);
        if head.is_none_or(|head| height > head) {
            let reason =
                format!("block {height} was not exportable yet; the newest is {}", show(head));
            return Err(StoreError::refused("ack_exported", reason));
        }
        let mut txn = self.begin(&mut control)?;
        let known: Option<Consumer> = load_document(&txn, Table::Consumers, name.as_bytes())?;
        let Some(mut consumer) = known else {
            let reason = format!("no consumer `{name}` is registered");
            return Err(StoreError::refused("ack_exported", reason));
        };
        let acked = consumer.acked.map_or(height, |before| before.max(height));
        consumer.acked = Some(acked);
        consumer.head_at_ack = control.state.head.map(|tip| tip.height);
        txn.put_document(Table::Consumers, name.as_bytes(), &consumer)?;
        self.commit(&mut control, txn)?;
        drop(control);
        self.released();
        Ok(acked)
    }
}

fn show(height: Option<Height>) -> String {
    height.map_or_else(|| "none".into(), |height| format!("block {height}"))
}
