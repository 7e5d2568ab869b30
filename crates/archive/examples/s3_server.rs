//! An S3 service on this machine, for `make e2e-s3` and for trying things out. It keeps no secret and is
//! no place for an archive.
//!
//! `cargo run -p secateur-archive --example s3_server [directory] [port]`
//!
//! Buckets are directories; there is one, `history`. Without a port it takes a free one. What to put
//! into the environment is printed, and then it serves until it is stopped.

use std::error::Error;
use std::path::PathBuf;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tokio::net::TcpListener;

const BUCKET: &str = "history";
const KEY: &str = "tester";
const SECRET: &str = "no-secret";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let root = args.next().map_or_else(|| PathBuf::from("target/s3"), PathBuf::from);
    let port = args.next().map_or(Ok(0), |text| text.parse::<u16>())?;
    std::fs::create_dir_all(root.join(BUCKET))?;
    let files = FileSystem::new(&root).map_err(|error| format!("{}: {error:?}", root.display()))?;
    let mut service = S3ServiceBuilder::new(files);
    service.set_auth(SimpleAuth::from_single(KEY, SECRET));
    let service = service.build();
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("export AWS_ENDPOINT_URL=http://{} AWS_REGION=here", listener.local_addr()?);
    println!("export AWS_ACCESS_KEY_ID={KEY} AWS_SECRET_ACCESS_KEY={SECRET}");
    println!("export S3_URL=s3://{BUCKET}/e2e");
    loop {
        let (socket, _) = listener.accept().await?;
        // Small answers must not wait for the client's acknowledgement.
        socket.set_nodelay(true)?;
        let service = service.clone();
        tokio::spawn(async move {
            let connection = Builder::new(TokioExecutor::new());
            // A connection that the client gives up is no news.
            drop(connection.serve_connection(TokioIo::new(socket), service).await);
        });
    }
}
