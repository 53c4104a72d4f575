//! Wiring: from a configuration to a running server.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use crate::base::allocated::count_for_this_thread;
use crate::base::clock::Clock;
use crate::base::rng::Rng;
use crate::command;
use crate::config::Config;
use crate::engine::Engine;
use crate::engine::registry::watch_for_stalls;
use crate::net::listener::Listener;
use crate::net::serve::{Shared, serve};

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A socket could not be opened.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// Neither a port nor a unix socket is configured.
    #[error("nothing to listen on: set --port, or --unixsocket PATH")]
    NoListener,
    /// The Lua state could not be made.
    #[error("cannot load the bundled scripts: {0}")]
    Scripts(String),
    /// The system refused something else.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// Runs a server until a signal or a client ends it.
pub fn run(config: Config) -> Result<(), StartError> {
    raise_descriptor_limit(u64::from(config.maxclients));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    count_for_this_thread();
    local.block_on(&runtime, async {
        let listeners = listen(&config)?;
        let warnings = config.warnings();
        let engine = Engine::new(config, command::table(), Clock::system(), Rng::from_entropy())
            .map_err(|error| StartError::Scripts(error.to_string()))?;
        watch_for_stalls(&engine.server.registry, command::table())?;
        announce(&listeners);
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        serve(Rc::new(Shared::new(engine)), listeners).await?;
        Ok(())
    })
}

/// Opens every configured socket. An address that starts with `-` may fail.
fn listen(config: &Config) -> Result<Vec<Listener>, StartError> {
    let backlog = config.tcp_backlog.min(i32::MAX as u32) as i32;
    let mut listeners = Vec::new();
    if config.port != 0 {
        for bind in &config.bind {
            let (may_fail, host) = bind.strip_prefix('-').map_or((false, bind.as_str()), |host| (true, host));
            let failed = |source| StartError::Listen { address: format!("{host}:{}", config.port), source };
            match resolve(host, config.port).and_then(|address| Listener::tcp(address, backlog)) {
                Ok(listener) => listeners.push(listener),
                Err(_) if may_fail => {}
                Err(source) => return Err(failed(source)),
            }
        }
    }
    if !config.unixsocket.as_os_str().is_empty() {
        let path = config.dir.join(&config.unixsocket);
        let failed = |source| StartError::Listen { address: path.display().to_string(), source };
        listeners.push(Listener::unix(&path, config.unixsocketperm, backlog).map_err(failed)?);
    }
    if listeners.is_empty() { Err(StartError::NoListener) } else { Ok(listeners) }
}

fn resolve(host: &str, port: u16) -> io::Result<SocketAddr> {
    let ip = match host {
        "*" => IpAddr::from([0, 0, 0, 0]),
        "::*" => IpAddr::from([0; 16]),
        host => match host.parse() {
            Ok(ip) => ip,
            Err(_) => return first_address(host, port),
        },
    };
    Ok(SocketAddr::new(ip, port))
}

fn first_address(host: &str, port: u16) -> io::Result<SocketAddr> {
    use std::net::ToSocketAddrs;
    (host, port).to_socket_addrs()?.next().ok_or_else(|| io::Error::other("the name has no address"))
}

/// The start-up line: where it listens, where data lives, what is durable.
fn announce(listeners: &[Listener]) {
    let places: Vec<String> = listeners.iter().map(Listener::address).collect();
    tracing::info!(
        "Tidegate {} (pid {}) listens on {}; data: in memory only; durable: nothing, a restart begins empty",
        env!("CARGO_PKG_VERSION"),
        std::process::id(),
        places.join(", "),
    );
}

/// Makes room for `maxclients` sockets and a few files, as far as the system allows.
fn raise_descriptor_limit(maxclients: u64) {
    /// Descriptors for everything that is not a client.
    const RESERVED: u64 = 32;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the struct that it is given.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return;
    }
    let wanted = (maxclients + RESERVED).min(limit.rlim_max);
    if limit.rlim_cur < wanted {
        limit.rlim_cur = wanted;
        // SAFETY: the call reads the struct that it is given. A refusal leaves the old limit: then fewer clients fit.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    }
    if wanted < maxclients + RESERVED {
        tracing::warn!("maxclients is {maxclients}, but the system allows only {wanted} open files (see ulimit -n)");
    }
}
