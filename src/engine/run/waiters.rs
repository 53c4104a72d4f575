//! How a call begins to wait and ceases to, both in the queues and in its session.

use crate::engine::observe::readers::Readers;
use crate::engine::state::Connections;
use crate::session::Session;
use crate::session::Sessions;
use crate::spec::session_key::SessionKey;
use crate::spec::table::CommandId;
use crate::wait::wait_queues::Waits;
use crate::wait::wait_queues::{Mode, Parked};
use crate::wait::{Ticket, Want};

impl Waits {
    /// Returns the call that blocks a client, if it is a call of this command. CLIENT UNBLOCK may have ended the call
    /// that blocked the client before, and the client may wait for something else by now.
    pub(in crate::engine) fn blocking_call(
        &self,
        sessions: &Sessions,
        client: SessionKey,
        command: CommandId,
    ) -> Option<Ticket> {
        let ticket = sessions.get(client)?.blocking_call()?;
        self.get(ticket).filter(|parked| parked.command == command).map(|parked| parked.ticket)
    }
}

impl Connections<'_> {
    /// Makes a call of a session wait from now on.
    pub(in crate::engine) fn begin_waiting(&mut self, session: &mut Session, parked: Box<Parked>) {
        match parked.mode {
            Mode::Blocking { .. } => session.block(parked.ticket),
            Mode::Beside => session.tickets.get_or_insert_default().add(parked.ticket, parked.mem_bytes()),
        }
        self.waits.add(parked);
        self.audience.set_reader(Readers::WAIT, !self.waits.is_empty());
    }

    /// Ends the waiting of a session's call, which was [taken](crate::wait::wait_queues::Waits::take) from the
    /// queues.
    pub(in crate::engine) fn stop_waiting(&mut self, session: &mut Session, parked: &Parked) {
        match parked.mode {
            Mode::Blocking { .. } => session.unblock(),
            Mode::Beside => {
                if let Some(tickets) = &mut session.tickets {
                    tickets.remove(parked.ticket, parked.mem_bytes());
                }
                session.tickets.take_if(|tickets| tickets.is_empty());
            }
        }
        self.leave_queues(parked);
    }

    /// Ends the waiting of a taken call whose session is gone.
    pub(in crate::engine) fn leave_queues(&mut self, parked: &Parked) {
        self.waits.remove(parked);
        if let Some(counted) = parked.counted {
            let waited_ms = self.clock.steady_ms().saturating_sub(parked.since_ms);
            self.stats.coordination.end_wait(counted, waited_ms.try_into().unwrap_or(0));
        }
        if parked.want == Want::Place {
            // If the call was the first of its queue, the next one must learn when to look.
            parked.keys.as_argv().iter().for_each(|key| self.waits.touch(parked.db, key));
        }
        self.audience.set_reader(Readers::WAIT, !self.waits.is_empty());
    }

    /// Gives up a call of a session without a reply.
    pub(in crate::engine) fn give_up(&mut self, session: &mut Session, ticket: Ticket) {
        if let Some(parked) = self.waits.take(ticket) {
            self.stop_waiting(session, &parked);
        }
    }

    /// Gives up one of the calls that wait beside a session. Returns the time of the steady clock since which it has
    /// waited; `None` if it did not wait.
    pub fn withdraw(&mut self, session: &mut Session, ticket: Ticket) -> Option<i64> {
        let since_ms = self.waits.get(ticket).filter(|_| session.has_ticket(ticket))?.since_ms;
        self.give_up(session, ticket);
        Some(since_ms)
    }

    /// Gives up all calls that wait beside a session, since their results could not be pushed.
    pub fn withdraw_all(&mut self, session: &mut Session) {
        for ticket in session.tickets.take().into_iter().flat_map(|tickets| tickets.into_all()) {
            self.give_up(session, ticket);
        }
    }

    /// Closes the client after it has read its replies. Nothing is pushed to it any more.
    pub fn close_soon(&mut self, session: &mut Session) {
        session.close_when_sent();
        self.withdraw_all(session);
    }

    /// Closes a client, whose command is not running, after it has read its replies.
    pub fn close_when_sent(&mut self, key: SessionKey) {
        if let Some(mut session) = self.clients.sessions.take(key) {
            self.close_soon(&mut session);
            // It may have no reply to send, which would wake it.
            session.outbox.wake();
            self.clients.sessions.put(session);
        }
    }
}
