//! `archive restore`: archived blocks back into a store, recomputed and linked on the way. A store
//! that holds other blocks refuses them; one that holds some of the same goes on behind them.

use std::path::Path;
use std::pin::pin;

use anyhow::Context as _;
use futures_util::TryStreamExt as _;
use secateur_archive::{ArchiveError, Check};
use secateur_core::{Block, Height, format_bytes, spell_bytes};
use serde::Serialize;

use super::Opened;
use crate::commands::node::fresh_store;
use crate::config::Config;
use crate::data_dir::{Claimed, DataDir};
use crate::error::NodeError;
use crate::ui::words::{blocks, count, height};
use crate::ui::{Progress, Sheet, Ui};

/// Blocks that are appended together.
const GROUP: usize = 64;

/// The store that is asked for.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// What a store is made with, if there is none.
    pub(super) config: &'a Config,
    /// Whether the budget was given for this restore: a store that is there must have it then.
    pub(super) budget_is_named: bool,
}

#[derive(Debug, Default, Serialize)]
struct Restored {
    first: Option<Height>,
    last: Option<Height>,
    /// Blocks that were new to the store.
    written: u64,
    payload_bytes: u64,
    head: Option<Height>,
}

/// `first..last`, both included; `first..` has no end, and `height` is one block.
pub(in crate::commands) fn parse(text: &str) -> Result<(Height, Option<Height>), NodeError> {
    let wrong = || {
        NodeError::Usage(format!(
            "`{text}` is no range of blocks: `first..last`, both included, or `first..` is wanted"
        ))
    };
    let number = |text: &str| text.trim().replace(['_', ','], "").parse::<Height>();
    let (first, last) = match text.split_once("..") {
        None => {
            let only = number(text).map_err(|_| wrong())?;
            (only, Some(only))
        }
        Some((first, "")) => (number(first).map_err(|_| wrong())?, None),
        Some((first, last)) => {
            let last = number(last.trim_start_matches('=')).map_err(|_| wrong())?;
            (number(first).map_err(|_| wrong())?, Some(last))
        }
    };
    if last.is_some_and(|last| last < first) { Err(wrong()) } else { Ok((first, last)) }
}

pub(super) async fn run(
    opened: &Opened,
    range: &str,
    into: &Path,
    wanted: Wanted<'_>,
    ui: Ui,
) -> Result<(), anyhow::Error> {
    let (first, last) = parse(range)?;
    // Before the directory is made: an archive that lacks the first block has nothing to restore.
    let Opened { archive, chain_id } = opened;
    if archive.find(*chain_id, first).await?.is_none() {
        let provider = archive.provider().to_owned();
        return Err(
            ArchiveError::NotArchived { chain_id: *chain_id, height: first, provider }.into()
        );
    }
    let data = open(into, *chain_id, wanted)?;
    let mut progress = Progress::start(ui, "restore");
    let restored = copy(opened, &data, first, last, |done, all| progress.at(done, all)).await;
    progress.end();
    let restored = restored?;
    ui.answer(&restored, || text(&restored, into))
}

/// Opens the store, or makes one that prunes nothing by itself.
fn open(into: &Path, chain_id: u64, wanted: Wanted<'_>) -> Result<DataDir, anyhow::Error> {
    let Wanted { config, budget_is_named } = wanted;
    let claimed = Claimed::existing_or_new(into, chain_id)?;
    if claimed.chain_id() != chain_id {
        return Err(NodeError::Refused(format!(
            "{} holds chain {}, and the parts are of chain {chain_id}",
            into.display(),
            claimed.chain_id()
        ))
        .into());
    }
    let fresh = fresh_store(&claimed, config)?;
    let asked = fresh.policy.target_bytes;
    let data = claimed.open_or_create_store(fresh)?;
    let has = data.store.policy().target_bytes;
    if budget_is_named && has != asked {
        let shown = |bytes| if bytes == 0 { "none".into() } else { spell_bytes(bytes) };
        return Err(NodeError::Usage(format!(
            "the budget of {} is {}, and --budget says {}; leave it out, and change the budget with \
             `secateur --data {0} policy set target_bytes=…`",
            into.display(),
            shown(has),
            shown(asked)
        ))
        .into());
    }
    Ok(data)
}

