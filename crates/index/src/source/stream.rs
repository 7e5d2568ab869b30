//! Blocks of a node in order: by stream while there are many to catch up with, by polling at the
//! tip, where one call in a while is all it takes. Either way every byte goes through the
//! [`Assembler`].

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use secateur_core::{BlockHash, BlockMeta, Chunk, Cursor, ExportReply, Segment};
use secateur_proto::export::v1::{self, ExportBlocksRequest};
use secateur_proto::export::v2::{Frame, StreamRequest, StreamResponse};
use tonic::{Code, Streaming};

use super::grpc::{GrpcSource, explain};
use super::{Assembler, Blocks, SourceBlock};
use crate::IndexError;

/// After so many polls in a row that each brought a block, a stream is worth its opening.
const MANY: u32 = 32;

/// Blocks of a node.
#[derive(Debug)]
pub struct GrpcBlocks {
    source: GrpcSource,
    assembler: Assembler,
    mode: Mode,
    frames: VecDeque<Frame>,
    /// Polls in a row that brought a block.
    brought: u32,
    want_meta: bool,
}

#[derive(Debug)]
enum Mode {
    /// There may be much to catch up with.
    Behind,
    Stream(Box<Streaming<StreamResponse>>),
    Tip,
}

impl GrpcBlocks {
    pub(super) fn new(source: GrpcSource, from: Option<u64>, want_meta: bool) -> Self {
        Self {
            source,
            assembler: Assembler::new(from),
            mode: Mode::Behind,
            frames: VecDeque::new(),
            brought: 0,
            want_meta,
        }
    }

    fn wanted(&self) -> u64 {
        self.assembler.cursor().map_or(0, |cursor| cursor.block_number)
    }

    async fn open(&self) -> Result<Mode, IndexError> {
        let from = self.assembler.cursor().map(|cursor| cursor.block_number);
        let request = StreamRequest { from, to: None, filter: None, follow: false };
        let mut client = self.source.streams.clone();
        let opening = tokio::time::timeout(self.source.timeout, client.stream(request));
        match opening.await {
            Ok(Ok(answer)) => Ok(Mode::Stream(Box::new(answer.into_inner()))),
            Ok(Err(status)) if status.code() == Code::Unimplemented => {
                self.source.has_streams.store(false, Ordering::Relaxed);
                Ok(Mode::Tip)
            }
            Ok(Err(status)) => Err(explain(&status, self.wanted())),
            Err(_) => Err(IndexError::Timeout("opening a stream".into())),
        }
    }

    /// The next response of the stream; none at its end.
    async fn read(&mut self) -> Result<Option<StreamResponse>, IndexError> {
        let wanted = self.wanted();
        let Mode::Stream(stream) = &mut self.mode else { return Ok(None) };
        match tokio::time::timeout(self.source.timeout, stream.message()).await {
            Ok(answer) => answer.map_err(|status| explain(&status, wanted)),
            Err(_) => Err(IndexError::Timeout("the stream stands still".into())),
        }
    }

    async fn poll(&mut self) -> Result<Option<SourceBlock>, IndexError> {
        loop {
            let cursor = self.assembler.cursor();
            let max_bytes = self.source.max_bytes;
            let request =
                ExportBlocksRequest { cursor: cursor.map(cursor_out), max_bytes: Some(max_bytes) };
            let mut client = self.source.export.clone();
            let answer = self.source.ask(self.wanted(), client.export_blocks(request)).await?;
            let nothing = answer.chunks.is_empty();
            let block = self.assembler.take_reply(reply_in(answer)?, max_bytes)?;
            if block.is_some() || nothing {
                return Ok(block);
            }
        }
    }
}

impl Blocks for GrpcBlocks {
    async fn next(&mut self) -> Result<Option<SourceBlock>, IndexError> {
        loop {
            while let Some(mut frame) = self.frames.pop_front() {
                let meta = meta_of(&mut frame)?;
                if let Some(block) = self.assembler.take_frame(frame, meta)? {
                    return Ok(Some(block));
                }
            }
            match self.mode {
                Mode::Behind if self.source.may_stream() => self.mode = self.open().await?,
                Mode::Behind => self.mode = Mode::Tip,
                Mode::Stream(_) => {
                    if let Some(response) = self.read().await? {
                        self.frames.extend(response.frames);
                        continue;
                    }
                    if self.assembler.is_inside() {
                        return Err(IndexError::Net("a stream ended inside a block".into()));
                    }
                    // At the tip, too, only a stream tells the meta.
                    self.mode = if self.want_meta { Mode::Behind } else { Mode::Tip };
                    return Ok(None);
                }
                Mode::Tip => {
                    let block = self.poll().await?;
                    self.brought = if block.is_some() { self.brought + 1 } else { 0 };
                    if self.brought >= MANY {
                        (self.brought, self.mode) = (0, Mode::Behind);
                    }
                    return Ok(block);
                }
            }
        }
    }
}

fn cursor_out(cursor: Cursor) -> v1::Cursor {
    let Cursor { block_number, segment, byte_offset } = cursor;
    v1::Cursor { block_number, segment: segment.into(), byte_offset }
}

fn segment_in(tag: u32) -> Result<Segment, IndexError> {
    u8::try_from(tag).ok().and_then(|tag| Segment::try_from(tag).ok()).ok_or_else(|| {
        IndexError::InvalidCursor(format!("the source answers with a segment {tag}"))
    })
}

fn reply_in(answer: v1::ExportBlocksResponse) -> Result<ExportReply, IndexError> {
    let chunk = |chunk: v1::Chunk| {
        let segment = segment_in(chunk.segment)?;
        let (start, payload_len) = (chunk.start, chunk.payload_len);
        Ok(Chunk { segment, start, bytes: chunk.bytes.into(), payload_len })
    };
    let cursor = |cursor: v1::Cursor| {
        let segment = segment_in(cursor.segment)?.tag();
        let v1::Cursor { block_number, byte_offset, .. } = cursor;
        Ok::<_, IndexError>(Cursor { block_number, segment, byte_offset })
    };
    Ok(ExportReply {
        chunks: answer.chunks.into_iter().map(chunk).collect::<Result<_, IndexError>>()?,
        next_cursor: answer.next_cursor.map(cursor).transpose()?,
    })
}

fn meta_of(frame: &mut Frame) -> Result<Option<BlockMeta>, IndexError> {
    let Some(meta) = frame.meta.take() else { return Ok(None) };
    let hash = |bytes: &[u8]| {
        bytes.try_into().map(BlockHash).map_err(|_| {
            IndexError::InvalidCursor(format!("the source names a block by {} bytes", bytes.len()))
        })
    };
    Ok(Some(BlockMeta {
        height: frame.block_number,
        hash: hash(&meta.hash)?,
        parent_hash: hash(&meta.parent_hash)?,
        timestamp: meta.timestamp,
    }))
}
