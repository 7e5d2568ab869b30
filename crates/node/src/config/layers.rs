//! Where values come from: defaults, then the file, then the environment, then flags. The later
//! one wins, and every value remembers where it came from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::keys::{self, KEYS, OTHER_VARIABLES, PREFIX};
use crate::error::NodeError;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File(PathBuf),
    Variable(String),
    Flag(&'static str),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
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
#[derive(Debug, Clone)]
pub(crate) struct Layers {
    values: BTreeMap<&'static str, Value>,
}

impl Layers {
    /// The defaults alone.
    pub(crate) fn defaults() -> Self {
        let value = |text: &str| Value { text: text.into(), origin: Origin::Default };
        Self { values: KEYS.iter().map(|key| (key.name, value(key.default))).collect() }
    }

    /// A file on top. It must be there if somebody named it.
    pub(crate) fn file(&mut self, path: &Path) -> Result<(), anyhow::Error> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("reading the configuration {}", path.display()))?;
        let table: toml::Table = toml::from_str(&text).map_err(|error| {
            NodeError::Usage(format!("{} is not TOML: {}", path.display(), error.message()))
        })?;
        for (section, value) in table {
            let toml::Value::Table(entries) = value else {
                return Err(unknown(path, &section).into());
            };
            for (name, value) in entries {
                let name = format!("{section}.{name}");
                let key = keys::find(&name);
                let text = plain(&value)
                    .or_else(|| key.is_some_and(keys::Key::is_list).then(|| value.to_string()));
                let text = text.ok_or_else(|| {
                    NodeError::Usage(format!(
                        "{}: {name} is not a text, a number or true or false",
                        path.display()
                    ))
                })?;
                let key = key.ok_or_else(|| unknown(path, &name))?;
                self.put(key.name, text, Origin::File(path.to_path_buf()));
            }
        }
        Ok(())
    }

    /// Environment variables on top.
    pub(crate) fn environment(
        &mut self,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<(), NodeError> {
        for (name, text) in variables.filter(|(name, _)| name.starts_with(PREFIX)) {
            if OTHER_VARIABLES.iter().any(|other| name.starts_with(other)) {
                continue;
            }
            let key = KEYS.iter().find(|key| key.variable() == name).ok_or_else(|| {
                NodeError::Usage(format!(
                    "the environment sets {name}, and there is no such key; `secateur config \
                     show` lists them all"
                ))
            })?;
            self.put(key.name, text, Origin::Variable(name));
        }
        Ok(())
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
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, NodeError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let bad = |reason| {
            // An address may hold a password, also one that cannot be read as an address.
            let secret = |key: &keys::Key| key.is_address() || key.is_list();
            let secret = KEYS.iter().any(|key| key.name == name && secret(key));
            let shown = if secret { "…" } else { value.text.as_str() };
            NodeError::Usage(format!("{name} = `{shown}` (from {}): {reason}", value.origin))
        };
        read(&value.text).map(Some).map_err(bad)
    }

    /// A value that has a default.
    pub(crate) fn must<T>(
        &self,
        name: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, NodeError> {
        self.read(name, read)?
            .ok_or_else(|| NodeError::Usage(format!("{name} is empty, and it needs a value")))
    }

    /// Every key with its value, in the order of the table.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static keys::Key, &Value)> {
        KEYS.iter().filter_map(|key| Some((key, self.values.get(key.name)?)))
    }
}

fn unknown(path: &Path, name: &str) -> NodeError {
    NodeError::Usage(format!(
        "{}: there is no key {name}; `secateur config show` lists them all",
        path.display()
    ))
}

fn plain(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(truth) => Some(truth.to_string()),
        _ => None,
    }
}
