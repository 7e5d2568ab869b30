//! `archive ls` and `archive gaps`: what is there, and what is not. Parts are printed as they are
//! listed, so that an archive of any size is listed in little memory.

use std::io::{self, Write as _};
use std::pin::pin;

use futures_util::TryStreamExt as _;
use secateur_archive::Manifest;
use secateur_core::{Height, format_bytes};
use serde::Serialize;

use super::Opened;
use crate::ui::words::{count, exact, plural};
use crate::ui::{Sheet, Ui};

#[derive(Debug, Serialize)]
struct Listed<'a> {
    key: String,
    #[serde(flatten)]
    manifest: &'a Manifest,
}

pub(super) async fn parts(
    opened: &Opened,
    from: Height,
    limit: Option<usize>,
    ui: Ui,
) -> Result<(), anyhow::Error> {
    let mut out = io::stdout().lock();
    let mut listed = pin!(opened.archive.parts(opened.chain_id, from));
    let (mut parts, mut blocks, mut bytes) = (0, 0, 0);
    if ui.json {
        write!(out, "[")?;
    }
    while let Some(manifest) = listed.try_next().await? {
        if limit.is_some_and(|limit| parts >= limit) {
            break;
        }
        if ui.json {
            let between = if parts > 0 { ",\n" } else { "\n" };
            let row = Listed { key: manifest.key().object(), manifest: &manifest };
            write!(out, "{between}{}", serde_json::to_string(&row)?)?;
        } else {
            writeln!(
                out,
                "{} {:>12} {:>12}  {:>10}  {:>10} raw  {}",
                manifest.day,
                count(manifest.first),
                count(manifest.last),
                format_bytes(manifest.size),
                format_bytes(manifest.raw_size),
                manifest.key().object()
            )?;
        }
        parts += 1;
        blocks += manifest.blocks();
        bytes += manifest.size;
    }
    if ui.json {
        writeln!(out, "\n]")?;
    } else {
        let (parts, blocks) = (plural(parts as u64, "part"), plural(blocks, "block"));
        writeln!(out, "{parts}, {blocks}, {}", exact(bytes))?;
    }
    Ok(out.flush()?)
}

#[derive(Debug, Serialize)]
struct Gap {
    first: Height,
    last: Height,
}

pub(super) async fn gaps(
    opened: &Opened,
    upto: Option<Height>,
    ui: Ui,
) -> Result<(), anyhow::Error> {
    let gaps = opened.archive.gaps(opened.chain_id, upto).await?;
    let gaps: Vec<Gap> =
        gaps.into_iter().map(|gap| Gap { first: *gap.start(), last: *gap.end() }).collect();
    ui.answer(&gaps, || {
        let mut sheet = Sheet::default();
        for Gap { first, last } in &gaps {
            let blocks = plural((last - first).saturating_add(1), "block");
            sheet.line(format_args!("{} to {}, {blocks}", count(*first), count(*last)));
        }
        if gaps.is_empty() {
            sheet.line("no gap");
        }
        sheet.finish()
    })
}
