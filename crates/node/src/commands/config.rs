//! `config check | show`: whether the configuration is sound, and where each value came from.

use std::borrow::Cow;

use serde::Serialize;

use crate::cli::ConfigVerb;
use crate::config::{self, Config, Key, Value};
use crate::http::tls;
use crate::indexer::check_local;
use crate::security::{Tokens, check_address, check_bind, new_token};
use crate::ui::{Sheet, Ui};

#[derive(Debug, Serialize)]
struct Row<'a> {
    key: &'static str,
    value: Cow<'a, str>,
    from: String,
    variable: String,
    help: &'static str,
}

#[derive(Debug, Serialize)]
struct Sound {
    sound: bool,
}

pub(crate) fn run(verb: &ConfigVerb, ui: Ui) -> Result<(), anyhow::Error> {
    match verb {
        ConfigVerb::Check(args) => {
            let layers = config::layers(args)?;
            let config = Config::of(&layers)?;
            config::check_index(&layers)?;
            check_bind(&config)?;
            check_address(&config, "utxo.listen", config.utxo.listen)?;
            check_local("utxo.http", config.utxo.http)?;
            check_files(&config)?;
            ui.answer(&Sound { sound: true }, || "the configuration is sound\n".into())
        }
        ConfigVerb::Show(args) => {
            let layers = config::layers(args)?;
            let rows: Vec<Row<'_>> = layers.all().map(|(key, value)| row(key, value)).collect();
            ui.answer(&rows, || {
                let mut sheet = Sheet::default();
                for Row { key, value, from, .. } in &rows {
                    let value = if value.is_empty() { "(unset)" } else { value.as_ref() };
                    sheet.line(format_args!("{key:<28} {value:<24} {from}"));
                }
                sheet.finish()
            })
        }
    }
}

/// Reads the files that a node reads when it starts.
fn check_files(config: &Config) -> Result<(), anyhow::Error> {
    Tokens::read(&config.auth, config.sidecar.mesh.token_file.as_deref(), &new_token()?)?;
    crate::blobs::identity(&config.sidecar)?;
    config.tls.as_ref().map(tls::read).transpose()?;
    Ok(())
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
