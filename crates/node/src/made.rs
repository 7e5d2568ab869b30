//! `made.toml` in a data directory: which families were ever made there. A family that is named and
//! whose store is not there was removed; it is not made anew, because what it knew is lost.
//!
//! A family is noted when its store is durable and before anybody is answered from it, so a creation
//! that was cut off is never taken for a loss. A directory of before this file has none, and the
//! next node or demo that opens a store there notes it.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::durable;
use crate::error::NodeError;

const FILE: &str = "made.toml";

/// What the file says. A newer program may name families that this one does not know.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Made {
    families: BTreeSet<String>,
}

/// Says that a family was made here and is lost, if that is so; `family` is its directory's name.
/// Whoever calls has looked for its store in vain.
pub(crate) fn check_lost(directory: &Path, family: &'static str) -> Result<(), anyhow::Error> {
    if !read(directory)?.families.contains(family) {
        return Ok(());
    }
    let (place, noted) = (directory.join(family), directory.join(FILE));
    Err(NodeError::Lost { family, place, noted }.into())
}

/// Notes that a family's store is there. A full disk must not keep a node from starting: what cannot
/// be noted now is noted by the next start.
pub(crate) fn note(directory: &Path, family: &'static str) -> Result<(), anyhow::Error> {
    let mut made = read(directory)?;
    if !made.families.insert(family.to_owned()) {
        return Ok(());
    }
    let text = toml::to_string(&made)?;
    let text = format!("# What was made here. What is named and not there was removed.\n{text}");
    if let Err(error) = durable::write(directory, FILE, &text) {
        tracing::warn!(error = format!("{error:#}"), "if {family}/ is removed, nobody will notice");
    }
    Ok(())
}

fn read(directory: &Path) -> Result<Made, anyhow::Error> {
    let path = directory.join(FILE);
    let Some(text) = durable::read(&path)? else { return Ok(Made::default()) };
    let made = toml::from_str(&text).map_err(|error| NodeError::BadFile {
        path,
        reason: format!("{}; without it, the next start writes it anew", error.message()),
    })?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_missed_and_what_others_noted_stays() {
        let place = tempfile::tempdir().unwrap();
        check_lost(place.path(), "history").unwrap();
        std::fs::write(place.path().join(FILE), "families = [\"later\"]\n").unwrap();
        note(place.path(), "sidecars").unwrap();
        check_lost(place.path(), "history").unwrap();
        for family in ["sidecars", "later"] {
            let lost = check_lost(place.path(), family).unwrap_err();
            assert!(matches!(lost.downcast_ref(), Some(NodeError::Lost { .. })), "{lost}");
        }
    }

    #[test]
    fn a_damaged_file_is_told_and_nothing_is_noted_over_it() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join(FILE), "families = 3").unwrap();
        let told = check_lost(place.path(), "history").unwrap_err().to_string();
        assert!(told.contains("writes it anew"), "{told}");
        note(place.path(), "history").unwrap_err();
        assert_eq!(std::fs::read(place.path().join(FILE)).unwrap(), b"families = 3");
    }
}
