//! What keeps a record, or when it goes: the sentences of `explain`.

use secateur_core::Height;
use secateur_utxo::{Record, Settings, Skip, Standing};

use crate::ui::words::{count, plural};

/// What decides about a record beside itself.
pub(super) struct Around<'a> {
    pub(super) stands: &'a Standing,
    /// Up to which height records may go now.
    pub(super) safe: Height,
    /// Why none may go, whatever its height is.
    pub(super) awaited: Option<Skip>,
    pub(super) settings: &'a Settings,
    /// Whether events set runs off.
    pub(super) enabled: bool,
    /// Why its file cannot be removed now.
    pub(super) away: Option<Away>,
}

/// Why a file cannot be removed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Away {
    /// There is no place of files.
    NoPlace,
    /// It is another place.
    Elsewhere,
    /// The place does not answer.
    Silent,
}

impl Away {
    const fn told(self) -> &'static str {
        match self {
            Self::NoPlace => "It stays while there is no place of files (utxo.files).",
            Self::Elsewhere => {
                "It stays while the place of files is not the one that its file is in."
            }
            Self::Silent => "It stays while the place of files does not answer.",
        }
    }
}

/// The sentences about a record.
pub(super) fn verdict(record: &Record, around: &Around<'_>) -> Vec<String> {
    let &Around { settings, away, .. } = around;
    let mut said = Vec::new();
    if record.cut {
        said.push(
            "It is cut, and nothing brings it back: what is left of it, its file first, goes with the next run, \
             and stays as long as that cannot be removed."
                .to_owned(),
        );
    }
    if let Some(away) = away {
        said.push(away.told().to_owned());
    }
    if !settings.delete && (record.cut || record.delete_at_height.is_some()) {
        said.push("It stays while utxo.delete is off: nothing is deleted.".to_owned());
    }
    if record.cut {
        return said;
    }
    if let Some(until) = record.preserve_until {
        said.push(format!(
            "It is preserved until height {}, because a transaction that waited long for a block spent \
             it, whether or not it still does; then the rule is asked again.",
            count(until)
        ));
    }
    if !record.held_by.is_empty() {
        let number = record.held_by.len() as u64;
        let verb = if number == 1 { "spends" } else { "spend" };
        let holders = plural(number, "live unmined transaction");
        said.push(format!("It stays while {holders} {verb} it."));
    }
    let held = !said.is_empty();
    match record.delete_at_height {
        Some(at) => said.push(when(at, held, around)),
        None if record.preserve_until.is_some() => {}
        None => said.push(why_it_stays(record)),
    }
    said
}

/// When a record goes that has a delete-at-height, or why it is late.
fn when(at: Height, held: bool, around: &Around<'_>) -> String {
    let &Around { stands, safe, awaited, settings, enabled, .. } = around;
    let is_past = stands.head.is_some_and(|head| at <= head);
    let (past, height) = ("It is past its delete-at-height", count(at));
    if let Some(skip) = awaited {
        let due = if is_past { past } else { "It is due at height" };
        let until = if skip == Skip::PersisterInDoubt {
            "the chain says whether it has a block persister, and how far that is \
             (utxo.persister_absent, if there is none)"
        } else {
            "a block persister reports (utxo.trigger)"
        };
        return format!("{due} {height}, and nothing goes until {until}.");
    }
    if at <= safe && held {
        return format!("{past} {height}, and is kept.");
    }
    if at <= safe {
        let by_hand =
            if enabled { "" } else { ", which nothing sets off but you (utxo.enabled is off)" };
        let deep = if settings.defensive {
            ", if every transaction that spends it is deep in the chain (utxo.defensive)"
        } else {
            ""
        };
        return format!("{past} {height} and goes with the next run{by_hand}{deep}.");
    }
    if is_past {
        return format!("{past} {height}, and {}.", waits_for_persister(safe, stands.persisted));
    }
    let left = stands.head.map(|head| plural(at.saturating_sub(head), "block"));
    let left = left.map_or_else(String::new, |left| format!(", in {left}"));
    let not_before = if held { "not before" } else { "at" };
    format!("Its record goes {not_before} height {height}{left}.")
}

/// Up to where records go that wait for a persister.
fn waits_for_persister(safe: Height, persisted: Option<Height>) -> String {
    let why = match persisted {
        Some(height) => format!("a block persister has written blocks up to {}", count(height)),
        None => "another service on the store heard how far a block persister is".into(),
    };
    format!("records go only up to height {}, because {why}", count(safe))
}

/// The sentence about a record that is not here.
pub(super) fn absent(pruned_at: Option<Height>, stands: &Standing) -> String {
    if let Some(at) = pruned_at {
        // An earlier version did not note it.
        let by =
            if at == 0 { String::new() } else { format!(" by a run up to height {}", count(at)) };
        return format!("Its record was pruned{by}.");
    }
    let upto = stands.processed.map_or_else(
        || "no height is processed yet".to_owned(),
        |height| format!("heights up to {} are processed", count(height)),
    );
    format!("It was never created, or its record is pruned ({upto}).")
}

