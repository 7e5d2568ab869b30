//! Whether records that are deleted on a cluster stay deleted, and whether it takes more writes, out of
//! what its nodes answer (`info`). Nothing here asks.
//!
//! A node without durable deletes that keeps records on a device or in a file reads that storage again when
//! it starts, blocks that were freed too, and takes the newest version that is *still there*. The last
//! versions of a pruned record (spent, cut) may be overwritten before an older one, which then comes back
//! unspent, and its coin is spent a second time. So such a namespace is refused before anything is written.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::UtxoError;
use crate::store::{Room, RoomLook};

use super::address::{Address, Durable};

/// What one node says of itself and of a namespace.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Node<'a> {
    pub(super) edition: &'a str,
    pub(super) release: &'a str,
    /// The answer to `namespace/<name>`.
    pub(super) namespace: &'a str,
}

/// How deletions are done on a cluster that can be believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Deletes {
    /// Whether each leaves a tombstone.
    pub(super) durable: bool,
    /// What an operator should know of it.
    pub(super) warning: Option<&'static str>,
}

const WIPED: &str = "deleted records come back if a node starts with what it had on its device or in its \
    file: wiped_before_rejoin=yes says that every node is wiped before it rejoins";
const ONE_COPY: &str = "records are in memory, and there is one copy of each: a node that stops takes \
    its records with it";

/// A value of an answer, which is `name=value;…`.
pub(super) fn value<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let pairs = answer.split([';', ':']).filter_map(|pair| pair.split_once('='));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next()
}

/// The same as a number.
pub(super) fn number(answer: &str, name: &str) -> Option<u64> {
    value(answer, name)?.parse().ok()
}

impl Node<'_> {
    /// Whether it is of an edition that can leave tombstones. The namespace has a count of them in any.
    fn has_tombstones(&self) -> bool {
        let names = ["Enterprise", "Federal"];
        [self.edition, self.release].iter().any(|text| names.iter().any(|name| text.contains(name)))
    }

    /// Whether records outlive the process: on a device, in a file, in memory that a file backs, or
    /// in something that is not known here.
    fn is_persistent(&self) -> bool {
        let backed = ["storage-engine.file", "storage-engine.device"];
        let is_place = |pair: &str| {
            let key = pair.split_once('=').map_or("", |(key, _)| key);
            backed.iter().any(|name| {
                key.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('['))
            })
        };
        value(self.namespace, "storage-engine") != Some("memory")
            || self.namespace.split(';').any(is_place)
    }

    fn starts_empty(&self) -> bool {
        value(self.namespace, "storage-engine.cold-start-empty") == Some("true")
    }

    /// How many copies of a record it is configured to have.
    fn factor(&self) -> u64 {
        let names = ["replication-factor", "repl-factor", "effective_replication_factor"];
        names.iter().find_map(|name| number(self.namespace, name)).unwrap_or(1)
    }

    /// How many there can be now: not more than nodes.
    fn copies(&self) -> u64 {
        let most = number(self.namespace, "effective_replication_factor");
        let most = most.or_else(|| number(self.namespace, "ns_cluster_size"));
        most.map_or_else(|| self.factor(), |most| most.min(self.factor()))
    }

    fn name(&self) -> &str {
        let named = |text: &&str| !text.is_empty() && !text.starts_with("ERROR");
        [self.edition, self.release].into_iter().find(named).unwrap_or("an unknown edition")
    }
}

