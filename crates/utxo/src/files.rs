//! External files: the bytes of large transactions on object storage, `<txid>.tx` or `<txid>.outputs`.
//!
//! A file that is not there is the trace of an earlier run that was cut off; but it is also what a
//! wrong prefix, another bucket or a disk that is not mounted looks like. So a place carries a mark, and
//! before records go, files of records that stay are looked for ([`ExternalFiles::prove`]).

use bytes::Bytes;
use secateur_archive::{ArchiveUrl, Fetched, Objects, Put, Settings};

use crate::UtxoError;
use crate::types::{FileKind, TxId};

/// The place of external files.
#[derive(Debug, Clone)]
pub struct ExternalFiles {
    objects: Objects,
}

/// What became of a file that was to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// It was there, and is gone.
    Deleted,
    /// Neither kind of file was there.
    Missing,
}

/// The name of a place's mark.
const MARK: &str = "secateur-place";
/// How often a file is written that somebody else takes away meanwhile.
const TRIES: usize = 8;
/// A mark has no more bytes than this.
const MAX_MARK: u64 = 64;

fn is_mark(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn key(txid: TxId, kind: FileKind) -> String {
    format!("{txid}.{}", kind.suffix())
}

impl ExternalFiles {
    /// Opens a place that is there.
    pub fn open(url: &ArchiveUrl, settings: &Settings) -> Result<Self, UtxoError> {
        Ok(Self { objects: Objects::open(url, settings)? })
    }

    /// The same, and makes the directory if it is missing.
    pub fn create(url: &ArchiveUrl, settings: &Settings) -> Result<Self, UtxoError> {
        Ok(Self { objects: Objects::create(url, settings)? })
    }

    /// Its address.
    pub fn address(&self) -> &str {
        self.objects.address()
    }

    /// Whether it is a directory of this machine.
    pub fn is_directory(&self) -> bool {
        self.objects.is_directory()
    }

    /// The mark of this place, if it carries one.
    pub async fn mark(&self) -> Result<Option<String>, UtxoError> {
        let wrong = |what: String| UtxoError::File {
            name: format!("{}/{MARK}", self.address()),
            reason: format!(
                "{what}; bring it back, or remove it and set missing_files_are_gone for one start"
            ),
        };
        match self.objects.get(MARK, MAX_MARK).await? {
            Fetched::Missing => Ok(None),
            Fetched::TooLong(size) => Err(wrong(format!("{size} bytes are no mark"))),
            Fetched::Bytes(bytes) => match std::str::from_utf8(&bytes).map(str::trim_end) {
                Ok(mark) if is_mark(mark) => Ok(Some(mark.to_owned())),
                _ => Err(wrong("it is damaged, or none of ours".into())),
            },
        }
    }

    /// Takes the mark away, whatever it is.
    pub async fn remove_mark(&self) -> Result<(), UtxoError> {
        Ok(self.objects.remove(MARK).await?)
    }

    /// Gives this place a mark, unless somebody else has just given it one; the one that it carries is
    /// the answer.
    pub async fn set_mark(&self, mark: &str) -> Result<String, UtxoError> {
        match self.objects.put_new(MARK, &Bytes::from(format!("{mark}\n"))).await? {
            Put::Written => Ok(mark.to_owned()),
            Put::Occupied => self.mark().await?.ok_or_else(|| UtxoError::File {
                name: MARK.into(),
                reason: "it came and went while it was written".into(),
            }),
        }
    }

    /// Removes what writes left that were cut off long ago: files that no record names and nobody reads.
    pub async fn sweep(&self) -> Result<(), UtxoError> {
        let is_ours = |name: &str| {
            let (txid, suffix) = name.split_once('.').unwrap_or((name, ""));
            name == MARK || txid.parse::<TxId>().is_ok() && matches!(suffix, "tx" | "outputs")
        };
        Ok(self.objects.sweep(is_ours).await?)
    }

    /// Writes a transaction's file, before its record is made; whether it was not there before is the
    /// answer. A file of the same id has the same bytes: it was left by a write that was cut off.
    pub async fn put(&self, txid: TxId, kind: FileKind, bytes: &Bytes) -> Result<bool, UtxoError> {
        let name = key(txid, kind);
        let wrong = |reason: &str| UtxoError::File { name: name.clone(), reason: reason.into() };
        for _ in 0..TRIES {
            let is_new = self.objects.put_new(&name, bytes).await? == Put::Written;
            if !is_new {
                match self.objects.get(&name, bytes.len() as u64).await? {
                    // Another service took it back meanwhile.
                    Fetched::Missing => continue,
                    Fetched::Bytes(there) if there == *bytes => {}
                    Fetched::Bytes(_) | Fetched::TooLong(_) => {
                        return Err(wrong(
                            "a file of this transaction is there with other bytes; it was not touched",
                        ));
                    }
                }
            }
            self.objects.sweep_name(&name).await;
            return Ok(is_new);
        }
        Err(wrong("it came and went while it was written"))
    }

    /// A transaction's file, if it is there and has at most so many bytes.
    pub async fn get(
        &self,
        txid: TxId,
        kind: FileKind,
        most: u64,
    ) -> Result<Option<Bytes>, UtxoError> {
        match self.objects.get(&key(txid, kind), most).await? {
            Fetched::Bytes(bytes) => Ok(Some(bytes)),
            Fetched::Missing => Ok(None),
            Fetched::TooLong(size) => Err(UtxoError::File {
                name: key(txid, kind),
                reason: format!(
                    "{size} bytes are more than an answer holds, {most}; read the file itself"
                ),
            }),
        }
    }

    /// Whether a transaction's file is there.
    pub async fn has(&self, txid: TxId, kind: FileKind) -> Result<bool, UtxoError> {
        Ok(self.size(txid, kind).await?.is_some())
    }

    /// How many bytes a transaction's file has, if it is there.
    pub async fn size(&self, txid: TxId, kind: FileKind) -> Result<Option<u64>, UtxoError> {
        Ok(self.objects.size(&key(txid, kind)).await?)
    }

    /// Removes a transaction's file. Where it is not there, the other kind is looked for: a record
    /// that says the wrong one must not leave the file behind for ever.
    pub async fn remove(&self, txid: TxId, kind: FileKind) -> Result<Removed, UtxoError> {
        for kind in [kind, kind.other()] {
            let key = key(txid, kind);
            if self.objects.size(&key).await?.is_some() {
                self.objects.remove(&key).await?;
                return Ok(Removed::Deleted);
            }
        }
        Ok(Removed::Missing)
    }

    /// Makes sure that what was removed stays so when the power goes: a directory forgets a removal that it was
    /// not synced after.
    pub async fn sync_removals(&self) -> Result<(), UtxoError> {
        Ok(self.objects.sync_removals().await?)
    }

    /// Removes exactly this file of a transaction, which may have another that is its record's.
    pub async fn take_back(&self, txid: TxId, kind: FileKind) -> Result<(), UtxoError> {
        Ok(self.objects.remove(&key(txid, kind)).await?)
    }

    /// Whether this is the place: it has the file of at least one of these transactions, all of
    /// which must have one.
    pub async fn prove(&self, sample: &[(TxId, FileKind)]) -> Result<bool, UtxoError> {
        for (txid, kind) in sample {
            if self.has(*txid, *kind).await? || self.has(*txid, kind.other()).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
