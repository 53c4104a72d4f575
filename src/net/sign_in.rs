//! Clients known by their certificate. Between the handshake and the first command, `tls-auth-clients-user` says which
//! name in the certificate is that of the user.
//!
//! The task of a TLS connection shakes hands first. So from the first command on, the task of every connection is the
//! same, and a connection without TLS is not concerned with certificates.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::conn::Conn;
use super::serve::Shared;
use super::socket_table::Connection;
use crate::base::certificate::{common_name, uris};
use crate::config::TlsAuthClientsUser;
use crate::engine::ServerState;
use crate::session::wire::Course;
use crate::spec::session_key::SessionKey;

/// Signs in a client whose handshake has just ended, if its certificate names a user.
pub(super) fn sign_in(server: &mut ServerState, key: SessionKey, connection: &Connection) {
    let Some(certificate) = connection.take_certificate() else { return };
    let names = match server.config.tls_auth_clients_user {
        TlsAuthClientsUser::Off => return,
        TlsAuthClientsUser::CommonName => common_name(&certificate).into_iter().collect(),
        TlsAuthClientsUser::Uri => uris(&certificate),
    };
    let Some(mut session) = server.clients.sessions.take(key) else { return };
    server.access().sign_in_by_certificate(&mut session, &names);
    server.clients.sessions.put(session);
}

/// The future of a connection that uses TLS.
pub(super) struct TlsConn {
    shared: Rc<Shared>,
    key: SessionKey,
    connection: Rc<Connection>,
    conn: Conn,
    is_open: bool,
}

impl TlsConn {
    /// Makes the future of the connection whose key in the socket table is `key`.
    pub(super) fn new(shared: Rc<Shared>, key: SessionKey, connection: Rc<Connection>) -> TlsConn {
        let conn = Conn::new(Rc::clone(&shared), key, Rc::clone(&connection));
        TlsConn { shared, key, connection, conn, is_open: false }
    }

    /// Shakes hands. Ready when the handshake has ended, successfully or not, and when the client must be closed.
    fn poll_open(&self, cx: &mut Context<'_>) -> Poll<()> {
        let is_over = self.connection.poll_handshake(cx).is_ready();
        let server = &mut self.shared.engine.borrow_mut().server;
        if is_over {
            sign_in(server, self.key, &self.connection);
            return Poll::Ready(());
        }
        match server.clients.sessions.get_mut(self.key) {
            Some(session) if session.course() != Course::Close => {
                session.wake_by(cx.waker());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }
}

impl Future for TlsConn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_open {
            if self.poll_open(cx).is_pending() {
                return Poll::Pending;
            }
            self.is_open = true;
        }
        Pin::new(&mut self.conn).poll(cx)
    }
}
