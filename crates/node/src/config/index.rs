//! `[index]`: what `secateur index` is told, as a job.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use alloy_primitives::{Address, B256};
use axum::http::Uri;
use secateur_archive::{ArchiveUrl, Grain};
use secateur_core::{CoreError, Strength, TimeUnit, check_consumer_name, parse_span};
use secateur_evm::Verify;
use secateur_index::LogFilter;
use secateur_index::codec::CodecName;
use secateur_index::postgres::Address as Postgres;
use secateur_index::source::{GrpcOptions, read_token};
use secateur_index::worker::OnPruned;

use super::archive::settings;
use super::canister;
use super::layers::Origin;
use super::{ArchivePlace, Layers, address, fits, number, plainly, positive, seconds, truth};
use crate::agreed::last_store_id;
use crate::cli::{FillFrom, IndexArgs};
use crate::data_dir::{DEFAULT_DATA, chain_of};
use crate::error::NodeError;
use crate::http::Origins;
use crate::indexer::{
    ArchiveJob, BlocksFrom, Directory, Job, Patience, RowsInto, check_local, no_password,
};
use crate::service::NodeFile;

/// Reads the layers of an index: file, environment, flags.
pub(crate) fn index_layers(args: &IndexArgs) -> Result<Layers, anyhow::Error> {
    let mut layers = super::load(args.config.as_deref())?;
    if let Some(sink) = &args.sink {
        no_password("sink", "index.sink", sink)?;
    }
    if args.archive.as_deref().is_some_and(str::is_empty) {
        // An unset variable, most likely: nothing would be archived, and nothing said.
        let told = "--archive is empty; name a directory or s3://bucket/prefix, or leave it out";
        return Err(NodeError::Usage(told.into()).into());
    }
    let many = |list: &[String]| (!list.is_empty()).then(|| list.join(","));
    layers.flag("index.source", "source", args.source.clone());
    layers.flag("index.sink", "sink", args.sink.clone());
    layers.flag("archive.url", "archive", args.archive.clone());
    layers.flag("archive.stage", "stage", args.stage.clone());
    layers.flag("archive.part_blocks", "part-blocks", args.part_blocks.map(|n| n.to_string()));
    layers.flag("archive.part_bytes", "part-bytes", args.part_bytes.clone());
    layers.flag("index.codec", "codec", args.codec.clone());
    layers.flag("index.verify", "verify", args.verify.clone());
    layers.flag("index.on_pruned", "on-pruned", args.on_pruned.clone());
    layers.flag("index.consumer", "consumer", args.consumer.clone());
    layers.flag("index.token_file", "token-file", args.token_file.clone());
    layers.flag("index.ic_url", "ic-url", args.ic_url.clone());
    layers.flag("index.ic_identity", "ic-identity", args.ic_identity.clone());
    layers.flag("index.retention_days", "retention-days", args.retention_days.clone());
    layers.flag("index.log_addresses", "log-address", many(&args.log_address));
    layers.flag("index.log_topics", "log-topic", many(&args.log_topic));
    layers.flag("index.workers", "workers", args.workers.map(|n| n.to_string()));
    layers.flag("index.budget_bytes", "budget-bytes", args.budget_bytes.clone());
    layers.flag("index.http", "http", args.http.clone());
    layers.flag("chain.id", "chain-id", args.chain_id.map(|id| id.to_string()));
    layers.flag("log.level", "log", args.log.clone());
    layers.flag("log.json", "json-logs", args.json_logs.then(|| "true".into()));
    Ok(layers)
}

/// What an index is told, whoever its source is and wherever its rows go.
struct Told {
    sink: Option<RowsInto>,
    codec: CodecName,
    verify: Verify,
    logs: LogFilter,
    on_pruned: OnPruned,
    consumer: Option<String>,
    retention_days: u32,
    workers: usize,
    budget_bytes: u64,
    http: Option<SocketAddr>,
    cors_origins: Origins,
    grain: Grain,
    acknowledge: bool,
    patience: Patience,
}

impl Told {
    fn of(layers: &Layers) -> Result<Self, NodeError> {
        let told = Self {
            sink: layers.read("index.sink", RowsInto::parse)?,
            codec: layers.must("index.codec", |text| text.parse().map_err(plainly::<CoreError>))?,
            verify: layers.must("index.verify", verify)?,
            logs: logs(layers)?,
            on_pruned: layers.must("index.on_pruned", on_pruned)?,
            consumer: layers.read("index.consumer", |text| {
                check_consumer_name(text).map(|()| text.to_owned()).map_err(plainly)
            })?,
            retention_days: layers.must("index.retention_days", days)?,
            workers: layers.must("index.workers", |text| fits(positive(text)?))?,
            budget_bytes: layers.must("index.budget_bytes", some_bytes)?,
            http: layers.read("index.http", address)?,
            cors_origins: layers.read("http.cors_origins", Origins::parse)?.unwrap_or_default(),
            grain: grain(layers)?,
            acknowledge: layers.must("archive.acknowledge", truth)?,
            patience: Patience {
                alarm_after: layers.must("index.alarm_seconds", seconds)?,
                pause: layers.must("index.pause_seconds", seconds)?,
            },
        };
        if told.workers > 1 && matches!(told.sink, Some(RowsInto::Sqlite(_))) {
            let reason = "several workers need PostgreSQL: SQLite has one writer";
            layers.conflict(&["index.workers", "index.sink"], reason)?;
        }
        Ok(told)
    }
}

