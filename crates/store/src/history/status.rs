//! Status and plan: the numbers an operator looks at, and a prune that changes nothing.

use std::sync::Arc;

use secateur_core::{
    ClassUse, Height, IdUse, Plan, PruneNeed, PrunePolicy, PruneStatus, Selection, Strength,
    Verdict, format_bytes, ops_of_block,
};

use super::control::export_head;
use super::headroom::Headroom;
use super::pace::behind_of;
use super::prune::{Oldest, Terms, candidate, load_report};
use super::runs::{OpenIds, Segment, load_runs, searched_from, tombstone_cap};
use super::situation::{Situation, settings_of};
use super::state::State;
use super::store::Store;
use super::txn::Txn;
use super::view::View;
use crate::StoreError;
use crate::ground::{Arena, Index, Snapshot, Table};
use crate::regions::overlay::Ahead;

/// Quarantine over this share of the target is an alarm.
const QUARANTINE_ALARM_DIVISOR: u64 = 20;
/// Ids may take so much memory besides the filters of runs.
const ID_MEMORY: u64 = 256 << 20;
/// A reader that began this many cuts ago is an alarm.
const OLD_PIN_CUTS: u64 = 64;

/// Rates of the chain as it is kept now.
struct Forecast {
    bytes_per_block: u64,
    budget_blocks: Option<u64>,
    budget_seconds: Option<u64>,
    seconds_to_high_water: Option<u64>,
    /// The chain's time from the oldest kept block to the head.
    span_seconds: u64,
}

type ViewWithOpenIds<'a, A, I> = (View<'a, A, <I as Index>::Snapshot>, Vec<Arc<Segment>>);

impl<A: Arena, I: Index> Store<A, I> {
    /// The state of the family in one value.
    pub fn get_prune_status(&self) -> Result<PruneStatus, StoreError> {
        let view = self.view()?;
        let (state, table) = (&view.state, &self.header.classes);
        let situation = self.situation_of(&view.snapshot, state)?;
        let settings = settings_of(&view.snapshot)?;
        let need = self.need_of(&view, &situation)?;
        let forecast = forecast(&view, self, &situation.policy)?;
        let marks = situation.policy.water_marks();
        let oldest = match state.oldest_kept() {
            Some(height) => Some(view.record(height)?),
            None => None,
        };
        let headroom = self.headroom()?;
        let (behind, behind_blocks) =
            (self.behind_alarm(state, &situation), behind_of(state, &situation));
        let mut status = PruneStatus {
            head: state.head.map(|tip| tip.height),
            export_head: export_head(state, &settings),
            finalized: export_head(state, &settings),
            archived: state.archived,
            pruned_before_block: state.boundary,
            oldest_kept_block: state.oldest_kept(),
            oldest_kept_timestamp: oldest.map(|record| record.meta.timestamp),
            estimated_kept_bytes: state.kept_bytes(table),
            used_bytes: state.used_bytes(table),
            quarantined_bytes: state.kept_bytes(table) - state.used_bytes(table),
            arena_bytes: state.arena_end,
            disk_bytes: self.arena.space()?.given,
            index_bytes: self.index.bytes()?,
            free_bytes: headroom.free,
            disk_full: headroom.short_of.is_some(),
            least_target_bytes: self.header.least_target(),
            classes: self.class_use(state),
            layout: self.header.layout.name().into(),
            ids: self.id_use(&view)?,
            target_bytes: situation.policy.target_bytes,
            high_water_bytes: marks.map(|marks| marks.high),
            low_water_bytes: marks.map(|marks| marks.low),
            hard_water_bytes: marks.map(|marks| marks.hard),
            pressure: state.pressure,
            pruning_enabled: state.pruning_enabled,
            prune_running: self.is_pruning(),
            need,
            binding_hold: situation.binding(state.pressure.draining),
            holds: situation.holds,
            last_prune_at: state.last_prune_at,
            last_report: match state.report_next.checked_sub(1) {
                Some(seq) => load_report(&view.snapshot, seq)?,
                None => None,
            },
            bytes_per_block: forecast.bytes_per_block,
            budget_blocks: forecast.budget_blocks,
            budget_seconds: forecast.budget_seconds,
            seconds_to_high_water: forecast.seconds_to_high_water,
            pace: self.pace_of(&view.snapshot, state, &situation.policy, forecast.span_seconds)?,
            retention_behind_blocks: behind_blocks,
            queued_transactions: self.ends().queued,
            journal_entries: journal_len(&view.snapshot)?,
            oldest_pin_age: self.pins.oldest_age(),
            decreasing_timestamps: state.counters.decreasing_timestamps,
            implausible_timestamps: state.counters.implausible_timestamps,
            overruns: state.counters.overruns,
            alarms: Vec::new(),
        };
        status.alarms = self.alarms(&status, headroom, behind);
        Ok(status)
    }

