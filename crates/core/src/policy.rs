//! The prune policy and the water marks it implies.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{CoreError, TimeUnit, format_bytes, parse_bytes, parse_span, spell_span};

/// How far ahead of the wall clock a chain's timestamp is believed: 15 minutes.
pub const MAX_AHEAD_SECONDS: u64 = 15 * 60;
/// Seconds in a day of retention.
pub const SECONDS_PER_DAY: u64 = 86_400;

/// Nominal operations of a tick where nothing else is said: on a disk, 84 blocks of 790 transactions.
pub const DEFAULT_TICK_OPS: u64 = 200_000;

const WHOLE_BP: u16 = 10_000;

/// A share between 0 and 1 in basis points, so that water marks are whole numbers everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ratio(u16);

impl Ratio {
    /// A ratio of `bp` ten-thousandths; at most 10,000.
    pub fn from_basis_points(bp: u16) -> Result<Self, CoreError> {
        if bp > WHOLE_BP {
            return Err(CoreError::InvalidPolicy(format!(
                "a ratio of {bp} basis points is over 1"
            )));
        }
        Ok(Self(bp))
    }

    /// The ratio in ten-thousandths.
    pub const fn basis_points(self) -> u16 {
        self.0
    }

    /// `bytes × self`, floored.
    fn of(self, bytes: u64) -> u64 {
        scale(bytes, u64::from(self.0), u64::from(WHOLE_BP))
    }
}

/// `bytes × numerator ÷ denominator`, floored, for a quotient of at most 1.
fn scale(bytes: u64, numerator: u64, denominator: u64) -> u64 {
    let scaled = u128::from(bytes) * u128::from(numerator) / u128::from(denominator);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:04}", self.0 / WHOLE_BP, self.0 % WHOLE_BP)
    }
}

impl FromStr for Ratio {
    type Err = CoreError;

    fn from_str(text: &str) -> Result<Self, CoreError> {
        let refuse = || {
            CoreError::InvalidPolicy(format!(
                "`{text}` is not a ratio from 0 to 1 with at most four decimals"
            ))
        };
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        if decimals.len() > 4 || !decimals.bytes().all(|b| b.is_ascii_digit()) {
            return Err(refuse());
        }
        let whole: u16 = whole.parse().map_err(|_| refuse())?;
        let part: u16 = format!("{decimals:0<4}").parse().map_err(|_| refuse())?;
        let bp =
            whole.checked_mul(WHOLE_BP).and_then(|w| w.checked_add(part)).ok_or_else(refuse)?;
        Self::from_basis_points(bp).map_err(|_| refuse())
    }
}

impl Serialize for Ratio {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(f64::from(self.0) / f64::from(WHOLE_BP))
    }
}

impl<'de> Deserialize<'de> for Ratio {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(from)?;
        // Every ratio is a whole number of basis points; a float is only its spelling.
        format!("{share}").parse().map_err(serde::de::Error::custom)
    }
}

/// When the prune daemon looks whether it should prune.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// After every so many appended blocks.
    EveryNBlocks(u32),
    /// After so many milliseconds.
    Timer(u64),
    /// Whichever of the two comes first.
    Both {
        /// Appended blocks.
        blocks: u32,
        /// Milliseconds.
        millis: u64,
    },
}

impl Trigger {
    /// The block count that fires it, if it counts blocks.
    pub const fn blocks(self) -> Option<u32> {
        match self {
            Self::EveryNBlocks(blocks) | Self::Both { blocks, .. } => Some(blocks),
            Self::Timer(_) => None,
        }
    }

    /// It as people write it, with its time in the largest unit that fits: `both:84:1min`.
    pub fn spelled(self) -> String {
        let time = |millis| spell_span(millis, TimeUnit::Millis);
        match self {
            Self::EveryNBlocks(_) => self.to_string(),
            Self::Timer(millis) => format!("timer:{}", time(millis)),
            Self::Both { blocks, millis } => format!("both:{blocks}:{}", time(millis)),
        }
    }

    /// The milliseconds that fire it, if it has a timer.
    pub const fn millis(self) -> Option<u64> {
        match self {
            Self::Timer(millis) | Self::Both { millis, .. } => Some(millis),
            Self::EveryNBlocks(_) => None,
        }
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EveryNBlocks(blocks) => write!(f, "every_n_blocks:{blocks}"),
            Self::Timer(millis) => write!(f, "timer:{millis}"),
            Self::Both { blocks, millis } => write!(f, "both:{blocks}:{millis}"),
        }
    }
}

