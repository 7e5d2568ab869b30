//! The demo's chain: what it is made from, kept in `demo.toml` so that the next run goes on with
//! the same chain.

use std::path::Path;

use anyhow::Context as _;
use secateur_core::{PrunePolicy, format_bytes, parse_bytes};
use secateur_store::{ClassTable, Clock as _, StoreConfig, SystemClock};
use serde::{Deserialize, Serialize};

use crate::cli::DemoArgs;
use crate::data_dir::{Claimed, DataDir, random_store_id};
use crate::durable;
use crate::error::NodeError;
use secateur_evm::ChainSpec;

/// The demo's directory, unless another is named.
pub(super) const DEFAULT_DIRECTORY: &str = "./secateur-demo";
const DEMO_FILE: &str = "demo.toml";
const DEFAULT_BUDGET: u64 = 24 * 1024 * 1024;
/// Below this a group of blocks alone would pass the water marks.
const MIN_BUDGET: u64 = 4 * 1024 * 1024;
const DEFAULT_SEED: u64 = 1;

const CHAIN_ID: u64 = 1337;
const BLOCK_TIME: u64 = 2;
const TRANSACTIONS_PER_BLOCK: u32 = 20;
const MEAN_CALLDATA: u32 = 160;
/// The demo makes blocks far faster than one in [`BLOCK_TIME`] seconds. Its chain therefore began
/// so many blocks before the demo did: the store takes timestamps in the future for mistakes, and
/// no demo should get there.
const BLOCKS_BEFORE_NOW: u64 = 10_000_000;

/// A demo that is ready to run: its directory and what its chain is made from.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) data: DataDir,
    pub(super) spec: ChainSpec,
}

/// What `demo.toml` says. It is written last, so a demo that has it was made whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DemoFile {
    seed: u64,
    chain_id: u64,
    genesis_time: u64,
    block_time: u64,
    transactions_per_block: u32,
    mean_calldata: u32,
}

impl DemoFile {
    fn new(seed: u64, now: u64) -> Self {
        Self {
            seed,
            chain_id: CHAIN_ID,
            genesis_time: now.saturating_sub(BLOCKS_BEFORE_NOW * BLOCK_TIME),
            block_time: BLOCK_TIME,
            transactions_per_block: TRANSACTIONS_PER_BLOCK,
            mean_calldata: MEAN_CALLDATA,
        }
    }

    fn spec(&self) -> ChainSpec {
        ChainSpec {
            seed: self.seed,
            chain_id: self.chain_id,
            genesis_time: self.genesis_time,
            block_time: self.block_time,
            transactions_per_block: self.transactions_per_block,
            mean_calldata: self.mean_calldata,
        }
    }
}

/// Opens the demo in a directory, or makes one. Flags that contradict an existing demo are
/// refused.
pub(super) fn open(args: &DemoArgs, path: &Path) -> Result<Opened, anyhow::Error> {
    let budget = args.budget.as_deref().map(budget_of).transpose()?;
    let claimed = Claimed::existing_or_new(path, CHAIN_ID)?;
    match read(path)? {
        Some(file) => go_on(args, budget, claimed, &file),
        None => make(args, budget, claimed),
    }
}

fn budget_of(text: &str) -> Result<u64, anyhow::Error> {
    let budget = parse_bytes(text)?;
    if budget < MIN_BUDGET {
        let (budget, least) = (format_bytes(budget), format_bytes(MIN_BUDGET));
        let reason =
            format!("a budget of {budget} is too small for the demo; {least} is the least");
        return Err(NodeError::Usage(reason).into());
    }
    Ok(budget)
}

fn go_on(
    args: &DemoArgs,
    budget: Option<u64>,
    claimed: Claimed,
    file: &DemoFile,
) -> Result<Opened, anyhow::Error> {
    let path = claimed.path().to_path_buf();
    let differs = |what: &str, has: String, advice: &str| {
        let path = path.display();
        NodeError::Usage(format!(
            "the demo in {path} has {what} {has}; {advice}, or name another directory with --data"
        ))
    };
    if let Some(seed) = args.seed.filter(|seed| *seed != file.seed) {
        let advice = format!("it cannot go on with seed {seed}: leave --seed out");
        return Err(differs("the seed", file.seed.to_string(), &advice).into());
    }
    let data = claimed.open_store()?.ok_or_else(|| NodeError::NoHistory(path.clone()))?;
    let has = data.store.policy().target_bytes;
    if budget.is_some_and(|budget| budget != has) {
        let advice = "leave --budget out and change it with `secateur policy set target_bytes=…`";
        return Err(differs("a budget of", format_bytes(has), advice).into());
    }
    let spec = file.spec();
    Ok(Opened { data, spec })
}

/// Regions do not grow with budgets beyond this: a demo's disk may be small.
const LARGE_DEMO: u64 = 128 << 20;

fn make(args: &DemoArgs, budget: Option<u64>, claimed: Claimed) -> Result<Opened, anyhow::Error> {
    let path = claimed.path().to_path_buf();
    let other = || {
        let path = path.display();
        NodeError::Failed(format!(
            "{path} holds a history that no demo made; name another directory with --data"
        ))
    };
    if claimed.chain_id() != CHAIN_ID {
        return Err(other().into());
    }
    let policy =
        PrunePolicy { target_bytes: budget.unwrap_or(DEFAULT_BUDGET), ..PrunePolicy::default() };
    let mut config = StoreConfig::new(CHAIN_ID, random_store_id()?);
    config.classes = ClassTable::for_budget(policy.target_bytes.min(LARGE_DEMO));
    config.policy = policy.clone();
    let data = claimed.open_or_create_store(config)?;
    if data.store.head().is_some() {
        return Err(other().into());
    }
    // Said again, because an interrupted attempt may have had other flags.
    data.store.set_prune_policy(policy)?;
    data.store.set_pruning_enabled(true)?;
    let file = DemoFile::new(args.seed.unwrap_or(DEFAULT_SEED), SystemClock.now_seconds());
    let text = toml::to_string(&file).context("writing demo.toml")?;
    let text =
        format!("# What the demo's chain is made from. Another seed is another chain.\n{text}");
    durable::write(&path, DEMO_FILE, &text)?;
    let spec = file.spec();
    Ok(Opened { data, spec })
}

fn read(directory: &Path) -> Result<Option<DemoFile>, anyhow::Error> {
    let path = directory.join(DEMO_FILE);
    let Some(text) = durable::read(&path)? else {
        return Ok(None);
    };
    let parsed = toml::from_str(&text)
        .map_err(|error| NodeError::BadFile { path, reason: error.message().to_owned() });
    Ok(Some(parsed?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_million_blocks_stay_out_of_the_future_and_the_file_reads_back() {
        let now = 1_800_000_000;
        let file = DemoFile::new(i64::MAX as u64, now);
        let spec = file.spec();
        assert!(spec.genesis_time + 10_000_000 * spec.block_time <= now);
        let text = toml::to_string(&file).unwrap();
        assert_eq!(toml::from_str::<DemoFile>(&text).unwrap(), file);
    }
}
