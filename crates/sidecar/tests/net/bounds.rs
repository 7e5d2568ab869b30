//! What a peer can do to a node: nothing, however it behaves; and who is let in at all.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use secateur_proto::sidecar::v1::gossip_client::GossipClient;
use secateur_proto::sidecar::v1::gossip_server::{Gossip as GossipCalls, GossipServer};
use secateur_proto::sidecar::v1::{
    Acked, MissingRequest, MissingResponse, PublishRequest, PublishResponse, Verdict,
};
use secateur_sidecar::gossip::{
    EnvelopeError, Gossip as _, Kind, Limits, MAX_MESSAGE_LEN, Mesh, MeshOptions, Message,
    ServeOptions,
};
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};

use crate::book::{Book, message, notice_with};
use crate::nodes::{options, peer, serve, url};

async fn client(to: SocketAddr, from: IpAddr) -> GossipClient<Channel> {
    let endpoint = Endpoint::from_shared(url(to)).unwrap().local_address(Some(from));
    GossipClient::new(endpoint.connect().await.unwrap())
}

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
/// Another address of this machine.
const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));

fn publish(messages: Vec<Bytes>) -> PublishRequest {
    PublishRequest { messages }
}

#[tokio::test]
async fn what_is_too_long_or_foreign_is_refused_and_the_node_goes_on() {
    let book = Book::new([(1, 100)]);
    let mesh = Mesh::start(&options(), Some(Arc::clone(&book) as _)).unwrap();
    let at = serve(&mesh, &ServeOptions::default()).await;
    let mut client = client(at, HERE).await;
    let long = vec![0; MAX_MESSAGE_LEN + 1];
    assert_eq!(
        Message::notice(long.clone()),
        Err(EnvelopeError::Length { len: MAX_MESSAGE_LEN + 1 })
    );
    // The longest that there is.
    let mut most = notice_with(1, 0, b"").to_vec();
    most.resize(MAX_MESSAGE_LEN, 7);
    let most = Message::notice(most).unwrap().encode();
    let answer = client.publish(publish(vec![most; 16])).await.unwrap().into_inner();
    let verdicts: Vec<_> = answer.acked.iter().map(Acked::verdict).collect();
    assert_eq!((verdicts.len(), verdicts[0], verdicts[15]), (16, Verdict::New, Verdict::Known));
    let longer = [b"SCTG\x01\x01", &long[..]].concat();
    let small = message(1, 1).encode();
    for (messages, code) in [
        (vec![], Code::InvalidArgument),
        (vec![small.clone(); 17], Code::InvalidArgument),
        (vec![small.clone(), longer.into()], Code::InvalidArgument),
        (vec![vec![0; 1 << 20].into()], Code::OutOfRange),
    ] {
        let status = client.publish(publish(messages)).await.unwrap_err();
        assert_eq!(status.code(), code, "{status:?}");
    }
    let missing = MissingRequest { heights: (0..257).collect(), skip: 0 };
    assert_eq!(client.missing(missing).await.unwrap_err().code(), Code::InvalidArgument);
    assert!(!book.has(1, 1), "a call that is refused does nothing");
    // One that is wrong stops no other.
    let part = Message::new(Kind::ProposalPart, &b"x"[..]).unwrap().encode();
    let messages = vec![part, "junk".into(), Bytes::new(), small];
    let answer = client.publish(publish(messages)).await.unwrap().into_inner();
    let said: Vec<_> =
        answer.acked.iter().map(|acked| (acked.verdict(), acked.reason.as_str())).collect();
    let refused = Verdict::Refused;
    let wanted =
        [(refused, "misplaced"), (refused, "foreign"), (refused, "foreign"), (Verdict::New, "")];
    assert_eq!(said, wanted);
    let skip = MissingRequest { heights: vec![1], skip: u32::MAX };
    assert_eq!(client.missing(skip).await.unwrap().into_inner().notices.len(), 0);
}

