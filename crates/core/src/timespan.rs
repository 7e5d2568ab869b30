//! Spans of time as people write and read them: `14d`, `90s`, `500ms`, `1h 30min`.
//!
//! A setting counts in a unit of its own (days of retention, seconds of patience); a number alone
//! is in that unit, and a span with units must be a whole number of it.

use core::time::Duration;

use crate::CoreError;

/// The unit that a setting counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    /// Milliseconds.
    Millis,
    /// Seconds.
    Seconds,
    /// Days.
    Days,
}

/// How units are written, with their milliseconds; the first of each size is how it is printed.
const UNITS: [(&str, u64); 14] = [
    ("w", 604_800_000),
    ("weeks", 604_800_000),
    ("week", 604_800_000),
    ("d", 86_400_000),
    ("days", 86_400_000),
    ("day", 86_400_000),
    ("h", 3_600_000),
    ("hours", 3_600_000),
    ("hour", 3_600_000),
    ("min", 60_000),
    ("m", 60_000),
    ("s", 1_000),
    ("sec", 1_000),
    ("ms", 1),
];

impl TimeUnit {
    const fn millis(self) -> u64 {
        match self {
            Self::Millis => 1,
            Self::Seconds => 1_000,
            Self::Days => 86_400_000,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Millis => "milliseconds",
            Self::Seconds => "seconds",
            Self::Days => "days",
        }
    }

    const fn examples(self) -> &'static str {
        match self {
            Self::Millis => "500ms, 90s or 15min",
            Self::Seconds => "90s, 15min or 12h",
            Self::Days => "14d or 2w",
        }
    }
}

/// Reads a span of time in a setting's own unit: `14`, `14d`, `2w`, `1h 30min`.
pub fn parse_span(text: &str, unit: TimeUnit) -> Result<u64, CoreError> {
    let refuse = |reason: &str| CoreError::InvalidInput {
        what: "span of time",
        reason: format!(
            "`{text}` {reason} (write a number of {}, or for example {})",
            unit.name(),
            unit.examples()
        ),
    };
    let text_without_gaps: String =
        text.chars().filter(|c| !c.is_whitespace() && *c != '_').collect();
    let number = |digits: &str| digits.parse::<u64>().map_err(|_| refuse("is no span of time"));
    if text_without_gaps.bytes().all(|byte| byte.is_ascii_digit()) {
        return number(&text_without_gaps);
    }
    let mut rest = text_without_gaps.to_ascii_lowercase();
    let mut millis = 0u64;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (count, behind) = rest.split_at_checked(digits).unwrap_or(("", &rest));
        let letters = behind.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (name, behind) = behind.split_at_checked(letters).unwrap_or((behind, ""));
        let factor = UNITS.iter().find_map(|(known, factor)| (*known == name).then_some(*factor));
        let factor = factor.ok_or_else(|| refuse("is no span of time"))?;
        millis = number(count)?
            .checked_mul(factor)
            .and_then(|more| millis.checked_add(more))
            .ok_or_else(|| refuse("is too long"))?;
        rest = behind.to_owned();
    }
    if !millis.is_multiple_of(unit.millis()) {
        return Err(refuse(&format!("is not a whole number of {}", unit.name())));
    }
    Ok(millis / unit.millis())
}

/// Writes a span for people, in its two largest units: `250 ms`, `7 s`, `1 min 7 s`, `14 d`.
pub fn format_duration(span: Duration) -> String {
    let (millis, seconds) = (span.as_millis(), span.as_secs());
    if millis < 10_000 && !millis.is_multiple_of(1_000) {
        return format!("{millis} ms");
    }
    let sizes = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];
    let Some(place) = sizes.iter().position(|(_, size)| seconds >= *size) else {
        return "0 s".into();
    };
    let mut rest = seconds;
    let mut words = Vec::new();
    for (name, size) in sizes.into_iter().skip(place).take(2) {
        if rest >= size {
            words.push(format!("{} {name}", rest / size));
        }
        rest %= size;
    }
    words.join(" ")
}

/// Writes a span exactly, as [`parse_span`] reads it back: `14d`, `90s`, `500ms`.
pub fn spell_span(count: u64, unit: TimeUnit) -> String {
    let millis = u128::from(count) * u128::from(unit.millis());
    for (name, factor) in [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)] {
        if millis > 0 && millis.is_multiple_of(factor) {
            return format!("{}{name}", millis / factor);
        }
    }
    format!("{millis}ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_alone_is_in_the_unit_of_the_setting() {
        assert_eq!(parse_span("14", TimeUnit::Days).unwrap(), 14);
        assert_eq!(parse_span("60_000", TimeUnit::Millis).unwrap(), 60_000);
        assert_eq!(parse_span("30", TimeUnit::Seconds).unwrap(), 30);
    }

    #[test]
    fn spans_read_as_people_write_them_and_print_the_same() {
        for (text, unit, count) in [
            ("14d", TimeUnit::Days, 14),
            ("2w", TimeUnit::Days, 14),
            ("48h", TimeUnit::Days, 2),
            ("1h 30min", TimeUnit::Seconds, 5_400),
            ("90s", TimeUnit::Seconds, 90),
            ("1 m", TimeUnit::Millis, 60_000),
            ("500ms", TimeUnit::Millis, 500),
            ("14 days", TimeUnit::Seconds, 14 * 86_400),
        ] {
            assert_eq!(parse_span(text, unit).unwrap(), count, "{text}");
            assert_eq!(parse_span(&spell_span(count, unit), unit).unwrap(), count, "{text}");
        }
        assert_eq!(spell_span(14, TimeUnit::Days), "14d");
        assert_eq!(spell_span(60_000, TimeUnit::Millis), "1min");
        assert_eq!(spell_span(1_500, TimeUnit::Millis), "1500ms");
    }

    #[test]
    fn a_span_for_people_names_its_two_largest_units() {
        let text = |millis| format_duration(Duration::from_millis(millis));
        let texts: Vec<String> =
            [0, 250, 1_500, 7_000, 60_000, 67_900, 3_667_000, 90_000_000, 14 * 86_400_000]
                .map(text)
                .into();
        let wanted = [
            "0 s",
            "250 ms",
            "1500 ms",
            "7 s",
            "1 min",
            "1 min 7 s",
            "1 h 1 min",
            "1 d 1 h",
            "14 d",
        ];
        assert_eq!(texts, wanted);
    }

    #[test]
    fn what_is_no_span_or_not_a_whole_number_of_the_unit_is_refused() {
        for text in ["", "d", "1.5d", "-1d", "1x", "d1", "1d1", "36h", "99999999999999999999d"] {
            assert!(parse_span(text, TimeUnit::Days).is_err(), "{text}");
        }
        let error = parse_span("36h", TimeUnit::Days).unwrap_err().to_string();
        assert!(error.contains("whole number of days"), "{error}");
    }
}
