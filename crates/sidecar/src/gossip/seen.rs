//! What was said before: hashes of messages and what became of them, the latest so many.

use std::collections::HashMap;

use super::Verdict;

/// A message's SHA-256.
pub(super) type Hash = [u8; 32];

/// Remembers at least the latest `most` messages that were put or asked for, and never more than
/// twice as many. Two generations: what is asked for moves to the young one, and the old one goes as
/// a whole.
#[derive(Debug)]
pub(super) struct Seen {
    most: usize,
    young: HashMap<Hash, Verdict>,
    old: HashMap<Hash, Verdict>,
}

impl Seen {
    pub(super) fn new(most: usize) -> Self {
        Self { most: most.max(1), young: HashMap::new(), old: HashMap::new() }
    }

    pub(super) fn get(&mut self, hash: &Hash) -> Option<Verdict> {
        if let Some(verdict) = self.young.get(hash) {
            return Some(verdict.clone());
        }
        let verdict = self.old.remove(hash)?;
        self.put(*hash, verdict.clone());
        Some(verdict)
    }

    pub(super) fn put(&mut self, hash: Hash, verdict: Verdict) {
        if self.young.len() >= self.most {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(hash, verdict);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u32) -> Hash {
        let mut hash = [0; 32];
        hash[..4].copy_from_slice(&n.to_be_bytes());
        hash
    }

    #[test]
    fn the_latest_are_remembered_and_memory_is_bounded() {
        let mut seen = Seen::new(100);
        for n in 0..10_000 {
            assert_eq!(seen.get(&hash(n)), None);
            seen.put(hash(n), Verdict::Known);
            assert!(seen.young.len() + seen.old.len() <= 200);
            let known = |n| seen.young.contains_key(&hash(n)) || seen.old.contains_key(&hash(n));
            assert!((n.saturating_sub(99)..=n).all(known), "{n}");
        }
        assert_eq!(seen.get(&hash(1)), None);
    }

    #[test]
    fn what_is_asked_for_again_and_again_is_kept() {
        let mut seen = Seen::new(10);
        seen.put(hash(0), Verdict::Known);
        for n in 1..1_000 {
            assert_eq!(seen.get(&hash(0)), Some(Verdict::Known), "{n}");
            seen.put(hash(n), Verdict::New);
        }
    }
}
