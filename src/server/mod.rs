//! Wiring: from a configuration to a running server.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use crate::base::clock::Clock;
use crate::base::lsn::Lsn;
use crate::base::os::allocated::count_for_this_thread;
use crate::base::os::allocator::purge_on_demand_only;
use crate::base::os::huge_pages;
use crate::base::os::logging;
use crate::base::os::process::PidFile;
use crate::base::os::process_title;
use crate::base::os::supervisor;
use crate::base::rng::Rng;
use crate::command;
use crate::config::{AppendFsync, Config};
use crate::engine::Engine;
use crate::engine::limits::RECOVERY_SLICE_BYTES;
use crate::engine::persistence::following::Following;
use crate::engine::persistence::recovery::{Loading, Recovered, Step, count_keys};
use crate::http::ports::{Ports, Sources};
use crate::http::questions::Questions;
use crate::import::ImportError;
use crate::import::at_start::{AtStart, Importing};
use crate::log::directory::{Directory, DirectoryId};
use crate::log::disk::{RealDisk, ignore_file_size_signal};
use crate::log::error::LogError;
use crate::log::replicated::types::NodeId;
use crate::log::scan::TornTail;
use crate::meters::turns::Turns;
use crate::net::inside::Inside;
use crate::net::listener::Listener;
use crate::net::reconfigure::{ListenError, Network, acceptor, listen, stamps};
use crate::net::serve::{Shared, serve};
use crate::persist::error::RecoveryError;
use crate::persist::saving::DATA_DIR;
use crate::session::registry::watch_for_stalls;
use crate::spec::table::RenameError;
use member::MemberError;

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A socket could not be opened.
    #[error("cannot listen on {address}: {source}{}", advice_on_listening(source))]
    Listen {
        /// The address.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// `rename-command` asks for an impossible change.
    #[error("{0}")]
    Rename(#[from] RenameError),
    /// The certificates or other TLS parameters are unusable.
    #[error("cannot serve TLS: {0}")]
    Tls(String),
    /// Neither a port nor a unix socket is configured.
    #[error("nothing to listen on: set --port, --tls-port, or --unixsocket PATH")]
    NoListener,
    /// The users can't be set up.
    #[error("cannot set up the users: {0}")]
    Users(String),
    /// The Lua state could not be made.
    #[error("cannot load the bundled scripts: {0}")]
    Scripts(String),
    /// The data can't be opened or loaded.
    #[error("{source}{}", advice_on_data(source))]
    Recovery {
        /// The cause.
        #[from]
        source: RecoveryError,
    },
    /// Redis' data found here can't be imported.
    #[error(
        "{0}\nThis folder holds the data of Redis, and none of Tidegate's yet. To start without it, choose another \
         --dir"
    )]
    Import(#[from] ImportError),
    /// The server can't be a node of its group.
    #[error("{0}")]
    Member(Box<dyn std::error::Error + Send + Sync>),
    /// The system refused another request.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// Advice about an address that can't be listened on.
fn advice_on_listening(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => ". Another server uses it: choose another port with --port, or end that server",
        io::ErrorKind::AddrNotAvailable => ". This machine has no such address: choose others with --bind",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ". There is no space for the socket's file: make some, or choose a place on another disk with --unixsocket"
        }
        _ => "",
    }
}

/// Advice about a data folder that can't be read and written.
fn advice_on_data(error: &RecoveryError) -> &'static str {
    let RecoveryError::Log(LogError::Io { source, .. }) = error else { return "" };
    match source.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            ". A server needs to write there: mount it for writing, or copy the folder to another disk and start \
             there, with --dir"
        }
        io::ErrorKind::PermissionDenied => {
            ". The user of the server must be able to read and write the data folder and all in it: use chown -R"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ". There is no space for the files that a new server begins with: make some, or choose another --dir"
        }
        _ => "",
    }
}

