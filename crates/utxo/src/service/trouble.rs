//! How often the log names a trouble: when it begins, from time to time while it lasts, and when it is over.

use std::time::Duration;

use tokio::time::Instant;

/// How long the log says nothing more of a trouble that lasts.
const QUIET: Duration = Duration::from_mins(10);

/// A trouble that may last.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// When the log last named it; nothing while it is not there.
    named: Option<Instant>,
}

impl Trouble {
    /// It is there: whether to name it now.
    pub(super) fn lasts(&mut self) -> bool {
        let is_quiet = self.named.is_some_and(|named| named.elapsed() < QUIET);
        if !is_quiet {
            self.named = Some(Instant::now());
        }
        !is_quiet
    }

    /// It is not there: whether it was until now.
    pub(super) fn is_over(&mut self) -> bool {
        self.named.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_trouble_is_named_when_it_begins_every_ten_minutes_and_when_it_is_over() {
        let mut trouble = Trouble::default();
        assert!(!trouble.is_over());
        let mut named = 0;
        for _ in 0..20 * 60 {
            named += u32::from(trouble.lasts());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(named, 2);
        assert!(trouble.is_over() && !trouble.is_over());
        assert!(trouble.lasts(), "it is back");
    }
}
