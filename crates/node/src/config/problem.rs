//! What is wrong with a configuration, all of it at once.

use std::fmt;
use std::path::PathBuf;

use super::layers::Origin;
use crate::error::NodeError;
use crate::exit::Exit;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The keys that it is about; none where that is not known.
    pub(crate) keys: Vec<&'static str>,
    /// Where their values came from, defaults left out.
    pub(crate) origins: Vec<Origin>,
    pub(crate) text: String,
    /// Whether it is not a mistake but a setting that is refused.
    pub(crate) refused: bool,
}

impl Problem {
    /// One that no value of a key caused.
    pub(crate) fn plain(origin: Origin, text: String) -> Self {
        Self { keys: Vec::new(), origins: vec![origin], text, refused: false }
    }

    /// One that was found by whatever reads what the keys name.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        let causes: Vec<String> = error.chain().map(super::plainly).collect();
        let refused = crate::exit::exit_of(error) == Exit::Refused;
        Self { keys: Vec::new(), origins: Vec::new(), text: causes.join(": "), refused }
    }

    /// The line of the file that it is in; those without one come last.
    fn line(&self) -> usize {
        let lines = self.origins.iter().filter_map(|origin| match origin {
            Origin::File { line, .. } => Some(*line),
            _ => None,
        });
        lines.min().unwrap_or(usize::MAX)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origins = self.origins.iter().filter(|origin| **origin != Origin::Default);
        let origins: Vec<String> = origins.map(ToString::to_string).collect();
        if origins.is_empty() {
            f.write_str(&self.text)
        } else {
            write!(f, "{}: {}", origins.join(", "), self.text)
        }
    }
}

/// A configuration with which no service starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unsound {
    /// The file that was read, if one was.
    pub(crate) file: Option<PathBuf>,
    pub(crate) problems: Vec<Problem>,
}

impl Unsound {
    /// As an error, with what is in the file in the order of its lines.
    pub(crate) fn error(file: Option<PathBuf>, mut problems: Vec<Problem>) -> NodeError {
        problems.sort_by_key(Problem::line);
        // Several services read the same key.
        let mut once: Vec<Problem> = Vec::with_capacity(problems.len());
        for mut problem in problems {
            // It is said once, of all of them.
            for said in ["; nothing was changed", "; the policy in force was not changed"] {
                problem.text = problem.text.replace(said, "");
            }
            if !once.contains(&problem) {
                once.push(problem);
            }
        }
        NodeError::Unsound(Box::new(Self { file, problems: once }))
    }

    /// Its exit code: refused if every setting is right and one is not allowed, else usage.
    pub(crate) fn exit(&self) -> Exit {
        if self.problems.iter().all(|problem| problem.refused) {
            Exit::Refused
        } else {
            Exit::Usage
        }
    }
}

impl fmt::Display for Unsound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = super::shown_file(self.file.as_deref());
        let (found, s) = (self.problems.len(), if self.problems.len() == 1 { "" } else { "s" });
        write!(f, "the configuration has {found} error{s} ({file}); nothing was changed")?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}
