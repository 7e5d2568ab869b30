//! `blob keygen`: a new key for signing notices. The secret goes into the file and nowhere else.

use std::path::Path;

use secateur_sidecar::notice;

use crate::ui::{Sheet, Ui};

pub(super) fn run(path: &Path, ui: Ui) -> Result<(), anyhow::Error> {
    let public_key = notice::keygen(path)?.public_key().to_string();
    let file = path.display().to_string();
    ui.answer(&serde_json::json!({ "file": file, "public_key": public_key }), || {
        let mut sheet = Sheet::default();
        sheet
            .row("written", format_args!("{file}, readable by its owner alone"))
            .row("public key", &public_key)
            .row(
                "next",
                format_args!("sidecar.key_file = \"{file}\" on this node, and on every node"),
            )
            .row(
                "",
                format_args!(
                    "in sidecar.validators: {{ id = \"0x…\", public_key = \"{public_key}\" }}"
                ),
            );
        sheet.finish()
    })
}
