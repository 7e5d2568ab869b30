//! The simulated medium: files whose writes are volatile until synced, an index with atomic
//! commits, a trace of every state that a crash could find, and faults on demand.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use secateur_store::ground::disk::{Volume, VolumeFile};
use secateur_store::ground::{Index, MemoryIndex, MemorySnapshot};
use secateur_store::{Change, StoreError};

use crate::image::{FileImage, FileOp};

#[derive(Debug, Default, Clone)]
struct FileState {
    durable: FileImage,
    live: FileImage,
    pending: Vec<FileOp>,
}

/// A state in which a crash could come: what is durable and what is on its way.
#[derive(Debug, Clone)]
pub struct Point {
    /// Which step of the workload was under way.
    pub step: usize,
    /// The files.
    pub files: Vec<PointFile>,
    /// The simulated index, if the ground has one.
    pub index: Option<MemorySnapshot>,
}

/// One file at a [`Point`].
#[derive(Debug, Clone)]
pub struct PointFile {
    /// Its name.
    pub name: String,
    /// What is surely there.
    pub durable: FileImage,
    /// What may be there, whole, torn or not at all.
    pub pending: Vec<FileOp>,
}

/// What a crash left: the content of every file, and the index if it is a simulated one.
#[derive(Debug, Clone, Default)]
pub struct Image {
    /// The files by name.
    pub files: BTreeMap<String, FileImage>,
    /// The simulated index.
    pub index: Option<MemorySnapshot>,
}

impl Image {
    /// A digest of everything in it.
    pub fn digest(&self) -> u128 {
        use xxhash_rust::xxh3::{Xxh3, xxh3_128_with_seed};
        let mut digest = 0u128;
        for (name, file) in &self.files {
            let place = xxh3_128_with_seed(name.as_bytes(), 3);
            digest ^= xxh3_128_with_seed(&(file.digest() ^ place).to_be_bytes(), 4);
        }
        if let Some(index) = &self.index {
            let mut rows = Xxh3::with_seed(5);
            for (table, key, value) in index.rows() {
                rows.update(&[table as u8, u8::try_from(key.len()).unwrap_or(u8::MAX)]);
                rows.update(key);
                rows.update(&(value.len() as u64).to_be_bytes());
                rows.update(value);
            }
            digest ^= rows.digest128();
        }
        digest
    }
}

/// When a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The first call that fails, counted from 1.
    pub at: u64,
    /// Whether all later ones fail too.
    pub forever: bool,
}

#[derive(Debug, Default)]
struct Inner {
    files: BTreeMap<String, FileState>,
    index: Option<MemorySnapshot>,
    step: usize,
    trace: Option<Vec<Point>>,
    calls: u64,
    fault: Option<Fault>,
}

/// A simulated volume; clones are the same volume.
#[derive(Debug, Clone, Default)]
pub struct World {
    inner: Arc<Mutex<Inner>>,
}

impl World {
    /// A volume that holds what a crash left.
    pub fn boot(image: Image) -> Self {
        let files = image.files.into_iter().map(|(name, content)| {
            let state = FileState { durable: content.clone(), live: content, pending: Vec::new() };
            (name, state)
        });
        let inner = Inner { files: files.collect(), index: image.index, ..Inner::default() };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// Starts a trace; the points before are forgotten.
    pub fn trace(&self) {
        self.inner.lock().trace = Some(Vec::new());
    }

    /// Ends the trace and hands it over.
    pub fn take_trace(&self) -> Vec<Point> {
        self.mark();
        self.inner.lock().trace.take().unwrap_or_default()
    }

    /// Says which step of the workload comes now.
    pub fn set_step(&self, step: usize) {
        self.mark();
        self.inner.lock().step = step;
    }

    /// Notes the present state as a crash point.
    pub fn mark(&self) {
        self.inner.lock().mark();
    }

    /// The live content, as a clean stop leaves it.
    pub fn image(&self) -> Image {
        let inner = self.inner.lock();
        let files =
            inner.files.iter().map(|(name, file)| (name.clone(), file.live.clone())).collect();
        Image { files, index: inner.index.clone() }
    }

    /// Makes calls fail from now on; the count starts anew.
    pub fn set_fault(&self, fault: Option<Fault>) {
        let mut inner = self.inner.lock();
        inner.calls = 0;
        inner.fault = fault;
    }

    /// How many calls were made since the fault was set.
    pub fn calls(&self) -> u64 {
        self.inner.lock().calls
    }

    /// Whether calls fail now and for ever: the power is out.
    pub fn is_out(&self) -> bool {
        let inner = self.inner.lock();
        inner.fault.is_some_and(|fault| fault.forever && inner.calls >= fault.at)
    }

    /// The power goes out now.
    pub fn cut_power(&self) {
        self.set_fault(Some(Fault { at: 0, forever: true }));
    }

    /// The present state, as a crash would find it.
    pub fn point(&self) -> Point {
        self.inner.lock().point()
    }

    fn call(&self) -> io::Result<MutexGuard<'_, Inner>> {
        let mut inner = self.inner.lock();
        inner.calls += 1;
        let calls = inner.calls;
        let fails = |fault: &Fault| calls == fault.at || (fault.forever && calls > fault.at);
        if inner.fault.as_ref().is_some_and(fails) {
            return Err(io::Error::other("simulated I/O error"));
        }
        Ok(inner)
    }
}

