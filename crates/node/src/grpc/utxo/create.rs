//! Making records, and the files beside them.
//!
//! A file is there before its record, and follows what becomes of it. A creation that was begun is ended, also if
//! whoever asked has gone: what it was about to remove could be somebody's next file.

use std::collections::HashSet;

use bytes::Bytes;
use secateur_core::Height;
use secateur_proto::utxo::v1 as pb;
use secateur_proto::utxo::v1::created::Outcome;
use secateur_utxo::{Body, Created, ExternalFiles, FileKind, NewTx, TxId, UtxoError, UtxoStore};
use tonic::Status;

use super::store::check_block;
use super::{Api, convert, failure};

fn refused(error: &UtxoError) -> pb::Created {
    pb::Created { outcome: Outcome::Refused.into(), error: Some(failure::details(error)) }
}

/// How often a file is looked at until it is as its record says.
const LOOKS: usize = 4;

/// Of more than this nobody keeps a list: they stay until their transactions are told again.
const MOST_ORPHANS: usize = 100_000;

/// Files that this process wrote and that no record is known to name, because the database or the place went in
/// between. Told again and refused they are ours to remove.
#[derive(Debug, Default)]
pub(super) struct Orphans(HashSet<(TxId, FileKind)>);

impl Orphans {
    fn remember(&mut self, files: impl IntoIterator<Item = (TxId, FileKind)>) {
        let room = MOST_ORPHANS.saturating_sub(self.0.len());
        self.0.extend(files.into_iter().take(room));
    }

    /// Whether it is one, which it is no longer.
    fn take(&mut self, txid: TxId, kind: FileKind) -> bool {
        self.0.remove(&(txid, kind))
    }
}

/// What is to become of a transaction's bytes.
struct Wanted {
    tx: NewTx,
    /// The bytes that were told; somebody else has written the file otherwise.
    bytes: Option<Bytes>,
}

/// A file that is there before its record.
struct Placed {
    txid: TxId,
    kind: FileKind,
    /// Its bytes, unless somebody else has written it.
    bytes: Option<Bytes>,
    /// Whether it is ours to remove.
    is_ours: bool,
}

/// What is done with a file once its record is made or refused.
enum Beside {
    /// It was put there before.
    File(Placed),
    /// The bytes are in the record, unless that names a file.
    Inline(TxId, Bytes),
}

impl Beside {
    /// The file that has to follow what became of its record.
    fn after(self, made: &Result<Created, UtxoError>) -> Option<Placed> {
        match (self, made) {
            (Self::File(placed), made) => Some(placed).filter(|file| made.is_ok() || file.is_ours),
            // It was there with a file, which these are the bytes of.
            (Self::Inline(txid, bytes), Ok(Created::WasThere { external: Some(kind) })) => {
                let bytes = Some(bytes).filter(|bytes| !bytes.is_empty());
                Some(Placed { txid, kind: *kind, bytes, is_ours: false })
            }
            (Self::Inline(..), _) => None,
        }
    }
}

pub(super) fn file_name(txid: TxId, kind: FileKind) -> String {
    format!("{txid}.{}", kind.suffix())
}

/// A record was made, and it is not known whether its file is there.
fn unsettled(name: String, with_bytes: bool, error: UtxoError) -> UtxoError {
    let retryable = error.is_retryable();
    let reason = match error {
        UtxoError::FileUnsettled { .. } => return error,
        // Their own texts say that nothing was changed.
        UtxoError::Files(error) => error.to_string(),
        UtxoError::File { reason, .. } => reason,
        UtxoError::Store { .. } => "the store did not answer when it was looked at again".into(),
        UtxoError::Setting(_) => {
            "this service knows no place of files; set utxo.files first".into()
        }
        other => other.to_string(),
    };
    UtxoError::FileUnsettled { name, reason, with_bytes, retryable }
}

