//! `demo`: a generated chain runs live under a small budget and is pruned as it grows, in a node
//! with all its interfaces.
//!
//! Beside the node's own threads: one makes blocks, one appends them, one shows, one indexes and
//! archives them over the node's own gRPC, one runs four validators with blobs, and one a UTXO chain. Pruning waits
//! for the archive. They share nothing but the store, a bounded channel and a tally. A signal only sets a flag; every end goes
//! the same way out: node stopped, cuts freed, summary, store closed.

mod blobs;
mod chain;
mod engine;
mod feed;
mod indexing;
mod live;
mod plain;
mod show;
mod summary;
mod tally;
mod utxo;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use secateur_store::Settings;
use secateur_store::ground::disk::DiskStore;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::cli::DemoArgs;
use crate::config::{Config, Layers};
use crate::data_dir::DataDir;
use crate::error::NodeError;
use crate::service::{AnyPort, Observer, Options, Service, listen};
use crate::ui::Ui;
use blobs::{Blobs, Others};
use chain::Opened;
use engine::{Acks, Engine, Pace};
use feed::Feed;
use indexing::{Indexing, Look};
use live::Live;
use plain::{JsonLines, PlainLines};
use secateur_evm::{ChainSpec, Generator};
use show::{Event, Moment, Show};
use summary::Summary;
use tally::{Rate, Tally};
use utxo::Utxo;

/// Blocks of one group when nothing is paced.
const GROUP: u64 = 16;
/// Paced, a small group comes this often: 20 blocks a second.
const PACED_GROUP: u64 = 2;
const PACED_EVERY: Duration = Duration::from_millis(100);
/// The exit code of a second signal, which does not wait: that of an interrupted shell command.
const IMPATIENT: i32 = 130;

/// Runs the demo until its blocks are appended, a signal comes or something fails.
pub(crate) fn run(args: &DemoArgs, named: Option<PathBuf>, ui: Ui) -> Result<(), anyhow::Error> {
    let path = named.unwrap_or_else(|| PathBuf::from(chain::DEFAULT_DIRECTORY));
    check_ports(args)?;
    let Opened { data, spec } = chain::open(args, &path)?;
    let demo = Demo { store: Arc::clone(&data.store), spec };
    let stop = stop_flag()?;
    let tally = Arc::new(Tally::begin(&demo.store)?);
    let (sender, events) = mpsc::channel();
    let observe: Observer = {
        let (tally, sender) = (Arc::clone(&tally), sender.clone());
        Box::new(move |tick| {
            let event = tally.pruned(tick);
            // The one who shows may have left already; the tally has it all the same.
            sender.send(event).unwrap_or_default();
        })
    };
    // A port that was named is meant.
    let any_port = AnyPort { http: args.http.is_none(), grpc: args.grpc.is_none() };
    let options = Options { observe: Some(observe), any_port };
    // Nothing is cut before it is archived, unless there is no archive.
    let settings = demo.store.settings();
    demo.store.set_settings(Settings { archive_hold: !args.no_archive, ..settings })?;
    if args.no_archive {
        demo.store.remove_consumer(indexing::CONSUMER)?;
    }
    let others = if args.no_archive || args.no_blobs {
        None
    } else {
        Some(Others::open(&path, demo.spec.chain_id)?)
    };
    let service = serve(data, &config(args, &path, others.as_ref())?, options, ui)?;
    let indexing = if args.no_archive {
        None
    } else {
        let budget = demo.store.policy().target_bytes;
        Some(Indexing::start(&path, &service, budget, &stop)?)
    };
    let blobs = others.map(|others| Blobs::start(others, &service, &stop)).transpose()?;
    let utxo = if args.no_archive || args.no_utxo {
        None
    } else {
        Some(Utxo::start(&path, demo.spec.seed, &stop)?)
    };
    let look = indexing.as_ref().map(|indexing| Arc::clone(indexing.look()));
    let mut show = shown(args, &path, ui)?;
    let ended = show.listening(service.http, service.grpc).and_then(|()| {
        let watched = Watched {
            demo: &demo,
            tally: &tally,
            look: look.as_deref(),
            blobs: blobs.as_ref(),
            utxo: utxo.as_ref(),
        };
        drive(args, ui, &watched, &stop, (sender, events), &mut *show)
    });
    // A run of so many blocks ends with all of them indexed, and archived as far as parts go; and
    // with the blobs of those that are final archived and pruned.
    let catch_up = args.blocks.is_some() && ended.is_ok();
    let indexed = indexing.map(|indexing| indexing.end(catch_up)).transpose();
    let validated = blobs.map(|blobs| blobs.end(catch_up)).transpose();
    let spent = utxo.map(Utxo::end).transpose();
    drop(show);
    // The directory stays locked until the summary has read it.
    let data = service.stop();
    let settled = demo.store.settle();
    let done = indexed.as_ref().ok().cloned().flatten();
    let kept = validated.as_ref().ok().cloned().flatten();
    let records = spent.as_ref().ok().cloned().flatten();
    let told = Summary::gather(&demo, &tally, done, kept, records)
        .and_then(|summary| summary.print(&path, ui));
    drop(data);
    // What stopped the run matters more than what failed while ending it.
    ended?;
    indexed?;
    validated?;
    spent?;
    settled?;
    told
}

