//! What the configuration and the store agree on at a start, and which of the two wins where they
//! differ (`docs/adr/0020-the-last-change-wins.md`).
//!
//! A configured value is applied once: when its key is new in the configuration, or its value has
//! changed since the last start. A value that was set at run time stands until then. `applied.toml`
//! in the data directory remembers what was applied.

use std::collections::BTreeMap;
use std::path::Path;

use alloy_primitives::hex::{decode_to_slice, encode};
use secateur_core::{
    Hold, HoldKind, Plan, PrunePolicy, StopReason, Strength, TimeUnit, Trigger, format_bytes,
    spell_bytes, spell_span,
};
use secateur_store::ground::disk::DiskStore;
use secateur_store::{Finality, Settings};
use serde::{Deserialize, Serialize};

use crate::commands::policy_changes;
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::durable;
use crate::error::NodeError;
use crate::ui::words::{blocks, count, span};

const FILE: &str = "applied.toml";
/// The key of the kill switch in the configuration.
const SWITCH: &str = "pruning.enabled";

/// Nominal operations that the plans of a start look at: a few seconds' worth. What is due beyond
/// is said to be more.
const PLAN_OPS: u64 = 50_000_000;

/// What the file says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Applied {
    /// The store that it was applied to, in hex.
    store_id: Option<String>,
    /// The kill switch, where it is named.
    pruning: Option<bool>,
    /// The policy keys that are named, with their values as [`PrunePolicy::get`] spells them.
    #[serde(default)]
    policy: BTreeMap<String, String>,
}

/// A value in force that differs from the one that the last start found in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Difference {
    /// A policy key as `policy set` takes it, or `pruning.enabled`.
    pub(crate) key: String,
    pub(crate) in_force: String,
    pub(crate) configured: String,
}

impl Applied {
    /// What the directory remembers, if a node ran there.
    fn read(directory: &Path) -> Result<Option<Self>, anyhow::Error> {
        let path = directory.join(FILE);
        let Some(text) = durable::read(&path)? else { return Ok(None) };
        let applied = toml::from_str(&text).map_err(|error| NodeError::BadFile {
            path,
            reason: format!(
                "{}; without it, the next start applies every value of the configuration",
                error.message()
            ),
        })?;
        Ok(Some(applied))
    }

    /// What the configuration says now.
    fn of(config: &Config) -> Result<Self, NodeError> {
        let mut named = PrunePolicy::default();
        config.apply_policy(&mut named)?;
        let value = |(key, _): &(&'static str, String)| Some(((*key).into(), named.get(key)?));
        let policy = config.policy.iter().filter_map(value).collect();
        Ok(Self { store_id: None, pruning: config.pruning, policy })
    }

    /// Whether it was applied to this store; a file of before says of none.
    fn is_of(&self, store_id: &str) -> bool {
        self.store_id.as_ref().is_none_or(|of| of == store_id)
    }

    /// Puts it in its place. A full disk must not keep a node from starting: then the next start
    /// applies the same values again.
    fn keep(&self, directory: &Path) -> Result<(), anyhow::Error> {
        let text = toml::to_string(self)?;
        let text = format!(
            "# What the configuration said when it was last applied. A value that was set at run time\n\
             # stands until the configuration's changes.\n{text}"
        );
        if let Err(error) = durable::write(directory, FILE, &text) {
            let error = format!("{error:#}");
            tracing::warn!(error, "the next start applies the configuration's values again");
        }
        Ok(())
    }
}

/// The store that the last start of a node in this directory had, if that is known.
pub(crate) fn last_store_id(directory: &Path) -> Result<Option<[u8; 16]>, anyhow::Error> {
    let hex = Applied::read(directory)?.and_then(|applied| applied.store_id);
    let mut id = [0; 16];
    Ok(hex.filter(|hex| decode_to_slice(hex, &mut id).is_ok()).map(|_| id))
}

/// The values in force of which the last start found others in the configuration.
pub(crate) fn differences(
    directory: &Path,
    policy: &PrunePolicy,
    pruning_enabled: bool,
) -> Result<Vec<Difference>, anyhow::Error> {
    let applied = Applied::read(directory)?.unwrap_or_default();
    let mut differing = differing(&applied, policy);
    let switch = applied.pruning.filter(|configured| *configured != pruning_enabled);
    differing.extend(switch.map(|configured| Difference {
        key: SWITCH.into(),
        in_force: pruning_enabled.to_string(),
        configured: configured.to_string(),
    }));
    Ok(differing)
}

fn differing(applied: &Applied, policy: &PrunePolicy) -> Vec<Difference> {
    let named = applied.policy.iter();
    let differing = named.filter_map(|(key, configured)| {
        let in_force = policy.get(key).filter(|in_force| in_force != configured)?;
        let (in_force, configured) = (shown(key, &in_force), shown(key, configured));
        Some(Difference { key: key.clone(), in_force, configured })
    });
    differing.collect()
}

/// A key whose value in force is not what the configuration says now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InForce {
    /// As in the configuration: `policy.target_bytes`.
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) because: &'static str,
}

