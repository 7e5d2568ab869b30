//! How families reach their SQL databases: a PostgreSQL server, or one SQLite file.
//!
//! What lives here: where a server is and how it is spoken to, connections and what each begins
//! with, files and who may read them, schemas and their versions, and what an error means to
//! whoever may try again. What deliberately does not: tables and statements. They are the
//! families', each its own, in the words of `tokio-postgres` and `rusqlite`.

mod error;
pub mod postgres;
pub mod sqlite;

pub use error::SqlError;
