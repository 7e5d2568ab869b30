//! Size classes: the few lengths that regions can have.

use crate::StoreError;

/// Regions and the arena's header are multiples of this.
pub const ALIGNMENT: u32 = 4096;
/// The most classes that a table may have.
pub const MAX_CLASSES: usize = 32;
const KIB: u32 = 1024;
/// A budget is measured in at least so many regions, where the classes allow it.
const REGIONS_PER_BUDGET: u64 = 512;

/// The classes of a store, smallest first; chosen at creation and kept in the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassTable {
    classes: Vec<u32>,
}

impl ClassTable {
    /// 64 KiB to 4 MiB, doubling.
    pub fn standard() -> Self {
        Self { classes: (6..=12).map(|shift| KIB << shift).collect() }
    }

    /// The standard table with 4, 8, 16 and 32 KiB below it.
    pub fn small() -> Self {
        Self { classes: (2..=12).map(|shift| KIB << shift).collect() }
    }

    /// The standard table without the classes that are large for a budget: a packed store counts
    /// its bytes in regions of the largest class, and a few hundred of them make a fine measure.
    pub fn for_budget(target_bytes: u64) -> Self {
        let most = if target_bytes == 0 { u64::MAX } else { target_bytes / REGIONS_PER_BUDGET };
        let mut table = Self::standard();
        let fitting = table.classes.iter().filter(|class| u64::from(**class) <= most).count();
        table.classes.truncate(fitting.max(1));
        table
    }

    /// An explicit table: rising multiples of 4 KiB, none over 1 GiB.
    pub fn explicit(classes: Vec<u32>) -> Result<Self, StoreError> {
        let rising = classes.iter().zip(classes.iter().skip(1)).all(|(a, b)| a < b);
        let aligned = classes.iter().all(|c| *c > 0 && c % ALIGNMENT == 0 && *c <= 1 << 30);
        if classes.is_empty() || classes.len() > MAX_CLASSES || !rising || !aligned {
            return Err(StoreError::refused(
                "class table",
                format!(
                    "1 to {MAX_CLASSES} rising multiples of {ALIGNMENT} up to 1 GiB are wanted"
                ),
            ));
        }
        Ok(Self { classes })
    }

    /// The classes, smallest first.
    pub fn classes(&self) -> &[u32] {
        &self.classes
    }

    /// The place of a class in the table.
    pub fn position(&self, class: u32) -> Option<usize> {
        self.classes.binary_search(&class).ok()
    }

    /// The largest class.
    pub fn largest(&self) -> u32 {
        self.classes.last().copied().unwrap_or(ALIGNMENT)
    }

    /// How `len` bytes are laid out: whole largest-class regions, then the smallest class that
    /// holds the rest. Each item is (class, bytes in it).
    pub fn split(&self, len: u64) -> impl Iterator<Item = (u32, u32)> + '_ {
        let mut left = len;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let part = u32::try_from(left).unwrap_or(u32::MAX).min(self.largest());
            left -= u64::from(part);
            let class = self.classes.iter().copied().find(|c| *c >= part)?;
            Some((class, part))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_goes_into_the_smallest_class_that_holds_it() {
        let table = ClassTable::standard();
        let split = |len| table.split(len).collect::<Vec<_>>();
        assert_eq!(table.classes().len(), 7);
        assert_eq!(split(0), vec![]);
        assert_eq!(split(1), vec![(64 << 10, 1)]);
        assert_eq!(split(64 << 10), vec![(64 << 10, 64 << 10)]);
        assert_eq!(split((64 << 10) + 1), vec![(128 << 10, (64 << 10) + 1)]);
        assert_eq!(split(4 << 20), vec![(4 << 20, 4 << 20)]);
    }

    #[test]
    fn a_larger_payload_takes_whole_largest_regions_and_a_fitting_rest() {
        let table = ClassTable::standard();
        let parts: Vec<_> = table.split((8 << 20) + 70_000).collect();
        assert_eq!(parts, vec![(4 << 20, 4 << 20), (4 << 20, 4 << 20), (128 << 10, 70_000)]);
    }

    #[test]
    fn a_small_budget_is_measured_in_small_regions() {
        let largest = |target| ClassTable::for_budget(target).largest();
        assert_eq!(largest(0), 4 << 20);
        assert_eq!((largest(1 << 30), largest(2 << 30)), (2 << 20, 4 << 20));
        assert_eq!(largest(100 << 20), 128 << 10);
        assert_eq!(largest(1 << 20), 64 << 10);
    }

    #[test]
    fn tables_that_cannot_work_are_refused() {
        for classes in [vec![], vec![0], vec![4095], vec![8192, 4096], vec![4096, 4096]] {
            assert!(ClassTable::explicit(classes).is_err());
        }
        assert_eq!(ClassTable::explicit(vec![4096, 12288]).unwrap().largest(), 12288);
        assert_eq!(ClassTable::small().classes().len(), 11);
    }
}