#[tokio::test]
async fn a_peer_that_floods_is_bounded_and_others_get_through() {
    let book = Book::new([(1, u32::MAX)]);
    let limits = Limits { per_second: 100, burst: 200, ..Limits::default() };
    let target = Mesh::start(&MeshOptions { limits, ..options() }, Some(Arc::clone(&book) as _));
    let target = target.unwrap();
    let at = serve(&target, &ServeOptions::default()).await;
    let honest = MeshOptions { peers: vec![peer("target", &url(at))], ..options() };
    let honest = Mesh::start(&honest, None).unwrap();
    assert!(honest.wait_for("target", true).await);
    let began = Instant::now();
    let mut floods = Vec::new();
    for flood in 0..4_u32 {
        let mut client = client(at, THERE).await;
        floods.push(tokio::spawn(async move {
            for call in 0..200_u32 {
                let index = |n: u32| 1 + (flood * 200 + call) * 16 + n;
                let messages = (0..16).map(|n| message(1, index(n)).encode()).collect();
                let limited = client.publish(publish(messages)).await;
                if let Err(status) = limited {
                    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                }
            }
        }));
    }
    let delivery = honest.broadcast(message(1, 0)).await.unwrap();
    assert!(delivery.is_settled(), "{delivery:?}");
    for flood in floods {
        flood.await.unwrap();
    }
    let most = 200 + 100 * (began.elapsed().as_secs() + 1) + 1;
    let counts = target.counts();
    assert!(counts.taken <= most, "{counts:?} of {most}");
    assert!(counts.limited > 0 && book.has(1, 0), "{counts:?}");
}

/// A peer whose answers never end.
struct Endless;

#[tonic::async_trait]
impl GossipCalls for Endless {
    async fn publish(
        &self,
        _request: Request<PublishRequest>,
    ) -> Result<Response<PublishResponse>, Status> {
        Ok(Response::new(PublishResponse { acked: Vec::new() }))
    }

    async fn missing(
        &self,
        request: Request<MissingRequest>,
    ) -> Result<Response<MissingResponse>, Status> {
        let skip = request.into_inner().skip;
        let notices = (0..8).map(|n| message(1, skip + n).encode()).collect();
        // It never comes to an end of the first height.
        Ok(Response::new(MissingResponse { notices, heights_done: 0, skip: skip + 8 }))
    }
}

#[tokio::test]
async fn a_peer_that_answers_without_an_end_is_heard_for_a_while_only() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let server = tonic::transport::Server::builder().add_service(GossipServer::new(Endless));
    let server = tokio::spawn(server.serve_with_incoming(incoming));
    let book = Book::new([(1, u32::MAX), (2, 1)]);
    let asker = MeshOptions { peers: vec![peer("endless", &url(at))], ..options() };
    let asker = Mesh::start(&asker, Some(Arc::clone(&book) as _)).unwrap();
    // A run ends all the same.
    assert!(asker.wait_for("endless", true).await);
    assert_eq!(book.len(), 256 * 8);
    // It acknowledges nothing, so what is said to it waits.
    let delivery = asker.broadcast(message(2, 0)).await.unwrap();
    assert_eq!(delivery.waiting, ["endless"]);
    server.abort();
}

/// A peer that has nothing but lies, and more of them.
struct Lying;

#[tonic::async_trait]
impl GossipCalls for Lying {
    async fn publish(
        &self,
        _request: Request<PublishRequest>,
    ) -> Result<Response<PublishResponse>, Status> {
        Ok(Response::new(PublishResponse { acked: Vec::new() }))
    }

    async fn missing(
        &self,
        request: Request<MissingRequest>,
    ) -> Result<Response<MissingResponse>, Status> {
        let MissingRequest { skip, heights } = request.into_inner();
        let bad = |n| Message::notice(notice_with(heights[0], skip + n, b"bad")).unwrap().encode();
        let notices = if heights.is_empty() { vec![] } else { (0..8).map(bad).collect() };
        Ok(Response::new(MissingResponse { notices, heights_done: 0, skip: skip + 8 }))
    }
}

#[tokio::test]
async fn a_peer_that_only_lies_is_heard_for_one_page_and_then_about_other_heights() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let server = tonic::transport::Server::builder().add_service(GossipServer::new(Lying));
    let server = tokio::spawn(server.serve_with_incoming(incoming));
    let book = Book::new((1..=300).map(|height| (height, 1)));
    let asker = MeshOptions { peers: vec![peer("liar", &url(at))], ..options() };
    let asker = Mesh::start(&asker, Some(Arc::clone(&book) as _)).unwrap();
    assert!(asker.wait_for("liar", true).await);
    assert_eq!(asker.counts().refused, 8);
    // Once each about what is left, and about the first ones again.
    for refused in [16, 16] {
        assert_eq!(asker.catch_up().await, 0);
        assert_eq!(asker.counts().refused, refused);
    }
    server.abort();
}

