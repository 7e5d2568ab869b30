//! Payloads in flat files by epoch, ids alone in fjall: what somebody would build by hand.

use std::collections::HashMap;
use std::fs::File;
use std::io::IoSlice;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fjall::{Database, PersistMode};
use secateur_core::{Block, Height, Segment};

use super::fjall::{ByEpoch, CACHE, VERSION, open};
use super::{Budget, Epochs, Peer, Place, sorted_ids};
use crate::contestants::raw::Worker;
use crate::contestants::{Contestant, IN_FLIGHT, Identity};

const MAX_SLICES: usize = 1023;

/// One epoch's payloads, in a file that an earlier epoch has used before.
struct Flat {
    file: File,
    path: PathBuf,
    len: u64,
}

/// Where a block's payloads are.
struct Spot {
    epoch: u64,
    at: u64,
    len: u64,
}

/// The peer.
pub struct FlatFjall {
    directory: PathBuf,
    database: Database,
    ids: ByEpoch,
    files: HashMap<u64, Flat>,
    /// Files of dropped epochs, to be overwritten.
    spare: Vec<Flat>,
    spots: HashMap<Height, Spot>,
    syncs: Worker<File, ()>,
    epochs: Epochs,
}

impl FlatFjall {
    /// New files and a new database.
    pub fn create(directory: &Path, budget: &Budget) -> Result<Self> {
        let flat = directory.join("flat");
        std::fs::create_dir_all(&flat)?;
        Ok(Self {
            directory: flat,
            database: open(&directory.join("ids"), CACHE)?,
            ids: ByEpoch::ids(),
            files: HashMap::new(),
            spare: Vec::new(),
            spots: HashMap::new(),
            syncs: Worker::start("flat-sync", IN_FLIGHT, |file: File| Ok(file.sync_data()?))?,
            epochs: Epochs::new(budget),
        })
    }

    /// The file of an epoch: one that is spare, or a new one.
    fn file(&mut self, epoch: u64) -> Result<&mut Flat> {
        if !self.files.contains_key(&epoch) {
            let path = self.directory.join(format!("{epoch}.blocks"));
            let file = if let Some(used) = self.spare.pop() {
                std::fs::rename(&used.path, &path)?;
                used.file
            } else {
                File::options().read(true).write(true).create_new(true).open(&path)?
            };
            self.files.insert(epoch, Flat { file, path, len: 0 });
        }
        self.files.get_mut(&epoch).context("an epoch's file is missing")
    }

    /// Writes the blocks of one epoch behind what its file has, and hands the sync on.
    fn write(&mut self, epoch: u64, blocks: &[Block]) -> Result<()> {
        let mut spots = Vec::with_capacity(blocks.len());
        let flat = self.file(epoch)?;
        for block in blocks {
            let len = block.payloads.total_len();
            spots.push((block.meta.height, Spot { epoch, at: flat.len, len }));
            flat.len += len;
        }
        let mut at = spots.first().map_or(0, |(_, spot)| spot.at);
        let mut slices: Vec<IoSlice<'_>> = blocks
            .iter()
            .flat_map(|block| Segment::ALL.map(|s| IoSlice::new(block.payloads.segment(s))))
            .collect();
        for mut part in slices.chunks_mut(MAX_SLICES) {
            while !part.is_empty() {
                let written = rustix::io::pwritev(&flat.file, part, at)?;
                if written == 0 {
                    bail!("a flat file takes no more bytes");
                }
                at += written as u64;
                IoSlice::advance_slices(&mut part, written);
            }
        }
        let file = flat.file.try_clone()?;
        self.spots.extend(spots);
        self.syncs.submit(file, IN_FLIGHT)?;
        while self.syncs.take().is_some() {}
        Ok(())
    }
}

impl Contestant for FlatFjall {
    fn identity(&self) -> Identity {
        Identity {
            key: "flat-fjall",
            name: "flat files, ids in fjall".into(),
            version: VERSION.into(),
            settings: format!(
                "payloads gathered into a file for each epoch (files of dropped epochs are \
                 overwritten), fdatasync in a thread beside the batch of ids with SyncData, id \
                 keyspaces by epoch, deleted whole; {}",
                self.epochs.budget.words()
            ),
        }
    }

    fn append(&mut self, group: &[Block]) -> Result<()> {
        for (epoch, blocks) in self.epochs.parts(group) {
            self.write(epoch, blocks)?;
        }
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for (epoch, blocks) in self.epochs.parts(group) {
            let ids = self.ids.of(&self.database, epoch)?;
            for (id, place) in sorted_ids(blocks)? {
                batch.insert(&ids, id, place);
            }
        }
        for block in group {
            self.epochs.add(block);
        }
        Ok(batch.commit()?)
    }

    fn prune(&mut self) -> Result<()> {
        while let Some(epoch) = self.epochs.due() {
            self.ids.remove(&self.database, epoch)?;
            self.spare.push(self.files.remove(&epoch).context("an epoch's file is missing")?);
            self.spots.retain(|_, spot| spot.epoch != epoch);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.syncs.finish()
    }
}

impl Peer for FlatFjall {
    fn find(&mut self, id: &[u8; 32]) -> Result<Option<Place>> {
        for epoch in self.epochs.newest_first() {
            if let Some(place) = self.ids.get(epoch, id)? {
                return Place::decode(&place).map(Some);
            }
        }
        Ok(None)
    }

    fn payload_len(&mut self, height: Height) -> Result<Option<u64>> {
        let Some(spot) = self.spots.get(&height) else { return Ok(None) };
        let flat = self.files.get(&spot.epoch).context("an epoch's file is missing")?;
        let mut bytes = vec![0u8; usize::try_from(spot.len)?];
        flat.file.read_exact_at(&mut bytes, spot.at)?;
        Ok(Some(bytes.len() as u64))
    }
}
