//! The facts of the machine that stand beside every absolute figure.

use std::path::Path;

use serde::Serialize;

/// The machine.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Processors that this process may use.
    pub cores: usize,
    /// The processor's own name.
    pub cpu: String,
    /// All memory.
    pub memory_mib: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The file system of the measured directory.
    pub file_system: String,
}

impl Machine {
    /// Looks at the machine; what cannot be found out is said to be unknown.
    pub fn look(data: &Path) -> Self {
        let unknown = || "unknown".to_owned();
        let memory_kib: u64 = field("/proc/meminfo", "MemTotal")
            .and_then(|value| value.trim_end_matches(" kB").parse().ok())
            .unwrap_or(0);
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(unknown),
            memory_mib: memory_kib / 1024,
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            file_system: file_system(data).unwrap_or_else(unknown),
        }
    }

    /// One line for a reader.
    pub fn line(&self) -> String {
        format!(
            "{} cores ({}), {} MiB memory, Linux {}, {}",
            self.cores, self.cpu, self.memory_mib, self.kernel, self.file_system
        )
    }
}

/// The first `key : value` line of a file with that key.
fn field(file: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}

/// The type of the file system whose mount point is the longest prefix of the path.
fn file_system(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts
        .lines()
        .filter_map(|line| {
            let (mount, kind) = line.split_once(" - ")?;
            Some((Path::new(mount.split(' ').nth(4)?), kind.split(' ').next()?))
        })
        .filter(|(mount, _)| path.starts_with(mount))
        .max_by_key(|(mount, _)| mount.components().count())
        .map(|(_, kind)| kind.to_owned())
}
