//! `lookup`: the receipt of a transaction by its id and the block of a hash, present and absent,
//! hot and cold.
//!
//! Every store answers in a process of its own, so that its memory can be told; the processes
//! take turns, and the page cache of a store's files is emptied before its turn.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rustix::fs::Advice;
use serde::{Deserialize, Serialize};

use super::Setting;
use crate::contestants::Identity;
use crate::contestants::finders::{BLOCK_TRANSACTIONS, Finder, Ids, KINDS, Kind, hash, id, word};
use crate::machine::Machine;
use crate::measure::{float, median, resident_bytes, share};
use crate::results::{Case, Figure, Line, Report};

/// Its name.
pub const NAME: &str = "lookup";

/// Turns of each store.
const ROUNDS: usize = 3;
const QUICK_ROUNDS: usize = 2;
/// Lookups of a cold turn, of each kind.
const COLD: u64 = 1_000;
/// Ids of a hot turn, and how often they are asked for.
const HOT: u64 = 10_000;
const HOT_PASSES: u64 = 4;

/// What one turn of one store gave.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Answer {
    name: String,
    version: String,
    settings: String,
    open_seconds: f64,
    resident_bytes: f64,
    /// Nanoseconds a lookup, in the order of [`WAYS`].
    nanos: [f64; WAYS.len()],
    /// Arena reads a lookup, in the same order; none where they cannot be counted.
    reads: Option<[f64; WAYS.len()]>,
}

/// Ways of asking: what for, whether it is there, and in which state the caches are. A cold one is
/// followed by its absent twin, with which it takes turns.
const WAYS: [(Sought, &str, &str); 8] = [
    (Sought::Receipt, "present", "cold"),
    (Sought::Receipt, "absent", "cold"),
    (Sought::Block, "present", "cold"),
    (Sought::Block, "absent", "cold"),
    (Sought::Receipt, "present", "hot"),
    (Sought::Receipt, "absent", "hot"),
    (Sought::Block, "present", "hot"),
    (Sought::Block, "absent", "hot"),
];

/// What is looked for.
#[derive(Debug, Clone, Copy)]
enum Sought {
    /// A receipt by its transaction's id.
    Receipt,
    /// A block by its hash.
    Block,
}

impl Sought {
    fn name(self) -> &'static str {
        match self {
            Self::Receipt => "tx",
            Self::Block => "block",
        }
    }
}

/// Runs every case.
pub fn run(setting: &Setting) -> Result<Report> {
    let numbers: &[u32] = if setting.quick { &[2] } else { &[10, 50] };
    let mut cases = Vec::new();
    for millions in numbers {
        let name = format!("{millions}M");
        if !setting.wants(&name, &name) {
            continue;
        }
        let place = setting.data.join("lookup");
        let ids = Ids::new(millions * 1_000_000);
        for kind in KINDS {
            eprintln!("{NAME}: loading {millions} M transactions into {} …", kind.key);
            let at = place.join(kind.key);
            std::fs::create_dir_all(&at)?;
            (kind.load)(&at, &ids).with_context(|| format!("loading {}", kind.key))?;
        }
        drop(ids);
        let answers = turns(&place, *millions, if setting.quick { QUICK_ROUNDS } else { ROUNDS })?;
        cases.extend(cases_of(*millions, &answers));
        std::fs::remove_dir_all(&place)?;
    }
    Ok(Report {
        name: NAME,
        work: "the receipt of a transaction by its id, a block by its hash".into(),
        mode: if setting.quick { "quick" } else { "full" },
        machine: Machine::look(&setting.data),
        cases,
        plotted: "vs_rocksdb",
    })
}

/// All stores in turns; the answers by store.
fn turns(place: &Path, millions: u32, rounds: usize) -> Result<Vec<(&'static Kind, Vec<Answer>)>> {
    let mut answers: Vec<(&Kind, Vec<Answer>)> =
        KINDS.iter().map(|kind| (kind, Vec::new())).collect();
    for round in 1..=rounds {
        for (kind, answers) in &mut answers {
            eprintln!("{NAME}: {} M, round {round}, {} …", millions, kind.key);
            let at = place.join(kind.key);
            forget_pages(&at)?;
            answers.push(ask(kind, &at, millions, round)?);
        }
    }
    Ok(answers)
}

