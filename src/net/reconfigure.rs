//! The addresses the server listens on and the certificate it presents: at the start, and when CONFIG SET changes them.
//!
//! A change is made as a whole or not at all: the certificates are read and the new sockets bound before anything else
//! is touched. An address that stays keeps its socket, and its clients stay connected. An old socket may be in the way
//! of a new one, as that of `127.0.0.1` is in the way of `*` at the same port. Then the old one is closed first, and
//! opened again if the new one fails.

use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::rc::Rc;

use super::listener::{Listener, Place, Security};
use super::socket_table::SocketTable;
use super::tls::Acceptor;
use super::tls_files::{self, TlsError};
use crate::config::Config;
use crate::engine::{NetworkRefusal, Reconfigure};
use crate::session::Service;

/// Why a place can't be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {place}: {source}")]
pub(crate) struct ListenError {
    /// Where.
    pub place: Place,
    /// Why.
    pub source: io::Error,
}

/// The network of a running server.
pub(crate) struct Network {
    table: Rc<SocketTable>,
    /// The files of certificates and keys, as they were when last read or tried.
    files: Vec<Stamp>,
    /// When the files were last checked for changes, by the steady clock.
    checked_ms: i64,
}

impl Network {
    /// The network of the sockets in `table`, whose certificates were read from files with these stamps.
    pub(crate) fn new(table: Rc<SocketTable>, files: Vec<Stamp>) -> Network {
        Network { table, files, checked_ms: 0 }
    }
}

/// The TLS acceptor that `config` asks for; `None` if no port uses TLS.
pub(crate) fn acceptor(config: &Config) -> Result<Option<Acceptor>, TlsError> {
    uses_tls(config).then(|| tls_files::load(config)).transpose()
}

fn uses_tls(config: &Config) -> bool {
    config.tls_port != 0 || config.sentinel_port != 0 && config.sentinel_tls
}

impl Reconfigure for Network {
    fn reconfigure(&mut self, before: &Config, config: &Config) -> Result<(), NetworkRefusal> {
        // Stamps are taken before the files are read, so that the next look finds a change made while reading.
        let files = stamps(config);
        let acceptor = read(config)?;
        self.listen(before, config).map_err(|error| {
            tracing::warn!("the server keeps listening where it did: {error}");
            if before.bind == config.bind { NetworkRefusal::Port } else { NetworkRefusal::Address }
        })?;
        self.table.set_acceptor(acceptor);
        self.files = files;
        Ok(())
    }

    fn follow_files(&mut self, config: &Config, now_ms: i64) {
        let interval_ms = i64::from(config.tls_auto_reload_interval_s) * 1_000;
        if !uses_tls(config) || now_ms - self.checked_ms < interval_ms {
            return;
        }
        self.checked_ms = now_ms;
        let files = stamps(config);
        if files == self.files {
            return;
        }
        // Noted before the files prove valid: invalid ones are read again only when they change again. So, of two files
        // that belong together, one may be replaced first.
        self.files = files;
        if let Ok(acceptor) = read(config) {
            tracing::info!("certificates and keys were read again, since their files have changed");
            self.table.set_acceptor(acceptor);
        }
    }

    fn certificate_expires_s(&self) -> Option<i64> {
        self.table.acceptor().and_then(|acceptor| acceptor.expires_s())
    }
}

/// Tells a file from its predecessor of the same name: modification time in seconds and nanoseconds, length, and inode
/// number. `None` if there is no file.
pub(crate) type Stamp = Option<(i64, i64, u64, u64)>;

/// The stamps of all files that TLS uses. A folder's stamp changes when a file in it comes or goes.
pub(crate) fn stamps(config: &Config) -> Vec<Stamp> {
    let named = [&config.tls_cert_file, &config.tls_key_file, &config.tls_ca_cert_file, &config.tls_ca_cert_dir];
    let stamp = |path: &PathBuf| {
        let meta = std::fs::metadata(config.dir.join(path)).ok()?;
        Some((meta.mtime(), meta.mtime_nsec(), meta.len(), meta.ino()))
    };
    named.into_iter().filter(|path| !path.as_os_str().is_empty()).map(stamp).collect()
}

