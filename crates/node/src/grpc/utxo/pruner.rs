//! `secateur.utxo.v1.Pruner`, and the health call of a Teranode-shaped node.

use std::time::Duration;

use secateur_core::Height;
use secateur_proto::teranode::pruner::pruner_api_server::PrunerApi;
use secateur_proto::teranode::pruner::{EmptyMessage, HealthResponse};
use secateur_proto::utxo::v1 as pb;
use secateur_proto::utxo::v1::pruner_server::Pruner;
use secateur_proto::utxo::v1::trigger_request::Event as Told;
use secateur_utxo::{Event, FileKind, Heard, Trigger, TxId, UtxoError, UtxoStore};
use tokio::time::timeout;
use tonic::{Code, Request, Response, Status};

use super::super::entry::Entry;
use super::story::Away;
use super::{Api, convert, failure, height, story};
use crate::security::Caller;
use crate::ui::words::count;
use crate::utxo::http::NOT_READY;

/// How long the place of files may take to answer while somebody waits for a story.
const LOOK: Duration = Duration::from_secs(5);

impl<S: UtxoStore> Api<S> {
    /// The line of the audit log for a request, where one is kept.
    pub(super) fn entry<T>(
        &self,
        request: &Request<T>,
        call: &'static str,
        what: &str,
    ) -> Option<Entry> {
        self.guard.as_ref().map(|guard| Entry::new(guard, request, call, what))
    }

    /// What a run at a height would know: at the chain's top if none is named, or where the last run
    /// was if nobody has told of the chain yet.
    fn trigger(&self, named: Option<u64>) -> Result<Trigger, Status> {
        let named = named.map(height).transpose()?;
        let (head, heard, processed) = {
            let standing = self.service.standing();
            let standing = standing.borrow();
            (standing.head, standing.heard, standing.processed)
        };
        // What was known before the start may be old.
        if let (Some(named), Some(head)) = (named, head.filter(|_| heard))
            && named > head
        {
            return Err(failure::wrong_height(&format!(
                "height {} is above the chain's top, which is {}; nothing was changed",
                count(named),
                count(head)
            )));
        }
        self.service.trigger_at(named.or(head).or(processed)).ok_or_else(|| {
            failure::refusal(
                Code::FailedPrecondition,
                "no_height",
                "no height is known: nobody has told of the chain; nothing was changed. Name a height",
            )
        })
    }

    /// The same for a height that somebody names, which may be a mistake.
    async fn asked(&self, named: Option<Height>) -> Result<Trigger, Status> {
        let trigger = self.trigger(named)?;
        match (named, self.service.too_far(trigger.height).await) {
            (Some(named), Some(known)) => Err(too_far(named, known)),
            _ => Ok(trigger),
        }
    }

    /// Up to which height records may go now.
    async fn safe(&self) -> Result<Height, Status> {
        let Ok(trigger) = self.trigger(None) else { return Ok(0) };
        self.service.safe_height(trigger).await.map_err(|error| failure::status(&error))
    }

    /// Why external files cannot be removed now.
    async fn away(&self) -> Result<Option<Away>, Status> {
        let pruner = self.service.pruner();
        if pruner.files().is_none() {
            return Ok(Some(Away::NoPlace));
        }
        match timeout(LOOK, pruner.peek_at_place()).await {
            Ok(Ok(())) => Ok(None),
            Ok(Err(UtxoError::File { .. })) => Ok(Some(Away::Elsewhere)),
            Ok(Err(UtxoError::Files(_))) | Err(_) => Ok(Some(Away::Silent)),
            Ok(Err(error)) => Err(failure::status(&error)),
        }
    }

    /// Whether a file is there; nothing where nobody can tell.
    async fn file_is_there(&self, txid: TxId, kind: FileKind) -> Option<bool> {
        let files = self.service.pruner().files()?;
        timeout(LOOK, files.has(txid, kind)).await.ok()?.ok()
    }
}

/// A height that is taken for a mistake.
fn too_far(height: Height, known: Height) -> Status {
    failure::wrong_height(&format!(
        "height {} is far above {}, which is the last that is known; nothing was changed. If the chain \
         really is there, set utxo.max_jump_blocks higher (0: any) and tell it again",
        count(height),
        count(known)
    ))
}

/// Does something that the audit log tells of.
pub(super) async fn noted<T>(
    entry: Option<Entry>,
    work: impl Future<Output = Result<T, Status>>,
) -> Result<Response<T>, Status> {
    let done = match entry {
        None => work.await,
        Some(entry) => entry.over(async { work.await.map_err(Said) }).await.map_err(|said| said.0),
    };
    done.map(Response::new)
}

/// A status as the audit log tells it: its message.
struct Said(Status);

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.message())
    }
}

#[tonic::async_trait]
impl<S: UtxoStore> Pruner for Api<S> {
    async fn status(
        &self,
        _: Request<pb::StatusRequest>,
    ) -> Result<Response<pb::StatusResponse>, Status> {
        let stands = self.service.status().await.map_err(|error| failure::status(&error))?;
        let rules = self.service.pruner().store().rules();
        Ok(Response::new(pb::StatusResponse {
            block_height_retention: rules.block_height_retention,
            coinbase_maturity: rules.coinbase_maturity,
            ..convert::status(stands, self.service.ready())
        }))
    }