    /// What a prune would do now, down to the last block, and what would stop it. It selects
    /// with the same code as the real run, and costs as much as one but for its writes: it reads the
    /// records of all blocks that are due, and sorts those of their ids that are in no run yet.
    pub fn prune_plan(&self) -> Result<Plan, StoreError> {
        self.prune_plan_within(u64::MAX)
    }

    /// The same, for no more than so many nominal operations: a plan that would go on stops with
    /// [`secateur_core::StopReason::MaxOps`].
    pub fn prune_plan_within(&self, max_ops: u64) -> Result<Plan, StoreError> {
        let (view, segments) = self.view_with_open_ids()?;
        let (state, table) = (&view.state, &self.header.classes);
        let situation = self.situation_of(&view.snapshot, state)?;
        let tick_ops = self.tick_ops(state.pressure, situation.policy.max_ops_per_tick);
        let span = forecast(&view, self, &situation.policy)?.span_seconds;
        let pace = self.pace_of(&view.snapshot, state, &situation.policy, span)?;
        let selection = situation.select(state, table, max_ops);
        let mut ticks = TickCount::new(tick_ops);
        // The very batch that a prune would commit, made and dropped.
        let (used_before, state) = (state.used_bytes(table), state.clone());
        let (runs, settings) = (load_runs(&view.snapshot)?, settings_of(&view.snapshot)?);
        let cap = tombstone_cap(settings.tombstone_bytes, situation.policy.target_bytes);
        let under = Ahead { snapshot: &view.snapshot, staged: Arc::default() };
        let mut txn = Txn::new(under, state, Arc::new(runs), &self.header, self.sabotage);
        let terms = Terms {
            limit: Height::MAX,
            tombstone_cap: cap,
            newest_final: export_head(&view.state, &settings),
            open_ids: OpenIds::Copied(segments),
        };
        let taken = self.cut_due(
            &mut txn,
            selection,
            &terms,
            || Ok(()),
            |candidate| {
                ticks.add(ops_of_block(candidate.tx_count));
            },
        )?;
        Ok(Plan {
            cause: taken.cause,
            totals: taken.totals,
            by_class: taken.cut.by_class(),
            used_before,
            used_after: txn.state.used_bytes(table),
            ticks: ticks.ticks,
            pace,
            stop: taken.stop,
            binding_hold: situation.binding(taken.pressure.draining),
            holds: situation.holds.clone(),
        })
    }

