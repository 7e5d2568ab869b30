//! Byte counts as people write and read them: `64MiB`, `2 GB`, `500_000_000`.

use crate::CoreError;

const UNITS: [(&str, u64); 9] = [
    ("tib", 1 << 40),
    ("gib", 1 << 30),
    ("mib", 1 << 20),
    ("kib", 1 << 10),
    ("tb", 1_000_000_000_000),
    ("gb", 1_000_000_000),
    ("mb", 1_000_000),
    ("kb", 1_000),
    ("b", 1),
];

/// Reads a byte count: a whole number with an optional unit (`KiB`, `MB`, …).
pub fn parse_bytes(text: &str) -> Result<u64, CoreError> {
    let refuse = |reason: &str| CoreError::InvalidInput {
        what: "byte count",
        reason: format!("`{text}` {reason} (write for example 500000000, 64MiB or 2GB)"),
    };
    let lower = text.trim().to_ascii_lowercase();
    let (digits, factor) = UNITS
        .iter()
        .find_map(|(unit, factor)| lower.strip_suffix(unit).map(|digits| (digits, *factor)))
        .unwrap_or((lower.as_str(), 1));
    if !digits.trim().starts_with(|c: char| c.is_ascii_digit()) {
        return Err(refuse("is not a whole number"));
    }
    let number: u64 =
        digits.trim().replace('_', "").parse().map_err(|_| refuse("is not a whole number"))?;
    number.checked_mul(factor).ok_or_else(|| refuse("is too large"))
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
    fn nonsense_and_overflow_are_refused() {
        for text in [
            "",
            "MiB",
            "-1",
            "+1",
            "_1",
            "1.5GiB",
            "99999999999999999999",
            "20000000TiB",
            "5 apples",
        ] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