/// Compares the configuration as it is now with the policy and the kill switch in force.
pub(crate) fn in_force(
    directory: &Path,
    config: &Config,
    policy: &PrunePolicy,
    pruning_enabled: bool,
) -> Result<Vec<InForce>, anyhow::Error> {
    let (applied, now) = (Applied::read(directory)?.unwrap_or_default(), Applied::of(config)?);
    let because = |configured: bool, is_applied: bool| match (configured, is_applied) {
        (true, true) => "it was set at run time, and stands until the configuration changes",
        (true, false) => "the next start applies the configuration's value",
        (false, _) => "the configuration does not name it, and it is the store's own",
    };
    let named = PrunePolicy::KEYS.into_iter().filter_map(|key| {
        let (in_force, configured) = (policy.get(key)?, now.policy.get(key));
        if configured == Some(&in_force) {
            return None;
        }
        let because = because(configured.is_some(), applied.policy.get(key) == configured);
        Some(InForce { key: format!("policy.{key}"), value: shown(key, &in_force), because })
    });
    let switch = (now.pruning != Some(pruning_enabled)).then(|| InForce {
        key: SWITCH.into(),
        value: pruning_enabled.to_string(),
        because: because(now.pruning.is_some(), applied.pruning == now.pruning),
    });
    Ok(named.chain(switch).collect())
}

/// A value as people write it, and as it may be set again.
fn shown(key: &str, value: &str) -> String {
    let spelled = match key {
        "target_bytes" => value.parse().ok().map(spell_bytes),
        "retain_days" => value.parse().ok().map(days),
        "trigger" => value.parse().ok().map(Trigger::spelled),
        _ => None,
    };
    spelled.unwrap_or_else(|| value.to_owned())
}

fn days(days: u64) -> String {
    if days == 0 { "0".into() } else { spell_span(days, TimeUnit::Days) }
}

/// Brings what the store remembers in line with what is new in the configuration. Nothing is cut
/// here, and what will be cut in consequence is logged first.
pub(crate) fn agree(data: &DataDir, config: &Config) -> Result<(), anyhow::Error> {
    let store = &data.store;
    check_layout(data, config)?;
    let (was, before) = ((store.policy(), store.settings()), due(store)?);
    settings(store, config)?;
    let store_id = encode(store.header().store_id);
    let known = Applied::read(&data.path)?.filter(|known| known.is_of(&store_id));
    let now = Applied { store_id: Some(store_id), ..Applied::of(config)? };
    let applied = known.clone().unwrap_or_default();
    policy(store, config, &applied, &now)?;
    switch(store, known.as_ref(), now.pruning)?;
    let changed = was != (store.policy(), store.settings());
    announce_change(before.as_ref(), due(store)?.as_ref(), changed);
    announce_switch(store)?;
    if known.as_ref() != Some(&now) {
        now.keep(&data.path)?;
    }
    Ok(())
}

