//! Sending a snapshot as RDB, slice by slice. See [`crate::persist::transfer`].

use crate::engine::state::Engine;
use crate::persist::tail::UnitOrigin;
use crate::resp::reply::Reply;
use crate::spec::session_key::SessionKey;

impl Engine {
    /// Makes the next part of a session's transfer, if there is room for it; returns whether there was. Without room
    /// the session's task is woken once there is.
    pub fn continue_transfer(&mut self, key: SessionKey) -> bool {
        if self.server.clients.has_no_room_for(self.server.time.clock.steady_ms(), key) {
            return false;
        }
        self.transfer_slice(key);
        self.server.clients.count_unsent(&mut self.server.meters.stats, key);
        true
    }

    /// Makes the next slice of a client's transfer, and closes the connection after the last slice: a replica must not
    /// take silence for being up to date.
    pub fn transfer_slice(&mut self, key: SessionKey) {
        let Some(mut session) = self.server.clients.sessions.take(key) else { return };
        if let Some(transfer) = session.transfer.take() {
            self.ks.set_now_ms(self.server.time.clock.now_ms());
            let unit = self.begin(UnitOrigin::Snapshot);
            let libraries = self.server.programs.scripts.libraries().iter().map(|library| &*library.code);
            let had_failed = self.server.persistence.has_failed();
            let made = transfer.slice(&self.ks, libraries);
            self.ks.see_scripts();
            self.commit(unit, &mut []);
            let fence = self.ks.fence();
            if let Ok((made, _)) = &made {
                // The call may find that the disk has failed.
                self.server.hold(made.len(), fence);
            }
            match made {
                Ok((mut made, rest)) if !self.server.persistence.is_lost(fence) => {
                    session.outbox.fence_coming(0, fence);
                    session.wait_for_round(&self.server.persistence);
                    session.outbox.append(&mut made);
                    session.transfer = rest;
                    if session.transfer.is_none() {
                        session.close_when_sent();
                    }
                }
                Ok(_) => {
                    tracing::warn!(client = key.id, "closed: the journal failed before it had the changes to be sent");
                    session.kill();
                }
                Err(error) => {
                    tracing::warn!(client = key.id, "closed: {error}");
                    session.kill();
                }
            }
            let form = session.form();
            self.server.catch_up(&mut session, had_failed, &mut Reply::new(form));
        }
        self.server.clients.sessions.put(session);
    }
}