/// Runs a server until a signal or a client ends it.
pub fn run(mut config: Config) -> Result<(), StartError> {
    fit_to_descriptors(&mut config);
    if config.disable_thp
        && let Err(error) = huge_pages::disable()
    {
        tracing::warn!("huge pages can't be turned off, so the server may stall for moments: {error}");
    }
    if let Err(error) = config.adjust_oom_score() {
        tracing::warn!("oom-score-adj has no effect: {error}");
    }
    let _pid_file = write_pid_file(&config);
    config.title(process_title::program()).iter().for_each(|title| process_title::set(title));
    let turns = Arc::<Turns>::default();
    let (woken, asleep) = (Arc::clone(&turns), Arc::clone(&turns));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_unpark(move || woken.begin())
        .on_thread_park(move || asleep.end())
        .build()?;
    let local = tokio::task::LocalSet::new();
    count_for_this_thread();
    purge_on_demand_only();
    let done = local.block_on(&runtime, async {
        // Stamps are taken before the files are read, so that the first check finds a change made during reading.
        let tls_files = stamps(&config);
        let acceptor = acceptor(&config).map_err(|error| StartError::Tls(error.to_string()))?;
        let listeners = open_listeners(&config)?;
        let ports = Ports::open(&config).map_err(|(address, source)| StartError::Listen { address, source })?;
        let table = command::renamed_table(&config.source.renamed)?;
        let (warnings, notices) = (config.warnings(), config.notices());
        let clock = if config.node_id == 0 { Clock::system() } else { Clock::of_node() };
        let mut engine = Engine::new(config, table, clock, Rng::from_entropy())
            .map_err(|error| StartError::Scripts(error.to_string()))?;
        engine.server.acl.configure_users(&engine.server.config, table).map_err(StartError::Users)?;
        engine.server.network.turns = turns;
        let log_moved = Arc::new(Notify::new());
        let places: Vec<String> = listeners.iter().map(|listener| listener.address()).collect();
        let mut following = None;
        let mut start = Some(Start::begin(&mut engine, &log_moved, &mut following)?);
        watch_for_stalls(&engine.server.clients.registry, table)?;
        let load = |engine: &mut Engine| {
            let step = start.as_mut().map_or(Ok(Step::Complete), |start| start.step(engine))?;
            if step == Step::Complete
                && let Some(start) = start.take()
            {
                announce(&places, &start.finish(engine)?);
                if let Some(name) = engine.server.persistence.lasting_name() {
                    engine.server.identity.node_name = name;
                }
                warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
                notices.iter().for_each(|notice| tracing::info!("{notice}"));
                supervisor::ready();
            }
            Ok::<_, StartError>(step)
        };
        tokio::task::spawn_local(reopen_log(signal(SignalKind::hangup())?));
        let shared = Rc::new(Shared::new(engine, log_moved, following));
        shared.start_io_threads()?;
        serve_http(ports, &shared)?;
        shared.sockets.set_acceptor(acceptor);
        let network = Network::new(Rc::clone(&shared.sockets), tls_files);
        shared.engine.borrow_mut().server.network.listeners = Some(Box::new(network));
        serve(shared, listeners, load).await?;
        Ok(())
    });
    // The log is flushed before the pidfile is removed, because other programs take its absence for the server's end.
    logging::flush();
    done
}

/// Checks what a start would check before it opens its addresses and its data: certificates, commands that are renamed,
/// users, and the settings of a node.
pub fn examine(config: &Config) -> Result<(), StartError> {
    acceptor(config).map_err(|error| StartError::Tls(error.to_string()))?;
    if config.port == 0 && config.tls_port == 0 && config.unixsocket.as_os_str().is_empty() {
        return Err(StartError::NoListener);
    }
    let table = command::renamed_table(&config.source.renamed)?;
    let mut engine = Engine::new(config.clone(), table, Clock::system(), Rng::from_entropy())
        .map_err(|error| StartError::Scripts(error.to_string()))?;
    engine.server.acl.configure_users(config, table).map_err(StartError::Users)?;
    member::examine(config, engine.server.persistence.saving.platform.clone())
        .map_err(|error| StartError::Member(error.into()))
}

/// Writes the process id to `pidfile`. The file is removed when the value is dropped.
fn write_pid_file(config: &Config) -> Option<PidFile> {
    let path = Some(config.dir.join(&config.pidfile)).filter(|_| !config.pidfile.as_os_str().is_empty())?;
    match PidFile::write(&path) {
        Ok(file) => Some(file),
        Err(error) => {
            tracing::warn!("the pidfile {} can't be written: {error}", path.display());
            None
        }
    }
}

/// Reopens the log file at each SIGHUP, for tools that have moved it away.
async fn reopen_log(mut hangup: Signal) {
    while hangup.recv().await.is_some() {
        match logging::reopen() {
            Ok(Some(path)) => tracing::info!("SIGHUP: the log continues in a new {}", path.display()),
            Ok(None) => {}
            Err(error) => {
                tracing::error!("SIGHUP: the log continues in the old file, because a new one can't be opened: {error}")
            }
        }
    }
}