impl FromStr for Trigger {
    type Err = CoreError;

    fn from_str(text: &str) -> Result<Self, CoreError> {
        let refuse = || {
            CoreError::InvalidPolicy(format!(
                "`{text}` is not a trigger (every_n_blocks:84, timer:1min or both:84:1min; a time \
                 without a unit is in milliseconds)"
            ))
        };
        let mut words = text.split(':');
        let kind = words.next();
        let (first, second) = (words.next(), words.next());
        let blocks = |word: Option<&str>| {
            word.and_then(|word| word.replace('_', "").parse::<u32>().ok()).ok_or_else(refuse)
        };
        let time = |word: Option<&str>| {
            word.and_then(|word| parse_span(word, TimeUnit::Millis).ok()).ok_or_else(refuse)
        };
        let trigger = match (kind, second) {
            (Some("every_n_blocks"), None) => Self::EveryNBlocks(blocks(first)?),
            (Some("timer"), None) => Self::Timer(time(first)?),
            (Some("both"), Some(_)) => Self::Both { blocks: blocks(first)?, millis: time(second)? },
            _ => return Err(refuse()),
        };
        if words.next().is_some() { Err(refuse()) } else { Ok(trigger) }
    }
}

/// Whose time retention goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockSource {
    /// The head's timestamp, never more than [`MAX_AHEAD_SECONDS`] ahead of the wall clock.
    Chain,
    /// The wall clock.
    Wall,
}

/// What to keep. `target_bytes` outranks the two retentions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PrunePolicy {
    /// The byte budget; 0 means none.
    pub target_bytes: u64,
    /// Keep this many days; 0 means off.
    pub retain_days: u32,
    /// Keep this many blocks; 0 means off.
    pub retain_blocks: u64,
    /// Share of the budget that is kept clear.
    pub headroom_ratio: Ratio,
    /// Share of the budget at which pruning becomes an emergency.
    pub hard_emergency_ratio: Ratio,
    /// Nominal operations that one tick may cost.
    pub max_ops_per_tick: u64,
    /// When the daemon looks.
    pub trigger: Trigger,
    /// Blocks that always stay; at least 1.
    pub min_keep_blocks: u64,
    /// Whose time retention goes by.
    pub clock: ClockSource,
}

impl Default for PrunePolicy {
    fn default() -> Self {
        Self {
            target_bytes: 0,
            retain_days: 0,
            retain_blocks: 0,
            headroom_ratio: Ratio(2_000),
            hard_emergency_ratio: Ratio(9_500),
            max_ops_per_tick: DEFAULT_TICK_OPS,
            trigger: Trigger::Both { blocks: 84, millis: 60_000 },
            min_keep_blocks: 1,
            clock: ClockSource::Chain,
        }
    }
}

impl PrunePolicy {
    /// Refuses a policy that contradicts itself; the reason says which rule it breaks.
    pub fn check(&self) -> Result<(), CoreError> {
        let refuse = |reason: &str| Err(CoreError::InvalidPolicy(reason.into()));
        if self.max_ops_per_tick == 0 {
            return refuse("max_ops_per_tick must be at least 1");
        }
        if self.min_keep_blocks == 0 {
            return refuse("min_keep_blocks must be at least 1");
        }
        if self.trigger.blocks() == Some(0) || self.trigger.millis() == Some(0) {
            return refuse("a trigger of 0 blocks or 0 milliseconds would never rest");
        }
        if let Some(marks) = self.water_marks() {
            let WaterMarks { low, high, hard, target } = marks;
            if !(low < high && high < hard && hard <= target) {
                return Err(CoreError::InvalidPolicy(format!(
                    "low water {} < high water {} < hard water {} <= target {} does not hold; \
                     change headroom_ratio, hard_emergency_ratio or target_bytes",
                    format_bytes(low),
                    format_bytes(high),
                    format_bytes(hard),
                    format_bytes(target)
                )));
            }
        }
        Ok(())
    }