/// Judges every value that `secateur index` reads. What is in the files that are named, and where it
/// is safe to listen, is judged where the index itself is: see [`check_place`].
pub(super) fn check_values(layers: &Layers) -> Result<(), NodeError> {
    let told = Told::of(layers)?;
    if let Some(RowsInto::Postgres(url)) = told.sink {
        let reading = |_: &str| Postgres::parse(&url).map(drop).map_err(plainly);
        layers.read("index.sink", reading)?;
    }
    layers.must("index.source", check_source)?;
    layers.must("index.ic_url", super::web_address)?;
    Ok(())
}

/// Judges where an index listens, and the files that it reads when it starts.
pub(super) fn check_place(layers: &Layers) -> Result<(), NodeError> {
    if let Some(address) = layers.read("index.http", address)? {
        let local = check_local("index.http", address);
        layers.check(&["index.http"], local.map_err(Into::into))?;
    }
    layers
        .read("index.token_file", |text| read_token(Path::new(text)).map(drop).map_err(plainly))?;
    Ok(())
}

/// Types everything, which was checked before. `data` is the data directory that was named, if one was.
/// Where blocks come `from` an archive, no node is looked for.
pub(crate) fn job(
    layers: &Layers,
    args: &IndexArgs,
    data: Option<&Path>,
    from: Option<FillFrom>,
) -> Result<Job, anyhow::Error> {
    let beside = data.unwrap_or(Path::new(DEFAULT_DATA));
    let told = Told::of(layers)?;
    let sink = told.sink.ok_or_else(|| {
        NodeError::Usage("name a sink: --sink sqlite:<file> or --sink postgres://…".into())
    })?;
    let archive = ArchivePlace::of(layers)?
        .map(|place| {
            Ok::<_, NodeError>(ArchiveJob {
                place,
                stage: stage(layers, &sink, beside)?,
                grain: told.grain,
                acknowledge: told.acknowledge,
            })
        })
        .transpose()?;
    let (source, directory) = match from {
        Some(FillFrom::Archive) => (BlocksFrom::Archive(only_archive(layers)?), None),
        _ => source(layers, args, data)?,
    };
    Ok(Job {
        source,
        directory,
        archive,
        codec: told.codec,
        verify: told.verify,
        logs: told.logs,
        on_pruned: told.on_pruned,
        consumer: told.consumer,
        strength: if args.hard { Strength::Hard } else { Strength::Soft },
        retention_days: (told.retention_days > 0).then_some(told.retention_days),
        workers: told.workers,
        budget_bytes: told.budget_bytes,
        patience: told.patience,
        http: told.http,
        cors_origins: told.cors_origins,
        chain_id: layers.read("chain.id", number)?,
        once: args.once,
        to: args.to,
        sink,
    })
}

/// A node's address without a user and password, an archive's, or a canister's.
fn check_source(text: &str) -> Result<(), String> {
    if text.starts_with(canister::SCHEME) {
        return canister::check(text);
    }
    let of_a_node = |(scheme, _): &(&str, &str)| matches!(*scheme, "http" | "https");
    let Some((_, rest)) = text.split_once("://").filter(of_a_node) else {
        return text.parse::<ArchiveUrl>().map(drop).map_err(|error| {
            let reason = plainly(error);
            format!("{reason}; or the address of a node: http://host:port or https://host:port")
        });
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(
            "a user and password in it would be passed over; put the token into a file and \
                    name that with index.token_file"
                .into(),
        );
    }
    text.parse::<Uri>().map(drop).map_err(|error| error.to_string())
}

/// The archive that is named as the source, or to be written.
fn only_archive(layers: &Layers) -> Result<ArchivePlace, anyhow::Error> {
    let source = layers.get("index.source").map(|value| value.text.clone());
    let source = source.and_then(|text| text.parse::<ArchiveUrl>().ok());
    if let Some(url) = source {
        return Ok(ArchivePlace { url, settings: settings(layers)? });
    }
    let none = || NodeError::Usage("--from archive, and none is named: --archive <url>".into());
    Ok(ArchivePlace::of(layers)?.ok_or_else(none)?)
}

