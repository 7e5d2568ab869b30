//! Where a PostgreSQL database is: its URL taken apart, the password found, and the rule when a
//! connection must be encrypted. A password is never shown; [`Address`] prints itself without it.

use std::fmt;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::SqlError;

/// A password file beyond this is none.
const MAX_PASSWORD_FILE: u64 = 1 << 20;

/// Where a database is, and how it is reached.
#[derive(Clone)]
pub struct Address {
    pub(super) config: Config,
    /// Certificates to believe instead of the system's.
    pub(super) roots: Option<PathBuf>,
    shown: String,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

fn unusable(why: impl fmt::Display) -> SqlError {
    SqlError::lasting(format!("the address of the PostgreSQL database is not usable: {why}"))
}

/// Undoes `%41`; anything else is itself.
fn decoded(text: &str) -> Result<String, SqlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(unusable("a % is not followed by two digits"));
        };
        bytes.push(u8::try_from(high * 16 + low).unwrap_or_default());
    }
    String::from_utf8(bytes).map_err(|_| unusable("it is not UTF-8"))
}

/// The parameters that are not tokio-postgres's, and the rest of the URL.
#[derive(Default)]
struct Own {
    mode: Option<SslMode>,
    roots: Option<PathBuf>,
    password_file: Option<PathBuf>,
}

fn split(url: &str) -> Result<(String, Own), SqlError> {
    let mut own = Own::default();
    let Some((base, query)) = url.split_once('?') else { return Ok((url.to_owned(), own)) };
    let mut others = Vec::new();
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "sslmode" => {
                own.mode = Some(match value {
                    "disable" => SslMode::Disable,
                    // A certificate is always checked in full: there is no weaker kind here.
                    "require" | "verify-ca" | "verify-full" => SslMode::Require,
                    _ => return Err(unusable("sslmode is `disable` or `verify-full`")),
                });
            }
            "sslrootcert" => own.roots = Some(decoded(value)?.into()),
            "passfile" => own.password_file = Some(decoded(value)?.into()),
            _ => others.push(pair),
        }
    }
    let url = if others.is_empty() { base.into() } else { format!("{base}?{}", others.join("&")) };
    Ok((url, own))
}

/// Whether nobody else hears what goes there.
fn is_local(config: &Config) -> bool {
    let loopback = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|at: IpAddr| at.is_loopback())
        }
    };
    let addresses = config.get_hostaddrs();
    if addresses.is_empty() {
        config.get_hosts().iter().all(loopback)
    } else {
        addresses.iter().all(IpAddr::is_loopback)
    }
}

/// How the address is shown: everything but the password.
fn shown(config: &Config) -> String {
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        })
        .collect();
    let ports: Vec<String> = config.get_ports().iter().map(ToString::to_string).collect();
    let colon = if ports.is_empty() { "" } else { ":" };
    format!(
        "postgres://{}@{}{colon}{}/{}",
        config.get_user().unwrap_or_default(),
        hosts.join(","),
        ports.join(","),
        config.get_dbname().unwrap_or_default()
    )
}

/// Fields of a line of a password file: `\:` and `\\` stand for themselves.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut signs = line.chars();
    while let Some(sign) = signs.next() {
        match sign {
            ':' if fields.len() < 5 => fields.push(String::new()),
            '\\' => fields.last_mut().into_iter().for_each(|field| field.extend(signs.next())),
            _ => fields.last_mut().into_iter().for_each(|field| field.push(sign)),
        }
    }
    fields
}

/// The password of a line that fits, as `host:port:database:user:password`; `*` fits all.
fn password_in(text: &str, config: &Config) -> Option<String> {
    let host = match config.get_hosts().first()? {
        Host::Tcp(name) => name.clone(),
        Host::Unix(_) => "localhost".into(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
    let user = config.get_user().unwrap_or_default();
    let database = config.get_dbname().unwrap_or(user);
    let wanted = [host.as_str(), &port, database, user];
    text.lines().filter(|line| !line.starts_with('#')).map(fields).find_map(|line| {
        let [known @ .., password] = line.as_slice() else { return None };
        let fits = known.len() == wanted.len()
            && known.iter().zip(wanted).all(|(known, wanted)| known == "*" || known == wanted);
        fits.then(|| password.clone())
    })
}

fn password_file(path: &Path) -> Result<String, SqlError> {
    let failed = |why: String| unusable(format!("password file {}: {why}", path.display()));
    let about = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?;
    if about.permissions().mode() & 0o077 != 0 {
        return Err(failed("others can read it; run `chmod 600` on it".into()));
    }
    if about.len() > MAX_PASSWORD_FILE {
        return Err(failed("it is too large".into()));
    }
    std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))
}

