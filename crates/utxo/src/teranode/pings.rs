//! How often a connection is pinged, as the other side sees it.

use std::io;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::codegen::http::Uri;

use super::ChainOptions;

/// What a chain allows.
const LEAST: Duration = Duration::from_secs(30);
/// Frames of HTTP/2, and the flag that makes one of them an answer.
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const ACK: u8 = 1;

/// The other side of a connection: it answers settings and pings, and notes when pings came.
async fn answer(mut stream: DuplexStream, pings: mpsc::UnboundedSender<Instant>) -> io::Result<()> {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await?;
    stream.write_all(&[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]).await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload).await?;
        if flags & ACK != 0 || ![SETTINGS, PING].contains(&kind) {
            continue;
        }
        let mut reply = vec![0, 0, 0, kind, ACK, 0, 0, 0, 0];
        if kind == PING {
            pings.send(Instant::now()).unwrap();
            reply[2] = 8;
            reply.extend(payload);
        }
        stream.write_all(&reply).await?;
    }
}

/// It was every ten seconds: a chain of this shape ends such a connection as `too_many_pings`, over and over.
#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_pinged_no_more_often_than_a_chain_allows() {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (to, mut pings) = mpsc::unbounded_channel();
    let answering = tokio::spawn(answer(theirs, to));
    let mut ours = Some(TokioIo::new(ours));
    let connector = tower::service_fn(move |_: Uri| {
        let once = ours.take().ok_or_else(|| io::Error::other("it was connected to before"));
        std::future::ready(once)
    });
    let endpoint = ChainOptions::new("http://127.0.0.1:1").endpoint("chain").unwrap();
    let _channel = endpoint.connect_with_connector(connector).await.unwrap();
    let mut last = Instant::now();
    for _ in 0..10 {
        let ping = tokio::time::timeout(Duration::from_mins(5), pings.recv()).await;
        let ping = ping.expect("a connection that died would not be noticed").unwrap();
        assert!(ping - last >= LEAST, "{:?} after the one before", ping - last);
        last = ping;
    }
    answering.abort();
}
