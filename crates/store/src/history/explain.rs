//! Explain: is it here, was it cut, when and why, and who holds it.

use secateur_core::{CutTx, ExplainBlock, ExplainTx, Height, LookupError, Report, TxId};

use super::parts::{covering, overlapping};
use super::prune::reports;
use super::store::Store;
use crate::StoreError;
use crate::ground::{Arena, Index};

impl<A: Arena, I: Index> Store<A, I> {
    /// The story of a block.
    pub fn explain_block(&self, height: Height) -> Result<ExplainBlock, StoreError> {
        let view = self.view()?;
        let state = &view.state;
        if let Some(first) = state.first.filter(|first| height < *first) {
            return Ok(ExplainBlock::BeforeFirst { first });
        }
        if let Some(pruned_before_block) = state.boundary.filter(|b| height <= *b) {
            let report = reports(&view.snapshot)?
                .into_iter()
                .find(|report| (report.first..=report.last).contains(&height));
            let locator = covering(&view.snapshot, height)?.map(|part| part.locator);
            return Ok(ExplainBlock::Pruned { pruned_before_block, report, locator });
        }
        let head = state.head.map(|tip| tip.height);
        if head.is_none_or(|head| height > head) {
            return Ok(ExplainBlock::NotYet { head });
        }
        let record = view.record(height)?;
        let situation = self.situation_of(&view.snapshot, state)?;
        let held_by = situation
            .holds
            .iter()
            .filter(|hold| hold.active && hold.covers(height))
            .map(|hold| hold.kind.to_string())
            .collect();
        let due = situation.select(state, &self.header.classes, u64::MAX).due(height);
        Ok(ExplainBlock::Kept {
            tx_count: record.tx_count,
            payload_bytes: record.payload_bytes(),
            region_bytes: record.region_bytes(),
            meta: record.meta,
            held_by,
            due,
        })
    }

    /// The story of a transaction.
    pub fn explain_tx(&self, tx_id: TxId) -> Result<ExplainTx, StoreError> {
        match self.get_transaction(&tx_id) {
            Ok(found) => {
                let (height, index) = (found.location.height, found.location.index);
                let block = Box::new(self.explain_block(height)?);
                Ok(ExplainTx::Kept { tx_id, height, index, block })
            }
            Err(StoreError::Lookup(
                answer @ (LookupError::Pruned { .. }
                | LookupError::Pending
                | LookupError::NotFound { .. }),
            )) => {
                let pruned = matches!(answer, LookupError::Pruned { .. });
                let cut = if pruned { self.cut_of(&tx_id)?.map(Box::new) } else { None };
                Ok(ExplainTx::Absent { tx_id, answer, cut })
            }
            Err(error) => Err(error),
        }
    }

    /// When a pruned transaction went and where to, as far as what is left of its id tells.
    fn cut_of(&self, id: &TxId) -> Result<Option<CutTx>, StoreError> {
        let traces = self.trace_transaction(id)?;
        let first = traces.iter().map(|range| *range.start()).min();
        let last = traces.iter().map(|range| *range.end()).max();
        let (Some(first), Some(last)) = (first, last) else { return Ok(None) };
        let view = self.view()?;
        let cuts = |report: &Report| report.first <= last && first <= report.last;
        let mut candidates = reports(&view.snapshot)?.into_iter().filter(cuts);
        let earliest = candidates.next();
        let reports = earliest.into_iter().chain(candidates.next_back()).collect();
        let parts = overlapping(&view.snapshot, first, last)?;
        let locators = parts.into_iter().map(|part| part.locator).collect();
        Ok(Some(CutTx { first, last, reports, locators }))
    }
}
