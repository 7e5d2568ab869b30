//! Where values come from: defaults, then the file, then the environment, then flags. The later
//! one wins, and every value remembers where it came from.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::file;
use super::keys::{self, KEYS, Key, OTHER_VARIABLES, PREFIX};
use super::nearest::did_you_mean;
use super::problem::{Problem, Unsound};
use crate::error::NodeError;

/// A shorter value is near to too many words.
const SHORTEST_WORD: usize = 3;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    /// A file, and the line of the key in it, counted from 1.
    File {
        path: PathBuf,
        line: usize,
    },
    Variable(String),
    Flag(&'static str),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => write!(f, "${name}"),
            Self::Flag(name) => write!(f, "--{name}"),
        }
    }
}

/// One value with its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) text: String,
    pub(crate) origin: Origin,
}

/// Every key with its value.
///
/// Reading a bad value is an error at once, except within [`Layers::all_at_once`]: there it is noted,
/// the default takes its place so that reading goes on, and all that was noted is one error.
#[derive(Debug, Clone)]
pub(crate) struct Layers {
    values: BTreeMap<&'static str, Value>,
    file: Option<PathBuf>,
    /// What was wrong with the sources themselves.
    loading: Vec<Problem>,
    collecting: Cell<bool>,
    found: RefCell<Vec<Problem>>,
}

impl Layers {
    /// The defaults alone.
    pub(crate) fn defaults() -> Self {
        let value = |text: &str| Value { text: text.into(), origin: Origin::Default };
        Self {
            values: KEYS.iter().map(|key| (key.name, value(key.default))).collect(),
            file: None,
            loading: Vec::new(),
            collecting: Cell::new(false),
            found: RefCell::default(),
        }
    }

