//! Events come in, and the latest height is pruned, again if need be.

use std::time::Duration;

use secateur_core::Height;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{PERSISTED, Service};
use crate::UtxoError;
use crate::events::{Event, Heard, StalePersister};
use crate::metrics::Unheard;
use crate::pruner::{Skip, Trigger};
use crate::store::UtxoStore;

/// How long a failed run waits before it is tried again, at first and at most.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// Between two runs that events set off, so that a burst of heights runs a few prunes and not one for each that fits in.
const REST: Duration = Duration::from_millis(500);

impl<S: UtxoStore> Service<S> {
    /// Takes an event in; whoever runs the service does the rest. An event whose work is done, or which is to set
    /// nothing off, is noted. What keeps records back is in the store before anything is decided from it: a restart
    /// must not forget it.
    pub async fn hear(&self, event: Event) -> Result<Heard, UtxoError> {
        let (Event::Block { height, .. } | Event::Persisted { height }) = event;
        if let Some(known) = self.too_far(height).await {
            self.0.metrics.unheard(Unheard::TooFar);
            let doubt = format!(
                "height {height} was told, far above what is known, and is taken for a mistake; \
                 utxo.max_jump_blocks says how far is too far"
            );
            return Ok(self.doubt(doubt, Heard::TooFar { known }));
        }
        // Two who report at the same time are noted and heard in one order.
        let mut noted = self.0.noted.lock().await;
        let head = self.0.watch.lock().told();
        if let (Event::Persisted { .. }, Some(head)) = (event, head)
            && height > head
        {
            self.0.metrics.unheard(Unheard::BeyondTheHead);
            let doubt = format!(
                "block {height} was said to be persisted, above {head}, the last block that was told, and that is \
                 taken for a mistake"
            );
            return Ok(self.doubt(doubt, Heard::AboveHead { head }));
        }
        if let Event::Persisted { height } = event
            && !self.0.following.persister_absent
            // A height that is noted too low only keeps more.
            && noted.is_none_or(|noted| height < noted)
        {
            self.0.pruner.store().set_note(PERSISTED, &height.to_string()).await?;
            *noted = Some(height);
        }
        Ok(self.take_in(event))
    }

    /// Tells of an event that is not believed, until one comes that is.
    fn doubt(&self, doubt: String, heard: Heard) -> Heard {
        self.0.state.lock().doubted = Some(doubt);
        self.show();
        heard
    }

    fn take_in(&self, event: Event) -> Heard {
        let heard = self.listen(event);
        let head = self.0.watch.lock().told();
        {
            let mut state = self.0.state.lock();
            state.feed.hear(head);
            (state.doubted, state.heard) = (None, true);
        }
        let sets_off = match heard {
            // Asked before it is offered: then its run may be over at any moment.
            Heard::Trigger(trigger) if self.0.following.enabled => {
                let is_ahead = self.is_ahead(trigger);
                if self.0.waiting.offer(trigger).is_some() {
                    self.0.metrics.replaced();
                }
                is_ahead
            }
            _ => false,
        };
        self.show();
        if sets_off { heard } else { Heard::Noted }
    }

    /// Learns from an event, wherever it is from, and sets nothing off.
    pub(super) fn listen(&self, event: Event) -> Heard {
        let (heard, stale) = {
            let mut watch = self.0.watch.lock();
            let was_stale = watch.stale().is_some();
            (watch.hear(event), watch.stale().filter(|_| !was_stale))
        };
        if let Some(stale) = stale {
            alarm(stale);
        }
        heard
    }

    /// Prunes what events ask for, until it is told to stop, and looks meanwhile whether the store answers.
    /// A run that failed is tried again, soon if the reason may pass by itself, at the height that was told last.
    pub async fn run(&self, stop: watch::Receiver<bool>) {
        tokio::select! {
            biased;
            () = self.follow(stop) => {}
            never = self.look_after_store() => match never {},
        }
    }

    async fn follow(&self, mut stop: watch::Receiver<bool>) {
        let mut pause = PATIENCE.0;
        let mut again: Option<Again> = None;
        let mut rested = Instant::now();
        loop {
            let trigger = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                trigger = self.0.waiting.take_from(rested) => trigger,
                trigger = Again::due(again) => trigger,
            };
            // What was tried in vain is not tried sooner because it is told again; but what was told last counts.
            let reach = self.reach(trigger);
            if let Some(again) = again.as_mut().filter(|again| again.is_early(reach)) {
                again.trigger = trigger;
                self.0.metrics.replaced();
                continue;
            }
            again = None;
            if !self.is_ahead(trigger) {
                self.skip(Skip::NotAhead);
                continue;
            }
            let soon = match self.prune(trigger, stop.clone()).await {
                // Files may be removed by then.
                Ok((job, None)) => (job.done.left_by_files() > 0).then_some(false),
                Ok((_, Some(error))) => Some(error.is_retryable()),
                Err(skip) => skip.is_retryable().then_some(true),
            };
            rested = Instant::now() + REST;
            pause = match soon {
                None => PATIENCE.0,
                Some(true) => (pause * 2).min(PATIENCE.1),
                Some(false) => PATIENCE.1,
            };
            let at = Instant::now() + pause;
            again = soon.map(|_| Again { trigger, reach, at });
        }
    }

    /// How far a run would come, and up to which height it would delete.
    fn reach(&self, trigger: Trigger) -> (Height, Height) {
        let pruner = &self.0.pruner;
        (trigger.height, pruner.settings().safe_height(&pruner.store().rules(), trigger))
    }

    /// Whether a run would come to a height that is not processed, or delete further than before (a persister
    /// that was behind a prune at the head catches up below it), or find what the last one had to leave.
    fn is_ahead(&self, trigger: Trigger) -> bool {
        let (height, safe) = self.reach(trigger);
        let state = self.0.state.lock();
        state.processed < Some(height) || state.swept < Some(safe) || state.unfinished
    }
}

/// A run that is tried again.
#[derive(Debug, Clone, Copy)]
struct Again {
    /// At the height that was told last.
    trigger: Trigger,
    /// How far the one that was tried would have come, and deleted.
    reach: (Height, Height),
    at: Instant,
}

impl Again {
    /// Whether it is too early for another run that comes no further.
    fn is_early(&self, (height, safe): (Height, Height)) -> bool {
        Instant::now() < self.at && height <= self.reach.0 && safe <= self.reach.1
    }

    /// Waits until it is time.
    async fn due(again: Option<Self>) -> Trigger {
        match again {
            None => std::future::pending().await,
            Some(again) => {
                tokio::time::sleep_until(again.at).await;
                again.trigger
            }
        }
    }
}

/// Tells of a persister that keeps records back.
pub(super) fn alarm(StalePersister { head, persisted }: StalePersister) {
    tracing::error!(
        head,
        persisted,
        "the block persister has fallen behind, and records go only up to what it has written: \
         check it, or set its absence in the configuration if it is gone for good"
    );
}
