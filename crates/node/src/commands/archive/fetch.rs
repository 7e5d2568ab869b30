//! `archive fetch`: one block out of an archive, recomputed from its bytes.

use std::path::Path;
use std::pin::pin;

use anyhow::Context as _;
use futures_util::TryStreamExt as _;
use secateur_archive::{ArchiveError, Check, Manifest};
use secateur_core::{Block, Height, Segment, TxId, encode_bundle, tx_index};
use secateur_index::IndexReader as _;
use secateur_index::postgres::{Address, PostgresOptions, PostgresSink};
use secateur_index::sink::sqlite::SqliteReader;
use serde::Serialize;

use super::Opened;
use crate::error::NodeError;
use crate::indexer::RowsInto;
use crate::ui::words::{count, exact, moment, plural};
use crate::ui::{Progress, Sheet, Ui};

/// A block and what it cost.
struct Fetched {
    block: Block,
    manifest: Manifest,
    read_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Answer {
    #[serde(flatten)]
    meta: secateur_core::BlockMeta,
    tx_count: usize,
    key: String,
    part_bytes: u64,
    /// Bytes that were read from the archive.
    read_bytes: u64,
    /// The payloads in hexadecimal digits.
    block: String,
    receipts: String,
    tx_index: String,
}

pub(super) async fn run(
    opened: &Opened,
    what: &str,
    index: Option<&str>,
    out: Option<&Path>,
    ui: Ui,
) -> Result<(), anyhow::Error> {
    let fetched = if let Ok(height) = what.parse::<Height>() {
        by_height(opened, height).await?
    } else {
        let id: TxId = what.parse().map_err(|_| {
            NodeError::Usage(format!("`{what}` is neither a block's number nor a hash"))
        })?;
        by_transaction(opened, &id, index, ui).await?
    };
    if let Some(path) = out {
        let bundle = encode_bundle(&fetched.block.payloads)?;
        std::fs::write(path, bundle).with_context(|| format!("writing {}", path.display()))?;
    }
    let txs = tx_index(&fetched.block.payloads.tx_index).count();
    if ui.json {
        let hex = |segment| alloy_primitives::hex::encode(fetched.block.payloads.segment(segment));
        let answer = Answer {
            tx_count: txs,
            key: fetched.manifest.key().object(),
            part_bytes: fetched.manifest.size,
            read_bytes: fetched.read_bytes,
            block: hex(Segment::Block),
            receipts: hex(Segment::Receipts),
            tx_index: hex(Segment::TxIndex),
            meta: fetched.block.meta,
        };
        return ui.answer(&answer, String::new);
    }
    crate::ui::print(&text(&fetched, txs as u64, out))
}

async fn by_height(opened: &Opened, height: Height) -> Result<Fetched, anyhow::Error> {
    let Opened { archive, chain_id } = opened;
    let manifest = archive.find(*chain_id, height).await?.ok_or_else(|| {
        let provider = archive.provider().to_owned();
        ArchiveError::NotArchived { chain_id: *chain_id, height, provider }
    })?;
    let metrics = archive.metrics();
    let before = metrics.snapshot().read_bytes;
    let part = manifest.part(archive.provider());
    let block = archive.fetch_block(&part, height, Check::Full).await?;
    let read_bytes = metrics.snapshot().read_bytes - before;
    Ok(Fetched { block, manifest, read_bytes })
}

fn holds(block: &Block, id: &TxId) -> bool {
    tx_index(&block.payloads.tx_index).filter_map(Result::ok).any(|entry| entry.tx_id == *id)
}

/// Where a transaction is, an index knows at once; without one every part is looked through.
async fn by_transaction(
    opened: &Opened,
    id: &TxId,
    index: Option<&str>,
    ui: Ui,
) -> Result<Fetched, anyhow::Error> {
    if let Some(index) = index {
        let row = match RowsInto::parse(index).map_err(NodeError::Usage)? {
            RowsInto::Sqlite(path) => SqliteReader::open(&path)?.tx(*id).await?,
            RowsInto::Postgres(url) => {
                let address = Address::parse(&url)?;
                let options = PostgresOptions::default();
                PostgresSink::open_existing(&address, options).await?.tx(*id).await?
            }
        };
        let height = row
            .map(|row| row.block_number)
            .ok_or_else(|| NodeError::Archive(format!("transaction {id} is not in the index")))?;
        let fetched = by_height(opened, height).await?;
        if holds(&fetched.block, id) {
            return Ok(fetched);
        }
        let reason = format!("block {height} of the archive does not hold transaction {id}");
        return Err(NodeError::Archive(reason).into());
    }
    let Opened { archive, chain_id } = opened;
    let before = archive.metrics().snapshot().read_bytes;
    let mut progress = Progress::start(ui, "search");
    let mut looked = 0;
    let mut listed = pin!(archive.parts(*chain_id, 0));
    while let Some(manifest) = listed.try_next().await? {
        let reader = archive.reader(&manifest.part(archive.provider())).await?;
        let mut scan = reader.scan(Check::Framing);
        while let Some(blocks) = scan.next_blocks().await? {
            looked += blocks.len() as u64;
            progress.at(looked, manifest.last.saturating_sub(manifest.origin) + 1);
            if let Some(block) = blocks.into_iter().find(|block| holds(block, id)) {
                Check::Full.block(manifest.codec, *chain_id, &block)?;
                let read_bytes = archive.metrics().snapshot().read_bytes - before;
                return Ok(Fetched { block, manifest, read_bytes });
            }
        }
    }
    progress.end();
    Err(NodeError::Archive(format!("transaction {id} is in no part")).into())
}

fn text(fetched: &Fetched, txs: u64, out: Option<&Path>) -> String {
    let Fetched { block, manifest, read_bytes } = fetched;
    let mut sheet = Sheet::default();
    sheet
        .line(format_args!("block {} was recomputed from its bytes", count(block.meta.height)))
        .row("hash", block.meta.hash)
        .row("parent", block.meta.parent_hash)
        .row("time", moment(block.meta.timestamp))
        .row("contains", plural(txs, "transaction"))
        .row("payload", exact(block.payloads.total_len()))
        .row("part", manifest.key().object())
        .row("read", format_args!("{} of {}", exact(*read_bytes), exact(manifest.size)));
    if let Some(path) = out {
        sheet.row("written", path.display());
    }
    sheet.finish()
}
