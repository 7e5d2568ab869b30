//! Connections that are encrypted, with a password: who is believed, and what is told.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use secateur_sql::postgres::{Address, Postgres, PostgresOptions};

use crate::fixture::{Server, Stop};
use crate::postgres::STORE;

/// A key, and a certificate for `localhost`.
fn certificate(directory: &Path) -> (String, String) {
    let (key, certificate) = (directory.join("key.pem"), directory.join("certificate.pem"));
    let made = Command::new("openssl")
        .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes".split(' '))
        .args("-days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost".split(' '))
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (std::fs::read_to_string(key).unwrap(), std::fs::read_to_string(certificate).unwrap())
}

async fn open(url: &str) -> Result<Postgres, String> {
    let address = Address::parse(url).unwrap();
    Postgres::open(&address, PostgresOptions::default(), &STORE).await.map_err(|error| {
        assert!(!error.is_retryable(), "{error}");
        error.to_string()
    })
}

#[tokio::test]
async fn an_encrypted_connection_checks_the_server_and_a_wrong_password_is_not_told() {
    let directory = tempfile::tempdir().unwrap();
    let (key, certificate) = certificate(directory.path());
    let mut server = Server::start();
    server.execute("postgres", &["alter role secateur password 's3cret'"]);
    server.stop(Stop::Fast);
    server.write("key.pem", &key);
    server.write("certificate.pem", &certificate);
    // Without encryption, or without a password, nobody is let in.
    server.write("pg_hba.conf", "hostssl all all 127.0.0.1/32 scram-sha-256\n");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let files = ["ssl=on", "ssl_cert_file=certificate.pem", "ssl_key_file=key.pem"];
    server.set(&files);
    server.set(&["listen_addresses=127.0.0.1", &format!("port={port}")]);
    server.run();

    let roots = directory.path().join("certificate.pem");
    let url = |host: &str, password: &str, mode: &str| {
        let roots = roots.display();
        format!("postgres://secateur:{password}@{host}:{port}/postgres?{mode}&sslrootcert={roots}")
    };
    let store = open(&url("localhost", "s3cret", "sslmode=verify-full")).await.unwrap();
    assert_eq!(format!("{store:?}").matches("s3cret").count(), 0);
    let client = store.client().await.unwrap();
    let encrypted = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
    assert!(client.query_one(encrypted, &[]).await.unwrap().get::<_, bool>(0));

    let error = open(&url("localhost", "wr0ng", "sslmode=verify-full")).await.unwrap_err();
    assert!(error.contains("password authentication failed"), "{error}");
    assert!(!error.contains("wr0ng"), "{error}");
    let error = open(&url("127.0.0.1", "s3cret", "sslmode=verify-full")).await.unwrap_err();
    assert!(error.contains("certificate"), "the name is another: {error}");
    let system =
        url("localhost", "s3cret", "sslmode=verify-full").replace("sslrootcert", "sslnone");
    let system = system.split("&sslnone").next().unwrap().to_owned();
    let error = open(&system).await.unwrap_err();
    assert!(error.contains("certificate"), "nobody vouches for it: {error}");
    let error = open(&url("localhost", "s3cret", "sslmode=disable")).await.unwrap_err();
    assert!(error.contains("no encryption"), "{error}");
}