    /// Rows, and the ids that are in no run, of the same moment: nothing is on its way then, and the
    /// writer waits so long.
    fn view_with_open_ids(&self) -> Result<ViewWithOpenIds<'_, A, I>, StoreError> {
        let control = self.control.lock();
        self.build_hashes_for(&control)?;
        if self.poisoned().is_none() {
            self.flush()?;
        } else {
            self.lane.wait_until_still();
        }
        Ok((self.view()?, self.hashes.open_segments()))
    }

    /// Whether a prune is due. It ignores the kill switch: it is for alarms.
    pub fn need_prune(&self) -> Result<PruneNeed, StoreError> {
        let view = self.view()?;
        let situation = self.situation_of(&view.snapshot, &view.state)?;
        self.need_of(&view, &situation)
    }

    fn need_of(
        &self,
        view: &View<'_, A, I::Snapshot>,
        situation: &Situation,
    ) -> Result<PruneNeed, StoreError> {
        let selection: Selection<'_> =
            situation.select(&view.state, &self.header.classes, u64::MAX);
        let oldest = Oldest::from(&view.snapshot, &view.state)?;
        let candidate = oldest.pair().map(|(record, _)| candidate(record));
        let cause = candidate.and_then(|candidate| selection.due(candidate.height));
        let blocked_by = match candidate.map(|candidate| selection.consider(&candidate)) {
            Some(Verdict::Stop(stop)) if cause.is_some() => Some(stop),
            _ => None,
        };
        Ok(PruneNeed { need_prune: cause.is_some(), cause, blocked_by })
    }

    fn id_use(&self, view: &View<'_, A, I::Snapshot>) -> Result<IdUse, StoreError> {
        let records = load_runs(&view.snapshot)?;
        let (live, tombstones): (Vec<_>, Vec<_>) = records.iter().partition(|run| run.is_live());
        Ok(IdUse {
            runs: live.len() as u64,
            sealed_ids: live.iter().map(|run| run.entries).sum(),
            tombstones: tombstones.len() as u64,
            tombstone_bytes: tombstones.iter().map(|run| run.filter_bytes()).sum(),
            searched_from: searched_from(&view.state, &records),
            memory_bytes: self.hashes.memory_bytes(),
        })
    }

    fn class_use(&self, state: &State) -> Vec<ClassUse> {
        let classes = self.header.classes.classes().iter().zip(&state.classes);
        classes
            .map(|(class, count)| ClassUse {
                class: *class,
                used: count.used,
                quarantine: count.quarantine,
                free: count.free,
                punched: count.punched,
            })
            .collect()
    }

    /// `behind` is the alarm of retention.
    fn alarms(
        &self,
        status: &PruneStatus,
        headroom: Headroom,
        behind: Option<String>,
    ) -> Vec<String> {
        let target = status.target_bytes;
        let mut alarms = Vec::new();
        let mut alarm = |raised: bool, text: String| {
            if raised {
                alarms.push(text);
            }
        };
        for text in self.standing_alarms(status, headroom).into_iter().chain(behind) {
            alarm(true, text);
        }
        if let Some((hold, Strength::Hard)) = status.blocking_hold() {
            alarm(true, format!("a prune is due, but the hard hold `{hold}` stops it"));
        }
        alarm(
            status.pressure.emergency,
            format!(
                "emergency: {} are used of a target of {}",
                format_bytes(status.used_bytes),
                format_bytes(target)
            ),
        );
        alarm(
            status.need.need_prune && !status.pruning_enabled,
            "a prune is due, but pruning is off".into(),
        );
        alarm(
            // Between a cut and its free much may be quarantined; only a reader keeps it so.
            target > 0
                && status.quarantined_bytes > target / QUARANTINE_ALARM_DIVISOR
                && status.oldest_pin_age > 0,
            format!(
                "{} are quarantined: a reader may be stuck",
                format_bytes(status.quarantined_bytes)
            ),
        );
        alarm(
            status.oldest_pin_age > OLD_PIN_CUTS,
            format!("a reader began {} cuts ago and still holds regions", status.oldest_pin_age),
        );
        let ids = status.ids;
        alarm(
            ids.memory_bytes > ID_MEMORY + 3 * ids.sealed_ids,
            format!(
                "ids take {} of memory: blocks that are not final cannot be sealed",
                format_bytes(ids.memory_bytes)
            ),
        );
        let all = status.disk_bytes.saturating_add(status.index_bytes);
        alarm(
            target > 0 && all > target,
            format!(
                "arena and index together take {}, more than the target of {}",
                format_bytes(all),
                format_bytes(target)
            ),
        );
        alarm(
            status.implausible_timestamps > 0,
            format!("{} blocks have timestamps in the future", status.implausible_timestamps),
        );
        alarms
    }

    /// What the store itself found out and keeps in mind until it is over.
    fn standing_alarms(&self, status: &PruneStatus, headroom: Headroom) -> Vec<String> {
        let poisoned = self
            .poisoned()
            .map(|cause| format!("the store refuses writes until it is reopened: {cause}"));
        let unsealed = self
            .seal_trouble
            .lock()
            .as_ref()
            .map(|cause| format!("ids stay in memory, because they cannot be sealed: {cause}"));
        [poisoned, headroom.alarm(status.target_bytes, status.disk_bytes), unsealed]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// Counts the ticks that a run of blocks takes, as the real ticks would split it.
struct TickCount {
    tick_ops: u64,
    spent: u64,
    ticks: u64,
}

impl TickCount {
    fn new(tick_ops: u64) -> Self {
        Self { tick_ops, spent: 0, ticks: 0 }
    }

    fn add(&mut self, ops: u64) {
        if self.ticks == 0 || self.spent.saturating_add(ops) > self.tick_ops {
            self.ticks += 1;
            self.spent = 0;
        }
        self.spent = self.spent.saturating_add(ops);
    }
}

fn journal_len(rows: &impl Snapshot) -> Result<u64, StoreError> {
    let mut count = 0;
    rows.scan(Table::Journal, &[], &mut |_, _| {
        count += 1;
        Ok(std::ops::ControlFlow::Continue(()))
    })?;
    Ok(count)
}

fn forecast<A: Arena, I: Index>(
    view: &View<'_, A, I::Snapshot>,
    store: &Store<A, I>,
    policy: &PrunePolicy,
) -> Result<Forecast, StoreError> {
    let state = &view.state;
    let (blocks, used) = (state.kept_blocks(), state.used_bytes(&store.header.classes));
    let bytes_per_block = used.checked_div(blocks).unwrap_or(0);
    let marks = policy.water_marks();
    let budget_blocks = marks.and_then(|marks| marks.high.checked_div(bytes_per_block));
    // The pace of the chain: seconds that the kept blocks span.
    let span = match (state.head, state.oldest_kept()) {
        (Some(head), Some(oldest)) if blocks > 1 => {
            head.max_timestamp.saturating_sub(view.record(oldest)?.max_timestamp)
        }
        _ => 0,
    };
    let seconds_for = |count: u64| {
        let seconds = u128::from(count) * u128::from(span) / u128::from(blocks.max(2) - 1);
        u64::try_from(seconds).ok().filter(|_| span > 0)
    };
    let to_high =
        marks.and_then(|marks| marks.high.saturating_sub(used).checked_div(bytes_per_block));
    Ok(Forecast {
        bytes_per_block,
        budget_blocks,
        budget_seconds: budget_blocks.and_then(seconds_for),
        seconds_to_high_water: to_high.and_then(seconds_for),
        span_seconds: span,
    })
}
