//! A text of labelled rows, aligned.

use std::fmt::{Display, Write as _};

/// Labels are at most this wide.
const LABEL: usize = 11;

/// A text being written.
#[derive(Debug, Default)]
pub(crate) struct Sheet {
    text: String,
}

impl Sheet {
    /// A row: its label and what there is to say.
    pub(crate) fn row(&mut self, label: &str, value: impl Display) -> &mut Self {
        self.line(format_args!("{label:<LABEL$}{value}"))
    }

    /// A whole line.
    pub(crate) fn line(&mut self, line: impl Display) -> &mut Self {
        // Writing into a string cannot fail.
        writeln!(self.text, "{line}").unwrap_or_default();
        self
    }

    /// An empty line.
    pub(crate) fn gap(&mut self) -> &mut Self {
        self.line("")
    }

    /// The text.
    pub(crate) fn finish(self) -> String {
        self.text
    }
}
