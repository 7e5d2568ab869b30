//! What is told of the follower: its [`Standing`], and lines in the log when something changes.

use std::time::Duration;

use parking_lot::Mutex;
use secateur_core::{Height, format_bytes};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{RefusedBlock, RefusedPart, Standing};

/// The same trouble is logged again after so long.
const REMIND_EVERY: Duration = Duration::from_mins(1);
/// A source that names only lower heads for so long no longer has a block that was refused. One of
/// several machines behind an address may be behind for a while.
const GONE_AFTER: Duration = Duration::from_mins(1);

/// What is wrong, by what puts it right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    /// The source does not answer: any answer puts it right.
    Answer,
    /// The disk is full: a group that is taken puts it right.
    Full,
    /// What the source says, or what the store says: only a round that ends well puts it right.
    Deeper,
}

#[derive(Debug, Default)]
struct Told {
    wrong: Option<(Wrong, String)>,
    /// What was logged last, and when.
    logged: Option<(String, Instant)>,
    /// The block that cannot be stored: only a head at or above it puts that right, or a source that
    /// no longer has it. Of a header that cannot be believed, only a round that ends well does.
    refused: Option<RefusedBlock>,
    /// Since when the source has named only heads below it.
    below: Option<Instant>,
    /// The first newest block that the source named, and its timestamp.
    first_head: Option<(Height, u64)>,
}

impl Told {
    /// Whether a block was refused as a whole, and is such a one.
    fn refuses_whole(&self, is_such: impl FnOnce(&RefusedBlock) -> bool) -> bool {
        let whole = self.refused.as_ref().filter(|block| block.part == RefusedPart::Whole);
        whole.is_some_and(is_such)
    }
}

/// Tells.
#[derive(Debug)]
pub(crate) struct Teller {
    standing: watch::Sender<Standing>,
    told: Mutex<Told>,
}

impl Teller {
    pub(super) fn new(standing: watch::Sender<Standing>) -> Self {
        standing.send_modify(|standing| standing.following = true);
        Self { standing, told: Mutex::default() }
    }

    /// Whom it speaks of, and how old what the source said may be.
    pub(super) fn follows(&self, source: &str, patience: Duration) {
        self.change(|standing| {
            (standing.source, standing.patience) = (Some(source.to_owned()), patience);
        });
    }

    /// A request was not answered.
    pub(super) fn source_trouble(&self, text: &str) {
        self.trouble(Wrong::Answer, text);
    }

    /// Blocks cannot be stored for want of space.
    pub(super) fn disk_full(&self, text: &str) {
        self.trouble(Wrong::Full, text);
    }

    /// Something is wrong that an answer alone does not put right.
    pub(super) fn deeper_trouble(&self, text: &str) {
        self.trouble(Wrong::Deeper, text);
    }

    fn trouble(&self, wrong: Wrong, text: &str) {
        let mut told = self.told.lock();
        let due = told
            .logged
            .as_ref()
            .is_none_or(|(logged, at)| at.elapsed() >= REMIND_EVERY || logged != text);
        if due {
            tracing::warn!("{text}");
            told.logged = Some((text.to_owned(), Instant::now()));
        }
        // What is deeper is not forgotten because the next request fails.
        let deeper = told.wrong.as_ref().is_some_and(|(before, _)| *before != Wrong::Answer);
        if wrong != Wrong::Answer || !deeper {
            told.wrong = Some((wrong, text.to_owned()));
            self.show(&told);
        }
    }

    /// A block of the source cannot be stored. It is logged once, however often it is asked for.
    pub(super) fn refused(&self, block: RefusedBlock, source: &str) {
        let mut told = self.told.lock();
        if told.refused.as_ref() == Some(&block) {
            return;
        }
        let hash = block.hash.map_or_else(|| "unknown".into(), |hash| hash.to_string());
        let (number, size) = (block.height, format_bytes(block.bytes));
        tracing::warn!(number, hash, size, source, "{}", told_of(&block));
        (told.refused, told.below) = (Some(block), None);
        self.show(&told);
    }

    /// The source answered.
    pub(super) fn answered(&self) {
        self.quietly(|standing| standing.heard = Some(Instant::now()));
        self.clear(|wrong| wrong == Wrong::Answer);
    }

    /// A group of blocks was taken: there is space.
    pub(super) fn taken(&self) {
        self.clear(|wrong| wrong == Wrong::Full);
    }

    /// Blocks up to here are durable.
    pub(super) fn reached(&self, head: Height) {
        let mut told = self.told.lock();
        if told.refuses_whole(|block| block.height <= head) {
            told.refused = None;
            self.over(&told);
        }
    }

