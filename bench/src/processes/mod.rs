//! Real programs that take part: the node, anvil, PostgreSQL, Ponder. One file each; what they share
//! is [`Kept`], a process that never outlives the benchmark.

pub mod anvil;
pub mod node;
pub mod ponder;
pub mod postgres;
pub mod worker;

use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Ends the program when its own input ends, in whatever way that happens. The program's output ends
/// with the program.
const KEEPER: &str = r#"
"$@" </dev/null &
pid=$!
exec >&-
read -r _
kill -s "$KEEPER_SIGNAL" "$pid" 2>/dev/null
wait "$pid" 2>/dev/null
"#;

/// A program with what it needs to start.
pub struct Start<'a> {
    words: Vec<OsString>,
    /// Its further environment.
    pub environment: Vec<(&'a str, String)>,
    directory: &'a Path,
    /// Whom it runs as, if not as us.
    pub user: Option<(u32, u32)>,
    /// The signal that ends it.
    pub signal: &'static str,
    /// Where its complaints go; ours by default.
    pub complaints: Option<PathBuf>,
}

impl<'a> Start<'a> {
    /// A program in a directory, with our own environment.
    pub fn new(directory: &'a Path, program: impl AsRef<OsStr>) -> Self {
        let words = vec![program.as_ref().to_owned()];
        let (environment, user, complaints) = (Vec::new(), None, None);
        Self { words, environment, directory, user, signal: "KILL", complaints }
    }

    /// Further words.
    pub fn words<W: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.words.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }
}

/// A running program.
pub struct Kept {
    child: Child,
    input: Option<ChildStdin>,
    /// What it says, line by line.
    lines: Receiver<String>,
}

impl Kept {
    /// Starts a program.
    pub fn start(start: Start<'_>) -> Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", KEEPER, "keeper"]).args(&start.words).current_dir(start.directory);
        command.envs(start.environment).env("KEEPER_SIGNAL", start.signal);
        if let Some((user, group)) = start.user {
            command.uid(user).gid(group);
        }
        // A group of its own: an interrupt from the terminal must not end the keeper first.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(path) = &start.complaints {
            command.stderr(std::fs::File::create(path)?);
        }
        let name = start.words.first().map_or_else(String::new, |word| word.display().to_string());
        let mut child = command.spawn().with_context(|| format!("starting {name}"))?;
        let input = child.stdin.take();
        let out = child.stdout.take().with_context(|| format!("{name} says nothing"))?;
        let (say, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // Nobody may be interested any more; it must be read all the same.
                say.send(line).unwrap_or_default();
            }
        });
        Ok(Self { child, input, lines })
    }

    /// Waits for a line that has what is looked for.
    pub fn line<T>(&self, patience: Duration, find: impl Fn(&str) -> Option<T>) -> Result<T> {
        let until = Instant::now() + patience;
        let mut said = Vec::new();
        while let Ok(line) =
            self.lines.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            if let Some(found) = find(&line) {
                return Ok(found);
            }
            said.push(line);
        }
        bail!("it said only: {}", said.join(" | "))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // The keeper ends it when its input is gone.
        drop(self.input.take());
        self.child.wait().map(drop).unwrap_or_default();
    }
}

/// What `bench/run` says in an environment variable.
pub fn told(variable: &str) -> Result<PathBuf> {
    let value = std::env::var_os(variable).filter(|value| !value.is_empty());
    let value =
        value.with_context(|| format!("{variable} is not set; start it with `bench/run`"))?;
    Ok(value.into())
}

/// Polls until something is so.
pub async fn until<F>(patience: Duration, what: &str, mut look: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<bool>>,
{
    let end = Instant::now() + patience;
    while !look().await? {
        if Instant::now() > end {
            bail!("{what}: not so after {patience:?}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
