//! The anteroom: notices that came before this node could judge them, and what they wait for.
//!
//! Only what is right as far as it can be told waits here: its form, its chain, a validator of the
//! height and its signature. What it waits for is a decision, or a chain that is long enough. Nothing
//! here is durable: what a crash loses is told again by its author. Bounded in heights, in number,
//! in bytes, and for each signer, so that one that signs too much takes no place from the others.

use std::collections::BTreeMap;

use bytes::Bytes;
use secateur_core::Height;

use crate::ValidatorId;
use crate::notice::Rejection;

/// How far from the newest decided height a notice may be that waits.
const WINDOW: Height = 256;
/// Notices that wait, and their bytes.
const MOST: Share = Share { notices: 4_096, bytes: 8 << 20 };
/// The same of one signer.
const MOST_OF_ONE: Share = Share { notices: 512, bytes: 1 << 20 };

/// What somebody takes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Share {
    notices: usize,
    bytes: usize,
}

impl Share {
    fn has_room(self, most: Self, len: usize) -> bool {
        self.notices < most.notices && self.bytes + len <= most.bytes
    }

    fn add(&mut self, len: usize) {
        self.notices += 1;
        self.bytes += len;
    }

    fn take(&mut self, len: usize) {
        self.notices = self.notices.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(len);
    }
}

/// What a notice waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Until {
    /// That its height is decided.
    Decided(Height),
    /// That the newest decided height is this one.
    Head(Height),
}

impl Until {
    /// What a rejection says it waits for; none if waiting does not help.
    fn of(rejection: &Rejection) -> Option<Self> {
        match rejection {
            Rejection::NoMetadata { height } => Some(Self::Decided(*height)),
            Rejection::NotYetPermitted { from, .. } => Some(Self::Head(*from)),
            _ => None,
        }
    }

    fn height(self) -> Height {
        match self {
            Self::Decided(height) | Self::Head(height) => height,
        }
    }
}

/// A notice that waits.
#[derive(Debug)]
struct Guest {
    notice: Bytes,
    signer: ValidatorId,
}

/// Notices that wait, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Anteroom {
    guests: BTreeMap<(Until, u64), Guest>,
    came: u64,
    all: Share,
    of: BTreeMap<ValidatorId, Share>,
}

impl Anteroom {
    /// Lets a notice wait that was put off for this reason; false if there is no place for it. The
    /// same bytes wait once.
    pub(crate) fn admit(
        &mut self,
        notice: &[u8],
        signer: ValidatorId,
        why: &Rejection,
        head: Height,
    ) -> bool {
        let Some(until) = Until::of(why) else { return false };
        if until.height().abs_diff(head) > WINDOW {
            return false;
        }
        let mut same = self.guests.range((until, 0)..=(until, u64::MAX));
        if same.any(|(_, guest)| guest.notice == notice) {
            return true;
        }
        let (theirs, len) = (self.of.get(&signer).copied().unwrap_or_default(), notice.len());
        if !self.all.has_room(MOST, len) || !theirs.has_room(MOST_OF_ONE, len) {
            return false;
        }
        self.all.add(len);
        self.of.entry(signer.clone()).or_default().add(len);
        // The buffer that it came in is not kept for its sake.
        let notice = Bytes::copy_from_slice(notice);
        self.guests.insert((until, self.came), Guest { notice, signer });
        self.came += 1;
        true
    }

    /// Takes out what need not wait any more, now that these heights are decided and the newest is
    /// `head`. What has waited for too long leaves with nobody.
    pub(crate) fn call(&mut self, decided: &[Height], head: Height) -> Vec<Bytes> {
        let mut keys = Vec::new();
        for height in decided {
            let until = Until::Decided(*height);
            keys.extend(self.guests.range((until, 0)..=(until, u64::MAX)).map(|(key, _)| *key));
        }
        let grown = (Until::Head(0), 0)..=(Until::Head(head), u64::MAX);
        keys.extend(self.guests.range(grown).map(|(key, _)| *key));
        let called = keys.into_iter().filter_map(|key| self.remove(key)).collect();
        let old = head.saturating_sub(WINDOW);
        let gone = (Until::Decided(0), 0)..(Until::Decided(old), 0);
        let gone: Vec<_> = self.guests.range(gone).map(|(key, _)| *key).collect();
        for key in gone {
            drop(self.remove(key));
        }
        called
    }

    fn remove(&mut self, key: (Until, u64)) -> Option<Bytes> {
        let Guest { notice, signer } = self.guests.remove(&key)?;
        self.all.take(notice.len());
        if let Some(share) = self.of.get_mut(&signer) {
            share.take(notice.len());
            if share.notices == 0 {
                self.of.remove(&signer);
            }
        }
        Some(notice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> ValidatorId {
        ValidatorId::new(&[number; 20]).unwrap()
    }

    fn early(height: Height) -> Rejection {
        Rejection::NoMetadata { height }
    }

    #[test]
    fn what_waits_comes_out_once_and_in_its_order() {
        let mut room = Anteroom::default();
        for text in ["b", "a", "b"] {
            assert!(room.admit(text.as_bytes(), id(1), &early(5), 3));
        }
        let not_yet = Rejection::NotYetPermitted { height: 2, signer: id(2), from: 6 };
        assert!(room.admit(b"c", id(2), &not_yet, 3));
        assert!(room.call(&[4], 4).is_empty());
        assert_eq!(room.call(&[5], 5), ["b", "a"]);
        assert_eq!(room.call(&[6], 7), ["c"]);
        assert!(room.call(&[5, 6], 8).is_empty());
        assert_eq!((room.all, room.of.len()), (Share::default(), 0));
    }

    #[test]
    fn heights_that_are_far_away_do_not_wait_and_old_ones_leave() {
        let mut room = Anteroom::default();
        assert!(!room.admit(b"a", id(1), &early(1_000 + WINDOW + 1), 1_000));
        assert!(!room.admit(b"a", id(1), &early(1_000 - WINDOW - 1), 1_000));
        assert!(!room.admit(b"a", id(1), &Rejection::V0Disabled, 1_000));
        assert!(room.admit(b"a", id(1), &early(1_000 + WINDOW), 1_000));
        assert!(room.admit(b"b", id(1), &early(1_000 - WINDOW), 1_000));
        assert!(room.call(&[1_001], 1_001).is_empty());
        assert_eq!(room.all, Share { notices: 1, bytes: 1 }, "the old one has left");
    }

    #[test]
    fn one_signer_takes_no_place_from_another_and_all_of_them_are_bounded() {
        let mut room = Anteroom::default();
        let mut waiting = 0_usize;
        for signer in 0..40 {
            for n in 0..1_000_u32 {
                let notice = [&[signer][..], &n.to_be_bytes()].concat();
                waiting += usize::from(room.admit(&notice, id(signer), &early(9), 3));
            }
            let share = MOST_OF_ONE.notices * (usize::from(signer) + 1);
            assert_eq!(waiting, share.min(MOST.notices));
        }
        let mut room = Anteroom::default();
        let long = |n: u8| vec![n; MOST_OF_ONE.bytes / 4];
        let taken = (0..9).filter(|n| room.admit(&long(*n), id(1), &early(9), 3));
        assert_eq!(taken.count(), 4);
        assert!(room.all.bytes <= MOST_OF_ONE.bytes);
    }
}
