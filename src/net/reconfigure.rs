//! Where the server listens, and as whom it presents itself to clients: at the start, and when CONFIG SET changes it.
//!
//! A change is made as a whole or not at all: the certificates are read and the new sockets bound before anything else is touched. A
//! place that stays keeps its socket, and who is connected stays connected.

use std::io;
use std::rc::Rc;

use super::listener::{Listener, Place, Security};
use super::socket_table::SocketTable;
use super::tls::Acceptor;
use super::tls_files::{self, TlsError};
use crate::config::Config;
use crate::engine::{NetworkRefusal, Reconfigure};

/// Why a place can't be listened at.
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
}

impl Network {
    /// That of the sockets in `table`.
    pub(crate) fn new(table: Rc<SocketTable>) -> Network {
        Network { table }
    }
}

/// What makes TLS connections as `config` says; `None` without a `tls-port`.
pub(crate) fn acceptor(config: &Config) -> Result<Option<Acceptor>, TlsError> {
    (config.tls_port != 0).then(|| tls_files::load(config)).transpose()
}

impl Reconfigure for Network {
    fn reconfigure(&mut self, config: &Config) -> Result<(), NetworkRefusal> {
        let acceptor = acceptor(config).map_err(|error| {
            tracing::warn!("TLS stays as it was: {error}");
            NetworkRefusal::Tls
        })?;
        self.table.set_acceptor(acceptor);
        Ok(())
    }
}

/// Opens every socket that `config` names. An address that starts with `-` may fail.
pub(crate) fn listen(config: &Config) -> Result<Vec<Rc<Listener>>, ListenError> {
    let mut listeners = Vec::new();
    for (place, may_fail) in places(config) {
        match open(config, place.clone()) {
            Ok(listener) => listeners.push(listener),
            Err(_) if may_fail => {}
            Err(source) => return Err(ListenError { place, source }),
        }
    }
    Ok(listeners)
}

fn open(config: &Config, place: Place) -> io::Result<Rc<Listener>> {
    let backlog = config.tcp_backlog.min(i32::MAX as u32) as i32;
    Listener::open(place, backlog, config.unixsocketperm).map(Rc::new)
}

/// Where `config` says to listen, and whether that may fail.
fn places(config: &Config) -> Vec<(Place, bool)> {
    let mut places = Vec::new();
    for (port, security) in [(config.port, Security::Plain), (config.tls_port, Security::Tls)] {
        for bind in config.bind.iter().filter(|_| port != 0) {
            let (may_fail, host) = bind.strip_prefix('-').map_or((false, bind.as_str()), |host| (true, host));
            places.push((Place::Tcp(host.to_owned(), port, security), may_fail));
        }
    }
    if !config.unixsocket.as_os_str().is_empty() {
        places.push((Place::Unix(config.dir.join(&config.unixsocket)), false));
    }
    places
}
