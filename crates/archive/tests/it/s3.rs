//! A real S3 server on a loopback port, with a fault injector between its socket and its service.

use std::convert::Infallible;
use std::fs;
use std::future::pending;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use hyper::service::{Service, service_fn};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpResponse};
use s3s_fs::FileSystem;
use secateur_archive::{Archive, ArchiveUrl, Credentials, Retry, S3Settings, Settings};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It reaches nobody and is never answered.
    HangBefore,
    /// It is done, but never answered.
    HangAfter,
    /// It reaches nobody and is answered with this status.
    Answer(u16),
    /// It is done, but answered with this status.
    AnswerAfter(u16),
    /// It is done, and one byte of the answer's body is another one.
    Corrupt,
}

type Plan = Box<dyn FnMut(&Method, &str) -> Option<Fault> + Send>;

/// A bucket and what goes wrong with it.
pub struct Bucket {
    pub endpoint: String,
    pub dir: TempDir,
    plan: Arc<Mutex<Plan>>,
    /// Told when a request begins to hang.
    pub hanging: Arc<Notify>,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Bucket {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Bucket {
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("data/history")).unwrap();
        let file = dir.path().join("credentials");
        fs::write(&file, "aws_access_key_id = tester\naws_secret_access_key = secret\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let mut service = S3ServiceBuilder::new(FileSystem::new(dir.path().join("data")).unwrap());
        service.set_auth(SimpleAuth::from_single("tester", "secret"));
        let service = service.build();
        let plan: Arc<Mutex<Plan>> = Arc::new(Mutex::new(Box::new(|_, _| None)));
        let hanging = Arc::new(Notify::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(serve(listener, service, Arc::clone(&plan), hanging.clone()));
        Self { endpoint, dir, plan, hanging, server }
    }

    pub fn plan(&self, plan: impl FnMut(&Method, &str) -> Option<Fault> + Send + 'static) {
        *self.plan.lock().unwrap() = Box::new(plan);
    }

    /// The `n`th request from now on (counted from 1) has a fault; told is whether it came.
    pub fn fault_at(&self, n: u64, fault: Fault) -> Arc<Mutex<Option<String>>> {
        let hit = Arc::new(Mutex::new(None));
        let (mut count, told) = (0, Arc::clone(&hit));
        self.plan(move |method, path| {
            count += 1;
            (count == n).then(|| {
                *told.lock().unwrap() = Some(format!("{method} {path}"));
                fault
            })
        });
        hit
    }

    pub fn healthy(&self) {
        self.plan(|_, _| None);
    }

    pub fn settings(&self, retry: Retry) -> Settings {
        let s3 = S3Settings {
            endpoint: Some(self.endpoint.clone()),
            region: Some("garage".to_owned()),
            allow_http: false,
            credentials: Credentials::File(self.dir.path().join("credentials")),
        };
        Settings { s3, retry }
    }

    pub fn archive(&self, retry: Retry) -> Archive {
        let url: ArchiveUrl = "s3://history/chains/test".parse().unwrap();
        Archive::open(&url, &self.settings(retry)).unwrap()
    }
}

async fn serve(
    listener: TcpListener,
    service: S3Service,
    plan: Arc<Mutex<Plan>>,
    hanging: Arc<Notify>,
) {
    loop {
        let Ok((socket, _)) = listener.accept().await else { return };
        // Small answers must not wait for the client's acknowledgement.
        socket.set_nodelay(true).unwrap();
        let (service, plan, hanging) = (service.clone(), Arc::clone(&plan), Arc::clone(&hanging));
        let answer = service_fn(move |request: Request<hyper::body::Incoming>| {
            let fault = (plan.lock().unwrap())(request.method(), request.uri().path());
            let (service, hanging) = (service.clone(), Arc::clone(&hanging));
            async move { Ok::<_, Infallible>(with_fault(service, request, fault, &hanging).await) }
        });
        tokio::spawn(async move {
            // A connection that the client gives up is no news.
            drop(
                Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(socket), answer)
                    .await,
            );
        });
    }
}

async fn with_fault(
    service: S3Service,
    request: Request<hyper::body::Incoming>,
    fault: Option<Fault>,
    hanging: &Notify,
) -> HttpResponse {
    let plain = |status: u16| {
        let mut response = Response::new(Body::from(String::new()));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response
    };
    match fault {
        Some(Fault::HangBefore) => {
            hanging.notify_one();
            return pending().await;
        }
        Some(Fault::Answer(status)) => return plain(status),
        _ => {}
    }
    let Ok(mut response) = Service::call(&service, request).await else { return plain(500) };
    match fault {
        Some(Fault::HangAfter) => {
            hanging.notify_one();
            pending().await
        }
        Some(Fault::AnswerAfter(status)) => plain(status),
        Some(Fault::Corrupt) if response.status().is_success() => {
            let body = response.body_mut().store_all_limited(1 << 30).await.unwrap();
            let mut bytes = body.to_vec();
            let middle = bytes.len() / 2;
            if let Some(byte) = bytes.get_mut(middle) {
                *byte ^= 0x10;
            }
            response.map(|_| Body::from(bytes))
        }
        _ => response,
    }
}