impl<S: UtxoStore> Api<S> {
    fn wanted(&self, told: pb::NewTransaction) -> Result<Wanted, Status> {
        let inputs: Vec<_> =
            told.inputs.iter().map(convert::out_point).collect::<Result<_, _>>()?;
        let large = told.body.len() > self.inline_bytes && self.service.pruner().files().is_some();
        let external = told.external || large;
        let kind = FileKind::of(inputs.len());
        let tx = NewTx {
            txid: convert::txid(&told.txid)?,
            inputs,
            outputs: told.outputs,
            coinbase: told.coinbase,
            conflicting: told.conflicting,
            body: if external { Body::External(kind) } else { Body::Inline(told.body.clone()) },
            mined: told.mined.as_ref().map(convert::block_ref).transpose()?,
        };
        Ok(Wanted { tx, bytes: Some(told.body).filter(|body| !body.is_empty()) })
    }

    /// Sees to it that the file of a transaction is there, if it has one.
    async fn see_to_file(
        &self,
        tx: &NewTx,
        bytes: Option<Bytes>,
        orphans: &mut Orphans,
    ) -> Result<Beside, UtxoError> {
        let txid = tx.txid;
        let Body::External(kind) = tx.body else {
            return Ok(Beside::Inline(txid, bytes.unwrap_or_default()));
        };
        if let Some(bytes) = &bytes {
            let is_new = self.write_file(txid, kind, bytes).await?;
            let is_ours = orphans.take(txid, kind) || is_new;
            return Ok(Beside::File(Placed { txid, kind, bytes: Some(bytes.clone()), is_ours }));
        }
        // A disk that is not mounted has files of its own.
        self.service.pruner().check_place().await?;
        if self.place()?.has(txid, kind).await? {
            return Ok(Beside::File(Placed { txid, kind, bytes: None, is_ours: false }));
        }
        let reason = "it is said to be there, and is not".into();
        Err(UtxoError::File { name: file_name(txid, kind), reason })
    }

    fn place(&self) -> Result<&ExternalFiles, UtxoError> {
        let none = || UtxoError::Setting("no place of external files is set (utxo.files)".into());
        self.service.pruner().files().ok_or_else(none)
    }

    async fn write_file(
        &self,
        txid: TxId,
        kind: FileKind,
        bytes: &Bytes,
    ) -> Result<bool, UtxoError> {
        let (pruner, files) = (self.service.pruner(), self.place()?);
        // A disk that is not mounted must not get files of its own.
        pruner.check_place().await?;
        let is_new = files.put(txid, kind, bytes).await?;
        let Err(error) = pruner.check_place().await else { return Ok(is_new) };
        // Its disk may have gone in between, and the file be somewhere else. What may be a record's stays.
        if is_new && matches!(self.is_named(txid, kind).await, Ok(false)) {
            files.take_back(txid, kind).await?;
            // Another service may have made the record in between, and rely on the file.
            if !matches!(self.is_named(txid, kind).await, Ok(false)) {
                files.put(txid, kind, bytes).await?;
            }
        }
        Err(error)
    }

    /// Whether a record says that this is its file.
    async fn is_named(&self, txid: TxId, kind: FileKind) -> Result<bool, UtxoError> {
        let found = self.service.pruner().store().get(txid).await?;
        Ok(found.is_some_and(|found| found.external == Some(kind) && !found.cut))
    }

    /// Lets a file follow its record, once that is made or refused: a prune or another service may have
    /// removed it meanwhile, or have made the record. A file that no record names goes if it is ours to
    /// remove. Each looks again after what it did, so that whoever is last sees what the other one did. No
    /// record is acknowledged without its file: one whose bytes only its teller has is answered as an error.
    async fn follow_record(&self, placed: Placed) -> Result<(), UtxoError> {
        let Placed { txid, kind, bytes, mut is_ours } = placed;
        let with_bytes = bytes.is_some();
        let went = || UtxoError::FileUnsettled {
            name: file_name(txid, kind),
            reason: "a prune or another service removed it while the record was made".into(),
            with_bytes,
            retryable: with_bytes,
        };
        for _ in 0..LOOKS {
            let is_named = self.is_named(txid, kind).await?;
            match (is_named, self.place()?.has(txid, kind).await?) {
                (true, false) => {
                    let bytes = bytes.as_ref().ok_or_else(went)?;
                    is_ours |= self.write_file(txid, kind, bytes).await?;
                }
                (false, true) if is_ours => self.place()?.take_back(txid, kind).await?,
                _ => return Ok(()),
            }
        }
        Err(went())
    }

