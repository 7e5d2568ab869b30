//! An archive of a million names is listed page by page in bounded memory, and its ends are found
//! without listing it.

use std::convert::Infallible;
use std::fmt::Write;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::TryStreamExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::Body;
use secateur_archive::{Archive, ArchiveUrl, Day, Kind, PartKey, Settings};
use tokio::net::TcpListener;

use crate::chain::CHAIN;
use crate::s3::Bucket;

const PARTS: u64 = 500_000;
const PAGE: u64 = 1_000;

fn key(n: u64) -> String {
    let day = Day::from_number(19_000 + u32::try_from(n / 2 / 300).unwrap()).unwrap();
    let first = n / 2 * 10;
    let key = PartKey { chain_id: CHAIN, day, first, last: first + 9, digest8: [1, 2, 3, 4] };
    key.name(if n.is_multiple_of(2) { Kind::Manifest } else { Kind::Object })
}

/// One page of a bucket that holds no objects, only names.
fn page(request: &Request<Incoming>) -> String {
    let query = request.uri().query().unwrap_or_default();
    let token = query.split('&').find_map(|pair| pair.strip_prefix("continuation-token="));
    let start: u64 = token.map_or(0, |token| token.parse().unwrap());
    let end = (start + PAGE).min(2 * PARTS);
    let mut xml = format!(
        "<?xml version=\"1.0\"?><ListBucketResult><Name>b</Name><Prefix></Prefix>\
         <KeyCount>{}</KeyCount><MaxKeys>{PAGE}</MaxKeys><IsTruncated>{}</IsTruncated>",
        end - start,
        end < 2 * PARTS
    );
    if end < 2 * PARTS {
        write!(xml, "<NextContinuationToken>{end}</NextContinuationToken>").unwrap();
    }
    for n in start..end {
        write!(
            xml,
            "<Contents><Key>{}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
             <ETag>x</ETag><Size>7</Size><StorageClass>STANDARD</StorageClass></Contents>",
            key(n)
        )
        .unwrap();
    }
    xml + "</ListBucketResult>"
}

/// Bytes of memory that this process has.
fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}

#[tokio::test]
async fn a_million_names_are_listed_page_by_page_in_bounded_memory() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let answer = service_fn(|request: Request<Incoming>| async move {
                Ok::<_, Infallible>(Response::new(Body::from(page(&request))))
            });
            tokio::spawn(async move {
                drop(
                    Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(socket), answer)
                        .await,
                );
            });
        }
    });
    // Only the credentials are the bucket's.
    let bucket = Bucket::start().await;
    let mut settings: Settings = bucket.settings(secateur_archive::Retry::default());
    settings.s3.endpoint = Some(endpoint);
    let url: ArchiveUrl = "s3://bucket".parse().unwrap();
    let archive = Archive::open(&url, &settings).unwrap();
    let mut keys = std::pin::pin!(archive.keys(CHAIN, None));
    let (mut count, mut early, mut most) = (0u64, 0, 0);
    while let Some(listed) = keys.try_next().await.unwrap() {
        assert_eq!(listed.key.first, count / 2 * 10);
        count += 1;
        if count == 20_000 {
            early = resident();
        }
        if count.is_multiple_of(10_000) {
            most = most.max(resident());
        }
    }
    server.abort();
    assert_eq!(count, 2 * PARTS);
    let grown = most.saturating_sub(early);
    println!("after 20,000 names {early} bytes, at most {most} bytes, grown by {grown}");
    assert!(grown < 16 << 20, "memory grew by {grown} bytes over a million names");
}

#[tokio::test]
async fn the_ends_of_an_archive_are_found_in_few_requests_however_long_it_is() {
    const DAYS: u32 = 40;
    const PARTS: u64 = 60;
    let bucket = Bucket::start().await;
    let root = bucket.dir.path().join("data/history/chains/test");
    let name = |day: u32, part: u64, kind: Kind| {
        let first = 100 + (u64::from(day) * PARTS + part) * 10;
        let day = Day::from_number(19_000 + day).unwrap();
        let key = PartKey { chain_id: CHAIN, day, first, last: first + 9, digest8: [5; 4] };
        root.join(key.name(kind))
    };
    for day in 0..DAYS {
        fs::create_dir_all(name(day, 0, Kind::Object).parent().unwrap()).unwrap();
        for part in 0..PARTS {
            fs::write(name(day, part, Kind::Object), "x").unwrap();
            fs::write(name(day, part, Kind::Manifest), "x").unwrap();
        }
    }
    // One more that is uploaded, and not listed yet, under a day of its own.
    let upload = name(DAYS, 0, Kind::Object);
    fs::create_dir_all(upload.parent().unwrap()).unwrap();
    fs::write(&upload, "x").unwrap();
    let requests = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&requests);
    bucket.plan(move |_, _| {
        seen.fetch_add(1, Ordering::Relaxed);
        None
    });
    let archive = bucket.archive(crate::chain::quick());
    let wanted = Some((100, 100 + u64::from(DAYS) * PARTS * 10 - 1));
    assert_eq!(archive.ends(CHAIN).await.unwrap(), wanted);
    // The first names, the days, the day of the upload, and the last day that has a listed part.
    assert_eq!(requests.load(Ordering::Relaxed), 4);
    let directory = crate::chain::directory(&root);
    assert_eq!(directory.ends(CHAIN).await.unwrap(), wanted);
}
