//! The demo as lines: plain ones where there is no terminal, JSON ones for programs.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use secateur_core::{StopReason, format_bytes};
use serde_json::json;

use super::blobs::Figures;
use super::show::{Event, Moment, Show};
use crate::ui::words::{count, height, listening, report, tenths};
use crate::ui::{self, gauge};

const RHYTHM: Duration = Duration::from_secs(1);

fn print(line: &str) -> Result<(), anyhow::Error> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// One line about every second, and one for every prune.
#[derive(Debug)]
pub(super) struct PlainLines;

impl Show for PlainLines {
    fn listening(&mut self, http: SocketAddr, grpc: SocketAddr) -> Result<(), anyhow::Error> {
        ui::print(&listening(&[("http", http), ("grpc", grpc)]))
    }

    fn rhythm(&self) -> Duration {
        RHYTHM
    }

    fn moment(&mut self, moment: &Moment) -> Result<(), anyhow::Error> {
        let status = &moment.status;
        let indexed = moment.indexed.map_or_else(String::new, |reached| {
            let (indexed, archived) =
                (height(reached.next.checked_sub(1)), height(status.archived));
            format!("  indexed {indexed}  archived {archived}")
        });
        print(&format!(
            "head {}  boundary {}  kept {}  used {} {}  arena {}{indexed}  {} blocks/s",
            height(status.head),
            height(status.pruned_before_block),
            count(moment.kept()),
            gauge::used(status),
            gauge::state(status.pressure),
            format_bytes(status.arena_bytes),
            tenths(moment.rate_tenths),
        ))?;
        if !moment.blobs.is_empty() {
            let all: Vec<String> = moment.blobs.iter().map(Figures::short).collect();
            print(&format!("blobs stored/archived/pruned/on disk/waiting: {}", all.join("  ")))?;
        }
        if let Some(utxo) = &moment.utxo {
            let (head, gone, kept) = (height(utxo.head), utxo.gone(), utxo.kept());
            print(&format!("utxo head {head}: {gone}; {kept}"))?;
        }
        for alarm in &status.alarms {
            print(&format!("ALARM {alarm}"))?;
        }
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<(), anyhow::Error> {
        match event {
            // The next tick goes on with this report and tells it whole.
            Event::Pruned(Some(report)) if report.stop == StopReason::MaxOps => Ok(()),
            Event::Pruned(Some(pruned)) => {
                print(&format!("prune {}; {}", report(pruned), pruned.stop))
            }
            Event::Trouble(error) => print(&format!("prune failed: {error}")),
            Event::Pruned(None) | Event::Ended => Ok(()),
        }
    }
}

/// One JSON object a line.
#[derive(Debug)]
pub(super) struct JsonLines;

impl Show for JsonLines {
    fn listening(&mut self, http: SocketAddr, grpc: SocketAddr) -> Result<(), anyhow::Error> {
        print(&json!({ "event": "listening", "http": http, "grpc": grpc }).to_string())
    }

    fn rhythm(&self) -> Duration {
        RHYTHM
    }

    fn moment(&mut self, moment: &Moment) -> Result<(), anyhow::Error> {
        let line = json!({
            "event": "status",
            "appended": moment.counts.appended,
            "blocks_per_second_tenths": moment.rate_tenths,
            "elapsed_ms": u64::try_from(moment.elapsed.as_millis()).unwrap_or(u64::MAX),
            "indexed": moment.indexed.and_then(|reached| reached.next.checked_sub(1)),
            "blobs": moment.blobs,
            "utxo": moment.utxo,
            "status": moment.status,
        });
        print(&line.to_string())
    }

    fn event(&mut self, event: &Event) -> Result<(), anyhow::Error> {
        let line = match event {
            Event::Pruned(Some(report)) => json!({ "event": "report", "report": report }),
            Event::Trouble(error) => json!({ "event": "trouble", "error": error }),
            Event::Pruned(None) | Event::Ended => return Ok(()),
        };
        print(&line.to_string())
    }
}
