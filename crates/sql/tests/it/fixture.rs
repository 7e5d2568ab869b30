//! A real PostgreSQL server for tests, in a temporary directory, reached over a Unix socket.
//!
//! It refuses to run as root, so root's tests give it to another user. It never outlives its test:
//! a small shell stands between the two and holds one end of a pipe. When the test ends, in whatever
//! way, the pipe closes, and the shell ends the server and removes its directory.
//!
//! It knows nothing of any crate, so that other crates' tests can take it by its path.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// The role that the server is made with.
pub const ROLE: &str = "secateur";
/// How long a start or a stop may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// Keeps the server as long as its input is open. A word on it stops the server and leaves the files.
const KEEPER: &str = r#"
"$@" </dev/null &
pid=$!
if read -r signal; then
  kill -s "$signal" "$pid"
  wait "$pid"
else
  kill -s QUIT "$pid"
  wait "$pid"
  rm -rf "$HOME"
fi
"#;

/// How a server is stopped.
#[derive(Debug, Clone, Copy)]
pub enum Stop {
    /// Connections are broken off, the server writes everything down: what a restart does.
    Fast,
    /// The server falls over and has to recover when it starts again.
    Crash,
}

/// A server with its directory.
#[derive(Debug)]
pub struct Server {
    directory: PathBuf,
    settings: Vec<String>,
    running: Option<(Child, ChildStdin)>,
}

/// Where PostgreSQL's programs are: the newest that is installed.
fn programs() -> PathBuf {
    if let Some(named) = std::env::var_os("SECATEUR_TEST_POSTGRES") {
        return named.into();
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions
        .filter_map(|entry| Some((number(&entry.path())?, entry.path().join("bin"))))
        .filter(|(_, bin)| bin.join("initdb").is_file())
        .max();
    let (_, bin) = newest.expect(
        "there is no PostgreSQL server in /usr/lib/postgresql: run `make prepare` \
         (on Debian: apt-get install postgresql), or name its bin directory in \
         SECATEUR_TEST_POSTGRES",
    );
    bin
}

/// Whom the server runs as when the tests run as root.
fn other_user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let ids = |name: &str| {
        let mut fields = users.lines().find(|line| line.starts_with(name))?.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    Some(ids("postgres:").or_else(|| ids("nobody:")).expect("a user other than root"))
}

/// A command that runs as that user, and finds its directory in `HOME`.
fn command(program: &Path, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("HOME", directory).env("PATH", "/usr/bin:/bin").current_dir("/");
    if let Some((user, group)) = other_user() {
        command.uid(user).gid(group);
    }
    command
}

impl Server {
    /// Starts a server that keeps nothing safe from a power cut, which makes it fast.
    pub fn start() -> Self {
        Self::with(&["fsync=off", "synchronous_commit=off", "full_page_writes=off"])
    }

    /// Starts a server with further settings, each `name=value`.
    pub fn with(settings: &[&str]) -> Self {
        let directory = tempfile::Builder::new().prefix("secateur-pg-").tempdir().unwrap();
        let open = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(directory.path(), open).unwrap();
        if let Some((user, group)) = other_user() {
            chown(directory.path(), Some(user), Some(group)).unwrap();
        }
        let made = command(&programs().join("initdb"), directory.path())
            .arg("-D")
            .arg(directory.path().join("data"))
            .args(["-U", ROLE, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let settings = settings.iter().map(ToString::to_string).collect();
        let mut server = Self { directory: directory.keep(), settings, running: None };
        server.run();
        server
    }

    /// Starts it again after a stop.
    pub fn run(&mut self) {
        assert!(self.running.is_none(), "it runs already");
        let mut words = command(Path::new("/bin/sh"), &self.directory);
        words.args(["-c", KEEPER, "keeper"]).arg(programs().join("postgres"));
        words.arg("-D").arg(self.data()).arg("-k").arg(&self.directory);
        if !self.settings.iter().any(|setting| setting.starts_with("listen_addresses")) {
            words.args(["-c", "listen_addresses="]);
        }
        for setting in &self.settings {
            words.arg("-c").arg(setting);
        }
        // A group of its own: a runner that ends the test's group must not end the keeper.
        words.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = words.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap()).lines();
        self.running = Some((child, input));
        await_ready(said);
    }

    /// Stops it; its files stay.
    pub fn stop(&mut self, how: Stop) {
        let (mut child, mut input) = self.running.take().expect("it runs");
        let signal: &[u8] = match how {
            Stop::Fast => b"INT\n",
            Stop::Crash => b"QUIT\n",
        };
        input.write_all(signal).unwrap();
        child.wait().unwrap();
    }

    /// Adds settings for the next start.
    pub fn set(&mut self, settings: &[&str]) {
        self.settings.extend(settings.iter().map(ToString::to_string));
    }

    /// Writes a file among its data, for its eyes only.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.data().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        if let Some((user, group)) = other_user() {
            chown(&path, Some(user), Some(group)).unwrap();
        }
    }

    /// The directory of its data, for tests that change its files.
    pub fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// The address of one of its databases.
    pub fn url(&self, database: &str) -> String {
        let mut host = String::new();
        for byte in self.directory.to_str().unwrap().bytes() {
            write!(host, "%{byte:02X}").unwrap();
        }
        format!("postgres://{ROLE}@{host}/{database}")
    }

    /// Runs statements in a database, one after another, each on its own.
    pub fn execute(&self, database: &str, statements: &[&str]) {
        let mut psql = command(&programs().join("psql"), &self.directory);
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", ROLE, "-d", database, "-h"]);
        psql.arg(&self.directory);
        for statement in statements {
            psql.arg("-c").arg(statement);
        }
        let done = psql.stdin(Stdio::null()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Runs a script in a database, as an operator does it.
    pub fn script(&self, database: &str, text: &str) {
        let mut psql = command(&programs().join("psql"), &self.directory);
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", ROLE, "-d", database, "-h"]);
        psql.arg(&self.directory).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = psql.stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Makes an empty database and gives back its address.
    pub fn database(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.execute("postgres", &[&format!("create database {name}")]);
        self.url(&name)
    }
}

/// Waits until the server takes connections, and keeps reading what it says.
fn await_ready(lines: impl Iterator<Item = std::io::Result<String>> + Send + 'static) {
    let (ready, answer) = mpsc::channel();
    std::thread::spawn(move || {
        let mut ready = Some(ready);
        let mut said = String::new();
        for line in lines.map_while(Result::ok) {
            if line.contains("database system is ready to accept connections") {
                if let Some(ready) = ready.take() {
                    ready.send(Ok(())).unwrap_or_default();
                }
            } else if ready.is_some() {
                said.push_str(&line);
                said.push('\n');
            }
        }
        if let Some(ready) = ready {
            ready.send(Err(said)).unwrap_or_default();
        }
    });
    match answer.recv_timeout(PATIENCE) {
        Ok(Ok(())) => {}
        Ok(Err(said)) => panic!("PostgreSQL does not start:\n{said}"),
        Err(error) => panic!("PostgreSQL is not ready after {PATIENCE:?}: {error}"),
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        match self.running.take() {
            Some((mut child, input)) => {
                drop(input);
                child.wait().map(drop).unwrap_or_default();
            }
            None => std::fs::remove_dir_all(&self.directory).unwrap_or_default(),
        }
    }
}

/// The server that the tests of this process share.
pub fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::start)
}

/// The address of a fresh database on the shared server.
pub fn database() -> String {
    shared().database()
}
