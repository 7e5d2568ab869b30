//! Blocks of a canister in order. A query brings at most one block and takes its time, so the next few
//! are asked for meanwhile.

use std::pin::Pin;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use secateur_core::Height;

use super::{IcSource, Meta};
use crate::IndexError;
use crate::source::{Assembler, Blocks, Source as _, SourceBlock};

/// Blocks that are asked for at a time. Each may be as long as a block can be.
const AHEAD: usize = 4;

type Asked = Pin<Box<dyn Future<Output = Result<Option<SourceBlock>, IndexError>> + Send>>;

/// Blocks of a canister.
pub struct IcBlocks {
    source: IcSource,
    want_meta: bool,
    /// The block that comes next; none before the first one of a source that was asked for its oldest.
    next: Option<Height>,
    /// Those that are asked for, from the next one on.
    asked: FuturesOrdered<Asked>,
    /// The newest exportable block, as it was last told.
    head: Option<Height>,
}

impl IcBlocks {
    pub(super) fn new(source: IcSource, from: Option<Height>, want_meta: bool) -> Self {
        Self { source, want_meta, next: from, asked: FuturesOrdered::new(), head: None }
    }

    fn ask(&self, height: Option<Height>) -> Asked {
        Box::pin(whole(self.source.clone(), height, self.want_meta))
    }

    /// Asks for as many blocks as there are, a few at a time. Whether any is asked for is the answer.
    async fn ask_ahead(&mut self) -> Result<bool, IndexError> {
        let Some(next) = self.next else {
            self.asked.push_back(self.ask(None));
            return Ok(true);
        };
        if self.asked.is_empty() && self.head.is_none_or(|head| head < next) {
            self.head = self.source.head().await?;
        }
        let Some(head) = self.head else { return Ok(false) };
        while self.asked.len() < AHEAD {
            let height = next.checked_add(self.asked.len() as u64).filter(|height| *height <= head);
            let Some(height) = height else { break };
            self.asked.push_back(self.ask(Some(height)));
        }
        Ok(!self.asked.is_empty())
    }
}

impl Blocks for IcBlocks {
    async fn next(&mut self) -> Result<Option<SourceBlock>, IndexError> {
        if !self.ask_ahead().await? {
            return Ok(None);
        }
        let came = self.asked.next().await.transpose().map(Option::flatten);
        if let Ok(Some(block)) = &came {
            self.next = block.height.checked_add(1);
            return came;
        }
        // What was asked for after it is not what comes next any more.
        self.asked = FuturesOrdered::new();
        match (self.head.take(), self.next) {
            (Some(head), Some(next)) if came.is_ok() && head >= next => {
                let told =
                    format!("block {next}: a node of the subnet is behind the one before it");
                Err(IndexError::Net(told))
            }
            _ => came,
        }
    }
}

/// A whole block, query by query; none while there is no such block.
async fn whole(
    source: IcSource,
    height: Option<Height>,
    want_meta: bool,
) -> Result<Option<SourceBlock>, IndexError> {
    // Before its bytes: a block that is cut in between is then not there in either.
    let mut meta = match height.filter(|_| want_meta) {
        Some(height) => match source.meta(height).await? {
            Meta::Told(meta) => Some(meta),
            Meta::Untold => None,
            Meta::NoBlock => return Ok(None),
        },
        None => None,
    };
    let mut assembler = Assembler::new(height);
    let block = loop {
        let reply = source.export(assembler.cursor()).await?;
        let nothing = reply.chunks.is_empty();
        match assembler.take_reply(reply, source.options.max_bytes)? {
            Some(block) => break block,
            None if !nothing => {}
            None if assembler.is_inside() => {
                let told = "export_blocks: a node of the subnet knows less than the one before it";
                return Err(IndexError::Net(told.into()));
            }
            None => return Ok(None),
        }
    };
    if height.is_none()
        && want_meta
        && let Meta::Told(told) = source.meta(block.height).await?
    {
        meta = Some(told);
    }
    Ok(Some(SourceBlock { meta, ..block }))
}