/// Opens every configured socket.
fn open_listeners(config: &Config) -> Result<Vec<Rc<Listener>>, StartError> {
    let failed = |error: ListenError| StartError::Listen { address: error.place.to_string(), source: error.source };
    let listeners = listen(config).map_err(failed)?;
    if listeners.is_empty() { Err(StartError::NoListener) } else { Ok(listeners) }
}

/// Serves metrics and the console, as far as they are wanted.
fn serve_http(ports: Ports, shared: &Rc<Shared>) -> io::Result<()> {
    let (questions, inside) = (Arc::<Questions>::default(), Arc::<Inside>::default());
    tokio::task::spawn_local(Arc::clone(&questions).answer(Rc::clone(shared), command::metrics::render));
    shared.sockets.set_inside(Arc::clone(&inside));
    tokio::task::spawn_local(Rc::clone(shared).serve_inside(Arc::clone(&inside)));
    let server = &shared.engine.borrow().server;
    let registry = Arc::clone(&server.clients.registry);
    ports.serve(Sources { questions, registry, inside }, &server.config)
}

/// The steps from an empty engine to one with its data.
struct Start {
    path: PathBuf,
    data: Data,
    log_moved: Arc<Notify>,
}

/// Where the data comes from.
enum Data {
    /// There is no data.
    New,
    /// From the group of which this is a node.
    Group(NodeId),
    /// From the snapshot and the journal.
    Own(Box<Loading>),
    /// From files of Redis.
    Import {
        importing: Box<Importing>,
        /// The names of the files, for messages.
        names: String,
        /// Whether the imported data is saved as well.
        is_saved: bool,
    },
}

impl Start {
    /// Finds the data. Redis' data is imported if there is none of Tidegate's.
    fn begin(
        engine: &mut Engine,
        log_moved: &Arc<Notify>,
        following: &mut Option<Following>,
    ) -> Result<Start, StartError> {
        ignore_file_size_signal();
        let config = &engine.server.config;
        let (path, has_log) = (config.dir.join(DATA_DIR), config.appendonly);
        let not_a_node = |error: MemberError| StartError::Member(Box::new(error));
        if let Some(node) = member::node_of(config).map_err(not_a_node)? {
            let moved = Arc::clone(log_moved);
            let wake = Box::new(move || moved.notify_one());
            *following = Some(member::begin(engine, node, &path, wake).map_err(not_a_node)?);
            return Ok(Start { path, data: Data::Group(node), log_moved: Arc::clone(log_moved) });
        }
        let found = AtStart::find(config);
        let own = match path.exists() {
            true => Some(Loading::begin(engine, open_directory(&path)?)?),
            false => None,
        };
        let mut data = match (own, found) {
            (Some(own), found) if !own.is_empty() => {
                if let Ok(Some(import)) = found {
                    tracing::info!("{} is not read: the data is in {}", import.names(), path.display());
                }
                Data::Own(Box::new(own))
            }
            (own, found) => match found? {
                Some(import) => {
                    let names = import.names();
                    tracing::info!("importing the data of Redis that was found here: {names}");
                    let directory = match own {
                        // Opening checks whether the directory only seems to be empty because it is damaged.
                        Some(own) => Some(own.into_directory()?).filter(|_| has_log),
                        None if has_log => Some(Arc::new(open_directory(&path)?)),
                        None => None,
                    };
                    let is_saved = directory.is_some();
                    Data::Import { importing: Box::new(import.begin(engine, directory)?), names, is_saved }
                }
                None => match own {
                    Some(own) => Data::Own(Box::new(own)),
                    None if has_log => Data::Own(Box::new(Loading::begin(engine, open_directory(&path)?)?)),
                    None => Data::New,
                },
            },
        };
        let progress = match &mut data {
            Data::New | Data::Group(_) => None,
            Data::Own(loading) => Some(loading.step(engine, 0)?),
            Data::Import { importing, .. } => Some(importing.progress()),
        };
        engine.server.set_loading(progress);
        Ok(Start { path, data, log_moved: Arc::clone(log_moved) })
    }

    /// Loads a slice.
    fn step(&mut self, engine: &mut Engine) -> Result<Step, StartError> {
        let (step, progress) = match &mut self.data {
            Data::New => return Ok(Step::Complete),
            // Whoever follows the group loads its data.
            Data::Group(_) if engine.server.persistence.loading.is_none() => return Ok(Step::Complete),
            Data::Group(_) => return Ok(Step::Wait),
            Data::Own(loading) => {
                // The smallest possible slice if loading pauses after each key.
                let bytes = if engine.server.config.key_load_delay_us == 0 { RECOVERY_SLICE_BYTES } else { 1 };
                let progress = loading.step(engine, bytes)?;
                (if progress.is_complete { Step::Complete } else { Step::More }, progress)
            }
            Data::Import { importing, .. } => (importing.step(engine)?, importing.progress()),
        };
        engine.server.set_loading(Some(progress));
        Ok(step)
    }

