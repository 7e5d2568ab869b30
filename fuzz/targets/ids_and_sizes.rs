//! Texts that people type: ids, byte counts, consumer names.
#![no_main]

use libfuzzer_sys::fuzz_target;
use secateur_core::{
    BlockHash, MAX_CONSUMER_NAME_LEN, TxId, check_consumer_name, format_bytes, parse_bytes,
};
use secateur_fuzz::{MESSAGE, within};

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let limit = 8 * text.len() + MESSAGE;
    if let Ok(id) = within(limit, || text.parse::<TxId>()) {
        let written = id.to_string();
        let digits = text.strip_prefix("0x").unwrap_or(text);
        assert_eq!(written.strip_prefix("0x"), Some(digits.to_ascii_lowercase().as_str()));
        assert_eq!(written.parse(), Ok(id));
        assert_eq!(text.parse::<BlockHash>().map(|hash| hash.0), Ok(id.0));
        let json = serde_json::to_string(&id).expect("it is a text");
        assert_eq!(serde_json::from_str::<TxId>(&json).ok(), Some(id));
    }
    if let Ok(bytes) = within(limit, || parse_bytes(text)) {
        assert_eq!(parse_bytes(&bytes.to_string()), Ok(bytes));
        assert_eq!(parse_bytes(&format!("{bytes}B")), Ok(bytes));
        let shown = format_bytes(bytes);
        assert!(shown.len() <= 16, "{shown}");
        if bytes < 1024 {
            assert_eq!(parse_bytes(&shown), Ok(bytes));
        }
    }
    if within(limit, || check_consumer_name(text)).is_ok() {
        assert!((1..=MAX_CONSUMER_NAME_LEN).contains(&text.len()) && text.is_ascii());
    }
    if let Some(number) = input.first_chunk::<8>() {
        let shown = format_bytes(u64::from_be_bytes(*number));
        assert!(shown.len() <= 16, "{shown}");
    }
});
