//! `blob fetch`: a blob from an archived copy, compared with the hash that was computed here when it
//! came.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use secateur_core::Height;
use serde::Serialize;

use super::BlobDesk;
use crate::ui::words::{count, exact};
use crate::ui::{Sheet, Ui};

#[derive(Debug, Serialize)]
struct Answer {
    height: Height,
    index: u32,
    commitment: String,
    versioned_hash: String,
    keccak: String,
    bytes: usize,
    /// The blob in hexadecimal digits, unless it was written to a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    blob: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    written: Option<String>,
}

pub(super) fn run(
    desk: &BlobDesk,
    height: Height,
    index: u32,
    out: Option<&Path>,
    ui: Ui,
) -> Result<(), anyhow::Error> {
    let fetched = desk.fetch(height, index)?;
    if let Some(path) = out {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)
            .with_context(|| format!("making {}; nothing was overwritten", path.display()))?;
        file.write_all(&fetched.blob).with_context(|| format!("writing {}", path.display()))?;
    }
    let answer = Answer {
        height,
        index,
        commitment: fetched.commitment,
        versioned_hash: fetched.versioned_hash,
        keccak: fetched.keccak,
        bytes: fetched.blob.len(),
        blob: (ui.json && out.is_none()).then(|| alloy_primitives::hex::encode(&fetched.blob)),
        written: out.map(|path| path.display().to_string()),
    };
    ui.answer(&answer, || text(&answer))
}

fn text(answer: &Answer) -> String {
    let mut sheet = Sheet::default();
    let (index, height) = (answer.index, count(answer.height));
    sheet
        .line(format_args!("blob {index} of height {height} was read from a copy and hashes right"))
        .row("commitment", &answer.commitment)
        .row("named", &answer.versioned_hash)
        .row("keccak", &answer.keccak)
        .row("size", exact(answer.bytes as u64));
    match &answer.written {
        Some(path) => sheet.row("written", path),
        None => sheet.row("written", "nowhere; name a file with --out <file>"),
    };
    sheet.finish()
}
