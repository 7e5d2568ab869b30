//! Of which blocks an index can say everything: above what retention has left, below its cursor, and
//! outside of its gaps; of logs, from where they are kept as they are chosen now.
//!
//! A list says of which blocks it is all there is, and that is checked before and after its rows are
//! read: retention removes rows in between, and a backfill puts some in.

use secateur_core::Height;

use super::answers::{Refusal, Span};
use crate::sink::{IndexMeta, LogQuery, Place};
use crate::{GapRow, IndexReader, LogFilter};

/// Gaps that one refusal looks at.
const MAX_GAPS: usize = 64;
/// Addresses and topics that a refusal names.
const MAX_NAMED: usize = 16;

/// The blocks that an index has, up to the newest one that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Coverage {
    /// The first block that anything is promised of.
    floor: Height,
    why: &'static str,
    /// The newest one.
    top: Height,
    /// The blocks that are asked about, of which the gaps are known; none if there is no such block.
    asked: Option<Span>,
    /// What is missing of them, the highest first. A range of them that reaches below these touches one.
    gaps: Vec<GapRow>,
}

/// The rows that are asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wanted {
    pub(super) from_block: Option<Height>,
    pub(super) to_block: Option<Height>,
    pub(super) before: Option<Place>,
}

/// What the rows of a page are all there is of.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reach {
    /// Where the next page goes on; none if this was the last one.
    pub(super) next: Option<Place>,
    /// The blocks; none if no block was asked for.
    pub(super) span: Option<Span>,
}

impl Wanted {
    /// Where reading begins: behind every row of the newest block, or before the place that is named.
    pub(super) fn start(&self, top: Height) -> Place {
        let newest = self.to_block.unwrap_or(top).min(top);
        let above = Place { block_number: newest.saturating_add(1), index: 0 };
        self.before.map_or(above, |before| before.min(above))
    }

    /// The blocks that these rows are of, as far as there are any.
    fn blocks(&self, top: Height) -> Option<Span> {
        let start = self.start(top);
        // A place inside of a block has rows of that block before it.
        let last = match start.index {
            0 => start.block_number.checked_sub(1),
            _ => Some(start.block_number),
        };
        span(self.from_block.unwrap_or(0), last)
    }

    /// Takes away the rows that are not wanted, of those that were read from [`Self::start`] on, and says what
    /// the rest is all there is of.
    pub(super) fn reach<T>(
        &self,
        rows: &mut Vec<T>,
        (top, limit): (Height, usize),
        place: impl Fn(&T) -> Place,
    ) -> Reach {
        let first = self.from_block.unwrap_or(0);
        rows.retain(|row| place(row).block_number >= first);
        let next = rows.last().filter(|_| rows.len() >= limit).map(place);
        let from_block = next.map_or(first, |next| next.block_number);
        let last = self.blocks(top).map(|asked| asked.to_block);
        Reach { next, span: span(from_block, last) }
    }
}

impl Coverage {
    /// Of blocks and transactions.
    pub(super) async fn of_blocks<R: IndexReader>(
        index: &R,
        wanted: &Wanted,
    ) -> Result<Self, Refusal> {
        Self::of(index, &index.meta().await?, 0, wanted).await
    }

    /// Of what addresses did; refused if the chain's codec does not say it.
    pub(super) async fn of_addresses<R: IndexReader>(
        index: &R,
        wanted: &Wanted,
    ) -> Result<Self, Refusal> {
        let meta = index.meta().await?;
        if let Some(codec) = meta.codec.as_deref().filter(|codec| *codec != "evm") {
            let told = format!(
                "this index has the codec {codec}, whose blocks name no senders and receivers: it has no \
                 history of addresses"
            );
            return Err(Refusal::gone(told));
        }
        Self::of(index, &meta, 0, wanted).await
    }

    /// Of the logs that a question is about; refused if they are not kept.
    pub(super) async fn of_logs<R: IndexReader>(
        index: &R,
        query: &LogQuery,
        wanted: &Wanted,
    ) -> Result<Self, Refusal> {
        let meta = index.meta().await?;
        let text = meta.logs.as_deref().unwrap_or("off");
        let filter: LogFilter = text.parse().map_err(|_| {
            Refusal::unavailable("the index does not say which logs it keeps: build it again")
        })?;
        if filter == LogFilter::Off {
            let told = "this index keeps no logs, so that none would mean nothing; see `Logs` in docs/index.md";
            return Err(Refusal::gone(told));
        }
        if !filter.keeps_all_of(query.address.as_ref(), query.topic0.as_ref()) {
            let told = format!(
                "the index does not keep all of these logs, so that none would mean nothing; it keeps {}",
                named(&filter)
            );
            return Err(Refusal::gone(told));
        }
        Self::of(index, &meta, meta.logs_since.unwrap_or(0), wanted).await
    }