    async fn plan(
        &self,
        request: Request<pb::PlanRequest>,
    ) -> Result<Response<pb::PlanResponse>, Status> {
        let trigger = self.asked(request.into_inner().height).await?;
        let planned = self.service.plan(trigger).await;
        let planned = planned.map_err(|error| failure::status(&error))?;
        Ok(Response::new(convert::plan(&planned)))
    }

    async fn prune(
        &self,
        request: Request<pb::PruneRequest>,
    ) -> Result<Response<pb::PruneResponse>, Status> {
        let named = request.get_ref().height;
        let at = named.map_or_else(|| "the top".into(), |height| format!("height {height}"));
        let entry = self.entry(&request, "utxo.prune", &format!("at {at}"));
        noted(entry, async {
            let trigger = self.asked(named).await?;
            let (service, stop) = (self.service.clone(), self.stopping.clone());
            // It goes on if whoever asked has gone.
            let run = tokio::spawn(async move { service.prune(trigger, stop).await });
            let ran = run.await.map_err(|error| Status::internal(error.to_string()))?;
            match ran {
                Ok((_, Some(error))) => Err(failure::status(&error)),
                Ok((job, None)) => {
                    Ok(pb::PruneResponse { job: Some(convert::job(&job)), skip: None })
                }
                Err(skip) => {
                    Ok(pb::PruneResponse { job: None, skip: Some(skip.name().to_owned()) })
                }
            }
        })
        .await
    }

    async fn trigger(
        &self,
        request: Request<pb::TriggerRequest>,
    ) -> Result<Response<pb::TriggerResponse>, Status> {
        let (what, event) = match &request.get_ref().event {
            Some(Told::Block(block)) => {
                let (what, mined_set) = (format!("block {}", block.height), block.mined_set);
                (what, height(block.height).map(|height| Event::Block { height, mined_set }))
            }
            Some(Told::BlockPersisted(block)) => {
                let what = format!("block {} is persisted", block.height);
                (what, height(block.height).map(|height| Event::Persisted { height }))
            }
            None => (String::new(), Err(failure::malformed("the event is missing"))),
        };
        noted(self.entry(&request, "utxo.trigger", &what), async {
            let event = event?;
            let heard = self.service.hear(event).await;
            let (Event::Block { height, .. } | Event::Persisted { height }) = event;
            match heard.map_err(|error| failure::status(&error))? {
                Heard::Trigger(_) => Ok(pb::TriggerResponse { triggers: true }),
                Heard::Noted => Ok(pb::TriggerResponse { triggers: false }),
                Heard::TooFar { known } => Err(too_far(height, known)),
                Heard::AboveHead { head } => Err(failure::wrong_height(&format!(
                    "block {} is said to be persisted, and the last block that was told is {}; nothing was \
                     changed. Tell the block first, then this again",
                    count(height),
                    count(head)
                ))),
            }
        })
        .await
    }

    async fn jobs(
        &self,
        _: Request<pb::JobsRequest>,
    ) -> Result<Response<pb::JobsResponse>, Status> {
        let jobs = self.service.pruner().store().jobs().await;
        let jobs = jobs.map_err(|error| failure::status(&error))?;
        self.held(pb::JobsResponse { jobs: jobs.iter().map(convert::job).collect() })
    }

    async fn explain(
        &self,
        request: Request<pb::ExplainRequest>,
    ) -> Result<Response<pb::ExplainResponse>, Status> {
        let text = request.into_inner().txid;
        let txid: TxId = text.parse().map_err(|_| {
            failure::malformed("this is no transaction id: 64 hexadecimal digits are wanted")
        })?;
        let _turn = self.stories.acquire().await;
        let found = self.service.explain(txid).await.map_err(|error| failure::status(&error))?;
        let pruned_at = if found.is_some() {
            None
        } else {
            let remembered = self.service.pruned_at(txid).await;
            remembered.map_err(|error| failure::status(&error))?
        };
        let stands = self.service.standing().borrow().clone();
        let mut record = found.as_ref().map(convert::record);
        let external = found.as_ref().and_then(|found| found.external);
        let mut away = None;
        if let (Some(record), Some(kind)) = (&mut record, external) {
            let (there, looked) = tokio::join!(self.file_is_there(txid, kind), self.away());
            (record.file_is_there, away) = (there, looked?);
        }
        let verdict = match &found {
            Some(record) => {
                let (settings, enabled) =
                    (self.service.pruner().settings(), self.service.following().enabled);
                let awaited = self.service.awaited().await;
                let awaited = awaited.map_err(|error| failure::status(&error))?;
                let safe = self.safe().await?;
                let around =
                    story::Around { stands: &stands, safe, awaited, settings, enabled, away };
                story::verdict(record, &around)
            }
            None => vec![story::absent(pruned_at, &stands)],
        };
        self.held(pb::ExplainResponse {
            txid: txid.to_string(),
            record,
            processed: stands.processed,
            head: stands.head,
            verdict,
            pruned_at,
        })
    }
}

#[tonic::async_trait]
impl<S: UtxoStore> PrunerApi for Api<S> {
    async fn health_grpc(
        &self,
        request: Request<EmptyMessage>,
    ) -> Result<Response<HealthResponse>, Status> {
        let ready = self.service.ready();
        let ok = ready.is_ok();
        // Why it is not may name files and addresses, and this call is open.
        let caller = request.extensions().get::<Caller>();
        let told = |reason| {
            if caller.is_none_or(Caller::may_read_causes) { reason } else { NOT_READY.to_owned() }
        };
        let details = ready.err().map_or_else(|| "it keeps up".into(), told);
        Ok(Response::new(HealthResponse { ok, details }))
    }
}
