//! A real PostgreSQL server in a directory of its own, on a port of loopback.
//!
//! It refuses to run as root, so root gives it to another user. It keeps everything safe from a power
//! cut, as it comes: `fsync` and `synchronous_commit` are on, for everybody who is measured.

use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio_postgres::{Client, NoTls};

use super::{Kept, Start, told, until};

const ROLE: &str = "secateur";
/// More memory than it takes by default, fewer checkpoints in the middle of a measurement.
const SETTINGS: [&str; 5] = [
    "shared_buffers=512MB",
    "max_wal_size=4GB",
    "checkpoint_timeout=30min",
    "autovacuum=off",
    "jit=off",
];

/// A running server.
pub struct Postgres {
    port: u16,
    _process: Kept,
}

/// Where its programs are, if it is installed.
pub fn programs() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("BENCH_POSTGRES") {
        return Some(named.into());
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let found =
        versions.filter_map(|entry| Some((number(&entry.path())?, entry.path().join("bin"))));
    Some(found.filter(|(_, bin)| bin.join("initdb").is_file()).max()?.1)
}

/// Whom it runs as when we are root.
fn other_user() -> Result<Option<(u32, u32)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd")?;
    let ids = |name: &str| {
        let mut fields = users.lines().find(|line| line.starts_with(name))?.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    let found = ids("postgres:").or_else(|| ids("nobody:"));
    Ok(Some(found.context("there is no user that PostgreSQL could run as")?))
}

/// Removes what a server left, so that another one can begin.
pub fn clean() -> Result<()> {
    Ok(std::fs::remove_dir_all(told("BENCH_SCRATCH")?.join("postgres"))?)
}

impl Postgres {
    /// Makes a server in a new directory and starts it.
    pub async fn start() -> Result<Self> {
        let programs = programs().context("PostgreSQL is not installed (on Debian: postgresql)")?;
        // Not among our own data: its user may not be allowed to reach that.
        let directory = told("BENCH_SCRATCH")?.join("postgres");
        std::fs::create_dir(&directory)?;
        let user = other_user()?;
        let mut init = Command::new(programs.join("initdb"));
        if let Some((user, group)) = user {
            chown(&directory, Some(user), Some(group))?;
            init.uid(user).gid(group);
        }
        let (data, server) = (directory.join("data"), programs.join("postgres"));
        init.arg("-D").arg(&data).current_dir(&directory);
        init.args(["-U", ROLE, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
        let made = init.output().context("initdb")?;
        ensure!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        // Somebody else could take it in between; then the start fails and says so.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut start = Start::new(&directory, server).words(["-D".as_ref(), data.as_os_str()]);
        start = start.words(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1", "-k"]);
        start = start.words([directory.as_os_str()]);
        start = start.words(SETTINGS.iter().flat_map(|setting| ["-c", setting]));
        start.user = user;
        // It ends its own processes before it is gone.
        start.signal = "QUIT";
        start.complaints = Some(directory.with_extension("log"));
        let process = Kept::start(start)?;
        let postgres = Self { port, _process: process };
        let ready = || async { Ok(postgres.connect("postgres").await.is_ok()) };
        until(Duration::from_mins(1), "PostgreSQL takes connections", ready).await?;
        Ok(postgres)
    }

    /// The address of one of its databases.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{ROLE}@127.0.0.1:{}/{database}", self.port)
    }

    /// A connection.
    pub async fn connect(&self, database: &str) -> Result<Client> {
        let (client, connection) = tokio_postgres::connect(&self.url(database), NoTls).await?;
        // It ends with its client.
        tokio::spawn(connection);
        Ok(client)
    }

    /// An empty database of that name; one that was there is dropped.
    pub async fn fresh(&self, database: &str) -> Result<String> {
        let client = self.connect("postgres").await?;
        client.batch_execute(&format!("drop database if exists {database} with (force)")).await?;
        client.batch_execute(&format!("create database {database}")).await?;
        client.batch_execute("checkpoint").await?;
        Ok(self.url(database))
    }

    /// Its version.
    pub async fn version(&self) -> Result<String> {
        let client = self.connect("postgres").await?;
        Ok(client.query_one("show server_version", &[]).await?.try_get(0)?)
    }

    /// Its settings, in words.
    pub fn settings() -> String {
        SETTINGS.join(", ")
    }
}
