//! The name of a part: `chain=<id>/day=YYYY-MM-DD/part=<first>-<last>-<8 hex>.zst`.
//!
//! A key is a typed value. It is read back only from the one text that it prints, so no text from
//! a listing, a manifest or a node can lead outside the archive. What goes before it (a directory,
//! a bucket's prefix) belongs to the archive and never comes from a key.

use std::fmt;
use std::str::FromStr;

use secateur_core::{CoreError, Height, SECONDS_PER_DAY};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::digest::nibble;
use crate::{ArchiveError, Digest};

/// Days from 1970-01-01 to 9999-12-31.
const LAST_DAY: u32 = 2_932_896;
/// Digits of a height in a key; every `u64` fits.
const HEIGHT_DIGITS: usize = 20;
const OBJECT_SUFFIX: &str = ".zst";
const MANIFEST_SUFFIX: &str = ".json";
/// The longest key there is.
pub const MAX_KEY_LEN: usize = 128;

/// A day in UTC, counted from 1970-01-01 and at most 9999-12-31.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(u32);

impl Day {
    /// The day of a block's timestamp. A timestamp behind the year 9999 gives its last day: a chain
    /// that counts otherwise than in seconds still has a place.
    pub fn of_timestamp(timestamp: u64) -> Self {
        Self(u32::try_from(timestamp / SECONDS_PER_DAY).unwrap_or(LAST_DAY).min(LAST_DAY))
    }

    /// Its number; 1970-01-01 is 0.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The day of a number.
    pub fn from_number(number: u32) -> Option<Self> {
        (number <= LAST_DAY).then_some(Self(number))
    }
}

impl fmt::Display for Day {
    /// Years are counted from March here, so that a leap day is the last day of its year.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Days since 0000-03-01.
        let days = self.0 + 719_468;
        let (era, in_era) = (days / 146_097, days % 146_097);
        let year_of_era = (in_era - in_era / 1_460 + in_era / 36_524 - in_era / 146_096) / 365;
        let in_year = in_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * in_year + 2) / 153;
        let day = in_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = era * 400 + year_of_era + u32::from(month <= 2);
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

impl FromStr for Day {
    type Err = CoreError;

    fn from_str(text: &str) -> Result<Self, CoreError> {
        let wrong = || CoreError::decode("day", "a day is written YYYY-MM-DD, from 1970 to 9999");
        let mut fields = text.split('-').map(|field| digits(field).ok_or_else(wrong));
        let mut next = || fields.next().unwrap_or_else(|| Err(wrong()));
        let (year, month, day) = (next()?, next()?, next()?);
        if text.len() != 10
            || !(1970..=9999).contains(&year)
            || !(1..=12).contains(&month)
            || !(1..=31).contains(&day)
        {
            return Err(wrong());
        }
        let (year, from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let (era, year_of_era) = (year / 400, year % 400);
        let in_year = (153 * from_march + 2) / 5 + day - 1;
        let in_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + in_year;
        let number = (era * 146_097 + in_era).checked_sub(719_468).ok_or_else(wrong)?;
        let day = u32::try_from(number).ok().and_then(Self::from_number).ok_or_else(wrong)?;
        // This refuses the 31st of a shorter month.
        if day.to_string() == text { Ok(day) } else { Err(wrong()) }
    }
}

impl Serialize for Day {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Day {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Which of a part's two objects a name means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `….json`
    Manifest,
    /// `….zst`
    Object,
}

/// What names a part. Keys sort as their texts do: by chain, day and first height.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PartKey {
    /// The chain.
    pub chain_id: u64,
    /// The day it is filed under.
    pub day: Day,
    /// Its first block.
    pub first: Height,
    /// Its last block.
    pub last: Height,
    /// The first four bytes of the object's SHA-256.
    pub digest8: [u8; 4],
}

impl PartKey {
    /// The name of a part with this content.
    pub fn new(chain_id: u64, day: Day, first: Height, last: Height, sha256: &Digest) -> Self {
        Self { chain_id, day, first, last, digest8: sha256.head() }
    }

    /// The name without what tells the two objects apart.
    fn stem(&self) -> String {
        let [a, b, c, d] = self.digest8;
        format!(
            "{}part={:020}-{:020}-{a:02x}{b:02x}{c:02x}{d:02x}",
            day_prefix(self.chain_id, self.day),
            self.first,
            self.last
        )
    }

    /// The part's own name.
    pub fn object(&self) -> String {
        self.stem() + OBJECT_SUFFIX
    }

    /// The name of its manifest.
    pub fn manifest(&self) -> String {
        self.stem() + MANIFEST_SUFFIX
    }

    /// The name of one of the two.
    pub fn name(&self, kind: Kind) -> String {
        match kind {
            Kind::Object => self.object(),
            Kind::Manifest => self.manifest(),
        }
    }

    /// Reads a name. Only the very text that a key prints is accepted.
    pub fn parse(text: &str) -> Result<(Self, Kind), ArchiveError> {
        let wrong = || {
            let shown: String = text.chars().take(MAX_KEY_LEN).collect();
            ArchiveError::invalid("archive key", format!("{shown:?} is not the name of a part"))
        };
        if text.len() > MAX_KEY_LEN {
            return Err(wrong());
        }
        let (key, kind) = Self::read(text).ok_or_else(wrong)?;
        if key.first > key.last || key.name(kind) != text {
            return Err(wrong());
        }
        Ok((key, kind))
    }

