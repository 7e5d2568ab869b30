//! Two chains that do not agree: finding where they part, and taking back what is above it.
//!
//! What is final here is never taken back. While nothing is final, at most [`MOST_UNFINAL`] blocks
//! are: a source that differs further down is another chain, not a reorganised one.

use secateur_core::{BlockHash, Height};

use super::FollowError;
use super::chain::headers;
use super::ours::{Ours, Tip};
use super::source::Source;

/// Headers that are asked for in one go while walking back.
const STEP: u64 = 32;
/// Blocks that are taken back at most while nothing is final.
const MOST_UNFINAL: u64 = 1024;

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Blocks were taken back; the chain goes on from what is left.
    RolledBack,
    /// The source has our newest block after all.
    Agreed,
    /// The source contradicts what is never taken back.
    Contradiction(String),
}

/// Where two chains part.
enum Fork {
    /// This is the last block that they share.
    Above(Height),
    /// They differ at every height that was looked at. This is the last of them, with both hashes.
    Below { height: Height, ours: BlockHash, theirs: BlockHash },
}

/// Brings our chain in line with the source's.
pub(super) async fn resolve(
    source: &Source,
    ours: &Ours,
    tip: Tip,
    newest: Height,
) -> Result<Outcome, FollowError> {
    let top = tip.height.min(newest);
    let last_final = ours.last_final();
    let floor = last_final.unwrap_or_else(|| tip.height.saturating_sub(MOST_UNFINAL)).min(top);
    let to = match find_fork(source, ours, top, floor).await? {
        // The source has what we have, or less of it.
        Fork::Above(height) if height == top => return Ok(Outcome::Agreed),
        Fork::Above(height) => height,
        Fork::Below { height, ours: mine, theirs } => {
            // All that is here is of another branch: it goes, if nothing of it is final.
            let unfinal = last_final.is_none() && height > floor;
            let below = if unfinal { below_oldest(ours).await? } else { None };
            let Some(below) = below else {
                let text = contradiction(source, last_final, height, &mine, &theirs);
                return Ok(Outcome::Contradiction(text));
            };
            below
        }
    };
    let removed = ours.run(move |store| store.rollback(to)).await??;
    let head = tip.height;
    tracing::info!(to, head, removed, "the chain reorganised; blocks above {to} were taken back");
    Ok(Outcome::RolledBack)
}

/// The height below the oldest block here, unless that is the first of all.
async fn below_oldest(ours: &Ours) -> Result<Option<Height>, FollowError> {
    let status = ours.run(secateur_store::Store::get_prune_status).await??;
    Ok(status.oldest_kept_block.and_then(|oldest| oldest.checked_sub(1)))
}

/// Walks down from `top` to `floor` until both chains have the same block.
async fn find_fork(
    source: &Source,
    ours: &Ours,
    top: Height,
    floor: Height,
) -> Result<Fork, FollowError> {
    let mut differs = None;
    let mut next = Some(top);
    while let Some(high) = next.filter(|high| *high >= floor) {
        let low = high.saturating_sub(STEP - 1).max(floor);
        let heights: Vec<Height> = (low..=high).rev().collect();
        for (height, theirs) in heights.iter().zip(headers(source, &heights).await?) {
            let Some(theirs) = theirs else {
                let text = format!("the source {} does not have block {height}", source.name());
                return Err(FollowError::Trouble(text));
            };
            let Some(mine) = ours.hash_at(*height).await? else {
                // Below our oldest block.
                return Ok(parted(differs, top));
            };
            if mine == theirs.hash {
                return Ok(Fork::Above(*height));
            }
            differs = Some((*height, mine, theirs.hash));
        }
        next = low.checked_sub(1);
    }
    Ok(parted(differs, top))
}

fn parted(differs: Option<(Height, BlockHash, BlockHash)>, top: Height) -> Fork {
    match differs {
        Some((height, ours, theirs)) => Fork::Below { height, ours, theirs },
        // Not one height could be compared, so that nothing is known to differ.
        None => Fork::Above(top),
    }
}

/// That a source is of another chain, how that is known, and what to do.
pub(super) fn contradiction(
    source: &Source,
    last_final: Option<Height>,
    height: Height,
    ours: &BlockHash,
    theirs: &BlockHash,
) -> String {
    let why = match last_final {
        Some(last) => format!("block {last} is final here"),
        None => format!("no more than {MOST_UNFINAL} blocks are taken back, and never the first"),
    };
    format!(
        "the source {} has another chain: its block {height} is {theirs}, ours is {ours}, and {why}. \
         Nothing was taken back. If follow.url names the wrong node, name the right one; if this \
         directory holds the wrong chain, begin a new one with --data",
        source.name()
    )
}