/// Applies a kill switch that has changed in the configuration; says which one stands against it.
fn switch(
    store: &DiskStore,
    known: Option<&Applied>,
    configured: Option<bool>,
) -> Result<(), anyhow::Error> {
    let Some(configured) = configured.filter(|wanted| *wanted != store.pruning_enabled()) else {
        return Ok(());
    };
    match known {
        Some(known) if known.pruning != Some(configured) => {
            tracing::warn!(enabled = configured, "the configuration changes {SWITCH}");
            store.set_pruning_enabled(configured)?;
        }
        Some(_) => tracing::warn!(
            in_force = !configured,
            configured,
            "{SWITCH} was set at run time, which stands until the configuration changes"
        ),
        // The directory was restored, or is an earlier version's. Its switch is left alone.
        None => tracing::warn!(
            in_force = !configured,
            configured,
            "no start of a node has set {SWITCH} in this store, so it stays as it is; `secateur \
             pruning on | off` changes it"
        ),
    }
    Ok(())
}

fn check_layout(data: &DataDir, config: &Config) -> Result<(), NodeError> {
    let has = data.store.header().layout;
    match config.history.layout.filter(|layout| *layout != has) {
        None => Ok(()),
        Some(asked) => Err(NodeError::Refused(format!(
            "history.layout = `{}`, and the store in {} is {}: the layout is fixed when a store is \
             made. Take the key out, or name a new directory with --data",
            asked.name(),
            data.path.display(),
            has.name()
        ))),
    }
}

/// Settings have no command that changes them at run time: what is named is in force.
fn settings(store: &DiskStore, config: &Config) -> Result<(), anyhow::Error> {
    let old = store.settings();
    let mut new = old.clone();
    config.history.apply(&mut new);
    let following = config.follow.as_ref().map(|_| Finality::Explicit);
    // What was final stays final; a followed chain is final where its source says so.
    new.finality = config.chain.finality.or(following).unwrap_or(old.finality);
    new.archive_hold = config.archive.hold.unwrap_or(old.archive_hold);
    if new == old {
        return Ok(());
    }
    for (key, old, new) in changes(&old, &new) {
        tracing::info!(key, old, new, "the configuration changes a setting");
    }
    Ok(store.set_settings(new)?)
}

fn changes(old: &Settings, new: &Settings) -> Vec<(&'static str, String, String)> {
    let finality = |finality| match finality {
        Finality::Instant => "instant".to_owned(),
        Finality::Explicit => "explicit".to_owned(),
    };
    let list = |of: &Settings| {
        [
            ("chain.finality", finality(of.finality)),
            ("archive.hold", of.archive_hold.to_string()),
            ("history.challenge_blocks", of.challenge_blocks.to_string()),
            ("history.challenge_seconds", span(of.challenge_seconds)),
            ("history.consumer_expiry_blocks", of.consumer_expiry_blocks.to_string()),
            ("history.tombstone_bytes", spell_bytes(of.tombstone_bytes)),
        ]
    };
    let pairs = list(old).into_iter().zip(list(new));
    let changed = pairs.filter(|((_, old), (_, new))| old != new);
    changed.map(|((key, old), (_, new))| (key, old, new)).collect()
}

/// Applies the policy keys that are new or have changed; says which ones stand against it.
fn policy(
    store: &DiskStore,
    config: &Config,
    applied: &Applied,
    now: &Applied,
) -> Result<(), anyhow::Error> {
    let old = store.policy();
    let mut new = old.clone();
    for (key, value) in &config.policy {
        if applied.policy.get(*key) != now.policy.get(*key) {
            new.set(key, value)?;
        }
    }
    for Difference { key, in_force, configured } in differing(now, &new) {
        tracing::warn!(
            in_force,
            configured,
            "policy.{key} was set at run time, which stands until the configuration changes"
        );
    }
    if new != old {
        let changes = policy_changes(&old, &new);
        tracing::info!(changes, "the configuration changes the policy");
        store.set_prune_policy(new)?;
    }
    Ok(())
}

