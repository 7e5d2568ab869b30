//! `notice`: verifying archive notices beside the raw hash and signature of the same bytes. Once
//! with what is known in memory, which is verification alone; once through a store on the disk,
//! where the blob is read and the record made durable.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use alloy_primitives::keccak256;
use anyhow::{Context, Result, ensure};
use ed25519_dalek::{Signature, VerifyingKey};
use secateur_core::notice::{Notice, NoticeBody, Statement};
use secateur_core::{Height, Locator};
use secateur_sidecar::book::Book;
use secateur_sidecar::engine::Role;
use secateur_sidecar::notice::{
    Addition, Decided, DecidedBlob, Known, Verifier, notice_digest, sign,
};
use secateur_sidecar::{BlobKeccak, SidecarError, ValidatorId, testdata};

use super::{CHAIN_ID, Nobody, key, line, open, validator, verifier};
use crate::machine::Machine;
use crate::measure::{float, median, share};
use crate::names::Setting;
use crate::results::{Case, Figure, Report};

/// Its name.
pub const NAME: &str = "notice";

/// Notices that are judged at the same time, as the mesh does.
const JUDGES: usize = 4;

/// Blobs in memory, one for each height, the pool's in turns.
struct Memory {
    proposer: ValidatorId,
    blobs: Vec<(DecidedBlob, Vec<u8>)>,
}

impl Memory {
    fn new() -> Result<Self> {
        let blobs = (0..testdata::POOL).map(|which| {
            let blob = testdata::pooled(which);
            let keccak = BlobKeccak(keccak256(&blob.blob).0);
            (DecidedBlob { commitment: blob.commitment, keccak }, blob.blob.to_vec())
        });
        Ok(Self { proposer: validator()?, blobs: blobs.collect() })
    }

    fn blob(&self, height: Height) -> Option<&(DecidedBlob, Vec<u8>)> {
        self.blobs.get(usize::try_from(height).ok()? % testdata::POOL)
    }
}

impl<'a> Known for &'a Memory {
    type Bytes = &'a [u8];

    fn decided(&self, height: Height, _: u32) -> Result<Option<Decided>, SidecarError> {
        let blob = self.blob(height).map(|(blob, _)| *blob);
        Ok(Some(Decided { proposer: self.proposer.clone(), round: 0, blob_count: 1, blob }))
    }

    fn bytes(&self, height: Height, _: u32) -> Result<Option<&'a [u8]>, SidecarError> {
        Ok(self.blob(height).map(|(_, bytes)| bytes.as_slice()))
    }

    fn records(&self, _: Height, _: u32) -> Result<Vec<Statement>, SidecarError> {
        Ok(Vec::new())
    }
}

/// Notices, their wire form, and what is signed in them.
struct Notices {
    known: Memory,
    verifier: Verifier,
    key: VerifyingKey,
    wires: Vec<Vec<u8>>,
    signed: Vec<([u8; 32], Signature)>,
}

impl Notices {
    fn new(count: u64) -> Result<Self> {
        let (key, known) = (key(), Memory::new()?);
        let (mut wires, mut signed) = (Vec::new(), Vec::new());
        for height in 0..count {
            let (blob, _) = known.blob(height).context("the pool has blobs")?;
            let body = NoticeBody {
                chain_id: CHAIN_ID,
                height,
                round: 0,
                blob_index: 0,
                kzg_commitment: blob.commitment.0,
                blob_keccak: blob.keccak.0,
                locators: vec![Locator { provider: "s3".into(), key: format!("blobs/{height}/0") }],
                archived_by: known.proposer.as_bytes().to_vec(),
                archived_at_height: height + 1,
            };
            let notice = Notice::V1(sign(body, 0, &key)?);
            signed.push((notice_digest(&notice), Signature::from_bytes(notice.signature())));
            wires.push(notice.encode()?);
        }
        let verifier = verifier()?;
        let key = VerifyingKey::from_bytes(&key.public_key().0)?;
        Ok(Self { known, verifier, key, wires, signed })
    }