/// One turn, in a process of its own.
fn ask(kind: &Kind, at: &Path, millions: u32, round: usize) -> Result<Answer> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(CHILD).arg(kind.key).arg(at).arg(millions.to_string()).arg(round.to_string());
    let output = command.output().context("starting a process for a turn")?;
    if !output.status.success() {
        bail!("{}: {}", kind.key, String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("what {} answered", kind.key))
}

/// The word that makes this program answer one turn.
pub const CHILD: &str = "--answer-lookups";

/// The other end of [`ask`].
pub fn answer(mut words: impl Iterator<Item = String>) -> Result<()> {
    let key = words.next().context("which store?")?;
    let at = words.next().context("where?")?;
    let millions: u64 = words.next().context("how many?")?.parse()?;
    let round: u64 = words.next().context("which round?")?.parse()?;
    let kind = KINDS.iter().find(|kind| kind.key == key).context("there is no such store")?;
    let before = resident_bytes()?;
    let began = Instant::now();
    let finder = (kind.open)(Path::new(&at))?;
    // The first answer belongs to opening: some build what they need only then.
    finder.find(&id(u64::from(u32::MAX)))?;
    let open_seconds = began.elapsed().as_secs_f64();
    let present = millions * 1_000_000;
    let mut turn = Turns {
        finder: finder.as_ref(),
        present,
        nanos: [0.0; WAYS.len()],
        reads: [0.0; WAYS.len()],
    };
    let seed = round << 40;
    for cold in [0, 2] {
        turn.measure(cold, 2, COLD, 1, seed)?;
    }
    for hot in 4..WAYS.len() {
        // Once to warm up, and then for the clock.
        turn.measure(hot, 1, HOT, 1, seed)?;
        turn.measure(hot, 1, HOT, HOT_PASSES, seed)?;
    }
    let Identity { name, version, settings, .. } = finder.identity();
    let answer = Answer {
        name,
        version,
        settings,
        open_seconds,
        resident_bytes: float(resident_bytes()?.saturating_sub(before)),
        nanos: turn.nanos,
        reads: finder.reads().map(|_| turn.reads),
    };
    println!("{}", serde_json::to_string(&answer)?);
    Ok(())
}

struct Turns<'a> {
    finder: &'a dyn Finder,
    present: u64,
    nanos: [f64; WAYS.len()],
    reads: [f64; WAYS.len()],
}

impl Turns<'_> {
    /// Fills `slots` slots from `first` on, taking turns between them.
    fn measure(
        &mut self,
        first: usize,
        slots: usize,
        ids: u64,
        passes: u64,
        seed: u64,
    ) -> Result<()> {
        let (mut nanos, mut reads) = ([0u128; WAYS.len()], [0u64; WAYS.len()]);
        for number in (0..ids * passes).map(|n| n % ids) {
            for slot in first..first + slots {
                let (took, read) = self.ask(slot, word(seed + number, 7))?;
                if let (Some(nanos), Some(reads)) = (nanos.get_mut(slot), reads.get_mut(slot)) {
                    *nanos += took;
                    *reads += read;
                }
            }
        }
        let asked = float(ids * passes);
        for slot in first..first + slots {
            if let (Some(to), Some(nanos)) = (self.nanos.get_mut(slot), nanos.get(slot)) {
                *to = float(u64::try_from(*nanos)?) / asked;
            }
            if let (Some(to), Some(reads)) = (self.reads.get_mut(slot), reads.get(slot)) {
                *to = float(*reads) / asked;
            }
        }
        Ok(())
    }
}

impl Turns<'_> {
    /// One lookup, chosen by a random word: its time and its arena reads.
    fn ask(&self, slot: usize, random: u64) -> Result<(u128, u64)> {
        let (sought, there, _) = WAYS.get(slot).context("there is no such way of asking")?;
        let wanted = *there == "present";
        let number = match sought {
            Sought::Receipt => self.present,
            Sought::Block => self.present / BLOCK_TRANSACTIONS,
        };
        let chosen = random % number + if wanted { 0 } else { number };
        let key = match sought {
            Sought::Receipt => id(chosen),
            Sought::Block => hash(chosen + 1),
        };
        let before = self.finder.reads().unwrap_or(0);
        let began = Instant::now();
        let found = match sought {
            Sought::Receipt => self.finder.find(&key)?,
            Sought::Block => self.finder.find_block(&key)?,
        };
        let took = began.elapsed().as_nanos();
        if found != wanted {
            bail!("{sought:?} {chosen} was found: {found}, but it should be {wanted}");
        }
        Ok((took, self.finder.reads().unwrap_or(0) - before))
    }
}

