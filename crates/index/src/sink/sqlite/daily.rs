//! What is noted beside the rows: parts, troubles, the days' counts, and how large the file is.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::columns::{self, Number};
use super::failed;
use super::write::{begin, get_meta, put_meta};
use crate::sink::Note;
use crate::{IndexError, PartRow, day_of, day_text};

/// Adds to a count of a day.
pub(super) fn count(
    connection: &Connection,
    at: u64,
    column: &'static str,
    by: u64,
) -> Result<(), rusqlite::Error> {
    add(connection, at, column, i64::try_from(by).unwrap_or(i64::MAX))
}

fn add(
    connection: &Connection,
    at: u64,
    column: &'static str,
    by: i64,
) -> Result<(), rusqlite::Error> {
    connection
        .prepare_cached(&format!(
            "INSERT INTO metrics_daily (day, {column}) VALUES (?1, ?2)
             ON CONFLICT (day) DO UPDATE SET {column} = {column} + excluded.{column}"
        ))?
        .execute(params![day_text(day_of(at)), by])
        .map(drop)
}

/// Notes what is known of the source, and what went wrong.
pub(super) fn note(connection: &mut Connection, note: &Note) -> Result<(), IndexError> {
    let txn = begin(connection)?;
    if let Some(head) = note.head {
        put_meta(&txn, "last_head", &head.to_string()).map_err(failed)?;
    }
    if let Some((class, message)) = &note.error {
        let text = serde_json::json!({ "at": note.at, "class": class.name(), "message": message });
        put_meta(&txn, "last_error", &text.to_string()).map_err(failed)?;
        count(&txn, note.at, "errors", 1).map_err(failed)?;
    }
    txn.commit().map_err(failed)
}

/// Notes an archive part.
pub(super) fn add_part(
    connection: &mut Connection,
    part: &PartRow,
    at: u64,
) -> Result<(), IndexError> {
    let txn = begin(connection)?;
    let known = txn
        .query_row(
            &format!("SELECT {} FROM archive_parts WHERE block_from = ?1", columns::PART),
            [Number(part.block_from)],
            columns::part,
        )
        .optional()
        .map_err(failed)?;
    match known {
        Some(known) if known == *part => return Ok(()),
        Some(known) => {
            return Err(IndexError::sink(format!(
                "blocks from {} on are noted as the part {}, not as {}; the row was not changed",
                part.block_from, known.object_key, part.object_key
            )));
        }
        None => {}
    }
    txn.execute(
        &format!(
            "INSERT INTO archive_parts ({}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            columns::PART
        ),
        params![
            Number(part.block_from),
            Number(part.block_to),
            part.provider,
            part.object_key,
            part.codec,
            Number(part.size_bytes),
            part.sha256.as_slice(),
            part.parent_hash.0.as_slice(),
            part.last_hash.0.as_slice(),
        ],
    )
    .map_err(failed)?;
    count(&txn, at, "compressed_bytes", part.size_bytes).map_err(failed)?;
    txn.commit().map_err(failed)
}

/// Forgets a part.
pub(super) fn forget_part(connection: &Connection, block_from: u64) -> Result<(), IndexError> {
    let delete = "DELETE FROM archive_parts WHERE block_from = ?1";
    connection.execute(delete, [Number(block_from)]).map(drop).map_err(failed)
}

/// Notes how large the file is, and its growth since the last time in the day's counts.
pub(super) fn note_size(connection: &mut Connection, size: u64, at: u64) -> Result<(), IndexError> {
    let size = i64::try_from(size).unwrap_or(i64::MAX);
    let txn = begin(connection)?;
    let before = get_meta(&txn, "measured_bytes").map_err(failed)?;
    let before = before.and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
    if size != before {
        put_meta(&txn, "measured_bytes", &size.to_string()).map_err(failed)?;
        add(&txn, at, "sqlite_growth_bytes", size.saturating_sub(before)).map_err(failed)?;
    }
    txn.commit().map_err(failed)
}