async fn copy(
    opened: &Opened,
    data: &DataDir,
    first: Height,
    last: Option<Height>,
    mut at: impl FnMut(u64, u64),
) -> Result<Restored, anyhow::Error> {
    let Opened { archive, chain_id } = opened;
    let mut restored = Restored::default();
    let mut next = first;
    // How far there is to go is known from the names.
    let ends = archive.ends(*chain_id).await?.map_or(first, |(_, last)| last);
    let all = whole(first, last, ends);
    let mut listed = pin!(archive.parts(*chain_id, first));
    while let Some(manifest) =
        listed.try_next().await.map_err(|error| broken(&restored, next, error))?
    {
        if last.is_some_and(|last| next > last) {
            break;
        }
        if manifest.first > next {
            let provider = archive.provider();
            let (written, hole) = (blocks(restored.written), manifest.first - 1);
            return Err(NodeError::Restored(format!(
                "{provider} has no block from {next} to {hole}: {written} below it were written"
            ))
            .into());
        }
        let reader = archive.reader(&manifest.part(archive.provider())).await;
        let reader = reader.map_err(|error| broken(&restored, next, error))?;
        let mut scan = reader.scan(Check::Full);
        while let Some(mut blocks) =
            scan.next_blocks().await.map_err(|error| broken(&restored, next, error))?
        {
            let wanted = |block: &Block| {
                let height = block.meta.height;
                height >= next && last.is_none_or(|last| height <= last)
            };
            blocks.retain(wanted);
            let Some(newest) = blocks.last() else { continue };
            next = newest.meta.height.saturating_add(1);
            append(data, &blocks, &mut restored)?;
            at(next - first, all.max(next - first));
        }
    }
    if let Some(last) = last.filter(|last| next <= *last) {
        let provider = archive.provider();
        let written = blocks(restored.written);
        return Err(NodeError::Restored(format!(
            "{provider} ends with block {}, not {last}: {written} of it were written, up to there",
            next.saturating_sub(1)
        ))
        .into());
    }
    restored.head = data.store.head();
    Ok(restored)
}

/// What is said when the archive fails in the middle: what was written by then is there.
fn broken(restored: &Restored, next: Height, error: ArchiveError) -> anyhow::Error {
    if restored.written == 0 {
        return error.into();
    }
    let written = blocks(restored.written);
    anyhow::Error::from(error).context(format!(
        "restoring broke off at block {next}: {written} below it were written, and stay. Once the \
         archive is mended, restore again: it goes on behind them"
    ))
}

/// How many blocks there are to restore from an archive that ends with a height.
fn whole(first: Height, last: Option<Height>, ends: Height) -> u64 {
    let end = last.map_or(ends, |last| last.min(ends));
    end.saturating_sub(first).saturating_add(1)
}

fn append(data: &DataDir, found: &[Block], restored: &mut Restored) -> Result<(), anyhow::Error> {
    for group in found.chunks(GROUP) {
        let appended = data.store.append_group(group).with_context(|| {
            format!(
                "{} holds other blocks than the archive, or none below these; restore into an \
                 empty directory",
                data.path.display()
            )
        })?;
        restored.written += appended.written;
    }
    restored.first = restored.first.or(found.first().map(|block| block.meta.height));
    restored.last = found.last().map(|block| block.meta.height);
    restored.payload_bytes += found.iter().map(|block| block.payloads.total_len()).sum::<u64>();
    Ok(())
}

fn text(restored: &Restored, into: &Path) -> String {
    let mut sheet = Sheet::default();
    if let (Some(first), Some(last)) = (restored.first, restored.last) {
        sheet.row("restored", format_args!("{} to {}", count(first), count(last)));
    }
    sheet
        .row("written", format_args!("{} that were not there", blocks(restored.written)))
        .row("payload", format_bytes(restored.payload_bytes))
        .row("head", height(restored.head))
        .row("into", into.display());
    sheet.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_measured_by_all_that_there_is_to_restore() {
        assert_eq!(whole(0, None, 5_858), 5_859);
        assert_eq!(whole(5, Some(99), 5_858), 95);
        assert_eq!(whole(5, Some(99_999), 5_858), 5_854);
    }

    #[test]
    fn a_range_has_two_ends_or_one_or_none() {
        assert_eq!(parse("5..9").unwrap(), (5, Some(9)));
        assert_eq!(parse("5..=9").unwrap(), (5, Some(9)));
        assert_eq!(parse("5..").unwrap(), (5, None));
        assert_eq!(parse("1_000").unwrap(), (1000, Some(1000)));
        for bad in ["", "..", "..5", "9..5", "a..b", "-1..2"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
