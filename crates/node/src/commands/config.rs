//! `config check | show`: whether the configuration is sound, and where each value came from.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::agreed::{self, InForce};
use crate::cli::ConfigVerb;
use crate::config::{self, Config, Key, Layers, Starts, Value};
use crate::data_dir::{DEFAULT_DATA, chain_of};
use crate::desk::Desk;
use crate::ui::{Sheet, Ui};

#[derive(Debug, Serialize)]
struct Row<'a> {
    key: &'static str,
    value: Cow<'a, str>,
    from: String,
    variable: String,
    help: &'static str,
    /// The value in force, where it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_force: Option<String>,
    /// Why it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    because: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct Checked<'a> {
    sound: bool,
    /// The file that was read, if one was.
    file: Option<&'a Path>,
    /// What is sound, and may not be what is meant.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

pub(crate) fn run(verb: &ConfigVerb, named: Option<PathBuf>, ui: Ui) -> Result<(), anyhow::Error> {
    match verb {
        ConfigVerb::Check(args) => {
            let layers = config::layers(args)?;
            let config = config::checked(&layers, Starts::Any)?;
            let file = layers.file_read();
            let warnings = config.utxo.key_warnings();
            ui.answer(&Checked { sound: true, file, warnings: &warnings }, || {
                let lines = warnings.iter().flat_map(|warning| ["warning: ", warning, "\n"]);
                let warned: String = lines.collect();
                format!("{warned}the configuration is sound ({})\n", config::shown_file(file))
            })
        }
        ConfigVerb::Show(args) => {
            let layers = config::layers(args)?.sound()?;
            let mut rows: Vec<Row<'_>> = layers.all().map(|(key, value)| row(key, value)).collect();
            if let Some(in_force) = in_force(named, &layers, ui)? {
                for row in &mut rows {
                    let differs = in_force.iter().find(|differs| differs.key == row.key);
                    row.in_force = differs.map(|differs| differs.value.clone());
                    row.because = differs.map(|differs| differs.because);
                }
            }
            ui.answer(&rows, || {
                let mut sheet = Sheet::default();
                for Row { key, value, from, in_force, because, .. } in &rows {
                    let value = if value.is_empty() { "(unset)" } else { value.as_ref() };
                    sheet.line(format_args!("{key:<28} {value:<24} {from}"));
                    if let (Some(in_force), Some(because)) = (in_force, because) {
                        sheet.line(format_args!("{:<28} {in_force:<24} in force: {because}", ""));
                    }
                }
                sheet.finish()
            })
        }
    }
}

/// A value as it may be shown: an address without its user and password.
fn shown<'a>(key: &Key, text: &'a str) -> Cow<'a, str> {
    if key.is_list() && text.contains('@') {
        return "(not shown: it has an @)".into();
    }
    if !key.is_address() {
        return text.into();
    }
    let parts = text.split_once("://").and_then(|(scheme, rest)| {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(end)?;
        let (_, host) = authority.rsplit_once('@')?;
        Some(format!("{scheme}://…@{host}{path}"))
    });
    let text = parts.map_or(Cow::Borrowed(text), Cow::Owned);
    match text.split_once("password=") {
        Some((before, after)) => {
            let rest = after.find('&').and_then(|end| after.get(end..)).unwrap_or_default();
            format!("{before}password=…{rest}").into()
        }
        None => text,
    }
}

fn row<'a>(key: &'static Key, value: &'a Value) -> Row<'a> {
    Row {
        key: key.name,
        value: shown(key, &value.text),
        from: value.origin.to_string(),
        variable: key.variable(),
        help: key.help,
        in_force: None,
        because: None,
    }
}

/// The policy values in force in the data directory that the configuration contradicts, if there
/// is a directory.
fn in_force(
    named: Option<PathBuf>,
    layers: &Layers,
    ui: Ui,
) -> Result<Option<Vec<InForce>>, anyhow::Error> {
    let path = named.unwrap_or_else(|| PathBuf::from(DEFAULT_DATA));
    if chain_of(&path)?.is_none() {
        return Ok(None);
    }
    let compared = layers.all_at_once(Config::of).map_err(Into::into).and_then(|config| {
        let desk = Desk::open(&path)?;
        agreed::in_force(&path, &config, &desk.policy()?, desk.status()?.pruning_enabled)
    });
    match compared {
        Ok(in_force) => Ok(Some(in_force)),
        Err(error) => {
            let place = path.display();
            ui.note(&format!("what is in force in {place} is not compared: {error:#}\n"))?;
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_an_address_is_not_shown() {
        let key = |name| Key { name, default: "", help: "" };
        let url = key("follow.url");
        for (text, wanted) in [
            ("http://me:secret@node:8545/x?y@z", "http://…@node:8545/x?y@z"),
            ("https://a@b@node", "https://…@node"),
            ("http://node:8545/key@x", "http://node:8545/key@x"),
            ("postgres://me@host/db?password=secret", "postgres://…@host/db?password=…"),
            ("postgres://host/db?password=secret&a=b", "postgres://host/db?password=…&a=b"),
            ("", ""),
        ] {
            assert_eq!(shown(&url, text), wanted);
        }
        assert_eq!(shown(&key("log.level"), "a://b@c"), "a://b@c");
    }
}
