//! Who is let in, how much of it, how slowly, and what happens at the end.

use std::fs;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::tempdir;

use crate::http_client::{PATIENCE, Reply, connect, get, request, send, start_with};
use crate::node::Node;
use crate::tool::run;

pub const READ: &str = "1111111111111111111111111111111111111111111111111111111111111111";
pub const ADMIN: &str = "2222222222222222222222222222222222222222222222222222222222222222";
const JSON: &str = "content-type: application/json";
const NOTE: &[u8] = br#"{"jsonrpc":"2.0","method":"eth_chainId"}"#;

pub fn private(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Whether the other side ended the connection, and after how long.
fn cut_off(mut stream: TcpStream) -> Duration {
    let begun = Instant::now();
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    begun.elapsed()
}

#[test]
fn with_tokens_nobody_reads_without_one() {
    let place = tempdir().unwrap();
    let (read, admin) = (place.path().join("read"), place.path().join("admin"));
    private(&read, READ);
    private(&admin, ADMIN);
    let config = format!(
        "[auth]\nread_tokens = \"{}\"\nadmin_tokens = \"{}\"\n",
        read.display(),
        admin.display()
    );
    let node = start_with(&place.path().join("data"), &config);
    let ask = |path: &str, header: &str| send(&node.http, &format!("GET {path}"), &[header], b"");
    for path in ["/v1/status", "/metrics", "/openapi.json", "/v1/events", "/nothing"] {
        let reply = get(&node, path);
        assert!(reply.header("www-authenticate").unwrap().starts_with("Bearer"), "{reply:?}");
        reply.refuses(401, "unauthenticated");
        let wrong = format!("authorization: Bearer {}", "3".repeat(64));
        ask(path, &wrong).refuses(401, "unauthenticated");
    }
    send(&node.http, "POST /", &[JSON], NOTE).refuses(401, "unauthenticated");
    for path in ["/healthz", "/readyz"] {
        get(&node, path).is(200);
    }
    for token in [READ, ADMIN, &node.token] {
        ask("/v1/status", &format!("authorization: Bearer {token}")).is(200);
        ask("/nothing", &format!("authorization: bearer {token}")).refuses(404, "no_route");
    }
    // Whoever has a token may call the node by any name.
    let headers = [&*format!("authorization: Bearer {READ}"), "host: node.example"];
    send(&node.http, "GET /v1/status", &headers, b"").is(200);
    node.stop();
}

#[test]
fn without_tokens_a_foreign_name_is_refused() {
    let place = tempdir().unwrap();
    let node = Node::start(&place.path().join("data"), "");
    let ask = |host: &str| send(&node.http, "GET /v1/status", &[&format!("host: {host}")], b"");
    for ours in ["localhost", "localhost:7740", "127.0.0.1:1", "[::1]:7740", "192.168.1.4"] {
        ask(ours).is(200);
    }
    for foreign in ["evil.example", "evil.example:7740", "localhost.evil.example"] {
        let body = ask(foreign).refuses(421, "wrong_host");
        assert!(body["error"].as_str().unwrap().contains("localhost"), "{body}");
    }
    let absolute = send(&node.http, "GET http://evil.example/v1/status", &[], b"");
    absolute.refuses(421, "wrong_host");
    ask("").refuses(400, "bad_request");
    send(&node.http, "POST /", &[JSON, "host: evil.example"], NOTE).refuses(421, "wrong_host");
    node.stop();
}

#[test]
fn a_body_may_be_as_large_as_the_limit_says_and_no_larger() {
    let place = tempdir().unwrap();
    for (name, config, limit) in
        [("usual", "", 5 << 20), ("named", "[limits]\nbody_bytes = \"7MiB\"\n", 7 << 20)]
    {
        let node = start_with(&place.path().join(name), config);
        let mut padded = NOTE.to_vec();
        padded.resize(limit, b' ');
        send(&node.http, "POST /", &[JSON], &padded).is(204);
        let over = format!("content-length: {}", limit + 1);
        send(&node.http, "POST /", &[JSON, &over], b"").refuses(413, "too_large");
        node.stop();
    }
}

#[test]
fn requests_that_are_too_large_too_many_or_no_requests_are_refused() {
    let place = tempdir().unwrap();
    let config = "[limits]\nbody_bytes = \"10kB\"\nrequests_per_second = 20\n";
    let node = start_with(&place.path().join("data"), config);
    let ask = |headers: &[&str], body: &[u8]| send(&node.http, "POST /", headers, body);
    let mut padded = NOTE.to_vec();
    padded.resize(10_000, b' ');
    ask(&[JSON], &padded).is(204);
    // Told beforehand, and found out on the way.
    let body = ask(&[JSON, "content-length: 10001"], b"").refuses(413, "too_large");
    assert_eq!(body["limit"], 10_000);
    ask(&[JSON, "content-length: 99999999999999999999"], b"").is(400);
    let chunked = [b"2711\r\n".as_slice(), &[b' '; 10_001], b"\r\n0\r\n\r\n"].concat();
    let chunked_headers = [JSON, "transfer-encoding: chunked"];
    let mut stream = connect(&node.http);
    stream.write_all(&request(&node.http, "POST /", &chunked_headers, b"")).unwrap();
    stream.write_all(&chunked).unwrap();
    Reply::read(&mut stream).refuses(413, "too_large");

    for rubbish in ["\0\0\0\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n"] {
        let mut stream = connect(&node.http);
        stream.write_all(rubbish.as_bytes()).unwrap();
        assert_eq!(Reply::read(&mut stream).status, 400, "{rubbish:?}");
    }
    let long = format!("x-long: {}", "a".repeat(200_000));
    assert_eq!(send(&node.http, "GET /healthz", &[&long], b"").status, 431);
    let many: Vec<_> = (0..100).map(|n| format!("x-{n}: 1")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert_eq!(send(&node.http, "GET /healthz", &many, b"").status, 431);

    let refused = (0..200).map(|_| get(&node, "/v1/policy")).find(|reply| reply.status != 200);
    let refused = refused.expect("200 requests in no time are more than 20 a second");
    assert_eq!(refused.header("retry-after"), Some("1"));
    refused.refuses(429, "too_often");
    get(&node, "/healthz").is(200);
    node.stop();
}

#[test]
fn a_body_that_does_not_come_is_not_waited_for() {
    let place = tempdir().unwrap();
    let node = start_with(&place.path().join("data"), "[limits]\ntimeout_seconds = 1\n");
    let mut stream = connect(&node.http);
    let head = request(&node.http, "POST /", &[JSON, "content-length: 100"], b"");
    stream.write_all(&head).unwrap();
    stream.write_all(b"{").unwrap();
    Reply::read(&mut stream).refuses(408, "slow_body");
    node.stop();
}

#[test]
fn slow_headers_and_idle_connections_are_cut_off() {
    let place = tempdir().unwrap();
    let node = Node::start(&place.path().join("data"), "");
    // A connection that says nothing, and one that is kept alive and then says nothing.
    let silent = connect(&node.http);
    let mut idle = connect(&node.http);
    let keep = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", node.http);
    idle.write_all(keep.as_bytes()).unwrap();
    Reply::read(&mut idle).is(200);
    // One that never ends its headers, however many it sends.
    let mut dripping = connect(&node.http);
    dripping.write_all(b"GET /healthz HTTP/1.1\r\n").unwrap();
    let begun = Instant::now();
    let dripped = loop {
        // The client's own slowness is what is tested here.
        std::thread::sleep(Duration::from_millis(250));
        if dripping.write_all(b"x-slow: 1\r\n").is_err() {
            break begun.elapsed();
        }
        assert!(begun.elapsed() < PATIENCE, "the slow client was never cut off");
    };
    assert!(dripped > Duration::from_secs(5), "it was cut off at once: {dripped:?}");
    assert!(cut_off(silent) < Duration::from_secs(10));
    assert!(cut_off(idle) < Duration::from_secs(10));
    get(&node, "/healthz").is(200);
    node.stop();
}

#[test]
fn connections_and_listeners_are_bounded() {
    let place = tempdir().unwrap();
    let config = "[limits]\nconcurrency = 1\nwaiting = 3\n";
    let node = start_with(&place.path().join("data"), config);
    let listen = || {
        let mut stream = BufReader::new(connect(&node.http));
        let ask = request(&node.http, "GET /v1/events", &[], b"");
        stream.get_mut().write_all(&ask).unwrap();
        (Reply::head(&mut stream).status, stream)
    };
    let (first, _listener) = listen();
    assert_eq!(first, 200);
    get(&node, "/v1/events").refuses(503, "overloaded");
    // Four places: one listens, and those who say nothing take the others. (A place is given back
    // a moment after its answer, so the last one may be taken a little early or late.)
    let mut silent = Vec::new();
    let refused = loop {
        silent.push(connect(&node.http));
        assert!(silent.len() < 20, "there is no bound");
        let reply = get(&node, "/healthz");
        if reply.status != 200 {
            break reply;
        }
    };
    assert_eq!(refused.header("retry-after"), Some("1"));
    refused.refuses(503, "overloaded");
    drop(silent);
    // The place is free as soon as the node has noticed.
    let begun = Instant::now();
    while get(&node, "/healthz").status != 200 {
        assert!(begun.elapsed() < PATIENCE, "no place is given back");
    }
    node.stop();
}

/// A certificate for `localhost`, as files of a configuration and as a client that trusts it.
pub fn certificate(place: &Path) -> (String, Arc<ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (place.join("cert.pem"), place.join("key.pem"));
    fs::write(&cert, made.cert.pem()).unwrap();
    private(&key, &made.signing_key.serialize_pem());
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
    let config = format!("[tls]\ncert = \"{}\"\nkey = \"{}\"\n", cert.display(), key.display());
    (config, Arc::new(client))
}

#[test]
fn with_tls_everything_is_encrypted_and_stuck_handshakes_hold_nobody_up() {
    let place = tempdir().unwrap();
    let (config, client) = certificate(place.path());
    let node = start_with(&place.path().join("data"), &config);
    let stuck: Vec<_> = (0..20).map(|_| connect(&node.http)).collect();
    let ask = |path: &str| {
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(Arc::clone(&client), name).unwrap();
        let mut stream = StreamOwned::new(session, connect(&node.http));
        let ask = request(&node.http, &format!("GET {path}"), &["host: localhost"], b"");
        stream.write_all(&ask).unwrap();
        Reply::read(&mut stream)
    };
    let begun = Instant::now();
    ask("/healthz").is(200);
    ask("/v1/status").is(200);
    assert!(begun.elapsed() < Duration::from_secs(8), "others were waited for");
    // In the clear there is no answer that HTTP knows.
    let mut plain = connect(&node.http);
    plain.write_all(&request(&node.http, "GET /healthz", &[], b"")).unwrap();
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).unwrap_or_default();
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    // A client that trusts nobody does not get through either.
    let stranger = certificate(place.path()).1;
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(stranger, name).unwrap();
    let mut stream = StreamOwned::new(session, connect(&node.http));
    assert!(stream.write_all(b"GET / HTTP/1.1\r\n\r\n").is_err());
    drop(stuck);
    node.stop();
}

#[test]
fn a_certificate_that_cannot_be_used_is_refused_at_the_start() {
    let place = tempdir().unwrap();
    let (config, _) = certificate(place.path());
    let file = place.path().join("node.toml");
    fs::write(&file, config).unwrap();
    let key = place.path().join("key.pem");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let data = place.path().join("data");
    let words = format!("node --http 127.0.0.1:0 --grpc 127.0.0.1:0 --config {}", file.display());
    run(&data, &words).ends(2).complains("chmod 600");
    private(&key, "not a key");
    run(&data, &words).ends(2).complains("tls.key");
    assert!(!data.join("node.json").exists());
}

#[test]
fn at_the_end_requests_under_way_are_answered_and_listeners_let_go() {
    let place = tempdir().unwrap();
    let node = Node::start(&place.path().join("data"), "");
    let mut listener = connect(&node.http);
    listener.write_all(&request(&node.http, "GET /v1/events", &[], b"")).unwrap();
    let mut idle = connect(&node.http);
    let keep = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", node.http);
    idle.write_all(keep.as_bytes()).unwrap();
    Reply::read(&mut idle).is(200);
    let mut under_way = connect(&node.http);
    let length = format!("content-length: {}", NOTE.len());
    let head = request(&node.http, "POST /", &[JSON, &length, "expect: 100-continue"], b"");
    under_way.write_all(&head).unwrap();
    // The node has begun to read the body.
    let mut go_on = [0; 25];
    under_way.read_exact(&mut go_on).unwrap();
    assert!(go_on.starts_with(b"HTTP/1.1 100"));
    under_way.write_all(&NOTE[..10]).unwrap();

    node.process.signal("TERM");
    let begun = Instant::now();
    // It accepts nobody any more.
    while TcpStream::connect(&node.http).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "it goes on accepting");
    }
    under_way.write_all(&NOTE[10..]).unwrap();
    Reply::read(&mut under_way).is(204);
    let mut events = String::new();
    listener.read_to_string(&mut events).unwrap();
    assert!(events.ends_with("0\r\n\r\n"), "the stream of events ends whole: {events:?}");
    cut_off(idle);
    let (code, _) = node.process.end();
    assert_eq!(code, 0);
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}