impl Address {
    /// Takes a `postgres://` URL apart.
    ///
    /// The password is the URL's, else `PGPASSWORD`, else the line that fits in the file of
    /// `passfile=` or `PGPASSFILE`. Beyond this machine the connection is encrypted and the server's
    /// certificate is checked, against `sslrootcert=` or the system's; only `sslmode=disable` says
    /// otherwise.
    pub fn parse(url: &str) -> Result<Self, SqlError> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(unusable("it does not begin with postgres://"));
        }
        let (url, own) = split(url)?;
        let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            let why = std::error::Error::source(&error).map(ToString::to_string);
            unusable(why.unwrap_or_else(|| error.to_string()))
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(unusable("it names no host"));
        }
        if config.get_user().is_none() {
            return Err(unusable("it names no user: postgres://user@host/database"));
        }
        let mode = if is_local(&config) { SslMode::Disable } else { SslMode::Require };
        config.ssl_mode(own.mode.unwrap_or(mode));
        if config.get_application_name().is_none() {
            config.application_name("secateur");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(10));
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(Duration::from_mins(1));
        }
        config.keepalives_idle(Duration::from_secs(30));
        let mut address = Self { shown: shown(&config), config, roots: own.roots };
        address.find_password(own.password_file)?;
        Ok(address)
    }

    fn find_password(&mut self, file: Option<PathBuf>) -> Result<(), SqlError> {
        if self.config.get_password().is_some() {
            return Ok(());
        }
        if let Some(password) = std::env::var("PGPASSWORD").ok().filter(|text| !text.is_empty()) {
            self.config.password(password);
            return Ok(());
        }
        let file = file.or_else(|| std::env::var_os("PGPASSFILE").map(PathBuf::from));
        if let Some(path) = file
            && let Some(password) = password_in(&password_file(&path)?, &self.config)
        {
            self.config.password(password);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(url: &str) -> SslMode {
        Address::parse(url).unwrap().config.get_ssl_mode()
    }

    #[test]
    fn a_password_is_used_and_never_shown() {
        let address = Address::parse("postgres://u:s3cret%40x@db.example:6000/index").unwrap();
        assert_eq!(address.config.get_password(), Some(b"s3cret@x".as_slice()));
        assert_eq!(format!("{address} {address:?}").matches("s3cret").count(), 0);
        assert_eq!(address.to_string(), "postgres://u@db.example:6000/index");
        for wrong in ["postgres://u:s3cret@h/d?sslmode=maybe", "postgres://u:s3cret@h:x/d", "x"] {
            let error = Address::parse(wrong).unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_connection_to_another_machine_is_encrypted_unless_it_is_told_otherwise() {
        assert_eq!(mode("postgres://u@%2Frun%2Fpg/d"), SslMode::Disable);
        assert_eq!(mode("postgres://u@127.0.0.1/d"), SslMode::Disable);
        assert_eq!(mode("postgres://u@localhost/d?sslmode=verify-full"), SslMode::Require);
        assert_eq!(mode("postgres://u@db.example/d"), SslMode::Require);
        assert_eq!(mode("postgres://u@localhost,db.example/d"), SslMode::Require);
        assert_eq!(mode("postgres://u@db.example/d?sslmode=disable"), SslMode::Disable);
    }

    #[test]
    fn a_password_file_is_read_as_documented_and_only_if_it_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pass");
        let text = "# one\nother:*:*:*:no\ndb.example:5432:index:u:a\\:b\\\\c\n*:*:*:*:last\n";
        std::fs::write(&path, text).unwrap();
        let url = format!("postgres://u@db.example/index?passfile={}", path.display());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Address::parse(&url).unwrap_err().to_string().contains("chmod 600"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let address = Address::parse(&url).unwrap();
        assert_eq!(address.config.get_password(), Some(b"a:b\\c".as_slice()));
        let other = Address::parse(&url.replace("/index", "/x")).unwrap();
        assert_eq!(other.config.get_password(), Some(b"last".as_slice()));
    }
}