/// Empties the page cache of all files below a directory.
fn forget_pages(directory: &Path) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            forget_pages(&path)?;
        } else {
            let file = File::open(&path)?;
            file.sync_all()?;
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}

/// The cases of one number of transactions: the kinds of lookup, and what the stores take.
fn cases_of(millions: u32, answers: &[(&Kind, Vec<Answer>)]) -> Vec<Case> {
    let ids = format!("{millions}M");
    let mut cases = Vec::new();
    for ((sought, kind, state), slot) in WAYS.into_iter().zip(0..) {
        let nanos = |answer: &Answer| answer.nanos.get(slot).copied().unwrap_or(0.0);
        let reads = |answer: &Answer| answer.reads.and_then(|reads| reads.get(slot).copied());
        let labels = vec![
            ("ids", ids.clone()),
            ("of", sought.name().to_owned()),
            ("kind", kind.to_owned()),
            ("state", state.to_owned()),
        ];
        let case = compare(labels, answers, nanos, "ns a lookup");
        let Some(mut case) = case else { continue };
        let ours = answers.first().map(|(_, ours)| ours.as_slice()).unwrap_or_default();
        let ours: Vec<f64> = ours.iter().filter_map(reads).collect();
        case.figures.push(("arena_reads", Figure::Ratio(median(&ours))));
        cases.push(case);
    }
    let labels = || vec![("ids", ids.clone())];
    let whole = float(u64::from(millions) * 1_000_000);
    let memory = |answer: &Answer| share(answer.resident_bytes, whole);
    let (mut open, mut held) = (labels(), labels());
    open.push(("kind", "open".to_owned()));
    held.push(("kind", "memory".to_owned()));
    cases.extend(compare(open, answers, |answer| answer.open_seconds, "seconds to open"));
    let mut held = compare(held, answers, memory, "bytes of memory an id");
    if let (Some(case), Some((_, ours))) = (&mut held, answers.first()) {
        let bytes: Vec<f64> = ours.iter().map(|answer| answer.resident_bytes / 1e6).collect();
        case.figures.push(("resident_mb", Figure::Ratio(median(&bytes))));
    }
    cases.extend(held);
    cases
}

/// Ratios of the medians' turns: theirs ÷ ours, because less is better here.
fn compare(
    labels: Vec<(&'static str, String)>,
    answers: &[(&Kind, Vec<Answer>)],
    cost: impl Fn(&Answer) -> f64,
    unit: &'static str,
) -> Option<Case> {
    let ((_, ours), others) = answers.split_first()?;
    let costs = |answers: &[Answer]| answers.iter().map(&cost).collect::<Vec<f64>>();
    let mine = costs(ours);
    let mut figures = vec![("ours", Figure::Ratio(median(&mine)))];
    for (kind, theirs) in others {
        let rounds: Vec<f64> =
            costs(theirs).iter().zip(&mine).map(|(their, our)| share(*their, *our)).collect();
        figures.push((versus(kind.key), Figure::Ratio(median(&rounds))));
    }
    let contestants = answers.iter().filter_map(|(kind, answers)| {
        let Answer { name, version, settings, .. } = answers.first()?.clone();
        let reached = vec![(unit, Figure::Ratio(median(&costs(answers))))];
        let identity = Identity { key: kind.key, name, version, settings };
        Some(Line { identity, reached, limited_by: "reads and CPU" })
    });
    let contestants = contestants.collect();
    Some(Case { labels, figures, rounds: Vec::new(), contestants, phases: Vec::new() })
}

fn versus(key: &'static str) -> &'static str {
    match key {
        "rocksdb" => "vs_rocksdb",
        "fjall" => "vs_fjall",
        "redb" => "vs_redb",
        other => other,
    }
}
