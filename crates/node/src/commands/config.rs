//! `config check | show`: whether the configuration is sound, and where each value came from.

use serde::Serialize;

use crate::cli::ConfigVerb;
use crate::config::{self, Config, Key, Value};
use crate::security::check_bind;
use crate::ui::{Sheet, Ui};

#[derive(Debug, Serialize)]
struct Row<'a> {
    key: &'static str,
    value: &'a str,
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
            check_bind(&Config::of(&config::layers(args)?)?)?;
            ui.answer(&Sound { sound: true }, || "the configuration is sound\n".into())
        }
        ConfigVerb::Show(args) => {
            let layers = config::layers(args)?;
            let rows: Vec<Row<'_>> = layers.all().map(|(key, value)| row(key, value)).collect();
            ui.answer(&rows, || {
                let mut sheet = Sheet::default();
                for Row { key, value, from, .. } in &rows {
                    let value = if value.is_empty() { "(unset)" } else { value };
                    sheet.line(format_args!("{key:<28} {value:<24} {from}"));
                }
                sheet.finish()
            })
        }
    }
}

fn row<'a>(key: &'static Key, value: &'a Value) -> Row<'a> {
    Row {
        key: key.name,
        value: &value.text,
        from: value.origin.to_string(),
        variable: key.variable(),
        help: key.help,
    }
}