    /// The file that was read, if one was.
    pub(crate) fn file_read(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// A file on top; it must be there. What is wrong in it is kept for [`Layers::all_at_once`].
    pub(crate) fn file(&mut self, path: &Path) -> Result<(), anyhow::Error> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            NodeError::Usage(format!("reading the configuration {}: {error}", path.display()))
        })?;
        self.file = Some(path.to_path_buf());
        match file::entries(path, &text) {
            Ok((entries, problems)) => {
                self.loading.extend(problems);
                for (name, value) in entries {
                    self.values.insert(name, value);
                }
            }
            Err(problems) => self.loading.extend(problems),
        }
        Ok(())
    }

    /// Environment variables on top.
    pub(crate) fn environment(&mut self, variables: impl Iterator<Item = (String, String)>) {
        for (name, text) in variables.filter(|(name, _)| name.starts_with(PREFIX)) {
            if OTHER_VARIABLES.iter().any(|other| name.starts_with(other)) {
                continue;
            }
            if let Some(key) = KEYS.iter().find(|key| key.variable() == name) {
                self.put(key.name, text, Origin::Variable(name));
                continue;
            }
            let known: Vec<String> = KEYS.iter().map(Key::variable).collect();
            let near = did_you_mean(&name, known.iter().map(String::as_str));
            let text = format!(
                "there is no key of this name{near} (`secateur config show` lists them all)"
            );
            self.loading.push(Problem::plain(Origin::Variable(name), text));
        }
    }

    /// An error if a source was wrong, for those who read only a few keys.
    pub(crate) fn sound(self) -> Result<Self, NodeError> {
        self.all_at_once(|_| Ok(()))?;
        Ok(self)
    }

    /// Reads many values, or says of all of them together what is wrong.
    pub(crate) fn all_at_once<T>(
        &self,
        read: impl FnOnce(&Self) -> Result<T, NodeError>,
    ) -> Result<T, NodeError> {
        if self.collecting.replace(true) {
            // Whoever began this collects.
            return read(self);
        }
        let read = read(self);
        self.collecting.set(false);
        let mut problems = self.loading.clone();
        problems.extend(self.found.take());
        match read {
            Ok(value) if problems.is_empty() => return Ok(value),
            Ok(_) => {}
            Err(error) => problems.push(Problem::of(&error.into())),
        }
        Err(Unsound::error(self.file.clone(), problems))
    }

    /// Notes what is wrong, or says it at once.
    pub(crate) fn note(&self, problem: Problem) -> Result<(), NodeError> {
        if self.collecting.get() {
            self.found.borrow_mut().push(problem);
            return Ok(());
        }
        Err(Unsound::error(self.file.clone(), vec![problem]))
    }

    /// Notes that the values of some keys do not go together; not if one of them is bad by itself.
    pub(crate) fn conflict(
        &self,
        keys: &[&'static str],
        text: impl Into<String>,
    ) -> Result<(), NodeError> {
        if !self.is_sound(keys) {
            return Ok(());
        }
        self.note(self.problem(keys, text.into()))
    }

    /// Whether nothing was noted about any of these keys.
    pub(crate) fn is_sound(&self, keys: &[&'static str]) -> bool {
        let names = |problem: &Problem| problem.keys.iter().any(|key| keys.contains(key));
        !self.found.borrow().iter().any(names)
    }

    /// Notes what another part of the program refuses about some keys.
    pub(crate) fn check(
        &self,
        keys: &[&'static str],
        checked: Result<(), anyhow::Error>,
    ) -> Result<(), NodeError> {
        let Err(error) = checked else { return Ok(()) };
        let Problem { text, refused, .. } = Problem::of(&error);
        self.note(Problem { refused, ..self.problem(keys, text) })
    }

    fn problem(&self, keys: &[&'static str], text: String) -> Problem {
        let named = keys.iter().filter_map(|key| Some(self.values.get(key)?.origin.clone()));
        let origins = named.filter(|origin| *origin != Origin::Default).collect();
        Problem { keys: keys.to_vec(), origins, text, refused: false }
    }

    /// A flag on top, where it was given.
    pub(crate) fn flag(&mut self, name: &'static str, flag: &'static str, text: Option<String>) {
        if let Some(text) = text {
            self.put(name, text, Origin::Flag(flag));
        }
    }

    fn put(&mut self, name: &'static str, text: String, origin: Origin) {
        self.values.insert(name, Value { text, origin });
    }

    /// A value by its key; an empty one is unset.
    pub(crate) fn get(&self, name: &'static str) -> Option<&Value> {
        self.values.get(name).filter(|value| !value.text.is_empty())
    }

    /// A value, read as something.
    pub(crate) fn read<T>(
        &self,
        name: &'static str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, NodeError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let reason = match read(&value.text) {
            Ok(value) => return Ok(Some(value)),
            Err(reason) => reason,
        };
        // An address may hold a password, also one that cannot be read as an address.
        let key = keys::find(name);
        let secret = key.is_some_and(|key| key.is_address() || key.is_list());
        let (shown, near) = if secret {
            ("…", String::new())
        } else {
            (value.text.as_str(), meant(&value.text, &reason))
        };
        self.note(self.problem(&[name], format!("{name} = `{shown}`: {reason}{near}")))?;
        default_of(name, read)
    }

    /// A value that has a default.
    pub(crate) fn must<T>(
        &self,
        name: &'static str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, NodeError> {
        if let Some(value) = self.read(name, &read)? {
            return Ok(value);
        }
        let empty = || format!("{name} is empty, and it needs a value");
        self.note(self.problem(&[name], empty()))?;
        default_of(name, read)?.ok_or_else(|| NodeError::Usage(empty()))
    }

    /// Every key with its value, in the order of the table.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static Key, &Value)> {
        KEYS.iter().filter_map(|key| Some((key, self.values.get(key.name)?)))
    }
}

/// The word of a reason that a value is nearly: reasons list the words that a key takes.
fn meant(value: &str, reason: &str) -> String {
    if value.len() < SHORTEST_WORD || reason.contains("did you mean") {
        return String::new();
    }
    let words = reason.split(|c: char| !c.is_alphanumeric() && c != '_');
    did_you_mean(value, words.filter(|word| *word != value))
}

/// What reading goes on with after a bad value.
fn default_of<T>(
    name: &'static str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, NodeError> {
    let default = keys::find(name).map_or("", |key| key.default);
    if default.is_empty() {
        return Ok(None);
    }
    let bad = |reason| NodeError::Failed(format!("the default of {name} is bad: {reason}"));
    read(default).map(Some).map_err(bad)
}
