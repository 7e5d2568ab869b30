//! Writing a part to a file. Blocks are gathered into frames here and packed by a thread of the
//! part's own, so memory does not grow with the part and the caller is not held up by the packing.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread;

use secateur_core::{Block, Height, MAX_SEGMENT_LEN};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use zstd::bulk::Compressor;
use zstd::zstd_safe::compress_bound;

use super::frame::packer;
use super::layout::{Frame, HEADER_LEN, PartHeader, Table};
use super::record::encode_record;
use super::{FRAME_TARGET, record_len};
use crate::{ArchiveError, Digest, Manifest};

/// Frames that may wait for the packing thread.
const WAITING_FRAMES: usize = 2;
const HASH_BUFFER: usize = 1 << 20;

/// A part in the making.
#[derive(Debug)]
pub struct PartWriter {
    header: PartHeader,
    next: Height,
    /// The records of the frame that is being gathered, and its first height.
    frame: Vec<u8>,
    frame_first: Height,
    /// Of the raw stream. It is hashed here and not by the packing thread, which has more to do.
    raw: Sha256,
    frames: Option<mpsc::Sender<Job>>,
    /// Buffers that come back to be filled again.
    empty: mpsc::Receiver<Vec<u8>>,
    packing: Option<thread::JoinHandle<Result<Option<Manifest>, ArchiveError>>>,
}

#[derive(Debug)]
enum Job {
    Frame { first: Height, raw: Vec<u8> },
    Finish(Box<PartHeader>, Digest),
}

impl PartWriter {
    /// Begins a part in a new file. `last` and `last_hash` of the header are filled in at the end.
    pub fn create(path: &Path, header: PartHeader) -> Result<Self, ArchiveError> {
        let mut packing = Packing::create(path, &header)?;
        let (frames, mut jobs) = mpsc::channel(WAITING_FRAMES);
        let (give_back, empty) = mpsc::channel(WAITING_FRAMES + 2);
        let work = move || -> Result<Option<Manifest>, ArchiveError> {
            while let Some(job) = jobs.blocking_recv() {
                match job {
                    Job::Frame { first, mut raw } => {
                        packing.frame(first, &raw)?;
                        raw.clear();
                        // A full channel, or one that is closed, only costs a new buffer.
                        give_back.try_send(raw).unwrap_or_default();
                    }
                    Job::Finish(header, raw) => return packing.finish(&header, raw).map(Some),
                }
            }
            Ok(None)
        };
        let thread = thread::Builder::new()
            .name("part-packing".to_owned())
            .spawn(work)
            .map_err(ArchiveError::stage("starting a thread for", path))?;
        Ok(Self {
            next: header.first,
            frame_first: header.first,
            header,
            frame: Vec::with_capacity(FRAME_TARGET),
            raw: Sha256::new(),
            frames: Some(frames),
            empty,
            packing: Some(thread),
        })
    }

    /// Takes one more block, the next one. A block that does not follow is refused and the part is
    /// as it was; after any other error the part cannot be finished.
    pub async fn push(&mut self, block: &Block) -> Result<(), ArchiveError> {
        if block.meta.height != self.next {
            let (expected, got) = (self.next, block.meta.height);
            return Err(ArchiveError::OutOfOrder { expected, got });
        }
        let expected = if self.next == self.header.first {
            self.header.parent_hash
        } else {
            self.header.last_hash
        };
        super::reader::link(Some(expected), block)?;
        for segment in secateur_core::Segment::ALL {
            let len = block.payloads.segment(segment).len() as u64;
            if len > u64::from(MAX_SEGMENT_LEN) {
                let (what, max) = (segment.name(), u64::from(MAX_SEGMENT_LEN));
                return Err(secateur_core::CoreError::TooLong { what, len, max }.into());
            }
        }
        let next = self.next.checked_add(1).ok_or_else(|| {
            ArchiveError::invalid("block height", "the last number there is has no successor")
        })?;
        if !self.frame.is_empty()
            && self.frame.len() as u64 + record_len(block) > FRAME_TARGET as u64
        {
            self.send_frame().await?;
        }
        encode_record(block, &mut self.frame)?;
        self.header.last = block.meta.height;
        self.header.last_hash = block.meta.hash;
        self.next = next;
        Ok(())
    }

    /// Hands the gathered frame over. Dropped while it waits, it has done nothing.
    async fn send_frame(&mut self) -> Result<(), ArchiveError> {
        let Some(frames) = &self.frames else { return self.fetch_error().await };
        let Ok(place) = frames.reserve().await else { return self.fetch_error().await };
        let empty = self.empty.try_recv().unwrap_or_default();
        let raw = std::mem::replace(&mut self.frame, empty);
        self.raw.update(&raw);
        let first = std::mem::replace(&mut self.frame_first, self.next);
        place.send(Job::Frame { first, raw });
        Ok(())
    }

