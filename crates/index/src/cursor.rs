//! The cursor as the index keeps it:
//! `{"v":1,"block_number":"<decimal>","segment":0,"byte_offset":0}`.

use secateur_core::{CoreError, Cursor, Height};
use serde::{Deserialize, Serialize};

const WHAT: &str = "cursor";
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    v: u32,
    block_number: String,
    segment: u8,
    byte_offset: u32,
}

/// Writes a cursor as JSON.
pub fn cursor_to_json(cursor: Cursor) -> String {
    let Cursor { block_number, segment, byte_offset } = cursor;
    // By hand, because a struct of numbers and digits cannot fail to be written.
    format!(
        r#"{{"v":{VERSION},"block_number":"{block_number}","segment":{segment},"byte_offset":{byte_offset}}}"#
    )
}

/// Reads a cursor back; anything but the one way to write it is refused.
pub fn cursor_from_json(text: &str) -> Result<Cursor, CoreError> {
    let stored: Stored =
        serde_json::from_str(text).map_err(|error| CoreError::decode(WHAT, error.to_string()))?;
    if stored.v != VERSION {
        let reason = format!("version {} is not {VERSION}; use a newer program", stored.v);
        return Err(CoreError::decode(WHAT, reason));
    }
    let block_number = decimal(&stored.block_number)?;
    if stored.segment > 2 {
        return Err(CoreError::decode(WHAT, format!("segment {} is none", stored.segment)));
    }
    Ok(Cursor { block_number, segment: stored.segment, byte_offset: stored.byte_offset })
}

fn decimal(text: &str) -> Result<Height, CoreError> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let leading_zero = text.len() > 1 && text.starts_with('0');
    if !plain || leading_zero {
        let reason = format!("block number {text:?} is not a decimal number without leading zeros");
        return Err(CoreError::decode(WHAT, reason));
    }
    text.parse().map_err(|_| CoreError::decode(WHAT, "the block number is over 64 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_written_exactly_as_documented_and_reads_back() {
        for block_number in [0, 1, 10, 1_234_567, u64::MAX] {
            let cursor = Cursor::at_block(block_number);
            let text = cursor_to_json(cursor);
            let wanted =
                format!(r#"{{"v":1,"block_number":"{block_number}","segment":0,"byte_offset":0}}"#);
            assert_eq!(text, wanted);
            assert_eq!(cursor_from_json(&text).unwrap(), cursor);
        }
    }

    #[test]
    fn any_other_spelling_is_refused() {
        for text in [
            "",
            "{}",
            r#"{"v":1,"block_number":7,"segment":0,"byte_offset":0}"#,
            r#"{"v":1,"block_number":"07","segment":0,"byte_offset":0}"#,
            r#"{"v":1,"block_number":"","segment":0,"byte_offset":0}"#,
            r#"{"v":1,"block_number":"+7","segment":0,"byte_offset":0}"#,
            r#"{"v":1,"block_number":"18446744073709551616","segment":0,"byte_offset":0}"#,
            r#"{"v":2,"block_number":"7","segment":0,"byte_offset":0}"#,
            r#"{"v":1,"block_number":"7","segment":3,"byte_offset":0}"#,
            r#"{"v":1,"block_number":"7","segment":0,"byte_offset":0,"x":1}"#,
            r#"{"v":1,"block_number":"7","segment":0}"#,
        ] {
            assert!(cursor_from_json(text).is_err(), "{text}");
        }
    }
}
