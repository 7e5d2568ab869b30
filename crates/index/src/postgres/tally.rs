//! A sum over a table that does not depend on the order of its rows: how two indexes of different
//! kinds are compared. Each row is hashed as it is encoded for COPY, and the hashes are added up.

use std::fmt::Debug;

use sha2::{Digest as _, Sha256};

use super::encode::{Copy, CopyRow};
use crate::IndexError;

/// How many rows there are, and the sum of their hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tally {
    pub(super) rows: u64,
    sum: [u64; 4],
}

impl Tally {
    fn add(&mut self, encoded: &[u8]) {
        self.rows = self.rows.saturating_add(1);
        let digest = Sha256::digest(encoded);
        let (lanes, _) = digest.as_chunks::<8>();
        for (sum, lane) in self.sum.iter_mut().zip(lanes) {
            *sum = sum.wrapping_add(u64::from_be_bytes(*lane));
        }
    }

    /// Adds rows of a big table.
    pub(super) fn rows<R: CopyRow>(&mut self, rows: &[R]) -> Result<(), IndexError> {
        let mut copy = Copy::default();
        for row in rows {
            row.put(&mut copy)?;
            self.add(&copy.take());
        }
        Ok(())
    }

    /// Adds rows of a small one.
    pub(super) fn small<R: Debug>(&mut self, rows: &[R]) {
        for row in rows {
            self.add(format!("{row:?}").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(rows: &[&str]) -> Tally {
        let mut tally = Tally::default();
        tally.small(rows);
        tally
    }

    #[test]
    fn order_does_not_matter_and_everything_else_does() {
        assert_eq!(tally(&["a", "b", "c"]), tally(&["c", "a", "b"]));
        assert_ne!(tally(&["a", "b"]), tally(&["a", "c"]));
        assert_ne!(tally(&["a"]), tally(&["a", "a"]));
        assert_ne!(tally(&["a", "a"]), tally(&["b", "b"]), "two of the same do not cancel out");
    }
}
