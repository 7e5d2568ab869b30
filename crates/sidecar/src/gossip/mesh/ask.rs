//! Asking a peer for the notices that are lacking here, page by page.
//!
//! It is also how a peer shows that it lives: with nothing lacking, the question is empty. A run
//! asks about so many heights at most; the next one goes on behind them, and begins anew at the
//! end, so that heights of which nobody has a notice do not keep others from being asked about.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use secateur_core::Height;
use secateur_proto::sidecar::v1::{MissingRequest, MissingResponse};
use tokio::sync::oneshot;
use tonic::Code;

use super::super::Verdict;
use super::super::intake::Intake;
use super::channel::Client;
use super::link::Broken;
use super::server::{MAX_HEIGHTS, MAX_PAGE_NOTICES};

/// Pages of one run.
const MAX_PAGES: usize = 256;

/// The asking over one connection: one run at a time.
pub(super) struct Asking {
    peer: String,
    client: Client,
    intake: Arc<Intake>,
    timeout: Duration,
    /// Where the next run begins.
    cursor: Height,
    run: Option<BoxFuture<'static, Result<Run, Broken>>>,
    waiting: Vec<oneshot::Sender<usize>>,
}

/// What came of a run.
struct Run {
    taken: usize,
    cursor: Height,
}

impl Asking {
    pub(super) fn new(
        peer: &str,
        client: &Client,
        intake: &Arc<Intake>,
        timeout: Duration,
    ) -> Self {
        Self {
            peer: peer.to_owned(),
            client: client.clone(),
            intake: Arc::clone(intake),
            timeout,
            cursor: 0,
            run: None,
            waiting: Vec::new(),
        }
    }

    /// Begins a run, unless one is under way; whoever waits is told what comes of it.
    pub(super) fn begin(&mut self, answer: Option<oneshot::Sender<usize>>) {
        self.waiting.extend(answer);
        if self.run.is_none() {
            let (client, intake) = (self.client.clone(), Arc::clone(&self.intake));
            let (peer, from, timeout) = (self.peer.clone(), self.cursor, self.timeout);
            self.run = Some(Box::pin(ask(peer, client, intake, from, timeout)));
        }
    }

    /// Goes on with the run, if there is one, and returns when it has ended. Nothing is lost if
    /// this is given up and called again.
    pub(super) async fn run(&mut self) -> Result<(), Broken> {
        let Some(run) = &mut self.run else { return std::future::pending().await };
        let ended = run.await;
        self.run = None;
        let Run { taken, cursor } = ended?;
        self.cursor = cursor;
        for answer in self.waiting.drain(..) {
            // Who asked may have left.
            answer.send(taken).unwrap_or_default();
        }
        Ok(())
    }
}

async fn ask(
    peer: String,
    mut client: Client,
    intake: Arc<Intake>,
    mut from: Height,
    timeout: Duration,
) -> Result<Run, Broken> {
    let mut taken = 0;
    let mut heights = lacking(&intake, from).await;
    if heights.is_empty() && from > 0 {
        from = 0;
        heights = lacking(&intake, from).await;
    }
    let mut skip = 0;
    for _ in 0..MAX_PAGES {
        let asked = heights.len();
        let Some(page) = page(&mut client, heights.clone(), skip, timeout).await? else { break };
        let done = usize::try_from(page.heights_done).unwrap_or(usize::MAX).min(asked);
        let goes_on = done > 0 || page.skip > skip;
        let notices = page.notices;
        let verdicts = intake.take_all(Some(peer.clone()), notices).await;
        let new = verdicts.iter().filter(|verdict| **verdict == Verdict::New).count();
        let refused = verdicts.iter().any(|verdict| matches!(verdict, Verdict::Refused(_)));
        taken += new;
        let last = heights.last().copied();
        if new == 0 && refused {
            // It says only what is wrong: enough of that for now. The next run asks about others.
            from = last.and_then(|last| last.checked_add(1)).unwrap_or(0);
            break;
        }
        heights.drain(..done);
        skip = page.skip;
        if heights.is_empty() {
            let Some(next) = last.and_then(|last| last.checked_add(1)) else { break };
            (from, skip) = (next, 0);
            heights = lacking(&intake, from).await;
            if heights.is_empty() {
                from = 0;
                break;
            }
        } else if !goes_on {
            return Err(Broken("its pages do not go on".to_owned()));
        }
    }
    if taken > 0 {
        tracing::info!(peer, taken, "took notices that were lacking");
    }
    Ok(Run { taken, cursor: from })
}

/// One page; none if the peer has too much to do just now.
async fn page(
    client: &mut Client,
    heights: Vec<Height>,
    skip: u32,
    timeout: Duration,
) -> Result<Option<MissingResponse>, Broken> {
    let call = client.missing(MissingRequest { heights, skip });
    match tokio::time::timeout(timeout, call).await {
        Ok(Ok(page)) => {
            let page = page.into_inner();
            if page.notices.len() > MAX_PAGE_NOTICES {
                return Err(Broken("its page has too many notices".to_owned()));
            }
            Ok(Some(page))
        }
        Ok(Err(status)) if status.code() == Code::ResourceExhausted => Ok(None),
        Ok(Err(status)) => Err(Broken::status(&status)),
        Err(_) => Err(Broken::silent()),
    }
}

/// Heights that lack a notice; the engine's disk may be read for it.
async fn lacking(intake: &Arc<Intake>, from: Height) -> Vec<Height> {
    let intake = Arc::clone(intake);
    let told = tokio::task::spawn_blocking(move || intake.lacking(from, MAX_HEIGHTS));
    told.await.unwrap_or_default()
}
