//! `secateur.utxo.v1.Store`: how records come in. What a creation does with files is in `create`.

use bytes::Bytes;
use prost::Message as _;
use secateur_core::Height;
use secateur_proto::utxo::v1 as pb;
use secateur_proto::utxo::v1::store_server::Store;
use secateur_utxo::{BlockRef, TxId, UtxoError, UtxoStore, check_places};
use tonic::{Request, Response, Status};

use super::create::{Size, file_name};
use super::pruner::noted;
use super::{Api, convert, failure, height, held};
use crate::service::Room as Memory;
use crate::ui::words::plural;

/// Transactions of one request to create, at most.
const MOST_CREATED: usize = 10_000;
/// Transactions of one request about a block, at most.
const MOST_MINED: usize = 100_000;

fn bounded(number: usize, most: usize) -> Result<(), Status> {
    if number > most {
        return Err(failure::malformed(format_args!(
            "{number} transactions; at most {most} are taken"
        )));
    }
    Ok(())
}

/// Why a record is not answered.
struct Unread(Status);

impl From<UtxoError> for Unread {
    fn from(error: UtxoError) -> Self {
        Self(failure::status(&error))
    }
}

/// A block cannot be above the chain's tip.
pub(super) fn check_block(block: &BlockRef, tip: Height) -> Result<(), UtxoError> {
    if block.height > tip {
        let reason = format!("block {} has height {}, above the tip {tip}", block.id, block.height);
        return Err(UtxoError::WrongHeight { reason });
    }
    Ok(())
}

impl<S: UtxoStore> Api<S> {
    async fn read(
        &self,
        txid: TxId,
        with_body: bool,
        room: &mut Memory,
    ) -> Result<pb::GetResponse, Unread> {
        let (record, external, inline) = {
            let _turn = self.reads.acquire().await;
            let Some(found) = self.service.explain(txid).await? else {
                return Err(self.service.plainly(UtxoError::Unknown { txid }).await.into());
            };
            if found.cut {
                return Err(UtxoError::Pruned { txid }.into());
            }
            (convert::record(&found), found.external, found.body)
        };
        let body = match external.filter(|_| with_body) {
            Some(kind) => {
                let lacks = |reason: &str| UtxoError::File {
                    name: file_name(txid, kind),
                    reason: reason.into(),
                };
                // The record takes its part of an answer too.
                let most = (self.sizes.message.min(self.rooms.bytes()) / 2) as u64;
                let files = self.service.pruner().files();
                let files = files.ok_or_else(|| lacks("no place of external files is set"))?;
                let size = files.size(txid, kind).await?.unwrap_or(0).min(most);
                let room = room.grow(usize::try_from(size).unwrap_or(usize::MAX));
                room.map_err(|_| Unread(failure::overloaded()))?;
                files.get(txid, kind, most).await?.ok_or_else(|| lacks("it is not there"))?
            }
            None if with_body => inline,
            None => Bytes::new(),
        };
        Ok(pb::GetResponse { record: Some(record), body })
    }

    /// The answer to a step at a height.
    async fn answered<A>(
        &self,
        done: Result<(), UtxoError>,
        at: Height,
        answer: A,
    ) -> Result<A, Status> {
        match done {
            Ok(()) => {
                self.service.fed(at);
                Ok(answer)
            }
            Err(error) => Err(failure::status(&self.service.plainly(error).await)),
        }
    }

    /// A step about one transaction.
    async fn step<T, A: Default, F>(
        &self,
        request: &Request<T>,
        (call, id, at): (&'static str, &Bytes, u64),
        work: impl FnOnce(S, TxId, Height) -> F,
    ) -> Result<Response<A>, Status>
    where
        F: Future<Output = Result<(), UtxoError>>,
    {
        let (txid, at) = (convert::txid(id)?, height(at)?);
        let entry = self.entry(request, call, &format!("{txid} at height {at}"));
        let store = self.service.pruner().store().clone();
        noted(entry, async {
            let tip = self.service.tip(at).await.map_err(|error| failure::status(&error))?;
            let done = work(store, txid, tip).await;
            self.answered(done, at, A::default()).await
        })
        .await
    }
}

#[tonic::async_trait]
impl<S: UtxoStore> Store for Api<S> {
    async fn create(
        &self,
        mut request: Request<pb::CreateRequest>,
    ) -> Result<Response<pb::CreateResponse>, Status> {
        let bytes = request.get_ref().encoded_len();
        let told = std::mem::take(&mut request.get_mut().transactions);
        bounded(told.len(), MOST_CREATED)?;
        // Before any file is written.
        let places = check_places(told.iter().map(|tx| (tx.inputs.len(), tx.outputs)));
        let (inputs, outputs) = places.map_err(|error| failure::status(&error))?;
        let at = height(request.get_ref().height)?;
        let what = format!("{} at height {at}", plural(told.len() as u64, "transaction"));
        let entry = self.entry(&request, "utxo.create", &what);
        let size = Size { bytes, inputs, outputs };
        noted(entry, self.create_all(told, size, at)).await
    }