fn token(dir: &TempDir, name: &str) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, format!("{name}-hunter2\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

#[tokio::test]
async fn only_who_has_the_token_is_let_in() {
    let dir = tempfile::tempdir().unwrap();
    let book = Book::new([(1, 9)]);
    let target = Mesh::start(&options(), Some(Arc::clone(&book) as _)).unwrap();
    let wanted = ServeOptions { token_file: Some(token(&dir, "right")), tls: None };
    let at = serve(&target, &wanted).await;
    let ask = |token_file| {
        let peers = vec![peer("target", &url(at))];
        let timeout = Duration::from_secs(2);
        Mesh::start(&MeshOptions { peers, token_file, timeout, ..options() }, None).unwrap()
    };
    for token_file in [None, Some(token(&dir, "wrong"))] {
        let mesh = ask(token_file);
        let delivery = mesh.broadcast(message(1, 0)).await.unwrap();
        assert_eq!(delivery.waiting, ["target"]);
        assert!(!mesh.peers()[0].connected);
    }
    assert_eq!(book.len(), 0);
    let mesh = ask(Some(token(&dir, "right")));
    assert!(mesh.wait_for("target", true).await);
    assert!(mesh.broadcast(message(1, 0)).await.unwrap().is_settled());
    // It never travels in the clear.
    let away = MeshOptions {
        peers: vec![peer("away", "http://192.0.2.1:1")],
        token_file: Some(token(&dir, "right")),
        ..options()
    };
    let error = Mesh::start(&away, None).unwrap_err().to_string();
    assert!(error.contains("in the clear") && !error.contains("hunter2"), "{error}");
}

#[tokio::test]
async fn the_mesh_speaks_tls_with_a_certificate_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let target = Mesh::start(&options(), Some(Book::new([(1, 1)]) as _)).unwrap();
    let tls = ServeOptions {
        token_file: Some(token(&dir, "right")),
        tls: Some((cert.clone(), key.clone())),
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let error = target.serve(listener, &tls).unwrap_err().to_string();
    assert!(error.contains("chmod 600"), "{error}");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let at = serve(&target, &tls).await;
    let ask = |ca_file| {
        let peers = vec![peer("target", &format!("https://localhost:{}", at.port()))];
        let token_file = Some(token(&dir, "right"));
        let timeout = Duration::from_secs(5);
        let options = MeshOptions { peers, token_file, ca_file, timeout, ..options() };
        Mesh::start(&options, None).unwrap()
    };
    let mesh = ask(Some(cert));
    assert!(mesh.wait_for("target", true).await);
    let delivery = mesh.broadcast(message(1, 0)).await.unwrap();
    assert!(delivery.is_settled(), "{delivery:?}");
    // Another's certificate is not trusted.
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let wrong = dir.path().join("other.pem");
    std::fs::write(&wrong, other.cert.pem()).unwrap();
    let mesh = ask(Some(wrong));
    let delivery = mesh.broadcast(message(1, 0)).await.unwrap();
    assert_eq!(delivery.waiting, ["target"]);
}

#[tokio::test]
async fn a_mesh_that_cannot_be_is_refused() {
    for (peers, reason) in [
        (vec![peer("a", "http://127.0.0.1:1"), peer("a", "http://127.0.0.1:2")], "two peers"),
        (vec![peer("", "http://127.0.0.1:1")], "no name"),
        (vec![peer("a", "ftp://127.0.0.1:1")], "http:// or https://"),
        (vec![peer("a", "127.0.0.1")], "peer address"),
        (vec![peer("a", "http://x:hunter2@127.0.0.1:1")], "a user"),
        (vec![peer("a", "not an address")], "peer address"),
    ] {
        let error = Mesh::start(&MeshOptions { peers, ..options() }, None).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(reason) && !text.contains("hunter2"), "{text}");
        assert!(!error.is_retryable());
    }
}