    /// The marks of the budget, or none without a budget.
    pub fn water_marks(&self) -> Option<WaterMarks> {
        let target = self.target_bytes;
        if target == 0 {
            return None;
        }
        let (whole, headroom) = (u64::from(WHOLE_BP), u64::from(self.headroom_ratio.0));
        Some(WaterMarks {
            low: scale(target, whole - headroom, whole),
            high: scale(target, 2 * whole - headroom, 2 * whole),
            hard: self.hard_emergency_ratio.of(target),
            target,
        })
    }

    /// Seconds of retention, if retention by time is on.
    pub fn retain_seconds(&self) -> Option<u64> {
        (self.retain_days > 0).then(|| u64::from(self.retain_days) * SECONDS_PER_DAY)
    }

    /// Every key that [`Self::set`] takes, in the order of the documentation.
    pub const KEYS: [&'static str; 9] = [
        "target_bytes",
        "retain_days",
        "retain_blocks",
        "headroom_ratio",
        "hard_emergency_ratio",
        "max_ops_per_tick",
        "trigger",
        "min_keep_blocks",
        "clock",
    ];

    /// A field's value by its name, spelled as [`Self::set`] takes it; the same value is always
    /// spelled alike.
    pub fn get(&self, key: &str) -> Option<String> {
        Some(match key {
            "target_bytes" => self.target_bytes.to_string(),
            "retain_days" => self.retain_days.to_string(),
            "retain_blocks" => self.retain_blocks.to_string(),
            "headroom_ratio" => self.headroom_ratio.to_string(),
            "hard_emergency_ratio" => self.hard_emergency_ratio.to_string(),
            "max_ops_per_tick" => self.max_ops_per_tick.to_string(),
            "trigger" => self.trigger.to_string(),
            "min_keep_blocks" => self.min_keep_blocks.to_string(),
            "clock" => match self.clock {
                ClockSource::Chain => "chain".into(),
                ClockSource::Wall => "wall".into(),
            },
            _ => return None,
        })
    }

    /// Whether anything is ever due: a budget or a retention is set.
    pub const fn has_limit(&self) -> bool {
        self.target_bytes > 0 || self.retain_days > 0 || self.retain_blocks > 0
    }

    /// Changes one field by its name, as `policy set key=value` does; the whole is not checked.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), CoreError> {
        fn number<T: FromStr>(key: &str, value: &str) -> Result<T, CoreError> {
            value.replace('_', "").parse().map_err(|_| {
                CoreError::InvalidPolicy(format!("`{value}` is not a number that {key} can take"))
            })
        }
        match key {
            "target_bytes" => self.target_bytes = parse_bytes(value)?,
            "retain_days" => {
                let days = parse_span(value, TimeUnit::Days)?;
                self.retain_days = u32::try_from(days).map_err(|_| {
                    CoreError::InvalidPolicy(format!("`{value}` is too long for {key}"))
                })?;
            }
            "retain_blocks" => self.retain_blocks = number(key, value)?,
            "headroom_ratio" => self.headroom_ratio = value.parse()?,
            "hard_emergency_ratio" => self.hard_emergency_ratio = value.parse()?,
            "max_ops_per_tick" => self.max_ops_per_tick = number(key, value)?,
            "trigger" => self.trigger = value.parse()?,
            "min_keep_blocks" => self.min_keep_blocks = number(key, value)?,
            "clock" => {
                self.clock = match value {
                    "chain" => ClockSource::Chain,
                    "wall" => ClockSource::Wall,
                    _ => {
                        return Err(CoreError::InvalidPolicy(format!(
                            "`{value}` is not a clock (chain or wall)"
                        )));
                    }
                }
            }
            _ => {
                return Err(CoreError::InvalidPolicy(format!(
                    "there is no policy key `{key}` (target_bytes, retain_days, retain_blocks, \
                     headroom_ratio, hard_emergency_ratio, max_ops_per_tick, trigger, \
                     min_keep_blocks, clock)"
                )));
            }
        }
        Ok(())
    }
}

