//! Making records, and the files beside them.
//!
//! A file is there before its record, and follows what becomes of it. A creation that was begun is ended, also if
//! whoever asked has gone: what it was about to remove could be somebody's next file.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use secateur_core::Height;
use secateur_proto::utxo::v1 as pb;
use secateur_proto::utxo::v1::created::Outcome;
use secateur_utxo::{Body, Created, ExternalFiles, FileKind, NewTx, TxId, UtxoError, UtxoStore};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit};
use tokio::time::{Instant, timeout};
use tonic::Status;

use super::store::check_block;
use super::{Api, convert, failure};
use crate::service::Rooms;

fn refused(error: &UtxoError) -> pb::Created {
    pb::Created { outcome: Outcome::Refused.into(), error: Some(failure::details(error)) }
}

/// How often a file is looked at until it is as its record says.
const LOOKS: usize = 4;

/// A place of files that takes so long to fail does not answer: what else a request has there would take as long, one
/// after the other.
const SLOW: Duration = Duration::from_secs(1);

/// How long a creation whose record is made waits for its turn with files: longer than anybody waits for its answer.
const TURN: Duration = Duration::from_mins(1);

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

/// Whether the place of files fell silent while a request was at it.
#[derive(Default)]
struct Silence(bool);

impl Silence {
    /// Does something with a file, unless it did.
    async fn unless<T>(
        &mut self,
        files: &ExternalFiles,
        work: impl Future<Output = Result<T, UtxoError>>,
    ) -> Result<T, UtxoError> {
        if self.0 {
            let reason = "it did not answer for another file of the same request".into();
            return Err(UtxoError::NoAnswer { place: files.address().to_owned(), reason });
        }
        let began = Instant::now();
        let done = work.await;
        self.0 = done.is_err() && began.elapsed() > SLOW;
        done
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
        UtxoError::File { reason, .. } | UtxoError::NoAnswer { reason, .. } => reason,
        UtxoError::Store { .. } => "the store did not answer when it was looked at again".into(),
        UtxoError::Setting(_) => {
            "this service knows no place of files; set utxo.files first".into()
        }
        other => other.to_string(),
    };
    UtxoError::FileUnsettled { name, reason, with_bytes, retryable }
}

/// How large a request to create is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) bytes: usize,
    pub(super) inputs: usize,
    pub(super) outputs: u32,
}

impl Size {
    /// Memory for it, which others have perhaps: one that waits is there already.
    fn memory(self, rooms: &Rooms) -> Result<impl Send + 'static, Status> {
        let (bytes, most) = (self.bytes, rooms.bytes());
        if bytes > most {
            return Err(failure::malformed(format_args!(
                "{bytes} bytes are more than {most}, half of limits.answer_bytes"
            )));
        }
        rooms.take(bytes).map_err(|_| failure::overloaded())
    }
}

/// What a creation waits for before it begins.
enum Has {
    /// Its turn with files, of which it has some.
    Turn(OwnedMutexGuard<Orphans>),
    /// Its room in memory.
    Room(OwnedSemaphorePermit),
}

impl<S: UtxoStore> Api<S> {
    fn wanted(&self, told: pb::NewTransaction) -> Result<Wanted, Status> {
        let inputs: Vec<_> =
            told.inputs.iter().map(convert::out_point).collect::<Result<_, _>>()?;
        let large = told.body.len() > self.sizes.inline && self.service.pruner().files().is_some();
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
        silence: &mut Silence,
    ) -> Result<Beside, UtxoError> {
        let txid = tx.txid;
        let Body::External(kind) = tx.body else {
            return Ok(Beside::Inline(txid, bytes.unwrap_or_default()));
        };
        let files = self.place()?;
        if let Some(bytes) = &bytes {
            let is_new = silence.unless(files, self.write_file(txid, kind, bytes)).await?;
            let is_ours = orphans.take(txid, kind) || is_new;
            return Ok(Beside::File(Placed { txid, kind, bytes: Some(bytes.clone()), is_ours }));
        }
        let looks = async {
            // A disk that is not mounted has files of its own.
            self.service.pruner().check_place().await?;
            files.has(txid, kind).await
        };
        if silence.unless(files, looks).await? {
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

    /// The same, unless the place fell silent.
    async fn follow_unless(&self, silence: &mut Silence, file: Placed) -> Result<(), UtxoError> {
        silence.unless(self.place()?, self.follow_record(file)).await
    }

    /// Makes records, each or not, as [`Self::make`] does.
    ///
    /// What waits has begun nothing, and ends with whoever asked. A creation with files has its turn with them
    /// before it takes room: where their place does not answer, what has no file goes on.
    pub(super) async fn create_all(
        &self,
        asked: Vec<pb::NewTransaction>,
        size: Size,
        height: Height,
    ) -> Result<pb::CreateResponse, Status> {
        let wanted: Vec<Wanted> =
            asked.into_iter().map(|asked| self.wanted(asked)).collect::<Result<_, _>>()?;
        let with_files = wanted.iter().any(|one| matches!(one.tx.body, Body::External(_)));
        let memory = size.memory(if with_files { &self.rooms } else { &self.inline_rooms })?;
        let has = if with_files {
            Has::Turn(Arc::clone(&self.files).lock_owned().await)
        } else {
            Has::Room(self.room.create(size.outputs, size.inputs).await?)
        };
        let tip = self.service.tip(height).await.map_err(|error| failure::status(&error))?;
        let api = self.clone();
        let making = tokio::spawn(async move {
            let _memory = memory;
            let made = api.make(wanted, size, has, tip).await?;
            if made.created.iter().any(|one| one.error.is_none()) {
                api.service.fed(height);
            }
            Ok(made)
        });
        making.await.map_err(|error| Status::internal(error.to_string()))?
    }

    async fn make(
        &self,
        wanted: Vec<Wanted>,
        size: Size,
        has: Has,
        height: Height,
    ) -> Result<pb::CreateResponse, Status> {
        let (mut turn, room) = match has {
            Has::Turn(turn) => (Some(turn), None),
            Has::Room(room) => (None, Some(room)),
        };
        let (mut none, mut silence) = (Orphans::default(), Silence::default());
        let orphans = turn.as_deref_mut().unwrap_or(&mut none);
        let mut created = Vec::with_capacity(wanted.len());
        let (mut txs, mut beside) = (Vec::with_capacity(wanted.len()), Vec::new());
        for Wanted { tx, bytes } in wanted {
            let placed = tx.mined.as_ref().map_or(Ok(()), |block| check_block(block, height));
            let seen_to = match placed {
                Ok(()) => self.see_to_file(&tx, bytes, orphans, &mut silence).await,
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
        let room = match room {
            Some(room) => room,
            // Those who have it wait for no file.
            None => self.room.create(size.outputs, size.inputs).await?,
        };
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
        drop(room);
        let mut answers = Vec::with_capacity(made.len());
        for (made, beside) in made.into_iter().zip(beside) {
            let file = beside.after(&made);
            if turn.is_none() && file.is_some() && !silence.0 {
                turn = timeout(TURN, Arc::clone(&self.files).lock_owned()).await.ok();
                silence.0 |= turn.is_none();
            }
            answers.push(self.answer(made, file, turn.as_deref_mut(), &mut silence).await);
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
        silence: &mut Silence,
    ) -> pb::Created {
        if let Some(file) = file {
            let (name, with_bytes) = (file_name(file.txid, file.kind), file.bytes.is_some());
            let left = (made.is_err() && file.is_ours).then_some((file.txid, file.kind));
            if let Err(error) = self.follow_unless(silence, file).await {
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
