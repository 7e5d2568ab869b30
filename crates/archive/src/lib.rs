//! Raw history as immutable parts on object storage.
//!
//! What lives here: a part's bytes ([`PartWriter`], [`PartReader`]), its name ([`PartKey`]) and its
//! manifest; an [`Archive`] in a directory or a bucket with listing, fetching, reading back and
//! proving; and the [`Archiver`], which makes parts of a chain's blocks and lists each only after it
//! was read back. [`Objects`] lends the same way to an object storage to families that keep other
//! things than parts. What deliberately does not: where blocks come from, the table of parts and the
//! acknowledgement to a node; those are the worker's. Nothing here deletes an object.

mod archive;
mod archiver;
mod codec;
mod digest;
mod error;
mod grain;
mod key;
mod leftover;
mod listing;
mod manifest;
mod metrics;
mod objects;
mod part;
mod place;
mod refusal;
mod remote;
mod rivals;
mod settings;
mod stage;
mod tls;
mod url;
mod verify;

pub use archive::{Archive, ListedKey};
pub use archiver::{Archiver, ArchiverOptions};
pub use codec::{Check, Codec};
pub use digest::Digest;
pub use error::ArchiveError;
pub use grain::Grain;
pub use key::{Day, Kind, MAX_KEY_LEN, PartKey};
pub use manifest::{MAX_MANIFEST_LEN, Manifest, PART_VERSION};
pub use metrics::{Metrics, MetricsSnapshot};
pub use object_store;
pub use objects::{Fetched, Objects, Put};
pub use part::{
    FileRange, MAX_PART_RAW, ObjectRange, PartHeader, PartReader, PartScan, PartWriter, RangeRead,
    read_part,
};
pub use settings::{Credentials, Retry, S3Settings, Settings, check_endpoint, read_secret};
pub use tls::install_tls_provider;
pub use url::ArchiveUrl;
pub use verify::{Depth, Finding, Leftovers, Progress, VerifyOptions, VerifyReport};
