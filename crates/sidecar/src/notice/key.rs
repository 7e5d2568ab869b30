//! The key that this node signs notices with, and the file it lies in.
//!
//! The secret is never printed, logged or compared, and is wiped from memory when it is dropped.
//! The file is one line, `secateur-notice-key-v1:` and 64 hexadecimal digits, and only its owner
//! may read it. Links are never followed.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use alloy_primitives::hex;
use ed25519_dalek::{Signer as _, SigningKey};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::{PublicKey, SidecarError};

/// What a key file begins with.
const HEAD: &[u8] = b"secateur-notice-key-v1:";
/// The hexadecimal digits of a secret.
const DIGITS: usize = 64;
/// The whole file, with its line's end.
const FILE_LEN: usize = HEAD.len() + DIGITS + 1;
/// What a key file is called until it is whole.
const UNFINISHED: &str = ".unfinished";

/// A key to sign notices with.
pub struct NoticeKey(SigningKey);

impl NoticeKey {
    /// The key of a secret of 32 bytes; the caller wipes its own copy.
    pub fn from_secret(secret: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(secret))
    }

    /// Reads a key file that [`keygen`] wrote. It must be a file of its own, not a link, that
    /// belongs to this user (or root) and that nobody else can read.
    pub fn read(path: &Path) -> Result<Self, SidecarError> {
        let refuse = |reason: &str| refused(path, reason.to_owned());
        // Without `NONBLOCK` a pipe in its place would keep us waiting for ever.
        let mut file =
            open(path, OFlags::RDONLY | OFlags::NONBLOCK).map_err(|error| match error {
                Errno::NOENT => refuse("there is no such file or directory"),
                Errno::LOOP => refuse("it is a symbolic link; name the file itself"),
                error => refused(path, error.to_string()),
            })?;
        let about = file.metadata().map_err(|error| refused(path, error.to_string()))?;
        if !about.is_file() {
            return Err(refuse("it is not a file"));
        }
        let mode = about.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            let reason = format!("its mode is {mode:03o}, so others reach it; run chmod 600 on it");
            return Err(refused(path, reason));
        }
        if about.uid() != rustix::process::geteuid().as_raw() && about.uid() != 0 {
            return Err(refuse("it belongs to another user"));
        }
        // One byte more than there may be, to see that there is none.
        let mut bytes = Zeroizing::new([0; FILE_LEN + 1]);
        let len = fill(&mut file, bytes.as_mut_slice())
            .map_err(|error| refused(path, error.kind().to_string()))?;
        let digits =
            bytes.get(..len).and_then(|bytes| bytes.strip_prefix(HEAD)?.strip_suffix(b"\n"));
        let mut secret = Zeroizing::new([0; 32]);
        // The content is never repeated, not even where it is wrong.
        match digits.map(|digits| hex::decode_to_slice(digits, secret.as_mut_slice())) {
            Some(Ok(())) => Ok(Self::from_secret(&secret)),
            _ => Err(refuse("it is not a notice key; `secateur blob keygen` writes one")),
        }
    }

    /// The key that others verify with.
    pub fn public_key(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// Signs; the same message always gets the same signature.
    pub(super) fn sign(&self, message: &[u8; 32]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

impl fmt::Debug for NoticeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NoticeKey(public {})", self.public_key())
    }
}

/// Makes a new key and writes it to a file that must not exist yet, with mode 0600. After a crash
/// the file is there whole or not at all.
pub fn keygen(path: &Path) -> Result<NoticeKey, SidecarError> {
    let fail = |error: io::Error| refused(path, error.to_string());
    let mut secret = Zeroizing::new([0; 32]);
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(secret.as_mut_slice()))
        .map_err(|error| refused(path, format!("/dev/urandom: {error}")))?;
    let key = NoticeKey::from_secret(&secret);
    let mut text = Zeroizing::new([b'\n'; FILE_LEN]);
    let (head, rest) = text.split_at_mut(HEAD.len());
    head.copy_from_slice(HEAD);
    let (digits, _) = rest.split_at_mut(DIGITS);
    hex::encode_to_slice(secret.as_slice(), digits)
        .map_err(|_| refused(path, "its digits do not fit".to_owned()))?;
    let unfinished = unfinished(path)?;
    let mut file = make(path, &unfinished)?;
    let written = file.write_all(text.as_slice()).and_then(|()| file.sync_all());
    // A second name is made only where there is none: nothing is ever overwritten.
    let named = written.and_then(|()| fs::hard_link(&unfinished, path));
    fs::remove_file(&unfinished).map_err(fail)?;
    named.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => refused(path, "there is a file already".to_owned()),
        _ => fail(error),
    })?;
    sync_directory(path).map_err(fail)?;
    Ok(key)
}

/// Makes the file in which the key of `path` is written, its owner's alone. It is `path` that was
/// named, so that is what is told of.
fn make(path: &Path, unfinished: &Path) -> Result<File, SidecarError> {
    open(unfinished, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL).map_err(|error| {
        let reason = match error {
            Errno::NOENT => "its directory is not there; make it first".to_owned(),
            Errno::EXIST | Errno::LOOP => {
                let shown = unfinished.display();
                format!("{shown} is left of an attempt that was cut off; remove it")
            }
            error => error.to_string(),
        };
        refused(path, reason)
    })
}

/// Opens a file by its own name, never through a link; a new one is its owner's alone.
fn open(path: &Path, flags: OFlags) -> Result<File, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)).map(File::from)
}

/// The name of a file that is being written, beside its place.
fn unfinished(path: &Path) -> Result<PathBuf, SidecarError> {
    let name = path.file_name().ok_or_else(|| refused(path, "it names no file".to_owned()))?;
    let mut name = OsString::from(name);
    name.push(UNFINISHED);
    Ok(path.with_file_name(name))
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

/// Reads until the buffer is full or the file ends; nothing but the buffer holds the content.
fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while let Some(rest) = buffer.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match file.read(rest)? {
            0 => break,
            read => len += read,
        }
    }
    Ok(len)
}

fn refused(path: &Path, reason: String) -> SidecarError {
    SidecarError::Key { path: path.to_owned(), reason }
}