fn why_it_stays(record: &Record) -> String {
    let coins = (record.outputs.len() - record.spent()) as u64;
    let all = plural(record.outputs.len() as u64, "output");
    match (coins, record.blocks.is_empty()) {
        (0, _) => "It stays until a block holds it: no block of the main chain does.".into(),
        (_, true) => format!(
            "It stays: no block of the main chain holds it, and {} of its {all} can be spent.",
            count(coins)
        ),
        (_, false) => {
            format!("It stays: {} of its {all} can still be spent.", count(coins))
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use secateur_utxo::{BlockId, BlockRef, Slot, TxId};

    use super::*;

    fn record() -> Record {
        Record {
            txid: TxId([1; 32]),
            inputs: Vec::new(),
            outputs: vec![Slot::Unspent, Slot::Spent { by: TxId([2; 32]), input: 0 }],
            coinbase: true,
            conflicting: false,
            spending: true,
            blocks: vec![BlockRef { id: BlockId([3; 32]), height: 5 }],
            unmined_since: None,
            delete_at_height: None,
            preserve_until: None,
            external: None,
            cut: false,
            body: Bytes::new(),
            held_by: Vec::new(),
        }
    }

    #[test]
    fn every_reason_to_stay_is_told() {
        let stands = Standing { head: Some(20), processed: Some(19), ..Standing::default() };
        let settings = Settings::default();
        let around = Around {
            stands: &stands,
            safe: 19,
            awaited: None,
            settings: &settings,
            enabled: true,
            away: None,
        };
        let told = |record: &Record| verdict(record, &around).join(" ");
        assert!(absent(None, &stands).contains("heights up to 19 are processed"));
        assert!(absent(None, &Standing::default()).contains("no height"));
        assert!(absent(Some(18), &stands).contains("record was pruned by a run up to height 18"));
        assert!(absent(Some(0), &stands).ends_with("record was pruned."));
        assert!(told(&record()).contains("1 of its 2 outputs can still be spent"));
        let unmined = Record { blocks: Vec::new(), ..record() };
        assert!(told(&unmined).contains("no block of the main chain holds it"));
        let due = Record { delete_at_height: Some(19), ..record() };
        assert!(told(&due).contains("goes with the next run"));
        let behind = Standing { persisted: Some(12), ..stands.clone() };
        let waits = verdict(&due, &Around { stands: &behind, safe: 12, ..around }).join(" ");
        assert!(waits.contains("past its delete-at-height 19"), "{waits}");
        assert!(waits.contains("only up to height 12, because a block persister"), "{waits}");
        let unheard = Around { safe: 0, awaited: Some(Skip::PersisterUnheard), ..around };
        let unheard = verdict(&due, &unheard).join(" ");
        assert!(unheard.contains("until a block persister reports"), "{unheard}");
        let nobody = Standing::default();
        let doubt = Some(Skip::PersisterInDoubt);
        let doubt = verdict(&due, &Around { stands: &nobody, safe: 0, awaited: doubt, ..around });
        let doubt = doubt.join(" ");
        assert!(doubt.contains("is due at height 19, and nothing goes until the chain"), "{doubt}");
        let elsewhere = verdict(&due, &Around { safe: 12, ..around }).join(" ");
        assert!(elsewhere.contains("up to height 12, because another service"), "{elsewhere}");
        let later = Record { delete_at_height: Some(25), ..record() };
        assert!(told(&later).contains("at height 25, in 5 blocks"));
        let held = Record { held_by: vec![TxId([9; 32])], ..due.clone() };
        assert!(told(&held).contains("1 live unmined transaction"));
        assert!(told(&held).contains("and is kept"));
        let off = Settings { delete: false, ..Settings::default() };
        for (record, told) in [(&due, "and is kept"), (&later, "not before height 25")] {
            let off = verdict(record, &Around { settings: &off, ..around }).join(" ");
            assert!(off.contains("utxo.delete is off") && off.contains(told), "{off}");
        }
        let careful = Settings { defensive: true, ..Settings::default() };
        let by_hand = Around { settings: &careful, enabled: false, ..around };
        let careful = verdict(&due, &by_hand).join(" ");
        assert!(
            careful.contains("utxo.enabled") && careful.contains("utxo.defensive"),
            "{careful}"
        );
        for away in [Away::NoPlace, Away::Elsewhere, Away::Silent] {
            let away = verdict(&due, &Around { away: Some(away), ..around }).join(" ");
            assert!(away.contains("place of files") && away.contains("and is kept"), "{away}");
        }
        let kept = Record { preserve_until: Some(40), ..record() };
        assert!(told(&kept).contains("preserved until height 40"));
        assert!(told(&Record { cut: true, ..due }).contains("nothing brings it back"));
    }
}
