//! What is told of the follower: its [`Standing`], and lines in the log when something changes.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use secateur_core::Height;
use tokio::sync::watch;

use super::Standing;

/// The same trouble is logged again after so long.
const REMIND_EVERY: Duration = Duration::from_mins(1);

/// What is wrong, by what puts it right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    /// The source does not answer: any answer puts it right.
    Answer,
    /// What the source says, or what the store says: only progress puts it right.
    Deeper,
}

#[derive(Debug, Default)]
struct Told {
    wrong: Option<Wrong>,
    text: String,
    at: Option<Instant>,
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

    /// A request was not answered.
    pub(super) fn source_trouble(&self, text: &str) {
        self.trouble(Wrong::Answer, text);
    }

    /// Something is wrong that an answer alone does not put right.
    pub(super) fn deeper_trouble(&self, text: &str) {
        self.trouble(Wrong::Deeper, text);
    }

    fn trouble(&self, wrong: Wrong, text: &str) {
        let mut told = self.told.lock();
        let due = told.at.is_none_or(|at| at.elapsed() >= REMIND_EVERY) || told.text != text;
        if due {
            tracing::warn!("{text}");
            told.at = Some(Instant::now());
            text.clone_into(&mut told.text);
        }
        // A refused block is not forgotten because the next request fails.
        if told.wrong != Some(Wrong::Deeper) || wrong == Wrong::Deeper {
            told.wrong = Some(wrong);
            self.standing.send_modify(|standing| standing.trouble = Some(text.to_owned()));
        }
    }

    /// The source answered.
    pub(super) fn answered(&self) {
        self.clear(|wrong| wrong == Wrong::Answer);
    }

    /// Blocks came in, or there are none to come.
    pub(super) fn well(&self) {
        self.clear(|_| true);
    }

    fn clear(&self, what: impl Fn(Wrong) -> bool) {
        let mut told = self.told.lock();
        if told.wrong.is_some_and(what) {
            *told = Told::default();
            self.standing.send_modify(|standing| standing.trouble = None);
            tracing::info!("the trouble is over");
        }
    }

    /// The source's newest block, and whether it is here.
    pub(super) fn source_head(&self, head: Height, ours: Option<Height>) {
        let caught_up = ours.is_some_and(|ours| ours >= head);
        self.change(|standing| {
            (standing.source_head, standing.caught_up) = (Some(head), caught_up);
        });
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_puts_silence_right_but_not_a_refused_block() {
        let (say, standing) = watch::channel(Standing::default());
        let teller = Teller::new(say);
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

    #[test]
    fn a_standing_that_stays_the_same_wakes_nobody() {
        let (say, mut standing) = watch::channel(Standing::default());
        let teller = Teller::new(say);
        teller.source_head(7, Some(7));
        standing.mark_unchanged();
        teller.source_head(7, Some(7));
        assert!(!standing.has_changed().unwrap());
        teller.source_head(8, Some(7));
        assert!(standing.has_changed().unwrap());
        assert!(!standing.borrow().caught_up);
    }
}