/// What the daemon would cut now, as far as a start looks.
fn due(store: &DiskStore) -> Result<Option<Plan>, anyhow::Error> {
    if !store.pruning_enabled() {
        return Ok(None);
    }
    Ok(Some(store.prune_plan_within(PLAN_OPS)?).filter(|plan| plan.totals.blocks > 0))
}

/// Whether the plan now may take blocks that the one before did not. Where both are longer than a
/// start looks, only an unchanged policy is sure to take the same.
fn takes_more(before: Option<&Plan>, now: &Plan, changed: bool) -> bool {
    let Some(before) = before else { return true };
    let further = before.totals.last < now.totals.last;
    further || (changed && now.stop == StopReason::MaxOps)
}

fn announce_change(before: Option<&Plan>, now: Option<&Plan>, changed: bool) {
    let Some(now) = now.filter(|now| takes_more(before, now, changed)) else { return };
    let was = before.map_or(0, |plan| plan.totals.blocks);
    let text = foretell(now);
    tracing::warn!("this start cuts more than the last policy asked for ({}): {text}", blocks(was));
}

/// What a plan cuts, and whether it is anywhere else, as a line of the log.
pub(crate) fn foretell(plan: &Plan) -> String {
    let totals = &plan.totals;
    let range = match (totals.first, totals.last) {
        (Some(first), Some(last)) => format!(" ({} to {})", count(first), count(last)),
        _ => String::new(),
    };
    let more = if plan.stop == StopReason::MaxOps { ", and more after them" } else { "" };
    let cause = plan.cause.map_or_else(|| "nothing".into(), |cause| cause.to_string());
    let held = if is_guarded(plan) { "" } else { UNGUARDED };
    let size = format_bytes(totals.bytes);
    format!("{}{range}, {size}, for {cause}{more}{held}", blocks(totals.blocks))
}

const UNGUARDED: &str = "; no archive and no export consumer holds them: as far as this store knows \
                         they will be nowhere else";

/// Whether an archive or a consumer has, or will have, what a plan cuts. A soft hold gives way, so
/// it stands for what it has released and for nothing more.
pub(crate) fn is_guarded(plan: &Plan) -> bool {
    let last = plan.totals.last;
    let has_all = |hold: &Hold| last.is_none_or(|last| hold.limit >= Some(last));
    plan.holds.iter().any(|hold| {
        let is_copy = matches!(hold.kind, HoldKind::Archive | HoldKind::Export(_));
        hold.active && is_copy && (hold.strength == Strength::Hard || has_all(hold))
    })
}

/// What the kill switch means here, where that is worth a warning.
fn announce_switch(store: &DiskStore) -> Result<(), anyhow::Error> {
    let policy = store.policy();
    if !policy.has_limit() {
        return Ok(());
    }
    let keeps = keeps(&policy);
    if !store.pruning_enabled() {
        tracing::warn!(
            keeps,
            "pruning is off: nothing is cut until `secateur pruning on`, whatever the policy says"
        );
        return Ok(());
    }
    let mut consumers = store.consumers()?.into_values();
    let guarded = store.settings().archive_hold
        || consumers.any(|consumer| consumer.strength == Strength::Hard);
    if store.heights()?.boundary.is_none() && !guarded {
        tracing::warn!(
            keeps,
            "pruning is on, and no archive and no hard export consumer holds what it cuts"
        );
    }
    Ok(())
}

fn keeps(policy: &PrunePolicy) -> String {
    let marks = policy.water_marks();
    let budget = marks.map(|marks| {
        let (target, high, low) =
            (format_bytes(marks.target), format_bytes(marks.high), format_bytes(marks.low));
        format!("{target} (cut from {high} down to {low})")
    });
    let days = (policy.retain_days > 0).then(|| days(policy.retain_days.into()));
    let newest = (policy.retain_blocks > 0).then(|| blocks(policy.retain_blocks));
    [budget, days, newest].into_iter().flatten().collect::<Vec<_>>().join(", ")
}