/// What people see of it.
fn shown(args: &DemoArgs, path: &Path, ui: Ui) -> Result<Box<dyn Show>, anyhow::Error> {
    Ok(if ui.json {
        Box::new(JsonLines)
    } else if args.plain || args.acks || !console::Term::stdout().is_term() {
        Box::new(PlainLines)
    } else {
        Box::new(Live::start(path)?)
    })
}

/// A demo that runs.
#[derive(Debug)]
struct Demo {
    store: Arc<DiskStore>,
    spec: ChainSpec,
}

/// What there is to see while it runs.
struct Watched<'a> {
    demo: &'a Demo,
    tally: &'a Tally,
    look: Option<&'a Look>,
    blobs: Option<&'a Blobs>,
    utxo: Option<&'a Utxo>,
}

/// The node's configuration: the defaults, what makes it the first validator, the addresses that were
/// named, and the archive, which answers for what was pruned.
fn config(args: &DemoArgs, path: &Path, others: Option<&Others>) -> Result<Config, anyhow::Error> {
    let mut layers = Layers::defaults();
    if let Some(others) = others {
        others.tell(&mut layers)?;
    }
    layers.flag("http.addr", "http", args.http.clone());
    layers.flag("grpc.addr", "grpc", args.grpc.clone());
    if !args.no_archive {
        layers.flag("archive.url", "data", Some(indexing::archive_url(path)?));
        layers.flag("archive.read_through", "data", Some("true".into()));
    }
    Ok(Config::of(&layers)?)
}

/// Starts the node, and says so where it does not listen at its usual addresses.
fn serve(
    data: DataDir,
    config: &Config,
    options: Options,
    ui: Ui,
) -> Result<Service, anyhow::Error> {
    let service = Service::start(data, config, options)?;
    for (usual, here) in [(config.http, service.http), (config.grpc, service.grpc)] {
        if usual.port() != 0 && usual != here {
            ui.note(&format!("another process has {usual}; this demo listens on {here}\n"))?;
        }
    }
    Ok(service)
}

/// Refuses a named port that is taken before a directory is made.
fn check_ports(args: &DemoArgs) -> Result<(), anyhow::Error> {
    for (key, address) in [("http.addr", &args.http), ("grpc.addr", &args.grpc)] {
        // One that is no address is refused with the rest of the configuration.
        if let Some(address) = address.as_deref().and_then(|text| text.parse().ok()) {
            listen(key, address, false)?;
        }
    }
    Ok(())
}

/// Appends in a thread of its own and shows what happens until that thread ends.
fn drive(
    args: &DemoArgs,
    ui: Ui,
    watched: &Watched<'_>,
    stop: &AtomicBool,
    (sender, events): (mpsc::Sender<Event>, Receiver<Event>),
    show: &mut dyn Show,
) -> Result<(), anyhow::Error> {
    let Watched { demo, tally, blobs, utxo, .. } = *watched;
    let store = &demo.store;
    let pace = match args.blocks {
        Some(_) => Pace::unpaced(GROUP),
        None => Pace::paced(PACED_GROUP, PACED_EVERY),
    };
    let generator = Generator::new(demo.spec)?;
    let feed = Feed::start(generator, store.head(), store.head_hash(), &pace, args.blocks)?;
    let acks = args.acks.then_some(Acks { json: ui.json });
    let engine = Engine { store, tally, stop, acks, blobs, utxo };
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new()
            .name("secateur-append".into())
            .spawn_scoped(scope, move || {
                let ended = engine.append_all(feed, &pace);
                sender.send(Event::Ended).unwrap_or_default();
                ended
            })
            .context("starting the append thread")?;
        let shown = watch(watched, &events, show);
        // Whoever watched has ended, for whatever reason: so must the work.
        stop.store(true, Ordering::Release);
        let worked = worker.join().unwrap_or_else(|_| Err(NodeError::ThreadDied("append").into()));
        worked.and(shown)
    })
}

/// Shows events as they come and the state at the show's own rhythm.
fn watch(
    watched: &Watched<'_>,
    events: &Receiver<Event>,
    show: &mut dyn Show,
) -> Result<(), anyhow::Error> {
    let Watched { demo, tally, look, blobs, utxo } = *watched;
    let mut rate = Rate::begin();
    let mut next = Instant::now() + show.rhythm();
    loop {
        match events.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(Event::Ended) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Ok(event) => show.event(&event)?,
            Err(RecvTimeoutError::Timeout) => {
                next = Instant::now() + show.rhythm();
                let counts = tally.counts();
                show.moment(&Moment {
                    status: demo.store.get_prune_status()?,
                    rate_tenths: rate.observe(counts.appended),
                    elapsed: tally.elapsed(),
                    indexed: look.map(Look::reached),
                    blobs: blobs.map(Blobs::figures).transpose()?.unwrap_or_default(),
                    utxo: utxo.map(Utxo::figures),
                    counts,
                })?;
            }
        }
    }
}

/// A flag that the first signal sets; a second signal ends the process at once.
fn stop_flag() -> Result<Arc<AtomicBool>, anyhow::Error> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, IMPATIENT, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("listening for signals")?;
    }
    Ok(stop)
}