/// How records are to be deleted on a cluster of these nodes, which have the namespace; or why the
/// cluster is refused.
pub(super) fn deletes(address: &Address, nodes: &[Node<'_>]) -> Result<Deletes, UtxoError> {
    let lacking = nodes.iter().find(|node| !node.has_tombstones());
    match (address.durable, lacking) {
        (Durable::On | Durable::Auto, None) if !nodes.is_empty() => {
            return Ok(Deletes { durable: true, warning: None });
        }
        (Durable::On, lacking) => {
            let name = lacking.map_or("nothing", Node::name);
            return Err(UtxoError::Setting(format!(
                "durable_delete=on: this cluster has no durable deletes (a node is {name}), and the first \
                 prune would fail with records cut and not removed"
            )));
        }
        _ => {}
    }
    if address.wiped {
        return Ok(Deletes { durable: false, warning: Some(WIPED) });
    }
    nodes.iter().try_for_each(|node| check(address, node))?;
    let alone = nodes.iter().any(|node| node.copies() < 2);
    Ok(Deletes { durable: false, warning: alone.then_some(ONE_COPY) })
}

/// Refuses a node that would bring deleted records back, or lose them all.
fn check(address: &Address, node: &Node<'_>) -> Result<(), UtxoError> {
    if !node.is_persistent() || node.starts_empty() && node.copies() >= 2 {
        return Ok(());
    }
    let namespace = &address.namespace;
    if node.starts_empty() && node.factor() >= 2 {
        return Err(UtxoError::Store {
            reason: format!(
                "namespace {namespace} has cold-start-empty=true, and its cluster is one node: a restart \
                 would lose every record. Start a second node; nothing was changed"
            ),
            retryable: true,
        });
    }
    let engine = value(node.namespace, "storage-engine").unwrap_or("something it does not say");
    let why = if node.has_tombstones() {
        "durable_delete=off leaves no tombstones".to_owned()
    } else {
        format!("{} has no durable deletes", node.name())
    };
    let backing = if engine == "memory" { ", backed by a file or a device" } else { "" };
    let cold = value(node.namespace, "storage-engine.cold-start-empty").unwrap_or("not said");
    let reason = format!(
        "namespace {namespace} keeps records in {engine}{backing}, and {why}: at each start a node reads what \
         is left there, and pruned records come back unspent, to be spent a second time. Use memory \
         without a backing file, or cold-start-empty=true with a replication factor of 2 or more (now {cold}, \
         {}), or an edition with durable deletes and durable_delete=auto; or say in the address that every \
         node is wiped before it rejoins (wiped_before_rejoin=yes)",
        node.factor()
    );
    Err(UtxoError::Foreign { reason })
}

/// Which share of a limit may be used up before it is an alarm, in percent.
const ALARM_PCT: u64 = 90;

/// What is used of a namespace, in percent, and the limit from which on writes are refused. Names
/// differ by version: servers before 7.0 have the second ones.
const USED: [(&str, &str, bool); 3] = [
    ("data_used_pct", "storage-engine.stop-writes-used-pct", false),
    ("device_free_pct", "storage-engine.max-used-pct", true),
    ("memory_free_pct", "stop-writes-pct", true),
];
/// What is free for new blocks, in percent, and the limit below which writes are refused.
const FREE: [(&str, &str); 2] = [
    ("data_avail_pct", "storage-engine.stop-writes-avail-pct"),
    ("device_available_pct", "storage-engine.min-avail-pct"),
];

/// The namespaces that a node says it has. One that says none is on its way up or down.
pub(super) fn namespaces(answer: &str) -> Result<BTreeSet<&str>, UtxoError> {
    let there: BTreeSet<&str> =
        answer.split(';').map(str::trim).filter(|name| !name.is_empty()).collect();
    if there.is_empty() || answer.starts_with("ERROR") {
        let reason = "Aerospike: a node does not say which namespaces it has".to_owned();
        return Err(UtxoError::Store { reason, retryable: true });
    }
    Ok(there)
}

/// A node that said nothing for so long.
pub(super) fn silent(time: Duration) -> UtxoError {
    let reason = format!("Aerospike: a node said nothing within {} s", time.as_secs());
    UtxoError::Store { reason, retryable: true }
}

/// The worst of what nodes say to `namespace/<name>`, and why one that does not say it does not.
pub(super) fn worst(said: impl IntoIterator<Item = Result<String, UtxoError>>) -> RoomLook {
    let mut look = RoomLook::default();
    for said in said {
        match said {
            Ok(said) => look.room = look.room.worse(room(&said)),
            Err(error) => look.failed = Some(error),
        }
    }
    look
}

/// Whether a node takes more writes.
pub(super) fn room(namespace: &str) -> Room {
    let stopped = |name| value(namespace, name) == Some("true");
    if let Some(name) = ["stop_writes", "clock_skew_stop_writes"].into_iter().find(|n| stopped(n)) {
        return Room::Full(format!("a node says {name}=true"));
    }
    for (name, limit_name, is_free) in USED {
        let pct = number(namespace, name).filter(|pct| *pct <= 100);
        let limit = number(namespace, limit_name).filter(|limit| *limit > 0);
        let (Some(pct), Some(limit)) = (pct, limit) else { continue };
        let used = if is_free { 100 - pct } else { pct };
        if used * 100 >= limit * ALARM_PCT {
            return Room::Low(format!("a node says {name}={pct}, and {limit_name} is {limit}"));
        }
    }
    for (name, limit_name) in FREE {
        let (free, limit) = (number(namespace, name), number(namespace, limit_name));
        if let (Some(free), Some(limit)) = (free, limit)
            && limit > 0
            && free <= limit.saturating_mul(2)
        {
            return Room::Low(format!("a node says {name}={free}, and {limit_name} is {limit}"));
        }
    }
    Room::Enough
}

#[cfg(test)]
mod tests;
