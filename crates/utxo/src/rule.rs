//! The delete-at-height rule, once, for every backend.

use secateur_core::Height;
use serde::{Deserialize, Serialize};

/// The numbers that the rule needs. They belong to a chain, so a store is opened with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// Blocks that pass between *all spent and mined* and the record's end.
    pub block_height_retention: Height,
    /// Blocks that pass before a coinbase's outputs can be spent.
    pub coinbase_maturity: Height,
}

impl Default for Rules {
    fn default() -> Self {
        Self { block_height_retention: 288, coinbase_maturity: 100 }
    }
}

/// What the rule looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
pub struct Facts {
    /// Whether every output is spent.
    pub all_spent: bool,
    /// Whether a block of the main chain holds it.
    pub mined: bool,
    /// Whether it lost a double spend.
    pub conflicting: bool,
    /// Whether it is preserved.
    pub preserved: bool,
    /// What was decided before.
    pub delete_at: Option<Height>,
}

impl Rules {
    /// When a record with these facts may go, decided at this height.
    ///
    /// Set once its reason is there, kept while it is there, gone as soon as it is not; never lowered,
    /// and not touched while the record is preserved.
    pub const fn delete_at(&self, facts: Facts, height: Height) -> Option<Height> {
        if facts.preserved {
            return facts.delete_at;
        }
        if !(facts.conflicting || facts.all_spent && facts.mined) {
            return None;
        }
        match facts.delete_at {
            Some(decided) => Some(decided),
            None => Some(height.saturating_add(self.block_height_retention)),
        }
    }

    /// The first height at which a coinbase of this block can be spent.
    pub const fn ripe_at(&self, mined: Height) -> Height {
        mined.saturating_add(self.coinbase_maturity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { block_height_retention: 10, coinbase_maturity: 5 };
    const SETTLED: Facts = Facts {
        all_spent: true,
        mined: true,
        conflicting: false,
        preserved: false,
        delete_at: None,
    };

    #[test]
    fn it_is_set_once_and_never_lowered() {
        assert_eq!(RULES.delete_at(SETTLED, 7), Some(17));
        let again = Facts { delete_at: Some(17), ..SETTLED };
        for height in [0, 7, 8, 100] {
            assert_eq!(RULES.delete_at(again, height), Some(17));
        }
        assert_eq!(RULES.delete_at(SETTLED, u64::MAX), Some(u64::MAX));
    }

    #[test]
    fn it_goes_as_soon_as_its_reason_goes() {
        let set = Facts { delete_at: Some(17), ..SETTLED };
        assert_eq!(RULES.delete_at(Facts { all_spent: false, ..set }, 9), None);
        assert_eq!(RULES.delete_at(Facts { mined: false, ..set }, 9), None);
    }

    #[test]
    fn a_loser_of_a_double_spend_gets_it_once_mined_or_not() {
        let loser = Facts { all_spent: false, mined: false, conflicting: true, ..SETTLED };
        assert_eq!(RULES.delete_at(loser, 3), Some(13));
        assert_eq!(RULES.delete_at(Facts { delete_at: Some(13), ..loser }, 8), Some(13));
    }

    #[test]
    fn it_is_not_touched_while_the_record_is_preserved() {
        for delete_at in [None, Some(4)] {
            let kept = Facts { preserved: true, delete_at, ..SETTLED };
            assert_eq!(RULES.delete_at(kept, 9), delete_at);
            assert_eq!(RULES.delete_at(Facts { mined: false, ..kept }, 9), delete_at);
        }
    }
}