/// The levels of a byte budget: `low < high < hard ≤ target`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaterMarks {
    /// Draining stops here.
    pub low: u64,
    /// Over this, draining begins.
    pub high: u64,
    /// Over this, it is an emergency.
    pub hard: u64,
    /// The budget itself.
    pub target: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn water_marks_are_floored_basis_points_of_the_target() {
        let policy = PrunePolicy { target_bytes: 1_000_003, ..PrunePolicy::default() };
        let marks = policy.water_marks().unwrap();
        assert_eq!((marks.low, marks.high, marks.hard), (800_002, 900_002, 950_002));
        let all = PrunePolicy { target_bytes: u64::MAX, ..PrunePolicy::default() };
        assert!(all.check().is_ok());
    }

    #[test]
    fn a_policy_whose_marks_are_out_of_order_is_refused_with_the_reason() {
        let mut policy = PrunePolicy { target_bytes: 1_000_000, ..PrunePolicy::default() };
        policy.set("headroom_ratio", "0").unwrap();
        assert!(policy.check().unwrap_err().to_string().contains("low water"));
        policy.set("headroom_ratio", "0.05").unwrap();
        assert!(policy.check().is_err(), "high 0.975 is over hard 0.95");
        policy.set("hard_emergency_ratio", "0.99").unwrap();
        assert!(policy.check().is_ok());
        policy.set("max_ops_per_tick", "0").unwrap();
        assert!(policy.check().is_err());
    }

    #[test]
    fn a_tiny_target_whose_marks_fall_together_is_refused() {
        assert!(PrunePolicy { target_bytes: 3, ..PrunePolicy::default() }.check().is_err());
    }

    #[test]
    fn every_field_can_be_set_by_name_and_reads_back_through_json() {
        let mut policy = PrunePolicy::default();
        for (key, value) in [
            ("target_bytes", "64MiB"),
            ("retain_days", "14"),
            ("retain_blocks", "1_000"),
            ("headroom_ratio", "0.1999"),
            ("hard_emergency_ratio", "0.96"),
            ("max_ops_per_tick", "7"),
            ("trigger", "both:10:500"),
            ("min_keep_blocks", "3"),
            ("clock", "wall"),
        ] {
            policy.set(key, value).unwrap();
        }
        let json = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<PrunePolicy>(&json).unwrap(), policy);
        let mut copy = PrunePolicy::default();
        for key in PrunePolicy::KEYS {
            copy.set(key, &policy.get(key).unwrap()).unwrap();
        }
        assert_eq!(copy, policy);
        assert_eq!(policy.get("no_such_key"), None);
        for trigger in ["every_n_blocks:84", "timer:60000", "both:84:60000"] {
            assert_eq!(trigger.parse::<Trigger>().unwrap().to_string(), trigger);
        }
    }

    #[test]
    fn sizes_and_times_of_a_policy_take_units_and_print_with_them() {
        let mut policy = PrunePolicy::default();
        for (key, value) in
            [("target_bytes", "64G"), ("retain_days", "14d"), ("trigger", "both:84:1m")]
        {
            policy.set(key, value).unwrap();
        }
        assert_eq!((policy.target_bytes, policy.retain_days), (64 << 30, 14));
        assert_eq!(policy.trigger, Trigger::Both { blocks: 84, millis: 60_000 });
        assert_eq!(policy.trigger.spelled(), "both:84:1min");
        assert_eq!(policy.trigger.spelled().parse::<Trigger>().unwrap(), policy.trigger);
        assert!(policy.set("retain_days", "36h").is_err(), "not a whole number of days");
    }

    #[test]
    fn every_ratio_survives_its_spelling_as_a_float() {
        for bp in 0..=WHOLE_BP {
            let ratio = Ratio(bp);
            let json = serde_json::to_string(&ratio).unwrap();
            assert_eq!(serde_json::from_str::<Ratio>(&json).unwrap(), ratio, "{json}");
            assert_eq!(ratio.to_string().parse::<Ratio>().unwrap(), ratio);
        }
    }

    #[test]
    fn unknown_keys_and_bad_values_are_refused() {
        let mut policy = PrunePolicy::default();
        for (key, value) in [
            ("target", "1"),
            ("target_bytes", "lots"),
            ("headroom_ratio", "1.0001"),
            ("headroom_ratio", "0.12345"),
            ("trigger", "sometimes"),
            ("trigger", "both:1"),
            ("clock", "moon"),
        ] {
            assert!(policy.set(key, value).is_err(), "{key}={value}");
        }
        assert_eq!(policy, PrunePolicy::default());
    }
}