    /// Makes records with so many outputs together, each or not, as [`Self::make`] does.
    pub(super) async fn create_all(
        &self,
        asked: Vec<pb::NewTransaction>,
        outputs: u32,
        height: Height,
    ) -> Result<pb::CreateResponse, Status> {
        let room = self.room.create(outputs, asked.iter().map(|tx| tx.inputs.len()).sum()).await?;
        let api = self.clone();
        let making = tokio::spawn(async move {
            let _room = room;
            api.make(asked, height).await
        });
        making.await.map_err(|error| Status::internal(error.to_string()))?
    }

    async fn make(
        &self,
        asked: Vec<pb::NewTransaction>,
        height: Height,
    ) -> Result<pb::CreateResponse, Status> {
        let height = self.service.tip(height).await.map_err(|error| failure::status(&error))?;
        let wanted: Vec<Wanted> =
            asked.into_iter().map(|asked| self.wanted(asked)).collect::<Result<_, _>>()?;
        let with_files = wanted.iter().any(|one| matches!(one.tx.body, Body::External(_)));
        let mut turn = if with_files { Some(self.files.lock().await) } else { None };
        let mut none = Orphans::default();
        let orphans = turn.as_deref_mut().unwrap_or(&mut none);
        let mut created = Vec::with_capacity(wanted.len());
        let (mut txs, mut beside) = (Vec::with_capacity(wanted.len()), Vec::new());
        for Wanted { tx, bytes } in wanted {
            let placed = tx.mined.as_ref().map_or(Ok(()), |block| check_block(block, height));
            let seen_to = match placed {
                Ok(()) => self.see_to_file(&tx, bytes, orphans).await,
                Err(error) => Err(error),
            };
            match seen_to {
                Ok(one) => {
                    created.push(None);
                    beside.push(one);
                    txs.push(tx);
                }
                Err(error) => created.push(Some(refused(&error))),
            }
        }
        let made = match self.service.pruner().store().create(txs, height).await {
            Ok(made) => made,
            Err(error) => {
                orphans.remember(beside.iter().filter_map(|one| match one {
                    Beside::File(placed) if placed.is_ours => Some((placed.txid, placed.kind)),
                    _ => None,
                }));
                return Err(failure::status(&error));
            }
        };
        let mut answers = Vec::with_capacity(made.len());
        for (made, beside) in made.into_iter().zip(beside) {
            let file = beside.after(&made);
            if turn.is_none() && file.is_some() {
                turn = Some(self.files.lock().await);
            }
            answers.push(self.answer(made, file, turn.as_deref_mut()).await);
        }
        let mut answers = answers.into_iter();
        let created = created.into_iter().filter_map(|one| one.or_else(|| answers.next()));
        Ok(pb::CreateResponse { created: created.collect() })
    }

    /// Lets the file of a transaction follow what became of its record, and tells it.
    async fn answer(
        &self,
        mut made: Result<Created, UtxoError>,
        file: Option<Placed>,
        orphans: Option<&mut Orphans>,
    ) -> pb::Created {
        if let Some(file) = file {
            let (name, with_bytes) = (file_name(file.txid, file.kind), file.bytes.is_some());
            let left = (made.is_err() && file.is_ours).then_some((file.txid, file.kind));
            if let Err(error) = self.follow_record(file).await {
                tracing::warn!(name, %error, "whether a file follows its record is not known");
                if let Some(orphans) = orphans {
                    orphans.remember(left);
                }
                // Told again, it is seen to.
                made = made.and(Err(unsettled(name, with_bytes, error)));
            }
        }
        match made {
            Ok(Created::New) => pb::Created { outcome: Outcome::New.into(), error: None },
            Ok(Created::WasThere { .. }) => {
                pb::Created { outcome: Outcome::WasThere.into(), error: None }
            }
            Err(error) => refused(&error),
        }
    }
}
