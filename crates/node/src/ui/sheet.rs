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
        let gap = if label.len() < LABEL { "" } else { " " };
        self.line(format_args!("{label:<LABEL$}{gap}{value}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_that_is_too_wide_keeps_its_distance() {
        let mut sheet = Sheet::default();
        sheet.row("archive_parts", 34).row("elevenchars", 1).row("a", 2);
        assert_eq!(sheet.finish(), "archive_parts 34\nelevenchars 1\na          2\n");
    }
}
