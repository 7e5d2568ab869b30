//! What becomes of the figures: a table to read, JSON and a plot to keep, lines for machines.

mod svg;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Serialize, Serializer};

use crate::contestants::Identity;
use crate::machine::Machine;

/// One run of one benchmark.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The benchmark.
    pub name: &'static str,
    /// What the work is.
    pub work: String,
    /// `full` or `quick`.
    pub mode: &'static str,
    /// Where it ran.
    pub machine: Machine,
    /// The measured cases.
    pub cases: Vec<Case>,
    /// The figure that the plot shows.
    #[serde(skip)]
    pub plotted: &'static str,
}

/// One case: what was varied, and what came out.
#[derive(Debug, Serialize)]
pub struct Case {
    /// What tells this case from the others.
    #[serde(serialize_with = "as_map")]
    pub labels: Vec<(&'static str, String)>,
    /// The figures that are compared between versions.
    #[serde(serialize_with = "as_map")]
    pub figures: Vec<(&'static str, Figure)>,
    /// The ratio of every round, in order.
    pub rounds: Vec<f64>,
    /// Who took part, ours first.
    pub contestants: Vec<Line>,
    /// Where our time went, as shares of all of it.
    #[serde(serialize_with = "as_map")]
    pub phases: Vec<(&'static str, f64)>,
}

/// A contestant's absolute figures in a case.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// Who.
    #[serde(flatten)]
    pub identity: Identity,
    /// What it reached.
    #[serde(serialize_with = "as_map")]
    pub reached: Vec<(&'static str, Figure)>,
    /// What limits it.
    pub limited_by: &'static str,
}

/// One figure.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Figure {
    /// A ratio, a share or another number with a fraction.
    Ratio(f64),
    /// Bytes, or another count.
    Count(u64),
    /// A name.
    Word(&'static str),
}

impl std::fmt::Display for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ratio(ratio) => f.pad(&format!("{ratio:.*}", decimals(*ratio))),
            Self::Count(count) => f.pad(&count.to_string()),
            Self::Word(word) => f.pad(word),
        }
    }
}

/// As many decimals as leave something to compare of the number.
fn decimals(number: f64) -> usize {
    match number.abs() {
        0.0 => 3,
        small if small < 0.1 => 6,
        small if small < 1000.0 => 3,
        _ => 0,
    }
}

fn as_map<S: Serializer, V: Serialize>(
    pairs: &[(&'static str, V)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(key, value)| (key, value)))
}

impl Case {
    /// A figure by its key, if it is a ratio.
    fn ratio(&self, key: &str) -> Option<f64> {
        let found = self.figures.iter().find(|(name, _)| *name == key);
        if let Some((_, Figure::Ratio(ratio))) = found { Some(*ratio) } else { None }
    }

    fn label(&self) -> String {
        let words: Vec<String> =
            self.labels.iter().map(|(key, value)| format!("{key} {value}")).collect();
        words.join(", ")
    }
}

impl Report {
    /// Writes `<name>.json` and `<name>.svg`.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let write = |extension: &str, text: String| {
            let path = directory.join(format!("{}.{extension}", self.name));
            std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
        };
        write("json", serde_json::to_string_pretty(self)? + "\n")?;
        write("svg", svg::bars(self))
    }

    /// The lines for machines, one a case.
    pub fn machine_lines(&self) -> Vec<String> {
        self.cases.iter().map(|case| self.machine_line(case)).collect()
    }

    fn machine_line(&self, case: &Case) -> String {
        let mut line = format!("{}:", self.name);
        let labels = case.labels.iter().map(|(key, value)| (key, value.clone()));
        let figures = case.figures.iter().map(|(key, figure)| (key, figure.to_string()));
        for (key, value) in labels.chain(figures) {
            push(&mut line, format_args!(" {key}={value}"));
        }
        line
    }

    /// The table for a reader.
    pub fn table(&self) -> String {
        let mut out = format!("\n{} ({})\n{}\n", self.name, self.mode, self.work);
        push(&mut out, format_args!("{}\n\n", self.machine.line()));
        let mut keys: Vec<&str> = Vec::new();
        for (key, _) in self.cases.iter().flat_map(|case| &case.figures) {
            if !keys.contains(key) {
                keys.push(key);
            }
        }
        push(&mut out, format_args!("{:<32}", "case"));
        for key in &keys {
            push(&mut out, format_args!("{key:>17}"));
        }
        out.push('\n');
        for case in &self.cases {
            push(&mut out, format_args!("{:<32}", case.label()));
            for key in &keys {
                let figure = case.figures.iter().find(|(name, _)| name == key);
                let figure = figure.map_or(Figure::Word("-"), |(_, figure)| figure.clone());
                push(&mut out, format_args!("{figure:>17}"));
            }
            out.push('\n');
        }
        for case in &self.cases {
            push_details(&mut out, case);
        }
        out
    }
}

fn push_details(out: &mut String, case: &Case) {
    push(out, format_args!("\n{}", case.label()));
    if !case.rounds.is_empty() {
        let lowest = case.rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = case.rounds.iter().copied().fold(0.0, f64::max);
        let rounds = case.rounds.len();
        push(out, format_args!(": {rounds} rounds from {lowest:.3} to {highest:.3}"));
    }
    out.push('\n');
    for line in &case.contestants {
        let Identity { name, version, settings, .. } = &line.identity;
        push(out, format_args!("  {name} ({version}):"));
        for (key, figure) in &line.reached {
            push(out, format_args!(" {key} {figure},"));
        }
        push(out, format_args!(" limited by {}\n    {settings}\n", line.limited_by));
    }
    for (phase, share) in case.phases.iter().filter(|(_, share)| *share >= 0.005) {
        push(out, format_args!("  {:>5.1} %  {phase}\n", share * 100.0));
    }
}

/// Appends formatted text; writing into a string cannot fail.
pub(crate) fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let identity = |name: &str| Identity {
            key: "key",
            name: name.into(),
            version: "1".into(),
            settings: "a < b".into(),
        };
        let line = |name: &str| Line {
            identity: identity(name),
            reached: vec![("MB/s", Figure::Ratio(10.0))],
            limited_by: "CPU",
        };
        let figures = vec![("vs_raw", Figure::Ratio(0.5)), ("arena_growth", Figure::Count(7))];
        let machine = Machine {
            cores: 2,
            cpu: "a".into(),
            memory_mib: 1,
            kernel: "6".into(),
            file_system: "ext4".into(),
        };
        let case = Case {
            labels: vec![("size", "20KB".into()), ("group", "8".into())],
            figures,
            rounds: vec![0.4, 0.6],
            contestants: vec![line("us"), line("them")],
            phases: vec![("sync", 1.0)],
        };
        let work = "work & more".into();
        Report { name: "x", work, mode: "quick", machine, cases: vec![case], plotted: "vs_raw" }
    }

    #[test]
    fn the_machine_line_has_labels_then_figures() {
        let lines = report().machine_lines();
        assert_eq!(lines, ["x: size=20KB group=8 vs_raw=0.500 arena_growth=7"]);
    }

    #[test]
    fn json_keeps_the_order_and_the_plot_escapes_text() {
        let report = report();
        let json = serde_json::to_string(&report).unwrap();
        assert!(json.contains(r#""figures":{"vs_raw":0.5,"arena_growth":7}"#), "{json}");
        let plot = svg::bars(&report);
        assert!(plot.contains("work &amp; more") && plot.trim_end().ends_with("</svg>"));
        assert!(report.table().contains("limited by CPU"));
    }
}
