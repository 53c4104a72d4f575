//! The ports of HTTP, as the configuration names them, and the site at each.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use super::questions::Questions;
use super::serve::serve;
use super::{console, probes};
use crate::config::Config;
use crate::net::inside::Inside;
use crate::net::listener::resolve;
use crate::session::registry::Registry;

/// The sockets of both ports; none of a port that is not wanted.
pub(crate) struct Ports {
    metrics: Vec<TcpListener>,
    console: Vec<TcpListener>,
}

/// What the sites get their answers from.
pub(crate) struct Sources {
    pub questions: Arc<Questions>,
    pub registry: Arc<Registry>,
    pub inside: Arc<Inside>,
}

impl Ports {
    /// Opens the sockets. An error names the address that can't be listened on.
    pub(crate) fn open(config: &Config) -> Result<Ports, (String, io::Error)> {
        Ok(Ports {
            metrics: listen(&config.metrics_bind, config.metrics_port, "metrics")?,
            console: listen(&config.console_bind, config.console_port, "console")?,
        })
    }

    /// Serves each port on a thread of its own, until the process ends.
    pub(crate) fn serve(self, sources: Sources, config: &Config) -> io::Result<()> {
        let Sources { questions, registry, inside } = sources;
        if !self.metrics.is_empty() {
            serve("metrics", self.metrics, probes::site(questions, Arc::clone(&registry)))?;
        }
        if let Some(address) = self.console.first().and_then(|listener| listener.local_addr().ok()) {
            tracing::info!("the console is at http://{address}");
            serve("console", self.console, console::site(inside, registry, config))?;
        }
        Ok(())
    }
}

/// Opens the sockets of a port; an address that starts with `-` may fail. `what` is served there.
fn listen(addresses: &[String], port: u16, what: &str) -> Result<Vec<TcpListener>, (String, io::Error)> {
    let mut listeners = Vec::new();
    for address in addresses.iter().filter(|_| port != 0) {
        let host = address.strip_prefix('-').unwrap_or(address);
        let bound = resolve(host, port).and_then(TcpListener::bind);
        match bound.and_then(|listener| listener.set_nonblocking(true).map(|()| listener)) {
            Ok(listener) => listeners.push(listener),
            Err(_) if address.starts_with('-') => {}
            Err(error) => return Err((format!("{host}:{port} ({what})"), error)),
        }
    }
    Ok(listeners)
}