/// Reads all files of certificates and keys.
fn read(config: &Config) -> Result<Option<Acceptor>, NetworkRefusal> {
    acceptor(config).map_err(|error| {
        tracing::warn!("the settings of TLS stay as they were: {error}");
        NetworkRefusal::Tls
    })
}

impl Network {
    /// Listens at other ports and addresses; a unix socket stays where it is.
    fn listen(&self, before: &Config, config: &Config) -> Result<(), ListenError> {
        let (known, wanted) = (self.table.listeners(), ports(config));
        let stays = |listener: &Rc<Listener>| match listener.place() {
            Place::Unix(_) => true,
            place => wanted.iter().any(|(wanted, _)| wanted == place),
        };
        let is_known = |place: &Place| known.iter().any(|listener| listener.place() == place);
        let (mut listeners, leaving) = known.iter().cloned().partition::<Vec<_>, _>(stays);
        let (mut opened, mut out_of_the_way) = (Vec::new(), Vec::new());
        for (place, may_fail) in wanted.iter().filter(|(place, _)| !is_known(place)) {
            let mut done = open(config, place.clone());
            if matches!(&done, Err(error) if error.kind() == ErrorKind::AddrInUse) {
                let in_the_way =
                    leaving.iter().filter(|listener| listener.is_open() && listener.place().port() == place.port());
                let closed = out_of_the_way.len();
                out_of_the_way.extend(in_the_way.cloned());
                out_of_the_way[closed..].iter().for_each(|listener| listener.close());
                done = open(config, place.clone());
            }
            match done {
                Ok(listener) => opened.push(listener),
                Err(_) if *may_fail => {}
                Err(source) => {
                    drop(opened);
                    out_of_the_way.iter().for_each(|listener| reopen(before, listener));
                    return Err(ListenError { place: place.clone(), source });
                }
            }
        }
        leaving.iter().for_each(|listener| listener.close());
        listeners.extend(opened.iter().cloned());
        self.table.listen_anew(listeners, opened);
        Ok(())
    }
}

/// Reopens a listener that was closed for a new one which then could not be opened.
fn reopen(config: &Config, listener: &Listener) {
    let again = listener.reopen(backlog(config)).and_then(|()| listener.mark(config.socket_mark_id));
    if let Err(error) = again {
        tracing::warn!("the server no longer listens on {}: {error}", listener.place());
    }
}

/// Opens every socket that `config` names. An address that starts with `-` may fail.
pub(crate) fn listen(config: &Config) -> Result<Vec<Rc<Listener>>, ListenError> {
    let mut places = ports(config);
    if !config.unixsocket.as_os_str().is_empty() {
        places.push((Place::Unix(config.dir.join(&config.unixsocket)), false));
    }
    let mut listeners = Vec::new();
    for (place, may_fail) in places {
        match open(config, place.clone()) {
            Ok(listener) => listeners.push(listener),
            Err(_) if may_fail => {}
            Err(source) => return Err(ListenError { place, source }),
        }
    }
    Ok(listeners)
}

fn open(config: &Config, place: Place) -> io::Result<Rc<Listener>> {
    let listener = Listener::open(place, backlog(config), config.unixsocketperm)?;
    if let Err(error) = listener.mark(config.socket_mark_id) {
        tracing::warn!("socket-mark-id has no effect on {}: {error}", listener.place());
    }
    Ok(Rc::new(listener))
}

fn backlog(config: &Config) -> i32 {
    config.tcp_backlog.min(i32::MAX as u32) as i32
}

/// The ports and addresses that `config` says to listen on, and whether each may fail.
fn ports(config: &Config) -> Vec<(Place, bool)> {
    let mut places = Vec::new();
    let of_sentinel = if config.sentinel_tls { Security::Tls } else { Security::Plain };
    for (port, security, service) in [
        (config.port, Security::Plain, Service::Data),
        (config.tls_port, Security::Tls, Service::Data),
        (config.sentinel_port, of_sentinel, Service::Sentinel),
    ] {
        for bind in config.bind.iter().filter(|_| port != 0) {
            let (may_fail, host) = bind.strip_prefix('-').map_or((false, bind.as_str()), |host| (true, host));
            places.push((Place::Tcp { host: host.to_owned(), port, security, service }, may_fail));
        }
    }
    places
}
