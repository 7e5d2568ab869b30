//! What a write that was cut off leaves behind in a directory: `name#1` beside `name`, which is how
//! `object_store` writes there. They are nobody's once their name is, and once they are old.
//!
//! Only these are ever removed: nothing that was listed or uploaded whole is. A bucket has none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::TryStreamExt as _;
use secateur_core::format_bytes;

use crate::key::chain_prefix;
use crate::remote::Remote;
use crate::{Archive, ArchiveError, PartKey};

/// One that is older was not written by anybody who still is.
const OLD: Duration = Duration::from_hours(24);
/// More than so many of one name are not looked for when it is written.
const MOST: u32 = 64;

/// The name of a part or a manifest that a cut-off write was to have; none for any other name.
pub(crate) fn wanted_name(name: &str) -> Option<&str> {
    staged_name(name).filter(|wanted| PartKey::parse(wanted).is_ok())
}

/// The name that a write was to have, by the one that it has until it is whole.
fn staged_name(name: &str) -> Option<&str> {
    let (wanted, number) = name.rsplit_once('#')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(wanted)
}

impl Archive {
    /// Removes what cut-off writes left: where the name itself is there by now, or long ago.
    pub(crate) async fn sweep(&self, chain_id: u64) -> Result<(), ArchiveError> {
        let Some(root) = self.remote.directory.clone() else { return Ok(()) };
        let mut names = self.remote.names(&chain_prefix(chain_id), None);
        while let Some(name) = names.try_next().await? {
            let Some(wanted) = wanted_name(&name.key) else { continue };
            let path = root.join(&name.key);
            if root.join(wanted).exists() || is_old(&path) {
                remove(vec![path], name.size).await;
            }
        }
        Ok(())
    }
}

impl Remote {
    /// Removes what cut-off writes left beside other files at the top of a directory, as
    /// [`Archive::sweep`] does among parts.
    pub(crate) async fn sweep_top(
        &self,
        is_ours: impl Fn(&str) -> bool,
    ) -> Result<(), ArchiveError> {
        let Some(root) = self.directory.clone() else { return Ok(()) };
        let mut names = self.names("", None);
        while let Some(name) = names.try_next().await? {
            let Some(wanted) = staged_name(&name.key).filter(|wanted| is_ours(wanted)) else {
                continue;
            };
            let path = root.join(&name.key);
            if root.join(wanted).exists() || is_old(&path) {
                remove(vec![path], name.size).await;
            }
        }
        Ok(())
    }

    /// Removes what cut-off writes of one name left, now that it is there.
    pub(crate) async fn sweep_name(&self, key: &str) {
        let Some(root) = &self.directory else { return };
        let path = |number: u32| root.join(format!("{key}#{number}"));
        let left: Vec<PathBuf> = (1..=MOST).map(path).take_while(|path| path.exists()).collect();
        let size = left.iter().filter_map(|path| fs::metadata(path).ok()).map(|meta| meta.len());
        let size = size.sum();
        if !left.is_empty() {
            remove(left, size).await;
        }
    }
}

fn is_old(path: &Path) -> bool {
    let modified = fs::metadata(path).and_then(|meta| meta.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > OLD))
}

/// Removes files. One that cannot be removed is in nobody's way.
async fn remove(paths: Vec<PathBuf>, bytes: u64) {
    let work = move || {
        for path in paths {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    let path = path.display();
                    tracing::warn!(%path, %error, "what a cut-off write left is not removed");
                }
                _ => {
                    let path = path.display();
                    let size = format_bytes(bytes);
                    tracing::info!(%path, size, "what a cut-off write left is removed");
                }
            }
        }
    };
    if let Err(error) = tokio::task::spawn_blocking(work).await {
        tracing::warn!(%error, "what a cut-off write left is not removed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_cut_off_write_of_an_archives_own_name_is_one() {
        let name = format!("chain=1/day=2024-01-01/part={:020}-{:020}-00aabbcc", 0, 9);
        for ending in [".zst", ".json"] {
            let wanted = format!("{name}{ending}");
            assert_eq!(wanted_name(&format!("{wanted}#1")), Some(wanted.as_str()));
            for tail in ["", "#", "#x", "#1x", "#1#2", "1"] {
                assert_eq!(wanted_name(&format!("{wanted}{tail}")), None, "{tail}");
            }
        }
        assert_eq!(wanted_name("notes#1"), None);
    }
}