impl Inner {
    /// A crash before any call finds a subset of what is pending at the next barrier, so states
    /// are noted at barriers and between steps only.
    fn mark(&mut self) {
        if self.trace.is_none() {
            return;
        }
        let point = self.point();
        if let Some(trace) = &mut self.trace {
            trace.push(point);
        }
    }

    fn point(&self) -> Point {
        Point {
            step: self.step,
            files: self
                .files
                .iter()
                .map(|(name, file)| PointFile {
                    name: name.clone(),
                    durable: file.durable.clone(),
                    pending: file.pending.clone(),
                })
                .collect(),
            index: self.index.clone(),
        }
    }

    fn file(&mut self, name: &str) -> io::Result<&mut FileState> {
        self.files.get_mut(name).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

/// A file of a [`World`].
#[derive(Debug)]
pub struct SimFile {
    world: World,
    name: String,
}

impl SimFile {
    fn change(&self, op: FileOp) -> io::Result<()> {
        let mut inner = self.world.call()?;
        let file = inner.file(&self.name)?;
        file.live.apply(&op);
        file.pending.push(op);
        Ok(())
    }
}

impl VolumeFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.world.call()?.file(&self.name)?.live.len())
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if self.world.call()?.file(&self.name)?.live.read(offset, out) {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.change(FileOp::Write(offset, bytes.into()))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(FileOp::SetLen(len))
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = offset.saturating_add(len);
        let now = self.world.inner.lock().file(&self.name)?.live.len();
        if end > now { self.change(FileOp::SetLen(end)) } else { Ok(()) }
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<bool> {
        self.change(FileOp::Punch(offset, len))?;
        Ok(true)
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = self.world.call()?;
        inner.mark();
        let file = inner.file(&self.name)?;
        file.durable = file.live.clone();
        file.pending.clear();
        Ok(())
    }

    fn given(&self) -> io::Result<u64> {
        Ok(self.world.inner.lock().file(&self.name)?.live.given())
    }
}

impl Volume for World {
    type File = SimFile;

    fn exists(&self, name: &str) -> Result<bool, StoreError> {
        Ok(self.inner.lock().files.contains_key(name))
    }

    fn open(&self, name: &str) -> Result<SimFile, StoreError> {
        let mut inner =
            self.call().map_err(|source| StoreError::io("opening a data file", source))?;
        inner.files.entry(name.to_owned()).or_default();
        drop(inner);
        Ok(SimFile { world: self.clone(), name: name.to_owned() })
    }

    fn lock(&self, _file: &SimFile) -> Result<(), StoreError> {
        Ok(())
    }

    fn available(&self) -> Result<u64, StoreError> {
        Ok(u64::MAX / 2)
    }
}

/// An index whose commits are atomic by decree: for the many crash images that are about the
/// store's own order of writes and not about redb.
#[derive(Debug)]
pub struct SimIndex {
    world: World,
    rows: MemoryIndex,
}

impl SimIndex {
    /// The index of a world.
    pub fn open(world: &World) -> Self {
        let snapshot = world.inner.lock().index.clone().unwrap_or_default();
        Self { world: world.clone(), rows: MemoryIndex::from_snapshot(&snapshot) }
    }
}

impl Index for SimIndex {
    type Snapshot = MemorySnapshot;

    fn snapshot(&self) -> Result<MemorySnapshot, StoreError> {
        self.rows.snapshot()
    }

    fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        let failed = |source| StoreError::io("the simulated index", source);
        let mut inner = self.world.call().map_err(failed)?;
        inner.mark();
        self.rows.commit(changes)?;
        inner.index = Some(self.rows.snapshot()?);
        inner.mark();
        Ok(())
    }

    fn bytes(&self) -> Result<u64, StoreError> {
        self.rows.bytes()
    }

    fn ensure_reserve(&self) -> Result<bool, StoreError> {
        Ok(true)
    }

    fn check(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }
}
