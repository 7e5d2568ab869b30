//! Byte counts as people write and read them: `64G`, `64MiB`, `1.5 GiB`, `2 GB`, `500_000_000`.
//! A letter alone is the binary unit: `24M` is 24 MiB. `MB` is 10⁶ bytes.

use crate::CoreError;

const UNITS: [(&str, u64); 13] = [
    ("tib", 1 << 40),
    ("gib", 1 << 30),
    ("mib", 1 << 20),
    ("kib", 1 << 10),
    ("tb", 1_000_000_000_000),
    ("gb", 1_000_000_000),
    ("mb", 1_000_000),
    ("kb", 1_000),
    ("t", 1 << 40),
    ("g", 1 << 30),
    ("m", 1 << 20),
    ("k", 1 << 10),
    ("b", 1),
];

/// The units in which an exact count is written, largest first.
const SPELLED: [(&str, u64); 8] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
];

/// The most digits behind the point of a count.
const MOST_DECIMALS: usize = 9;

/// Reads a byte count: a number with an optional unit (`K`, `KiB`, `MB`, …). A number of units may
/// have decimals; what is left of a byte is dropped.
pub fn parse_bytes(text: &str) -> Result<u64, CoreError> {
    let refuse = |reason: &str| CoreError::InvalidInput {
        what: "byte count",
        reason: format!("`{text}` {reason} (write for example 500000000, 24M, 64GiB or 2GB)"),
    };
    let lower = text.trim().to_ascii_lowercase();
    let (digits, factor) = UNITS
        .iter()
        .find_map(|(unit, factor)| lower.strip_suffix(unit).map(|digits| (digits, *factor)))
        .unwrap_or((lower.as_str(), 1));
    let digits = digits.trim();
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(refuse("is not a number of bytes"));
    }
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, "0"));
    let number: u64 =
        whole.replace('_', "").parse().map_err(|_| refuse("is not a number of bytes"))?;
    let is_plain = !decimals.is_empty()
        && decimals.len() <= MOST_DECIMALS
        && decimals.bytes().all(|digit| digit.is_ascii_digit());
    if !is_plain || (factor == 1 && digits.contains('.')) {
        return Err(refuse("is not a number of bytes"));
    }
    let part: u64 = decimals.parse().map_err(|_| refuse("is not a number of bytes"))?;
    let scale = 10u128.pow(u32::try_from(decimals.len()).unwrap_or(0));
    // Less than one unit, so it fits.
    let rest = u64::try_from(u128::from(part) * u128::from(factor) / scale).unwrap_or(0);
    number
        .checked_mul(factor)
        .and_then(|bytes| bytes.checked_add(rest))
        .ok_or_else(|| refuse("is too large"))
}

/// Writes a byte count rounded to one decimal in the largest binary unit that fits.
pub fn format_bytes(bytes: u64) -> String {
    for (unit, factor) in
        [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)]
    {
        if bytes >= factor {
            let tenths = (u128::from(bytes) * 10 + u128::from(factor / 2)) / u128::from(factor);
            return format!("{}.{} {unit}", tenths / 10, tenths % 10);
        }
    }
    format!("{bytes} B")
}

/// Writes a byte count exactly, as [`parse_bytes`] reads it back: `64GiB`, `5MB` or `1536KiB`.
pub fn spell_bytes(bytes: u64) -> String {
    let exact = |(_, factor): &&(&str, u64)| bytes > 0 && bytes.is_multiple_of(*factor);
    match SPELLED.iter().find(exact) {
        Some((unit, factor)) => format!("{}{unit}", bytes / factor),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_read_as_people_write_them() {
        assert_eq!(parse_bytes("64MiB").unwrap(), 64 << 20);
        assert_eq!(parse_bytes("2 gb").unwrap(), 2_000_000_000);
        assert_eq!(parse_bytes("1_000").unwrap(), 1000);
        assert_eq!(format_bytes(1536), "1.5 KiB");
        assert_eq!(format_bytes(12), "12 B");
        assert_eq!(format_bytes((24 << 20) * 8 / 10), "19.2 MiB");
    }

    #[test]
    fn a_letter_alone_is_the_binary_unit() {
        for (text, bytes) in
            [("24M", 24 << 20), ("64G", 64 << 30), ("1 t", 1 << 40), ("7k", 7 << 10), ("9b", 9)]
        {
            assert_eq!(parse_bytes(text).unwrap(), bytes, "{text}");
        }
        assert_eq!(parse_bytes("24MB").unwrap(), 24_000_000);
    }

    #[test]
    fn what_is_printed_reads_back_and_an_exact_count_reads_back_exactly() {
        for bytes in [0, 1, 1000, 1024, 1536, 5_000_000, 24 << 20, 64 << 30, 1 << 40, u64::MAX] {
            assert_eq!(parse_bytes(&spell_bytes(bytes)).unwrap(), bytes, "{bytes}");
            let near = parse_bytes(&format_bytes(bytes)).unwrap_or(u64::MAX);
            assert!(near.abs_diff(bytes) <= bytes / 19, "{bytes} is read as {near}");
        }
        assert_eq!((spell_bytes(64 << 30), spell_bytes(5_000_000)), ("64GiB".into(), "5MB".into()));
        assert_eq!(parse_bytes("1.5GiB").unwrap(), 3 << 29);
        assert_eq!(parse_bytes("19.2 MiB").unwrap(), (24 << 20) * 8 / 10);
    }

    #[test]
    fn nonsense_and_overflow_are_refused() {
        for text in [
            "",
            "MiB",
            "-1",
            "+1",
            "_1",
            "1.5",
            "1.5B",
            "1.GiB",
            ".5GiB",
            "1.5.5GiB",
            "1.-5GiB",
            "99999999999999999999",
            "20000000TiB",
            "5 apples",
        ] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
