//! The wire: a node's answers over gRPC, streamed and polled, and what its refusals mean.

use std::sync::Arc;

use prost::Message as _;
use secateur_core::{Cursor, ExportError, Segment};
use secateur_index::source::{Blocks as _, GrpcOptions, GrpcSource, Source as _};
use secateur_index::{ErrorClass, IndexError};
use secateur_proto::ERROR_TRAILER;
use secateur_proto::export::v1::export_server::{Export as V1, ExportServer as V1Server};
use secateur_proto::export::v1::{
    self, ExportBlocksRequest, ExportBlocksResponse, GetHeadRequest, GetHeadResponse,
};
use secateur_proto::export::v2::export_server::{Export as V2, ExportServer as V2Server};
use secateur_proto::export::v2::{Frame, Meta, StreamRequest, StreamResponse};
use secateur_store::StoreError;
use secateur_store::ground::disk::DiskStore;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Response, Status};

use crate::chain::{History, blocks};

/// Serves a store as a node does, as far as a consumer sees.
struct Served(Arc<DiskStore>);

fn refuse(error: &ExportError) -> Status {
    let (code, reason) = match error {
        ExportError::Pruned { pruned_before_block } => {
            let pruned_before_block = *pruned_before_block;
            let pruned = v1::export_error::Pruned { pruned_before_block };
            (Code::OutOfRange, v1::export_error::Reason::Pruned(pruned))
        }
        other => {
            let invalid = v1::export_error::InvalidCursor { reason: other.to_string() };
            (Code::InvalidArgument, v1::export_error::Reason::InvalidCursor(invalid))
        }
    };
    let mut status = Status::new(code, error.to_string());
    let details = v1::ExportError { reason: Some(reason) }.encode_to_vec();
    status.metadata_mut().insert_bin(ERROR_TRAILER, MetadataValue::from_bytes(&details));
    status
}

#[tonic::async_trait]
impl V1 for Served {
    async fn get_head(
        &self,
        _request: Request<GetHeadRequest>,
    ) -> Result<Response<GetHeadResponse>, Status> {
        Ok(Response::new(GetHeadResponse { block_number: self.0.get_head() }))
    }

    async fn export_blocks(
        &self,
        request: Request<ExportBlocksRequest>,
    ) -> Result<Response<ExportBlocksResponse>, Status> {
        let ExportBlocksRequest { cursor, max_bytes } = request.into_inner();
        let cursor = cursor.map(|cursor| Cursor {
            block_number: cursor.block_number,
            segment: u8::try_from(cursor.segment).unwrap(),
            byte_offset: cursor.byte_offset,
        });
        let reply = self.0.export_blocks(cursor, max_bytes.unwrap()).map_err(|error| {
            let StoreError::Export(error) = error else { panic!("{error}") };
            refuse(&error)
        })?;
        let chunk = |chunk: secateur_core::Chunk| v1::Chunk {
            segment: chunk.segment.tag().into(),
            start: chunk.start,
            bytes: chunk.bytes.into(),
            payload_len: chunk.payload_len,
        };
        let cursor = |cursor: Cursor| v1::Cursor {
            block_number: cursor.block_number,
            segment: cursor.segment.into(),
            byte_offset: cursor.byte_offset,
        };
        Ok(Response::new(ExportBlocksResponse {
            chunks: reply.chunks.into_iter().map(chunk).collect(),
            next_cursor: reply.next_cursor.map(cursor),
        }))
    }
}

#[tonic::async_trait]
impl V2 for Served {
    type StreamStream = tokio_stream::Iter<std::vec::IntoIter<Result<StreamResponse, Status>>>;

    async fn stream(
        &self,
        request: Request<StreamRequest>,
    ) -> Result<Response<Self::StreamStream>, Status> {
        let from = request.into_inner().from.unwrap_or(0);
        let head = self.0.get_head().map_or(0, |head| head + 1);
        let responses = (from..head).map(|height| {
            let block = self.0.get_block(height).unwrap();
            let frames = Segment::ALL.map(|segment| {
                let bytes = block.payloads.segment(segment).to_vec();
                let meta = Meta {
                    hash: block.meta.hash.0.to_vec().into(),
                    parent_hash: block.meta.parent_hash.0.to_vec().into(),
                    timestamp: block.meta.timestamp,
                };
                Frame {
                    block_number: height,
                    segment: segment.tag().into(),
                    start: 0,
                    payload_len: u32::try_from(bytes.len()).unwrap(),
                    bytes: bytes.into(),
                    ends_block: segment == Segment::TxIndex,
                    meta: (segment == Segment::Block).then_some(meta),
                }
            });
            Ok(StreamResponse { frames: frames.to_vec() })
        });
        Ok(Response::new(tokio_stream::iter(responses.collect::<Vec<_>>())))
    }
}

/// Serves a store on a free port, with streams or without.
async fn serve(history: &History, streams: bool) -> GrpcSource {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let v1 = V1Server::new(Served(Arc::clone(&history.store)));
    let v2 = streams.then(|| V2Server::new(Served(Arc::clone(&history.store))));
    let server = tonic::transport::Server::builder().add_service(v1).add_optional_service(v2);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    GrpcSource::new(&GrpcOptions::new(format!("http://{address}"))).unwrap()
}

#[tokio::test]
async fn streamed_and_polled_blocks_are_the_same_and_new_ones_follow() {
    let chain = blocks(30);
    for streams in [true, false] {
        let history = History::new(&chain[..20]);
        let source = serve(&history, streams).await;
        assert_eq!(source.head().await.unwrap(), Some(19));
        let mut coming = source.blocks(None, streams);
        let mut appended = false;
        let mut height = 0;
        while height < 30 {
            let Some(block) = coming.next().await.unwrap() else {
                assert!(!appended, "caught up too early, at {height}");
                history.append(&chain[20..]);
                appended = true;
                continue;
            };
            let wanted = &chain[usize::try_from(height).unwrap()];
            assert_eq!(block.height, height);
            assert_eq!(block.payloads, wanted.payloads);
            assert_eq!(block.meta, streams.then(|| wanted.meta.clone()));
            height += 1;
        }
        assert_eq!(coming.next().await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_refusal_keeps_its_meaning_over_the_wire() {
    let history = History::new(&blocks(40));
    let policy =
        secateur_core::PrunePolicy { retain_blocks: 1, ..secateur_core::PrunePolicy::default() };
    history.store.set_prune_policy(policy).unwrap();
    while history.store.prune_blocks(9, 5_000).unwrap().more() {}
    let source = serve(&history, false).await;
    let error = source.blocks(Some(3), false).next().await.unwrap_err();
    assert_eq!(error, IndexError::Pruned { wanted: 3, pruned_before_block: 9 });
    // The admin service is not there at all.
    let error = source.ack_exported("x", 3).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Refused);
    // Nobody listens.
    let nobody = GrpcSource::new(&GrpcOptions::new("http://127.0.0.1:1")).unwrap();
    let error = nobody.head().await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Net);
    assert!(error.is_retryable());
}

#[tokio::test]
async fn a_token_never_travels_in_the_clear() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "5ec7".repeat(16)).unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let options =
        |url: &str| GrpcOptions { token_file: Some(token.clone()), ..GrpcOptions::new(url) };
    let error = GrpcSource::new(&options("http://192.0.2.1:7741")).unwrap_err();
    assert!(error.to_string().contains("in the clear"), "{error}");
    for url in ["http://127.0.0.1:7741", "http://[::1]:7741", "http://localhost:7741"] {
        let source = GrpcSource::new(&options(url)).unwrap();
        assert!(!format!("{source:?}").contains("5ec7"));
    }
}
