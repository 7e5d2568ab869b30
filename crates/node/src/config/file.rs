//! The configuration file: its keys with their values and lines, and what is wrong in it.

use std::collections::BTreeMap;
use std::path::Path;

use toml::Spanned;
use toml::de::DeTable;

use super::keys::{self, KEYS};
use super::layers::{Origin, Value};
use super::nearest::did_you_mean;
use super::problem::Problem;

type Entries = Vec<(&'static str, Value)>;

/// Every known key of a file, and a problem for each of the others. A file that is not TOML is
/// only problems: nothing in it can be relied on.
pub(super) fn entries(path: &Path, text: &str) -> Result<(Entries, Vec<Problem>), Vec<Problem>> {
    let at = |line| Origin::File { path: path.to_path_buf(), line };
    let (spanned, errors) = DeTable::parse_recoverable(text);
    let not_toml = |error: &toml::de::Error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        Problem::plain(at(line), format!("this is not TOML: {}", error.message()))
    };
    let mut problems: Vec<Problem> = errors.iter().map(not_toml).collect();
    let table: toml::Table = match toml::from_str(text) {
        Ok(table) if problems.is_empty() => table,
        Ok(_) => return Err(problems),
        Err(error) => {
            if problems.is_empty() {
                problems.push(not_toml(&error));
            }
            // Whatever follows a mistake in the syntax may be a consequence of it.
            problems.truncate(1);
            return Err(problems);
        }
    };
    let lines = lines_of(text, spanned.get_ref());
    let line = |name: &str| lines.get(name).copied().unwrap_or(1);
    let mut found = Entries::new();
    for (section, value) in table {
        let toml::Value::Table(entries) = value else {
            problems.push(Problem::plain(at(line(&section)), no_key(&section)));
            continue;
        };
        if entries.is_empty() && !has_section(&section) {
            problems.push(Problem::plain(at(line(&section)), no_section(&section)));
        }
        for (name, value) in entries {
            let name = format!("{section}.{name}");
            let origin = at(line(&name));
            let Some(key) = keys::find(&name) else {
                problems.push(Problem::plain(origin, no_key(&name)));
                continue;
            };
            let text = plain(&value).or_else(|| key.is_list().then(|| value.to_string()));
            if let Some(text) = text {
                found.push((key.name, Value { text, origin }));
                continue;
            }
            let text = format!("{name} is not a text, a number or true or false");
            problems.push(Problem { keys: vec![key.name], ..Problem::plain(origin, text) });
        }
    }
    Ok((found, problems))
}

/// The line of every section and of every key in one.
fn lines_of(text: &str, table: &DeTable<'_>) -> BTreeMap<String, usize> {
    let line = |span: std::ops::Range<usize>| line_of(text, span.start);
    let mut lines = BTreeMap::new();
    for (section, value) in table {
        lines.insert(section.get_ref().to_string(), line(section.span()));
        for (name, _) in value.get_ref().as_table().into_iter().flatten() {
            let name: &Spanned<_> = name;
            lines.insert(format!("{}.{}", section.get_ref(), name.get_ref()), line(name.span()));
        }
    }
    lines
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

fn has_section(section: &str) -> bool {
    sections().any(|known| known == section)
}

fn sections() -> impl Iterator<Item = &'static str> {
    KEYS.iter().filter_map(|key| Some(key.name.split_once('.')?.0))
}

fn no_section(section: &str) -> String {
    format!("there is no section [{section}]{}", did_you_mean(section, sections()))
}

/// That a name is no key, and which one may be meant: the nearest, the only one that ends so, or the
/// only one of its section that begins so.
fn no_key(name: &str) -> String {
    let mut near = did_you_mean(name, KEYS.iter().map(|key| key.name));
    let last = name.rsplit('.').next().unwrap_or(name);
    // Its section and the first two letters.
    let begins = name.get(..name.len() - last.len() + 2).unwrap_or(name);
    if near.is_empty() {
        let ends = only(|key| key.rsplit('.').next() == Some(last));
        let only = ends.or_else(|| only(|key| key.starts_with(begins)));
        near = only.map_or_else(String::new, |key| format!("; did you mean {key}?"));
    }
    format!("there is no key {name}{near} (`secateur config show` lists them all)")
}

/// The one key that is like this; none where there are several.
fn only(alike: impl Fn(&str) -> bool) -> Option<&'static str> {
    let mut found = KEYS.iter().map(|key| key.name).filter(|name| alike(name));
    found.next().filter(|_| found.next().is_none())
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
