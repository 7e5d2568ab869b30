//! A bucket that fails as it is told to.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use secateur_archive::{Credentials, Retry, S3Settings};
use secateur_utxo::ExternalFiles;
use tokio::sync::watch;

/// A bucket that has the file of every transaction, and removes only what it is not told to keep.
#[derive(Debug, Default)]
pub struct Bucket {
    /// Parts of names whose removal fails; an empty one is part of every name.
    pub stuck: Mutex<Vec<String>>,
    /// Whether removals are not answered at all.
    pub is_silent: AtomicBool,
    /// Removals that were asked for.
    pub asked: AtomicUsize,
    /// After so many of them a run is told to stop.
    pub stops: Mutex<Option<(usize, watch::Sender<bool>)>>,
    mark: Mutex<Option<Vec<u8>>>,
}

impl Bucket {
    fn serve(self: &Arc<Self>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let bucket = Arc::clone(self);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let bucket = Arc::clone(&bucket);
                std::thread::spawn(move || bucket.answer(stream));
            }
        });
        format!("http://{address}")
    }

    fn answer(&self, mut stream: TcpStream) -> Option<()> {
        let mut input = BufReader::new(stream.try_clone().ok()?);
        loop {
            let (mut request, mut length) = (String::new(), 0);
            input.read_line(&mut request).ok().filter(|read| *read > 0)?;
            loop {
                let mut line = String::new();
                input.read_line(&mut line).ok()?;
                if let Some(number) = line.to_lowercase().strip_prefix("content-length:") {
                    length = number.trim().parse().ok()?;
                }
                if line == "\r\n" {
                    break;
                }
            }
            let mut body = vec![0; length];
            input.read_exact(&mut body).ok()?;
            let (status, length, content) = self.done(request.split(' ').next()?, body)?;
            write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\netag: \"e\"\r\n\
                 last-modified: Mon, 16 Nov 2026 00:00:00 GMT\r\n\r\n"
            )
            .ok()?;
            stream.write_all(&content).ok()?;
        }
    }

    /// The answer to a request: its status, the length that it tells, and its bytes.
    fn done(&self, verb: &str, body: Vec<u8>) -> Option<(&'static str, usize, Vec<u8>)> {
        let whole = |status, content: Vec<u8>| Some((status, content.len(), content));
        match verb {
            "HEAD" => Some(("200 OK", 5, Vec::new())),
            "PUT" => {
                *self.mark.lock() = Some(body);
                whole("200 OK", Vec::new())
            }
            "GET" => match self.mark.lock().clone() {
                Some(mark) => whole("200 OK", mark),
                None => whole("404 Not Found", Vec::new()),
            },
            _ => {
                let asked = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
                if let Some((_, stop)) = self.stops.lock().as_ref().filter(|(at, _)| *at == asked) {
                    stop.send_replace(true);
                }
                while self.is_silent.load(Ordering::Relaxed) {
                    std::thread::park();
                }
                let body = String::from_utf8(body).ok()?;
                let key = body.split("<Key>").nth(1)?.split('<').next()?;
                if self.stuck.lock().iter().any(|stuck| key.contains(stuck)) {
                    return whole("503 Slow Down", Vec::new());
                }
                let done =
                    format!("<DeleteResult><Deleted><Key>{key}</Key></Deleted></DeleteResult>");
                whole("200 OK", done.into_bytes())
            }
        }
    }

    pub fn files(self: &Arc<Self>) -> ExternalFiles {
        let dir = tempfile::tempdir().unwrap();
        let credentials = dir.path().join("credentials");
        let keys = "[default]\naws_access_key_id = a\naws_secret_access_key = b\n";
        std::fs::write(&credentials, keys).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&credentials, mode).unwrap();
        let s3 = S3Settings {
            endpoint: Some(self.serve()),
            credentials: Credentials::File(credentials),
            allow_http: true,
            ..S3Settings::default()
        };
        let pause = Duration::from_millis(1);
        let request_timeout = Duration::from_secs(5);
        let retry = Retry { attempts: 2, first_pause: pause, max_pause: pause, request_timeout };
        let place = secateur_archive::Settings { s3, retry };
        ExternalFiles::open(&"s3://bucket/txs".parse().unwrap(), &place).unwrap()
    }
}
