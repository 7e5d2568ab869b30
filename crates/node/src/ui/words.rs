//! Numbers, sizes and times as people read them.

use std::net::SocketAddr;
use std::time::Duration;

use secateur_core::{Hold, Pace, Report, SECONDS_PER_DAY, Strength, format_bytes, format_duration};
use serde_json::json;

use super::log;

/// The line from which on a service answers, with the address of each interface; scripts wait for
/// it. It is JSON where the log is.
pub(crate) fn listening(addresses: &[(&str, SocketAddr)]) -> String {
    if log::is_for_people() {
        let shown = addresses.iter().map(|(name, address)| format!(" {name}={address}"));
        return format!("listening{}\n", shown.collect::<String>());
    }
    let mut line = serde_json::Map::from_iter([("event".to_owned(), json!("listening"))]);
    line.extend(addresses.iter().map(|(name, address)| ((*name).to_owned(), json!(address))));
    format!("{}\n", serde_json::Value::Object(line))
}

/// A count with thousands set apart: `12,345`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A height, or the word `none`.
pub(crate) fn height(height: Option<u64>) -> String {
    height.map_or_else(|| "none".into(), count)
}

/// `1 block`, `2 blocks`.
pub(crate) fn blocks(number: u64) -> String {
    plural(number, "block")
}

/// A count and its noun.
pub(crate) fn plural(number: u64, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {noun}{s}", count(number))
}

/// A size with its exact number of bytes.
pub(crate) fn exact(bytes: u64) -> String {
    format!("{} ({} bytes)", format_bytes(bytes), count(bytes))
}

/// `part ÷ whole` in percent with one decimal.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    let tenths = (u128::from(part) * 1000).checked_div(u128::from(whole)).unwrap_or(0);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// A number of tenths with its decimal.
pub(crate) fn tenths(tenths: u64) -> String {
    format!("{}.{}", count(tenths / 10), tenths % 10)
}

/// A span of seconds in its two largest units.
pub(crate) fn span(seconds: u64) -> String {
    format_duration(Duration::from_secs(seconds))
}

/// A moment in UTC: `2026-11-15 08:07:12 UTC`.
pub(crate) fn moment(unix: u64) -> String {
    let (day, time) = day_and_time(unix);
    format!("{day} {time} UTC")
}

/// The same for programs: `2026-11-15T08:07:12Z`.
pub(super) fn timestamp(unix: u64) -> String {
    let (day, time) = day_and_time(unix);
    format!("{day}T{time}Z")
}

fn day_and_time(unix: u64) -> (String, String) {
    let (year, month, day) = civil(unix / SECONDS_PER_DAY);
    let rest = unix % SECONDS_PER_DAY;
    let (hour, minute, second) = (rest / 3600, rest % 3600 / 60, rest % 60);
    (format!("{year:04}-{month:02}-{day:02}"), format!("{hour:02}:{minute:02}:{second:02}"))
}

/// Days since 1970 as a date of the Gregorian calendar. The year is taken to begin in March, so
/// that the leap day is its last.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days.saturating_add(719_468);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

/// `hard` or `soft`.
pub(crate) const fn strength(strength: Strength) -> &'static str {
    match strength {
        Strength::Hard => "hard",
        Strength::Soft => "soft",
    }
}

/// What a hold lets go: `up to 12,345`, or `nothing`.
pub(crate) fn allows(hold: &Hold) -> String {
    hold.limit.map_or_else(|| "nothing".into(), |limit| format!("up to {}", count(limit)))
}

/// What a tick cuts, beside what comes in between two of them.
pub(crate) fn pace(pace: &Pace) -> Option<String> {
    let cuts = format!("cuts {} at most", blocks(pace.blocks_per_tick?));
    Some(match pace.blocks_between_ticks {
        Some(come) => format!("{cuts}; {} are appended between two ticks", count(come)),
        None => cuts,
    })
}

/// A report in one line.
pub(crate) fn report(report: &Report) -> String {
    format!(
        "#{} cut {} ({} to {}), {} for {}, {} ms",
        report.seq,
        blocks(report.blocks),
        count(report.first),
        count(report.last),
        format_bytes(report.by_class.iter().map(|class| class.bytes).sum()),
        report.cause,
        count(report.millis),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_set_apart_by_thousands() {
        let texts: Vec<String> = [0, 999, 1000, 1_234_567].map(count).into();
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(1, 0), "0.0 %");
    }

    #[test]
    fn moments_are_those_of_the_calendar() {
        assert_eq!(moment(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(moment(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(moment(951_868_800), "2000-03-01 00:00:00 UTC");
        assert_eq!(moment(1_700_000_000), "2023-11-14 22:13:20 UTC");
        assert_eq!(moment(4_107_542_399), "2100-02-28 23:59:59 UTC");
        assert_eq!(moment(4_107_542_400), "2100-03-01 00:00:00 UTC");
    }

    #[test]
    fn spans_name_their_two_largest_units() {
        let texts: Vec<String> = [7, 60, 67, 3_667, 90_000, 14 * 86_400].map(span).into();
        assert_eq!(texts, ["7 s", "1 min", "1 min 7 s", "1 h 1 min", "1 d 1 h", "14 d"]);
    }
}
