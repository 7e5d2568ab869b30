//! A PostgreSQL database: for users who outgrow one machine.
//!
//! What lives here: its [`Address`], the connections that a family's tasks share ([`Postgres`]), its
//! [`Schema`] brought up to date or compared, and what its errors mean ([`Told`]). Which pool keeps
//! the connections is known only here; what goes over them is `tokio-postgres`.

mod address;
mod failure;
mod migrate;
mod tls;

use std::sync::Arc;
use std::time::Duration;

pub use deadpool_postgres::{Client, GenericClient, Transaction};
use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use tokio_postgres::config::SslMode;

pub use address::Address;
pub use failure::Told;
pub use migrate::Schema;

use crate::SqlError;

/// How a database is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostgresOptions {
    /// Connections at most.
    pub connections: usize,
    /// How long one statement may take.
    pub statement_timeout: Duration,
    /// How long to wait for a connection.
    pub connection_timeout: Duration,
    /// Names and values, as SQL spells them, of further settings that every connection begins with.
    /// They are a program's own words, never a user's.
    pub settings: &'static [(&'static str, &'static str)],
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            connections: 8,
            statement_timeout: Duration::from_mins(2),
            connection_timeout: Duration::from_secs(30),
            settings: &[],
        }
    }
}

/// What every connection begins with. Times are limited so that nothing waits for ever.
fn greeting(options: PostgresOptions) -> String {
    let statement_timeout = options.statement_timeout.as_millis().to_string();
    let ours = [
        ("statement_timeout", statement_timeout.as_str()),
        ("lock_timeout", "'10s'"),
        ("idle_in_transaction_session_timeout", "'120s'"),
        ("timezone", "'UTC'"),
        ("client_min_messages", "warning"),
        ("default_transaction_isolation", "'read committed'"),
    ];
    let all = ours.iter().chain(options.settings);
    all.map(|(name, value)| format!("set {name} = {value}")).collect::<Vec<_>>().join("; ")
}

/// A database whose schema this program knows. Clones share its connections.
#[derive(Clone)]
pub struct Postgres {
    pool: Pool,
    shown: Arc<str>,
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Postgres").field(&self.shown).finish()
    }
}

impl Postgres {
    /// Opens a database to write to, and brings its schema up to date.
    pub async fn open(
        address: &Address,
        options: PostgresOptions,
        schema: &Schema,
    ) -> Result<Self, SqlError> {
        let database = Self::connect(address, options)?;
        schema.migrate(&mut database.client().await?).await?;
        Ok(database)
    }

    /// Opens a database that is up to date already, without changing anything: for readers.
    pub async fn open_existing(
        address: &Address,
        options: PostgresOptions,
        schema: &Schema,
    ) -> Result<Self, SqlError> {
        let database = Self::connect(address, options)?;
        schema.check(&database.client().await?).await?;
        Ok(database)
    }

    /// A connection; it goes back by itself.
    pub async fn client(&self) -> Result<Client, SqlError> {
        self.pool.get().await.map_err(|error| failure::no_connection(&self.shown, error))
    }

    fn connect(address: &Address, options: PostgresOptions) -> Result<Self, SqlError> {
        let encrypted = address.config.get_ssl_mode() != SslMode::Disable;
        let tls = tls::Tls::new(encrypted, address.roots.as_deref())?;
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(address.config.clone(), tls, recycling);
        let greeting: Arc<str> = greeting(options).into();
        let pool = Pool::builder(manager)
            .max_size(options.connections.max(1))
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(options.connection_timeout))
            .create_timeout(Some(options.connection_timeout))
            .recycle_timeout(Some(options.connection_timeout))
            .post_create(Hook::async_fn(move |client, _| {
                let greeting = Arc::clone(&greeting);
                Box::pin(async move {
                    client.batch_execute(&greeting).await.map_err(HookError::Backend)
                })
            }))
            .build()
            .map_err(|error| SqlError::lasting(format!("PostgreSQL: {error}")))?;
        Ok(Self { pool, shown: address.to_string().into() })
    }
}