    /// The thread ends early only with an error.
    async fn fetch_error(&mut self) -> Result<(), ArchiveError> {
        self.join().await.map(|_| ())
    }

    async fn join(&mut self) -> Result<Manifest, ArchiveError> {
        self.frames = None;
        let gone = || ArchiveError::invalid("part", "it failed before and cannot be finished");
        let thread = self.packing.take().ok_or_else(gone)?;
        let joined = tokio::task::spawn_blocking(move || thread.join()).await;
        joined.map_err(|_| gone())?.map_err(|_| gone())??.ok_or_else(gone)
    }

    /// Ends the part: the file is whole and synced. Gives what its manifest must say.
    pub async fn finish(mut self) -> Result<Manifest, ArchiveError> {
        if self.next == self.header.first {
            return Err(ArchiveError::invalid("part", "it has no blocks"));
        }
        self.send_frame().await?;
        if let Some(frames) = &self.frames {
            // If nobody takes it, the thread has ended, and `join` tells why.
            let raw = Digest::from_hasher(std::mem::take(&mut self.raw));
            let finish = Job::Finish(Box::new(self.header.clone()), raw);
            frames.send(finish).await.unwrap_or_default();
        }
        self.join().await
    }
}

/// The packing thread's side: the file, and what is known of it so far.
struct Packing {
    path: PathBuf,
    file: BufWriter<File>,
    packer: Compressor<'static>,
    packed: Vec<u8>,
    frames: Vec<Frame>,
    offset: u64,
    raw_size: u64,
}

impl Packing {
    fn create(path: &Path, header: &PartHeader) -> Result<Self, ArchiveError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(ArchiveError::stage("creating", path))?;
        let mut file = BufWriter::with_capacity(1 << 18, file);
        // Its place; what it says is known at the end.
        file.write_all(&header.encode()).map_err(ArchiveError::stage("writing", path))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            packer: packer()?,
            packed: Vec::new(),
            frames: Vec::new(),
            offset: HEADER_LEN,
            raw_size: 0,
        })
    }

    fn frame(&mut self, first: Height, raw: &[u8]) -> Result<(), ArchiveError> {
        let failed = ArchiveError::stage("packing a frame of", &self.path);
        self.packed.clear();
        self.packed.reserve(compress_bound(raw.len()));
        self.packer.compress_to_buffer(raw, &mut self.packed).map_err(failed)?;
        let failed = ArchiveError::stage("writing", &self.path);
        self.file.write_all(&self.packed).map_err(failed)?;
        let long = |_| ArchiveError::invalid("part", "a frame is too long");
        let size = u32::try_from(self.packed.len()).map_err(long)?;
        self.frames.push(Frame {
            first,
            offset: self.offset,
            size,
            raw: u32::try_from(raw.len()).map_err(long)?,
            sha256: Digest::of(&self.packed),
        });
        self.offset += u64::from(size);
        self.raw_size += raw.len() as u64;
        Ok(())
    }

    fn finish(mut self, header: &PartHeader, raw_sha256: Digest) -> Result<Manifest, ArchiveError> {
        let path = self.path;
        let failed = || ArchiveError::stage("finishing", &path);
        let header_bytes = header.encode();
        let table = Table {
            frames: self.frames,
            blocks: header.blocks(),
            raw_size: self.raw_size,
            raw_sha256,
            header_sha256: Digest::of(&header_bytes),
        };
        let end = table.encode()?;
        self.file.write_all(&end).map_err(failed())?;
        // Seeking writes out what is buffered.
        self.file.seek(SeekFrom::Start(0)).map_err(failed())?;
        self.file.write_all(&header_bytes).map_err(failed())?;
        let mut file = self.file.into_inner().map_err(|e| failed()(e.into_error()))?;
        // The disk is waited for and the bytes are hashed at the same time.
        let other = file.try_clone().map_err(failed())?;
        let (synced, hashed) = thread::scope(|scope| {
            let syncing = scope.spawn(move || other.sync_all());
            let hashed = hash_file(&mut file);
            (syncing.join(), hashed)
        });
        synced.unwrap_or_else(|_| Err(io::ErrorKind::Other.into())).map_err(failed())?;
        let sha256 = hashed.map_err(failed())?;
        let size = self.offset + end.len() as u64;
        Ok(header.manifest(&table, size, sha256))
    }
}

/// The header comes first and is known last, so the whole is hashed in one go at the end.
fn hash_file(file: &mut File) -> io::Result<Digest> {
    file.seek(SeekFrom::Start(0))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0u8; HASH_BUFFER];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(Digest::from_hasher(hasher)),
            len => hasher.update(buffer.get(..len).unwrap_or_default()),
        }
    }
}