    /// A round ended well. A block that was refused is refused still.
    pub(super) fn well(&self) {
        let mut told = self.told.lock();
        let header = told.refused.take_if(|block| block.part == RefusedPart::Header);
        if told.wrong.take().is_some() || header.is_some() {
            self.over(&told);
        }
    }

    fn clear(&self, what: impl Fn(Wrong) -> bool) {
        let mut told = self.told.lock();
        if told.wrong.as_ref().is_some_and(|(wrong, _)| what(*wrong)) {
            told.wrong = None;
            self.over(&told);
        }
    }

    /// Something was put right; it is logged only if nothing else is wrong.
    fn over(&self, told: &Told) {
        self.show(told);
        if told.wrong.is_none() && told.refused.is_none() {
            tracing::info!("the trouble is over");
        }
    }

    fn show(&self, told: &Told) {
        let refused = told.refused.clone();
        let trouble = refused.as_ref().map(told_of);
        // A full disk is no trouble of the source: readiness and the status say it of the disk.
        let of_source = told.wrong.as_ref().filter(|(wrong, _)| *wrong != Wrong::Full);
        let trouble = trouble.or_else(|| of_source.map(|(_, text)| text.clone()));
        self.change(|standing| (standing.trouble, standing.refused) = (trouble, refused));
    }

    /// The source has just said which its newest block is, and when that was made.
    pub(super) fn heads(&self, head: Height, timestamp: u64, ours: Option<Height>) {
        let mut told = self.told.lock();
        let (first, since) = *told.first_head.get_or_insert((head, timestamp));
        let (blocks, seconds) = (head.checked_sub(first), timestamp.checked_sub(since));
        let pace = blocks.zip(seconds).and_then(|(blocks, seconds)| {
            seconds.saturating_mul(1_000).checked_div(blocks).filter(|millis| *millis > 0)
        });
        drop(told);
        self.asked();
        self.quietly(|standing| standing.block_millis = pace.or(standing.block_millis));
        self.source_head(head, ours);
    }

    /// The source has just said how far it is.
    pub(super) fn asked(&self) {
        self.quietly(|standing| standing.asked = Some(Instant::now()));
    }

    /// The source's newest block, and whether it is here.
    pub(super) fn source_head(&self, head: Height, ours: Option<Height>) {
        let caught_up = ours.is_some_and(|ours| ours >= head);
        self.change(|standing| {
            (standing.source_head, standing.caught_up) = (Some(head), caught_up);
        });
        let mut told = self.told.lock();
        let is_below = told.refuses_whole(|block| head < block.height);
        told.below = is_below.then(|| told.below.unwrap_or_else(Instant::now));
        // It took the block back, or the block is here after all.
        let is_gone = told.below.is_some_and(|since| since.elapsed() >= GONE_AFTER);
        if is_gone || told.refuses_whole(|block| ours >= Some(block.height)) {
            (told.refused, told.below) = (None, None);
            self.over(&told);
        }
    }

    /// Whether the source ends below what is final here.
    pub(super) fn source_is_behind(&self, behind: bool) {
        self.change(|standing| standing.source_is_behind = behind);
    }

    /// The first block of this run is here.
    pub(super) fn began(&self, height: Height) {
        self.change(|standing| {
            standing.from.get_or_insert(height);
        });
    }

    /// Changes the standing, and wakes those who watch it only if it is another one.
    fn change(&self, change: impl FnOnce(&mut Standing)) {
        self.standing.send_if_modified(|standing| {
            let before = standing.clone();
            change(standing);
            *standing != before
        });
    }

    /// Changes what only readers look at, and wakes nobody.
    fn quietly(&self, change: impl FnOnce(&mut Standing)) {
        self.standing.send_if_modified(|standing| {
            change(standing);
            false
        });
    }
}

