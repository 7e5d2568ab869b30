//! Small files that must be whole or absent: written beside their place, synced, renamed, and the
//! directory synced. Links are never followed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::Context as _;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::NodeError;

/// No file that this reads is longer.
const MAX_LEN: u64 = 64 * 1024;
/// What a file is called until it is whole.
pub(crate) const UNFINISHED: &str = ".tmp";

/// Opens a file by its own name, never through a link.
pub(crate) fn open(path: &Path, flags: OFlags) -> Result<Option<File>, anyhow::Error> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)) {
        Ok(file) => Ok(Some(File::from(file))),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::LOOP) => Err(NodeError::Symlink(path.to_path_buf()).into()),
        Err(error @ (Errno::ROFS | Errno::ACCESS | Errno::PERM)) => {
            Err(anyhow::Error::from(io::Error::from(error))
                .context(NodeError::NotWritable(path.to_path_buf())))
        }
        Err(error) => Err(io::Error::from(error))
            .with_context(|| format!("opening {} failed; nothing was changed", path.display())),
    }
}

/// The text of a small file, or none if it is not there.
pub(crate) fn read(path: &Path) -> Result<Option<String>, anyhow::Error> {
    let Some(file) = open(path, OFlags::RDONLY)? else {
        return Ok(None);
    };
    let mut text = String::new();
    let read = file.take(MAX_LEN + 1).read_to_string(&mut text);
    let bad = |reason: String| NodeError::BadFile { path: path.to_path_buf(), reason };
    match read {
        Ok(len) if len as u64 > MAX_LEN => Err(bad(format!("it is over {MAX_LEN} bytes")).into()),
        Ok(_) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(bad("it is not text".into()).into())
        }
        Err(error) => Err(error).with_context(|| format!("reading {} failed", path.display())),
    }
}

/// Puts a small file in its place; after a crash it is there whole or not at all.
pub(crate) fn write(directory: &Path, name: &str, text: &str) -> Result<(), anyhow::Error> {
    let unfinished = directory.join(format!("{name}{UNFINISHED}"));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    let file = open(&unfinished, flags)?;
    let write = || -> io::Result<()> {
        let mut file = file.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&unfinished, directory.join(name))?;
        File::open(directory)?.sync_all()
    };
    write().with_context(|| format!("writing {} failed", directory.join(name).display()))
}
