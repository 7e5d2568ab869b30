//! `archiver`: blobs through the durable queue into a directory, read back, compared and recorded,
//! beside copying the same bytes from a file to the same provider and reading them back, as many at
//! once.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use alloy_primitives::keccak256;
use anyhow::{Result, anyhow, ensure};
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use secateur_archive::{ArchiveUrl, Settings};
use secateur_sidecar::archiver::{
    Archiver, ArchiverObserver, ArchiverOptions, AttemptError, Wakes,
};
use secateur_sidecar::book::Book;
use secateur_sidecar::engine::{ArchiveRecord, BlobKey, Role};
use secateur_sidecar::provider::{BlobTags, ObjectProvider, Provider};
use secateur_sidecar::{BLOB_LEN, BlobKeccak, kzg, testdata};
use secateur_store::SystemClock;
use tokio::sync::{Notify, watch};

use super::{CHAIN_ID, Nobody, key, line, open, validator, verifier};
use crate::machine::Machine;
use crate::measure::{float, median, share};
use crate::names::Setting;
use crate::results::{Case, Figure, Report};

/// Its name.
pub const NAME: &str = "archiver";

/// Blobs under way at once, on both sides.
const AT_ONCE: usize = 8;

/// Runs it.
pub fn run(setting: &Setting) -> Result<Report> {
    let (blobs, rounds) = if setting.quick { (256, 3) } else { (2_048, 7) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (mut ours, mut bare, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let rate = |took: Duration| share(float(blobs * BLOB_LEN as u64), took.as_secs_f64());
    let all = setting.data.join("archiver");
    for round in 1..=rounds {
        eprintln!("{NAME}: round {round} …");
        // None is removed before the last has ended: making files is slow for a while where many
        // were removed.
        let at = all.join(round.to_string());
        // Whoever comes second finds a disk that is busy with the first one's pages: they take turns.
        let both = |ours_first: bool| -> Result<(Duration, Duration)> {
            let queue = || runtime.block_on(through_the_queue(&at.join("ours"), blobs));
            let copy = || runtime.block_on(by_hand(&at.join("bare"), blobs));
            if ours_first {
                let first = queue()?;
                Ok((first, copy()?))
            } else {
                let first = copy()?;
                Ok((queue()?, first))
            }
        };
        let (took, theirs) = both(round % 2 == 1)?;
        ours.push(rate(took));
        bare.push(rate(theirs));
        let (ours, bare) = (rate(took) / 1e6, rate(theirs) / 1e6);
        eprintln!("{NAME}: ours {ours:.0} MB/s, bare {bare:.0} MB/s");
        ratios.push(share(theirs.as_secs_f64(), took.as_secs_f64()));
    }
    std::fs::remove_dir_all(&all)?;
    let case = Case {
        labels: vec![("blobs", blobs.to_string()), ("at once", AT_ONCE.to_string())],
        figures: vec![("vs_bare", Figure::Ratio(median(&ratios)))],
        rounds: ratios,
        contestants: vec![
            line(
                "ours",
                "Secateur's archiver",
                "from the store: read, put, read back, keccak compared, record durable",
                ("MB/s", median(&ours) / 1e6),
                "disk",
            ),
            line(
                "bare",
                "put and get",
                "the same provider, from a file, nothing compared or recorded",
                ("MB/s", median(&bare) / 1e6),
                "disk",
            ),
        ],
        phases: Vec::new(),
    };
    Ok(Report {
        name: NAME,
        work: format!("{blobs} blobs of 128 KiB into a directory"),
        mode: if setting.quick { "quick" } else { "full" },
        machine: Machine::look(&setting.data),
        cases: vec![case],
        plotted: "vs_bare",
    })
}

fn provider(at: PathBuf) -> Result<Arc<dyn Provider>> {
    Ok(Arc::new(ObjectProvider::open("fs", &ArchiveUrl::Directory(at), &Settings::default())?))
}

/// Counts what is archived, and says when it is all.
struct Counted {
    left: AtomicU64,
    done: Notify,
}

impl ArchiverObserver for Counted {
    fn archived(&self, _: BlobKey, _: &ArchiveRecord) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.notify_one();
        }
    }

    fn failed(&self, key: BlobKey, error: &AttemptError, _: u32, _: u64) {
        eprintln!("{NAME}: {key:?}: {error}");
    }
}