    /// The hash of the blob and the signature, and nothing else.
    fn raw(&self) -> Result<Duration> {
        let began = Instant::now();
        for (height, (digest, signature)) in (0..).zip(&self.signed) {
            self.key.verify_strict(digest, signature)?;
            let (blob, bytes) = self.known.blob(height).context("the pool has blobs")?;
            ensure!(keccak256(black_box(bytes)).0 == blob.keccak.0, "a blob changed");
        }
        Ok(began.elapsed())
    }

    fn verify(&self) -> Result<Duration> {
        let began = Instant::now();
        for wire in &self.wires {
            black_box(self.verifier.verify(black_box(wire), Height::MAX, &&self.known)?);
        }
        Ok(began.elapsed())
    }

    /// Takes every notice through a store on the disk, as the mesh does.
    fn book(&self, at: &Path) -> Result<Duration> {
        let store = Arc::new(open(at)?);
        for height in 0..self.wires.len() as u64 {
            let which = usize::try_from(height)? % testdata::POOL;
            let proposal = testdata::proposal(height, 0, &self.known.proposer, &[which]);
            store.store_decided(&proposal, Role::Follower)?;
        }
        let book = Book::new(store, Arc::new(self.verifier.clone()), None, Arc::new(Nobody));
        let began = Instant::now();
        std::thread::scope(|scope| {
            let judge = |nth: usize| {
                let (book, wires) = (&book, &self.wires);
                scope.spawn(move || -> Result<()> {
                    for wire in wires.iter().skip(nth).step_by(JUDGES) {
                        ensure!(book.accept(wire)? == Addition::New, "it was known");
                    }
                    Ok(())
                })
            };
            let judges: Vec<_> = (0..JUDGES).map(judge).collect();
            judges.into_iter().try_for_each(|judge| judge.join().expect("a judge panicked"))
        })?;
        let took = began.elapsed();
        drop(book);
        std::fs::remove_dir_all(at)?;
        Ok(took)
    }
}

/// Runs every case.
pub fn run(setting: &Setting) -> Result<Report> {
    let (count, stored, rounds) = if setting.quick { (500, 100, 3) } else { (4_000, 1_000, 9) };
    let (many, few) = (Notices::new(count)?, Notices::new(stored)?);
    let mut cases = Vec::new();
    if setting.wants("verify", "verify") {
        let ours = "every check of a notice, the blob in memory; one thread";
        cases.push(case("verify", ours, &many, rounds, Notices::verify)?);
    }
    if setting.wants("book", "book") {
        let at = setting.data.join("book");
        let ours = "and the blob read from the store, the record made durable; four threads";
        cases.push(case("book", ours, &few, rounds.min(3), |notices| notices.book(&at))?);
    }
    Ok(Report {
        name: NAME,
        work: "archive notices of blobs of 128 KiB".into(),
        mode: if setting.quick { "quick" } else { "full" },
        machine: Machine::look(&setting.data),
        cases,
        plotted: "vs_raw",
    })
}

fn case(
    of: &str,
    how: &str,
    notices: &Notices,
    rounds: u32,
    take: impl Fn(&Notices) -> Result<Duration>,
) -> Result<Case> {
    let count = float(notices.wires.len() as u64);
    let (mut ours, mut raw, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=rounds {
        eprintln!("{NAME}: {of}, round {round} …");
        let theirs = notices.raw()?.as_secs_f64();
        let taken = take(notices)?.as_secs_f64();
        ours.push(share(count, taken));
        raw.push(share(count, theirs));
        ratios.push(share(theirs, taken));
    }
    let rate = |rates: &[f64]| ("notices/s", median(rates));
    Ok(Case {
        labels: vec![("of", of.to_owned())],
        figures: vec![("vs_raw", Figure::Ratio(median(&ratios)))],
        rounds: ratios,
        contestants: vec![
            line("ours", "Secateur", how, rate(&ours), "CPU"),
            line(
                "raw",
                "keccak256 and Ed25519",
                "of the same bytes; one thread",
                rate(&raw),
                "CPU",
            ),
        ],
        phases: Vec::new(),
    })
}
