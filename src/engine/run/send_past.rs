//! Sends large values from where they lie in memory.
//!
//! Copying 64 KB into a reply, which the system then copies once more, takes about as long as sending them. So a large
//! string is sent from the value itself, in one system call with the replies before it; only the part that the socket
//! does not take becomes part of the reply. This requires that everything may leave at once: no reply waits for the
//! journal, a group or its reader, and the command is the client's own, whose reply is never withdrawn. Nor is it done
//! if the client would be closed for leaving that much unread. Smaller values leave later, together with others.
//!
//! If another command follows in the same pipeline, the few bytes that would not fill a packet are left for its reply.
//! Over the loopback interface, with packets of 65,483 bytes, a value of 64 KiB would otherwise take two packets, and
//! the short one costs nearly as much.

use crate::base::lsn::Lsn;
use crate::engine::run::pipeline::Past;
use crate::engine::run::pipeline::Pipeline;
use crate::engine::state::{Origin, ServerState};
use crate::resp::reply::Reply;
use crate::session::limits::{SEND_REST_MAX_BYTES, SEND_SLICE_BYTES};
use crate::session::output_limits::is_too_much;
use crate::session::{Restrictions, Session};

impl Pipeline {
    /// Whether anything was sent past the replies of the last pipeline.
    pub(crate) fn has_sent_past(&self) -> bool {
        self.sent_past > 0
    }
}

impl ServerState {
    /// Replies with a large string to a command that came from `origin`. The string shows the data as of unit `fence`.
    #[cold]
    pub fn answer_large(&mut self, session: &mut Session, reply: &mut Reply, origin: Origin, fence: Lsn, bytes: &[u8]) {
        let is_too_much = is_too_much(&self.config, session, reply.len() + bytes.len());
        let Some(sockets) = &mut self.network.raw_sockets else { return reply.bulk(bytes) };
        let is_of_group = self.persistence.journal.as_ref().is_some_and(|journal| journal.member().is_some());
        if origin != Origin::Client || fence > Lsn::NONE || is_too_much || is_of_group || !may_leave(session) {
            return reply.bulk(bytes);
        }
        let begin = self.meters.stats.clock.raw();
        let has_next = session.commands < self.pipeline.batch_ends_at;
        let more_follows = has_next && self.pipeline.sent_past + reply.len() + bytes.len() < SEND_SLICE_BYTES;
        let mut sent = 0;
        reply.bulk_past(bytes, |parts| {
            sent = sockets.send_past(session.key, parts, more_follows);
            sent
        });
        self.pipeline.past_of_call = Past { bytes: sent, ticks: self.meters.stats.clock.raw().saturating_sub(begin) };
        session.bytes_out += sent as u64;
        self.meters.stats.sent(sent as u64);
        self.pipeline.sent_past += sent;
        // The unsent rest would be offered to the socket again with each further reply.
        self.pipeline.others_come_first |=
            self.pipeline.sent_past >= SEND_SLICE_BYTES || reply.len() > SEND_REST_MAX_BYTES;
    }
}

/// Whether the client's next reply may leave at once, together with the replies before it.
fn may_leave(session: &Session) -> bool {
    let is_wanted = !session.restrictions.contains(Restrictions::MUTED);
    is_wanted && session.outbox.is_empty() && session.outbox.coming().is_none()
}