    async fn of<R: IndexReader>(
        index: &R,
        meta: &IndexMeta,
        logs_since: Height,
        wanted: &Wanted,
    ) -> Result<Self, Refusal> {
        let next = meta.cursor.map_or(0, |cursor| cursor.block_number);
        let Some(top) = next.checked_sub(1) else {
            let told = "nothing is indexed yet; /readyz says how the worker is doing";
            return Err(Refusal::not_found(told).covering(Vec::new()));
        };
        let kept = meta.kept_from.unwrap_or(next);
        let (floor, why) = if logs_since > kept {
            (logs_since, "logs of earlier blocks were not kept as they are chosen now")
        } else {
            (kept, "earlier blocks are below where the index began, or past its retention")
        };
        // What reaches above is refused, with all that is covered.
        let reaches_above = wanted.from_block.max(wanted.to_block) > Some(top);
        let asked = if reaches_above { Wanted::default() } else { *wanted }.blocks(top);
        let gaps = match asked {
            Some(Span { from_block, to_block }) => {
                index.gaps_in(from_block, to_block, MAX_GAPS).await?
            }
            None => Vec::new(),
        };
        Ok(Self { floor, why, top, asked, gaps })
    }

    /// The newest block that anything can be said of.
    pub(super) fn top(&self) -> Height {
        self.top
    }

    /// Refuses a question about blocks that are not indexed yet.
    pub(super) fn check_asked(&self, wanted: &Wanted) -> Result<(), Refusal> {
        if let (Some(from), Some(to)) = (wanted.from_block, wanted.to_block)
            && from > to
        {
            return Err(Refusal::bad(format!("from_block {from} is above to_block {to}")));
        }
        let asked = wanted.from_block.max(wanted.to_block);
        let Some(above) = asked.filter(|asked| *asked > self.top) else { return Ok(()) };
        let told = format!("block {above} is not indexed yet; the newest one is {}", self.top);
        Err(Refusal::not_found(told).covering(self.all()))
    }

    /// Refuses if anything is missing in these blocks.
    pub(super) fn check(&self, span: Span) -> Result<(), Refusal> {
        let Span { from_block, to_block } = span;
        let overlaps = |gap: &&GapRow| gap.block_from <= to_block && gap.block_to >= from_block;
        let missing = if from_block < self.floor {
            format!("the index has nothing complete below block {}: {}", self.floor, self.why)
        } else if to_block > self.top {
            format!("the index ends with block {}", self.top)
        } else if let Some(gap) = self.gaps.iter().find(overlaps) {
            format!("blocks {} to {} are missing (/v1/gaps)", gap.block_from, gap.block_to)
        } else {
            return Ok(());
        };
        let covered = self.within(from_block, to_block);
        let advice = if covered.is_empty() {
            ""
        } else {
            ". Ask with from_block and to_block inside of what is covered"
        };
        let asked = format!("an answer would need all of the blocks {from_block} to {to_block}");
        Err(Refusal::gone(format!("{asked}, and {missing}{advice}")).covering(covered))
    }

    /// What of some blocks is covered, the newest first, as far as they are asked about and the known gaps
    /// reach.
    fn within(&self, from: Height, to: Height) -> Vec<Span> {
        let Some(asked) = self.asked else { return Vec::new() };
        let from = from.max(self.floor).max(asked.from_block);
        let mut to = Some(to.min(self.top).min(asked.to_block));
        let mut spans = Vec::new();
        for gap in &self.gaps {
            spans.extend(span(from.max(gap.block_to.saturating_add(1)), to));
            to = to.min(gap.block_from.checked_sub(1));
        }
        // Below the last of so many gaps there may be more.
        if self.gaps.len() < MAX_GAPS {
            spans.extend(span(from, to));
        }
        spans
    }

    /// Everything that is covered, of what is asked about.
    pub(super) fn all(&self) -> Vec<Span> {
        self.within(0, self.top)
    }

    /// Nothing was found: what that means. Nothing is missing from block 0 on, or it may be there.
    pub(super) fn not_found(&self, what: &str) -> Refusal {
        let top = self.top;
        let refusal = if self.is_whole() {
            Refusal::not_found(format!("no block up to {top}, the newest indexed one, {what}"))
        } else {
            Refusal::gone(format!(
                "no block that the index covers {what}, and it does not cover all of the blocks up to {top}: \
                 another one may"
            ))
        };
        refusal.covering(self.all())
    }

    /// Whether every block from 0 on is there.
    pub(super) fn is_whole(&self) -> bool {
        self.floor == 0 && self.gaps.is_empty()
    }
}

fn span(from_block: Height, to: Option<Height>) -> Option<Span> {
    to.filter(|to| *to >= from_block).map(|to_block| Span { from_block, to_block })
}

/// What is kept, in words that stay short.
fn named(filter: &LogFilter) -> String {
    let text = filter.to_string();
    let mut items = text.split(',');
    let shown: Vec<&str> = items.by_ref().take(MAX_NAMED).collect();
    match items.count() {
        0 => shown.join(","),
        more => format!("{} and {more} more (/v1/meta)", shown.join(",")),
    }
}