    async fn spend(
        &self,
        request: Request<pb::SpendRequest>,
    ) -> Result<Response<pb::SpendResponse>, Status> {
        let pb::SpendRequest { height, txid } = request.get_ref().clone();
        let about = ("utxo.spend", &txid, height);
        self.step(&request, about, |store, txid, at| async move { store.spend(txid, at).await })
            .await
    }

    async fn unspend(
        &self,
        request: Request<pb::UnspendRequest>,
    ) -> Result<Response<pb::UnspendResponse>, Status> {
        let pb::UnspendRequest { height, txid } = request.get_ref().clone();
        let about = ("utxo.unspend", &txid, height);
        self.step(&request, about, |store, txid, at| async move { store.unspend(txid, at).await })
            .await
    }

    async fn set_conflicting(
        &self,
        request: Request<pb::SetConflictingRequest>,
    ) -> Result<Response<pb::SetConflictingResponse>, Status> {
        let pb::SetConflictingRequest { height, txid, conflicting } = request.get_ref().clone();
        let about = ("utxo.set_conflicting", &txid, height);
        self.step(&request, about, |store, txid, at| async move {
            store.set_conflicting(txid, conflicting, at).await
        })
        .await
    }

    async fn set_mined(
        &self,
        request: Request<pb::SetMinedRequest>,
    ) -> Result<Response<pb::SetMinedResponse>, Status> {
        let asked = request.get_ref();
        bounded(asked.txids.len(), MOST_MINED)?;
        let txids: Vec<TxId> = asked.txids.iter().map(convert::txid).collect::<Result<_, _>>()?;
        let block =
            asked.block.as_ref().ok_or_else(|| failure::malformed("the block is missing"))?;
        let (block, at) = (convert::block_ref(block)?, height(asked.height)?);
        let count = txids.len();
        let what = format!("{} in {}", plural(count as u64, "transaction"), block.id);
        let entry = self.entry(&request, "utxo.set_mined", &what);
        let store = self.service.pruner().store().clone();
        noted(entry, async {
            let tip = self.service.tip(at).await.map_err(|error| failure::status(&error))?;
            check_block(&block, tip).map_err(|error| failure::status(&error))?;
            let work = async move { store.set_mined(txids, block, tip).await };
            let done = self.room.step(count, work).await?;
            self.answered(done, at, pb::SetMinedResponse {}).await
        })
        .await
    }

    async fn unset_mined(
        &self,
        request: Request<pb::UnsetMinedRequest>,
    ) -> Result<Response<pb::UnsetMinedResponse>, Status> {
        let asked = request.get_ref();
        bounded(asked.txids.len(), MOST_MINED)?;
        let txids: Vec<TxId> = asked.txids.iter().map(convert::txid).collect::<Result<_, _>>()?;
        let (block, at) = (convert::block_id(&asked.block)?, height(asked.height)?);
        let count = txids.len();
        let what = format!("{} out of {block}", plural(count as u64, "transaction"));
        let entry = self.entry(&request, "utxo.unset_mined", &what);
        let store = self.service.pruner().store().clone();
        noted(entry, async {
            let tip = self.service.tip(at).await.map_err(|error| failure::status(&error))?;
            let work = async move { store.unset_mined(txids, block, tip).await };
            let done = self.room.step(count, work).await?;
            self.answered(done, at, pb::UnsetMinedResponse {}).await
        })
        .await
    }

    async fn get(
        &self,
        request: Request<pb::GetRequest>,
    ) -> Result<Response<pb::GetResponse>, Status> {
        let pb::GetRequest { txid, body } = request.into_inner();
        let txid = convert::txid(&txid)?;
        let mut room = self.rooms.empty();
        let got = self.read(txid, body, &mut room).await.map_err(|unread| unread.0)?;
        held::within(room, got).map_err(|_| failure::overloaded())
    }
}