async fn through_the_queue(at: &Path, blobs: u64) -> Result<Duration> {
    let store = Arc::new(open(&at.join("store"))?);
    let us = validator()?;
    for height in 0..blobs {
        let which = usize::try_from(height)? % testdata::POOL;
        store.store_decided(&testdata::proposal(height, 0, &us, &[which]), Role::Proposer)?;
    }
    let counted = Arc::new(Counted { left: AtomicU64::new(blobs), done: Notify::new() });
    let mut options = ArchiverOptions::new(CHAIN_ID, us);
    options.at_once = AT_ONCE;
    let (verifier, key) = (Arc::new(verifier()?), Some(Arc::new(key())));
    let book = Book::new(Arc::clone(&store), verifier, key, Arc::new(Nobody));
    let archiver = Archiver::new(
        Arc::new(book),
        vec![provider(at.join("copies"))?],
        options,
        Arc::new(SystemClock),
        Arc::clone(&counted) as _,
        Wakes::default(),
    )?;
    let (_stop, stopped) = watch::channel(false);
    let began = Instant::now();
    tokio::select! {
        ended = archiver.run(stopped) => return Err(anyhow!("the archiver ended: {ended:?}")),
        () = counted.done.notified() => {}
    }
    let took = began.elapsed();
    ensure!(store.summary()?.archived == blobs, "not everything is archived");
    Ok(took)
}

/// A file of blobs, one after the other. Like what a store wrote, it is on the disk and not in memory.
fn source(at: &Path, blobs: u64) -> Result<File> {
    if let Some(dir) = at.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let mut file = File::create_new(at)?;
    for height in 0..blobs {
        file.write_all(&testdata::pooled(usize::try_from(height)? % testdata::POOL).blob)?;
    }
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(File::open(at)?)
}

async fn by_hand(at: &Path, blobs: u64) -> Result<Duration> {
    let (provider, proposer) = (provider(at.join("copies"))?, validator()?);
    let keccaks: Vec<BlobKeccak> = (0..testdata::POOL)
        .map(|which| BlobKeccak(keccak256(&testdata::pooled(which).blob).0))
        .collect();
    let tagged = |height: u64| {
        let which = usize::try_from(height).unwrap_or(0) % testdata::POOL;
        let commitment = testdata::pooled(which).commitment;
        BlobTags {
            chain_id: CHAIN_ID,
            height,
            round: 0,
            blob_index: 0,
            kzg_commitment: commitment,
            versioned_hash: kzg::versioned_hash(&commitment),
            proposer: proposer.clone(),
            blob_keccak: keccaks.get(which).copied().unwrap_or(BlobKeccak([0; 32])),
        }
    };
    let source = Arc::new(source(&at.join("blobs"), blobs)?);
    let began = Instant::now();
    stream::iter((0..blobs).map(tagged))
        .map(|tags| {
            let (provider, source) = (Arc::clone(&provider), Arc::clone(&source));
            // A task for each, as the archiver has.
            let copy = tokio::spawn(async move {
                let at = tags.height * BLOB_LEN as u64;
                let read = tokio::task::spawn_blocking(move || {
                    let mut blob = vec![0; BLOB_LEN];
                    source.read_exact_at(&mut blob, at).map(|()| Bytes::from(blob))
                });
                let blob = read.await??;
                let locator = provider.put(&tags, blob).await?;
                let back = provider.get(&locator, BLOB_LEN).await?;
                ensure!(back.len() == BLOB_LEN, "{locator} came back short");
                Ok(())
            });
            async move { copy.await? }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(began.elapsed())
}