fn told_of(block: &RefusedBlock) -> String {
    let RefusedBlock { part, height, reason, .. } = block;
    match part {
        RefusedPart::Whole => format!("block {height} was refused and not stored: {reason}"),
        RefusedPart::Header => format!("the header of block {height} was refused: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use secateur_core::BlockHash;

    use super::*;

    fn teller() -> (Teller, watch::Receiver<Standing>) {
        let (say, standing) = watch::channel(Standing::default());
        (Teller::new(say), standing)
    }

    fn refused(height: Height) -> RefusedBlock {
        let hash = Some(BlockHash([7; 32]));
        let part = RefusedPart::Whole;
        RefusedBlock { part, height, hash, bytes: 9_000_000, reason: "it is too long".into() }
    }

    #[test]
    fn an_answer_puts_silence_right_but_not_what_is_deeper() {
        let (teller, standing) = teller();
        let trouble = || standing.borrow().trouble.clone();
        teller.source_trouble("silent");
        assert_eq!(trouble().as_deref(), Some("silent"));
        teller.answered();
        assert_eq!(trouble(), None);
        teller.deeper_trouble("refused");
        teller.source_trouble("silent");
        teller.answered();
        assert_eq!(trouble().as_deref(), Some("refused"));
        teller.well();
        assert_eq!(trouble(), None);
    }

    /// Blocks below a refused one that became durable, and rounds that ended before they came to it,
    /// were taken for the end of the trouble, and the refusal was logged again each time. The refused
    /// block is kept by its height now.
    #[test]
    fn a_refused_block_is_trouble_until_a_block_at_its_height_is_here() {
        let (teller, standing) = teller();
        let block = || standing.borrow().refused.clone();
        teller.refused(refused(12), "here");
        teller.well();
        teller.reached(11);
        teller.answered();
        teller.source_trouble("silent");
        teller.answered();
        teller.source_head(20, Some(11));
        assert_eq!(block(), Some(refused(12)));
        assert!(standing.borrow().trouble.as_ref().unwrap().contains("block 12 was refused"));
        teller.reached(12);
        assert_eq!((block(), standing.borrow().trouble.clone()), (None, None));
        teller.refused(refused(12), "here");
        teller.source_head(12, Some(12));
        assert_eq!(block(), None, "it is here after all");
    }

    /// A source that briefly named a lower head, as one of several machines behind an address does,
    /// was the end of the trouble.
    #[test]
    fn a_source_no_longer_has_a_refused_block_when_it_was_below_it_for_a_minute() {
        let (teller, standing) = teller();
        let is_refused = || standing.borrow().refused.is_some();
        let goes_back = |by| {
            let mut told = teller.told.lock();
            told.below = told.below.and_then(|since| since.checked_sub(by));
        };
        teller.refused(refused(12), "here");
        teller.source_head(11, Some(11));
        assert!(is_refused());
        goes_back(GONE_AFTER / 2);
        teller.source_head(20, Some(11));
        teller.source_head(11, Some(11));
        goes_back(GONE_AFTER / 2);
        teller.source_head(11, Some(11));
        assert!(is_refused(), "it had it meanwhile");
        goes_back(GONE_AFTER);
        teller.source_head(11, Some(11));
        assert!(!is_refused());
    }

    /// The head that the source named was taken for the end of the trouble in each round, because a
    /// block of that height is here.
    #[test]
    fn a_refused_header_is_trouble_until_a_round_ends_well() {
        let (teller, standing) = teller();
        let block = RefusedBlock { part: RefusedPart::Header, ..refused(12) };
        teller.refused(block.clone(), "here");
        teller.source_head(20, Some(20));
        teller.source_head(11, Some(20));
        teller.reached(20);
        teller.answered();
        assert_eq!(standing.borrow().refused, Some(block));
        assert!(!standing.borrow().is_caught_up(Instant::now()));
        assert!(standing.borrow().trouble.as_ref().unwrap().starts_with("the header of block 12"));
        teller.well();
        assert_eq!((&standing.borrow().refused, &standing.borrow().trouble), (&None, &None));
    }

    /// Groups that were handed in before the disk was full become durable while it is full.
    #[test]
    fn a_full_disk_lasts_until_a_group_is_taken_and_is_no_trouble_of_the_source() {
        let (teller, standing) = teller();
        let is_full = || teller.told.lock().wrong.as_ref().is_some_and(|(w, _)| *w == Wrong::Full);
        teller.source_trouble("silent");
        teller.disk_full("no room");
        teller.reached(5);
        teller.answered();
        assert!(is_full());
        assert_eq!(standing.borrow().trouble, None, "`/readyz` and the metric accused the source");
        teller.taken();
        assert!(!is_full());
        assert_eq!(standing.borrow().trouble, None);
    }

    #[test]
    fn a_standing_that_stays_the_same_wakes_nobody() {
        let (teller, mut standing) = teller();
        teller.heads(7, 70, Some(7));
        standing.mark_unchanged();
        teller.heads(7, 70, Some(7));
        teller.answered();
        assert!(!standing.has_changed().unwrap());
        teller.heads(8, 72, Some(7));
        assert!(standing.has_changed().unwrap());
        assert!(!standing.borrow().caught_up);
        assert_eq!(standing.borrow().block_millis, Some(2_000));
    }
}
