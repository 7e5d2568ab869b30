//! How answers reach people and programs: one text or one JSON value on standard output,
//! questions and progress on standard error.

pub(crate) mod gauge;
pub(crate) mod log;
mod progress;
mod sheet;
pub(crate) mod words;

pub(crate) use progress::Progress;
pub(crate) use sheet::Sheet;

use std::io::{self, BufRead, IsTerminal, Write};

use serde::Serialize;

use crate::error::NodeError;

/// Where answers go and in which form.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ui {
    pub(crate) json: bool,
}

impl Ui {
    /// Prints the answer: the value in JSON, or the text for people.
    pub(crate) fn answer<T: Serialize>(
        self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> Result<(), anyhow::Error> {
        if !log::is_for_people() {
            // One line, as those of the log are.
            print(&format!("{}\n", serde_json::to_string(value)?))
        } else if self.json {
            print(&format!("{}\n", serde_json::to_string_pretty(value)?))
        } else {
            print(&text())
        }
    }

    /// Says something on the way to the answer; silent in JSON.
    pub(crate) fn note(self, text: &str) -> Result<(), anyhow::Error> {
        if self.json { Ok(()) } else { print(text) }
    }
}

/// Prints a text as it stands.
pub(crate) fn print(text: &str) -> Result<(), anyhow::Error> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Goes on only if `yes` was given or somebody at the terminal agrees.
pub(crate) fn confirm(what: &'static str, question: &str, yes: bool) -> Result<(), anyhow::Error> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(NodeError::NeedsYes(what).into());
    }
    eprint!("{question} [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(NodeError::NotConfirmed(what).into()),
    }
}
