//! Holds: the named reasons why data may not be cut above some height.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{CoreError, Height};

/// The longest name of an export consumer.
pub const MAX_CONSUMER_NAME_LEN: usize = 64;

/// Whether a hold can give way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strength {
    /// Never overridden, full disk included.
    Hard,
    /// Gives way while the budget is draining.
    Soft,
}

/// What kind of reason a hold is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldKind {
    /// Blocks that are not final, or still inside the challenge window.
    Finalized,
    /// The newest blocks that always stay.
    MinKeep,
    /// Blocks young enough for the retention that the policy asks for.
    Retention,
    /// Blocks that a named consumer has not exported yet.
    Export(String),
    /// Blocks that are in no verified archive part yet.
    Archive,
}

impl fmt::Display for HoldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finalized => f.write_str("finalized"),
            Self::MinKeep => f.write_str("min_keep"),
            Self::Retention => f.write_str("retention"),
            Self::Export(consumer) => write!(f, "export:{consumer}"),
            Self::Archive => f.write_str("archive"),
        }
    }
}

impl Serialize for HoldKind {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl FromStr for HoldKind {
    type Err = CoreError;

    fn from_str(text: &str) -> Result<Self, CoreError> {
        match text {
            "finalized" => Ok(Self::Finalized),
            "min_keep" => Ok(Self::MinKeep),
            "retention" => Ok(Self::Retention),
            "archive" => Ok(Self::Archive),
            other => {
                let name = other.strip_prefix("export:");
                let name = name.ok_or_else(|| CoreError::decode("hold", "its name is unknown"))?;
                check_consumer_name(name)?;
                Ok(Self::Export(name.to_owned()))
            }
        }
    }
}

impl<'de> Deserialize<'de> for HoldKind {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// One hold, as it stands now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Its name.
    #[serde(rename = "name")]
    pub kind: HoldKind,
    /// Whether it can give way.
    pub strength: Strength,
    /// The highest height that it allows to be cut; none means nothing at all.
    pub limit: Option<Height>,
    /// Whether it counts; an expired consumer is listed but does not.
    pub active: bool,
}

impl Hold {
    /// Whether this hold covers `height` (it does not look at `active`).
    pub fn covers(&self, height: Height) -> bool {
        self.limit.is_none_or(|limit| height > limit)
    }
}

/// All holds of a family at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Holds {
    list: Vec<Hold>,
}

impl Holds {
    /// Collects holds.
    pub fn new(list: Vec<Hold>) -> Self {
        Self { list }
    }

    /// Every hold, expired ones included.
    pub fn iter(&self) -> impl Iterator<Item = &Hold> {
        self.list.iter()
    }

    /// The lowest of the active holds; while draining, the soft ones have given way.
    pub fn binding(&self, draining: bool) -> Option<&Hold> {
        self.list
            .iter()
            .filter(|hold| hold.active && (!draining || hold.strength == Strength::Hard))
            .min_by_key(|hold| hold.limit)
    }
}

/// Refuses a consumer name that would not read well in a log, a metric label or a flag.
pub fn check_consumer_name(name: &str) -> Result<(), CoreError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > MAX_CONSUMER_NAME_LEN || !name.chars().all(allowed) {
        return Err(CoreError::InvalidInput {
            what: "consumer name",
            reason: format!(
                "1 to {MAX_CONSUMER_NAME_LEN} characters out of a-z, A-Z, 0-9, `-`, `_`, `.` are wanted"
            ),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(kind: HoldKind, strength: Strength, limit: Option<Height>) -> Hold {
        Hold { kind, strength, limit, active: true }
    }

    #[test]
    fn the_lowest_active_hold_binds_and_nothing_is_lower_than_nothing() {
        let mut holds = Holds::new(vec![
            hold(HoldKind::Finalized, Strength::Hard, Some(10)),
            hold(HoldKind::Export("a".into()), Strength::Soft, Some(5)),
        ]);
        assert_eq!(holds.binding(false).unwrap().limit, Some(5));
        assert_eq!(holds.binding(true).unwrap().kind, HoldKind::Finalized);
        holds.list[1].active = false;
        assert_eq!(holds.binding(false).unwrap().kind, HoldKind::Finalized);
        holds.list.push(hold(HoldKind::Archive, Strength::Hard, None));
        assert_eq!(holds.binding(true).unwrap().kind, HoldKind::Archive);
        assert!(holds.list[2].covers(0) && holds.list[0].covers(11) && !holds.list[0].covers(10));
    }

    #[test]
    fn consumer_names_are_plain_words() {
        assert!(check_consumer_name("indexer-1.main_db").is_ok());
        for name in ["", "a b", "../x", "a\n", &"x".repeat(65)] {
            assert!(check_consumer_name(name).is_err(), "{name:?}");
        }
    }
}