    /// Called when everything is loaded: continues the engine from there. Returns the text about the data for the
    /// start-up line.
    fn finish(self, engine: &mut Engine) -> Result<String, StartError> {
        let Start { path, data, log_moved } = self;
        let (keys, last) = match data {
            Data::New => {
                engine.server.persistence.saving.lives_at(path);
                return Ok("data: in memory only; durable: snapshots only, and there is none yet".to_owned());
            }
            Data::Group(node) => {
                return Ok(format!(
                    "data: {} ({} keys, Lsn {}), as node {node} of its group; durable: every OK is on disk on more \
                     than half of the nodes",
                    path.display(),
                    count_keys(engine),
                    engine.server.persistence.last_lsn(),
                ));
            }
            Data::Own(loading) => {
                let recovered = match engine.server.config.appendonly {
                    true => loading.finish(engine, Box::new(move || log_moved.notify_one()))?,
                    false => loading.finish_without_log(engine)?.0,
                };
                log_previous_end(&recovered);
                (recovered.keys, recovered.last)
            }
            Data::Import { importing, names, is_saved } => {
                let report = importing.into_report();
                if !is_saved {
                    engine.server.persistence.saving.lives_at(path);
                    engine.server.set_loading(None);
                    return Ok(format!(
                        "data: in memory only, {report}; durable: snapshots only; until the first one a restart \
                         imports {names} again"
                    ));
                }
                tracing::info!(
                    "imported: {report}; the files were not changed, and are not read again: the data is in {}",
                    path.display()
                );
                (engine.server.persistence.saving.loaded_keys(), engine.server.persistence.last_lsn())
            }
        };
        engine.server.set_loading(None);
        let promise = match (engine.server.config.appendonly, engine.server.config.appendfsync) {
            (true, AppendFsync::Always) => "every OK is on disk",
            (true, AppendFsync::EverySecond) => "changes older than a second are on disk",
            (true, AppendFsync::No) => "changes are on disk when the system writes them",
            (false, _) => "the loaded data and each snapshot; changes are in memory only",
        };
        Ok(format!("data: {} ({keys} keys, Lsn {last}); durable: {promise}", path.display()))
    }
}

/// Logs how the previous server ended, as far as known.
fn log_previous_end(recovered: &Recovered) {
    if let Some(damage) = &recovered.passed_over {
        tracing::warn!("{damage}; the files that this snapshot had replaced were read instead: nothing is missing");
    }
    match &recovered.torn {
        Some(TornTail { path, offset, .. }) => {
            let path = path.display();
            tracing::warn!(
                "{path}: cut off at offset {offset}, where a crash interrupted a write that was not acknowledged"
            );
        }
        None if !recovered.is_clean && recovered.last > Lsn::NONE => {
            tracing::info!("the previous server was killed; nothing is missing");
        }
        None => {}
    }
}

fn open_directory(path: &Path) -> Result<Directory, RecoveryError> {
    Ok(Directory::open(Arc::new(RealDisk), path, DirectoryId::random(&mut Rng::from_entropy()))?)
}

/// Logs the start-up line: where the server listens, where its data lives, and how durable it is.
fn announce(places: &[String], data: &str) {
    tracing::info!(
        "Tidegate {} (pid {}) listens on {}; {data}",
        env!("CARGO_PKG_VERSION"),
        std::process::id(),
        places.join(", "),
    );
    // Test libraries wait for these words, some of them with the star that Redis' log has before each message.
    tracing::info!("* Ready to accept connections");
}

/// Makes room for `maxclients` sockets. Where the system allows fewer, `maxclients` is lowered: further clients are
/// then told so, rather than left waiting for a descriptor.
fn fit_to_descriptors(config: &mut Config) {
    if let Err(possible) = config.make_room_for_clients() {
        let wanted = config.maxclients;
        config.maxclients = possible.max(1);
        let fits = config.make_room_for_clients().is_ok();
        tracing::warn!(
            wanted,
            maxclients = config.maxclients,
            fits,
            "maxclients is lowered to what the system allows (see ulimit -n)"
        );
    }
}

mod member;
#[cfg(test)]
mod tests;
