//! What each validator is told, as a configuration file in its own directory. The demo starts from
//! it, and `secateur blob` finds it there when the demo has ended.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use secateur_sidecar::notice::ValidatorTerm;

use crate::config::DEFAULT_FILE;
use crate::durable;

/// The directories of all validators but the first.
const OTHERS: &str = "validators";
/// Where archived blobs are in the demo's directory, and what notices call that place.
const ARCHIVE: &str = "blob-archive";
const PROVIDER: &str = "demo";
/// A validator's key in its directory.
const KEY: &str = "notice.key";

/// A validator's directory.
pub(super) fn directory(data: &Path, number: u8) -> PathBuf {
    if number == 1 { data.to_path_buf() } else { data.join(OTHERS).join(number.to_string()) }
}

/// The file of a validator's key.
pub(super) fn key_file(data: &Path, number: u8) -> PathBuf {
    directory(data, number).join(KEY)
}

/// The file that tells a validator what it is.
pub(super) fn file(data: &Path, number: u8) -> PathBuf {
    directory(data, number).join(DEFAULT_FILE)
}

/// A path as TOML can say it.
fn quoted(path: &Path) -> Result<String, anyhow::Error> {
    let path = std::path::absolute(path).context("finding the demo's directory")?;
    let text = path.to_str().with_context(|| format!("{} is not text", path.display()))?;
    Ok(toml::Value::String(text.to_owned()).to_string())
}

/// Tells a validator what it is, unless its file says so already.
pub(super) fn write(data: &Path, number: u8, terms: &[ValidatorTerm]) -> Result<(), anyhow::Error> {
    let id = terms.get(usize::from(number) - 1).context("a validator without a term")?.id.clone();
    let (key, archive) = (quoted(&key_file(data, number))?, quoted(&data.join(ARCHIVE))?);
    let mut validators = String::new();
    for ValidatorTerm { id, public_key, .. } in terms {
        // Writing into a string cannot fail.
        writeln!(validators, "    {{ id = \"{id}\", public_key = \"{public_key}\" }},")
            .unwrap_or_default();
    }
    let text = format!(
        "# Validator {number} of the demo, which writes this file: change nothing here.\n\
         [sidecar]\n\
         enabled = true\n\
         identity = \"{id}\"\n\
         key_file = {key}\n\
         read_through = true\n\
         validators = [\n{validators}]\n\
         providers = [{{ kind = \"fs\", name = \"{PROVIDER}\", path = {archive} }}]\n"
    );
    let there = durable::read(&file(data, number))?;
    if there.as_deref() != Some(&text) {
        durable::write(&directory(data, number), DEFAULT_FILE, &text)?;
    }
    Ok(())
}
