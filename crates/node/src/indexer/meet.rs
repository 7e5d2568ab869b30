//! Meeting the source before anything is written: which chain it has, whether it is the node that was
//! meant, and whether it lets us do what will be needed.

use std::time::Instant;

use secateur_archive::Archive;
use secateur_index::source::{Right, Source, SourceStatus};
use secateur_index::worker::{Event, Live, Observer, Retry};
use secateur_index::{ErrorClass, IndexError};
use tokio::sync::watch;

use super::{Directory, Job};
use crate::error::NodeError;

/// Who meets the source.
pub(super) struct Meeting<'a> {
    pub(super) job: &'a Job,
    pub(super) look: &'a dyn Observer,
    /// Where it is noted how the source is doing, if somebody looks there.
    pub(super) live: Option<&'a Live>,
    pub(super) stop: &'a watch::Receiver<bool>,
}

impl Meeting<'_> {
    /// The chain's number: as it is named, as the index knows it, or as the source says. None if it was
    /// asked to stop while it waited for the source.
    pub(super) async fn meet<S: Source>(
        &self,
        source: &S,
        known: Option<u64>,
    ) -> Result<Option<u64>, anyhow::Error> {
        let job = self.job;
        if let (Some(named), Some(known)) = (job.chain_id, known)
            && named != known
        {
            return Err(IndexError::Refused(format!(
                "the index has chain {known}, and chain {named} is wanted: name another index"
            ))
            .into());
        }
        let rights = rights(job);
        if self.patiently(|| source.check_rights(&rights)).await?.is_none() {
            return Ok(None);
        }
        if !self.is_meant(source).await? {
            return Ok(None);
        }
        if let Some(id) = job.chain_id.or(known) {
            return Ok(Some(id));
        }
        let status = match self.patiently(|| source.status()).await {
            Err(IndexError::Refused(reason)) => {
                let told =
                    format!("{reason} (which chain it has was asked; --chain-id says it, too)");
                return Err(IndexError::Refused(told).into());
            }
            status => status?,
        };
        let Some(status) = status else { return Ok(None) };
        let none = || {
            NodeError::Usage(
                "the source does not say which chain it has; name it with --chain-id".into(),
            )
        };
        Ok(Some(status.chain_id.ok_or_else(none)?))
    }

    /// Refuses a source that is not the node of the directory that was named or found; false if it was asked
    /// to stop meanwhile.
    pub(super) async fn is_meant<S: Source>(&self, source: &S) -> Result<bool, IndexError> {
        let Some(directory) = &self.job.directory else { return Ok(true) };
        let asked = self.patiently(|| source.status()).await;
        let Some(status) = asked.map_err(|error| about(directory, error))? else {
            return Ok(false);
        };
        compare(directory, &self.job.source.to_string(), &status)?;
        Ok(true)
    }

    /// Refuses an archive that no part could be written to; false if it was asked to stop meanwhile.
    pub(super) async fn may_write(&self, chain_id: u64) -> Result<bool, anyhow::Error> {
        let Some(to) = &self.job.archive else { return Ok(true) };
        let archive = Archive::create(&to.place.url, &to.place.settings)?;
        let archive = &archive;
        let ask = || async move {
            archive.check_writable(chain_id).await.map_err(|error| IndexError::ArchiveIo {
                reason: format!("parts cannot be written to {}: {error}", archive.provider()),
                retryable: error.is_retryable(),
            })
        };
        Ok(self.patiently(ask).await?.is_some())
    }

    /// Asks again as long as what goes wrong may pass; none if it was asked to stop meanwhile. Behind the
    /// threshold it pauses, and a job that is to end gives up.
    pub(super) async fn patiently<T, F: Future<Output = Result<T, IndexError>>>(
        &self,
        mut ask: impl FnMut() -> F,
    ) -> Result<Option<T>, IndexError> {
        let patience = self.job.patience;
        let mut retry = Retry::new(patience.alarm_after, patience.pause);
        let mut stop = self.stop.clone();
        loop {
            let error = match ask().await {
                Ok(answer) => {
                    if let Some(live) = self.live {
                        live.passed();
                    }
                    return Ok(Some(answer));
                }
                Err(error) if error.is_retryable() => error,
                Err(error) => return Err(error),
            };
            let now = Instant::now();
            let failed = retry.failed(now);
            if let Some(live) = self.live {
                if matches!(error.class(), ErrorClass::Net | ErrorClass::Timeout) {
                    live.silent(&error);
                }
                live.failed(&error, failed.paused.then_some(failed.wait), now);
            }
            if failed.alarm {
                self.look.event(&Event::Alarm { error: &error, since: failed.since });
            }
            if failed.paused && self.job.once {
                return Err(error);
            }
            self.look.event(&Event::Retrying { error: &error, wait: failed.wait });
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return Ok(None),
                () = tokio::time::sleep(failed.wait) => {}
            }
        }
    }
}

/// What the source will be asked to take.
fn rights(job: &Job) -> Vec<Right> {
    let exported = job.consumer.as_ref().map(|_| Right::AckExported);
    let archived = job.archive.as_ref().filter(|to| to.acknowledge).map(|_| Right::AckArchived);
    exported.into_iter().chain(archived).collect()
}

/// A node that does not know the token of its own directory is another one.
fn about(directory: &Directory, error: IndexError) -> IndexError {
    match error {
        IndexError::Refused(reason) if directory.store_id.is_some() => {
            IndexError::Refused(format!(
                "{reason} (its address and token are from node.json in {}: is another node there by now?)",
                directory.path.display()
            ))
        }
        error => error,
    }
}

/// Refuses a source that has another chain, or another store, than the directory.
fn compare(directory: &Directory, source: &str, status: &SourceStatus) -> Result<(), IndexError> {
    let path = directory.path.display();
    let refuse = |what: String| {
        Err(IndexError::Refused(format!(
            "{what}: {source} is not the node of {path}. Start that node, name its address with --source, \
             or leave --data out"
        )))
    };
    if let (Some(ours), Some(theirs)) = (directory.chain_id, status.chain_id)
        && ours != theirs
    {
        return refuse(format!("{path} holds chain {ours}, and the source has chain {theirs}"));
    }
    if let (Some(ours), Some(theirs)) = (directory.store_id, status.store_id)
        && ours != theirs
    {
        return refuse(format!("{path} and the source are two stores"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> Directory {
        Directory { path: "/srv/x".into(), chain_id: Some(5), store_id: Some([1; 16]) }
    }

    #[test]
    fn a_source_of_another_chain_or_another_store_than_the_directory_is_refused() {
        let said = |chain_id, store_id| {
            let status = SourceStatus { chain_id, store_id, ..SourceStatus::default() };
            compare(&directory(), "http://127.0.0.1:7741", &status)
                .map_err(|error| error.to_string())
        };
        assert_eq!(said(Some(5), Some([1; 16])), Ok(()));
        // An older node does not say it.
        assert_eq!(said(Some(5), None), Ok(()));
        let error = said(Some(6), Some([1; 16])).unwrap_err();
        assert!(error.contains("holds chain 5, and the source has chain 6"), "{error}");
        let error = said(Some(5), Some([2; 16])).unwrap_err();
        assert!(error.contains("two stores") && error.contains("/srv/x"), "{error}");
    }
}