    /// Reads the name of a part's object.
    pub fn parse_object(text: &str) -> Result<Self, ArchiveError> {
        match Self::parse(text)? {
            (key, Kind::Object) => Ok(key),
            (_, Kind::Manifest) => Err(ArchiveError::invalid(
                "archive key",
                format!("{text} is a manifest; the part is the .zst beside it"),
            )),
        }
    }

    fn read(text: &str) -> Option<(Self, Kind)> {
        let (stem, kind) = text
            .strip_suffix(OBJECT_SUFFIX)
            .map(|stem| (stem, Kind::Object))
            .or_else(|| text.strip_suffix(MANIFEST_SUFFIX).map(|stem| (stem, Kind::Manifest)))?;
        let (chain, rest) = stem.strip_prefix("chain=")?.split_once("/day=")?;
        let (day, rest) = rest.split_once("/part=")?;
        let (first, rest) = rest.split_once('-')?;
        let (last, hex) = rest.split_once('-')?;
        if first.len() != HEIGHT_DIGITS || last.len() != HEIGHT_DIGITS || hex.len() != 8 {
            return None;
        }
        let mut digest8 = [0u8; 4];
        for (byte, pair) in digest8.iter_mut().zip(hex.as_bytes().as_chunks::<2>().0) {
            let [high, low] = *pair;
            *byte = nibble(high).ok()? << 4 | nibble(low).ok()?;
        }
        let key = Self {
            chain_id: digits(chain)?,
            day: day.parse().ok()?,
            first: digits(first)?,
            last: digits(last)?,
            digest8,
        };
        Some((key, kind))
    }
}

impl fmt::Display for PartKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.object())
    }
}

/// Where a chain's parts are.
pub(crate) fn chain_prefix(chain_id: u64) -> String {
    format!("chain={chain_id}/")
}

/// Where the parts of a chain's day are.
pub(crate) fn day_prefix(chain_id: u64, day: Day) -> String {
    format!("chain={chain_id}/day={day}/")
}

/// Digits and nothing else; `parse` alone would take a sign.
fn digits(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn days_read_as_the_calendar_says() {
        for (timestamp, text) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_700_000_000, "2023-11-14"),
            (1_709_164_800, "2024-02-29"),
            (4_107_456_000, "2100-02-28"),
            (4_107_542_400, "2100-03-01"),
            (u64::MAX, "9999-12-31"),
        ] {
            assert_eq!(Day::of_timestamp(timestamp).to_string(), text);
        }
        for text in ["2023-02-29", "2100-02-29", "1969-12-31", "2023-2-01", "2023-04-31", ""] {
            assert!(text.parse::<Day>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_day_reads_back_and_days_follow_one_another_as_texts() {
        let mut before = String::new();
        for number in (0..=LAST_DAY).step_by(7) {
            let text = Day(number).to_string();
            assert_eq!(text.parse::<Day>().unwrap(), Day(number));
            assert!(text > before);
            before = text;
        }
    }

    #[test]
    fn a_key_that_leads_elsewhere_or_is_spelt_otherwise_is_refused() {
        let good = "chain=1/day=2023-11-14/part=00000000000000000000-00000000000000000099-0a1b2c3d";
        assert!(PartKey::parse(&format!("{good}.zst")).is_ok());
        for text in [
            String::new(),
            format!("{good}.zst/../x.zst"),
            format!("../{good}.zst"),
            format!("/{good}.zst"),
            format!("{good}.ZST"),
            format!("{good}.zst "),
            good.replace("chain=1", "chain=01") + ".zst",
            good.replace("chain=1", "chain=+1") + ".zst",
            good.replace("chain=1", "chain=..") + ".zst",
            good.replace("2023-11-14", "../../etc") + ".zst",
            good.replace("0a1b2c3d", "0A1B2C3D") + ".zst",
            good.replace("0a1b2c3d", "0a1b2c3") + ".zst",
            good.replace("00000000000000000099", "99") + ".zst",
            good.replace("part=00000000000000000000", "part=00000000000000000100") + ".zst",
            good.replace('/', "\\") + ".zst",
            "x".repeat(MAX_KEY_LEN + 1),
        ] {
            assert!(PartKey::parse(&text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_key_reads_back_what_it_prints(
            chain_id in any::<u64>(), day in 0..=LAST_DAY, first in any::<u64>(),
            more in 0..1_000_000u64, digest8 in any::<[u8; 4]>(),
        ) {
            let last = first.saturating_add(more);
            let key = PartKey { chain_id, day: Day(day), first, last, digest8 };
            prop_assert_eq!(PartKey::parse(&key.object()).unwrap(), (key, Kind::Object));
            prop_assert_eq!(PartKey::parse(&key.manifest()).unwrap(), (key, Kind::Manifest));
            prop_assert!(key.object().len() <= MAX_KEY_LEN);
        }

        #[test]
        fn no_text_panics_the_parser(text in "\\PC{0,140}") {
            prop_assert!(PartKey::parse(&text).is_err());
        }
    }
}