/// The source that is named; else the node that has the data directory open, with its token. A directory
/// that has a history or was named has a node of its own, or none: the usual address is another one's.
fn source(
    layers: &Layers,
    args: &IndexArgs,
    named_data: Option<&Path>,
) -> Result<(BlocksFrom, Option<Directory>), anyhow::Error> {
    let data = named_data.unwrap_or(Path::new(DEFAULT_DATA));
    let named = layers.get("index.source").is_some_and(|value| value.origin != Origin::Default);
    let url = layers.must("index.source", |text| check_source(text).map(|()| text.to_owned()))?;
    let chain_id = if named_data.is_some() || !named { chain_of(data)? } else { None };
    let directory = |store_id: Option<[u8; 16]>| {
        let path = data.to_path_buf();
        (chain_id.is_some() || store_id.is_some()).then_some(Directory { path, chain_id, store_id })
    };
    #[cfg(feature = "ic")]
    if url.starts_with(canister::SCHEME) {
        return Ok((BlocksFrom::Canister(canister::canister(layers, url)?), directory(None)));
    }
    if !url.starts_with("http://") && !url.starts_with("https://") {
        let place = ArchivePlace { url: url.parse::<ArchiveUrl>()?, settings: settings(layers)? };
        return Ok((BlocksFrom::Archive(place), directory(None)));
    }
    let mut options = GrpcOptions::new(url);
    options.token_file = layers.read("index.token_file", |text| Ok(PathBuf::from(text)))?;
    options.ca_file.clone_from(&args.ca_file);
    let running = match NodeFile::read(data) {
        // Where the directory says nothing of the source, what is wrong in it does no harm.
        Err(_) if named && named_data.is_none() => None,
        read => read?,
    };
    if !named && running.is_none() && (named_data.is_some() || chain_id.is_some()) {
        return Err(NodeError::NoNode(data.to_path_buf()).into());
    }
    let mut store_id = None;
    if let Some(file) = running {
        let here = format!("http://{}", file.grpc);
        if !named {
            options.url.clone_from(&here);
        }
        let is_here = options.url.trim_end_matches('/') == here;
        // A directory that was named is compared under whatever name its node is reached.
        if is_here || named_data.is_some() {
            store_id = file.store_id();
        }
        // The token of this machine's node is for that node only.
        if is_here {
            options.token_file.get_or_insert_with(|| NodeFile::path(data));
        }
    } else if named_data.is_some() && chain_id.is_some() {
        // Its node is stopped, and said which store it has when it started last.
        store_id = last_store_id(data)?;
    }
    Ok((BlocksFrom::Node(options), directory(store_id)))
}

/// Where parts are made: beside the index, unless somebody says where.
fn stage(layers: &Layers, sink: &RowsInto, data: &Path) -> Result<PathBuf, NodeError> {
    let named = layers.read("archive.stage", |text| Ok(PathBuf::from(text)))?;
    Ok(named.unwrap_or_else(|| match sink {
        RowsInto::Sqlite(file) => file.with_file_name("stage"),
        RowsInto::Postgres(_) => data.join("stage"),
    }))
}

/// Where parts end.
pub(crate) fn grain(layers: &Layers) -> Result<Grain, NodeError> {
    let grain = Grain {
        daily: layers.must("archive.daily", truth)?,
        max_blocks: layers.read("archive.part_blocks", positive)?,
        max_bytes: layers.must("archive.part_bytes", some_bytes)?,
    };
    if let Err(error) = grain.check() {
        let keys = ["archive.daily", "archive.part_blocks", "archive.part_bytes"];
        layers.conflict(&keys, plainly(error))?;
    }
    Ok(grain)
}

fn bytes(text: &str) -> Result<u64, String> {
    secateur_core::parse_bytes(text).map_err(plainly)
}

/// Days of retention, such as 90 or 90d.
fn days(text: &str) -> Result<u32, String> {
    let days = parse_span(text, TimeUnit::Days).map_err(plainly)?;
    u32::try_from(days).map_err(|_| "too long".into())
}

fn some_bytes(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        0 => Err("0 is not allowed".into()),
        bytes => Ok(bytes),
    }
}

fn verify(text: &str) -> Result<Verify, String> {
    match text {
        "full" => Ok(Verify::Full),
        "hash" => Ok(Verify::Hash),
        "off" => Ok(Verify::Off),
        _ => Err("full, hash or off is wanted".into()),
    }
}

fn on_pruned(text: &str) -> Result<OnPruned, String> {
    match text {
        "stop" => Ok(OnPruned::Stop),
        "rebase" => Ok(OnPruned::Rebase),
        _ => Err("stop or rebase is wanted".into()),
    }
}

fn logs(layers: &Layers) -> Result<LogFilter, NodeError> {
    fn list<T: std::str::FromStr>(text: &str, wanted: &str) -> Result<Vec<T>, String> {
        let one = |item: &str| item.trim().parse().map_err(|_| format!("{wanted} is wanted"));
        text.split(',').map(one).collect()
    }
    if layers.get("index.log_addresses").is_some_and(|value| value.text == "all") {
        return Ok(LogFilter::All);
    }
    let addresses = layers.read("index.log_addresses", |text| {
        list::<Address>(text, "`all`, or 0x and 40 hexadecimal digits for each contract,")
    })?;
    let topics = layers.read("index.log_topics", |text| {
        list::<B256>(text, "0x and 64 hexadecimal digits for each topic")
    })?;
    Ok(LogFilter::chosen(addresses.unwrap_or_default(), topics.unwrap_or_default()))
}
