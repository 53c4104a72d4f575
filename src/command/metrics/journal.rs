//! Metrics of the journal: whether it works, how long the disk takes, and who waits for it.

use crate::engine::Ctx;
use crate::meters::exposition::{Kind, histogram, single};
use crate::persist::journal::Journal;

/// Writes the state of the journal, if there is one. In a group it is the group's, and the times are those of the
/// node's own disk.
pub(super) fn write(text: &mut String, ctx: &Ctx<'_>) {
    let Some(journal) = &ctx.server.persistence.journal else { return };
    let help = "Whether the journal lacks space, or the group is far behind, so that changes are refused until then.";
    single(text, "tidegate_log_full", Kind::Gauge, help, u8::from(journal.is_full()));
    let help = "Whether the journal has failed, so that changes are refused until a restart.";
    single(text, "tidegate_log_failed", Kind::Gauge, help, u8::from(ctx.server.persistence.has_failed()));
    waiting(text, ctx, journal);
    if let Some(log) = journal.local() {
        let (help, seconds) = ("Duration of the slowest recent sync in seconds.", log.sync_time().as_secs_f64());
        single(text, "tidegate_log_sync_seconds", Kind::Gauge, help, seconds);
    }
    let facts = journal.member().map(|group| group.facts());
    let Some(times) = facts.as_ref().map(|facts| &*facts.times).or(journal.local().map(|log| log.times())) else {
        return;
    };
    let (help, seconds) = ("Seconds spent writing and syncing the journal.", times.busy().as_secs_f64());
    single(text, "tidegate_log_busy_seconds_total", Kind::Counter, help, seconds);
    let (writes, syncs) = (times.writes.counted(), times.syncs.counted());
    histogram(text, "tidegate_log_write_duration_seconds", "Durations of writes of the journal.", &writes);
    histogram(text, "tidegate_log_sync_duration_seconds", "Durations of syncs of the journal.", &syncs);
}

/// Writes how many replies wait until the changes that they show can't be lost.
fn waiting(text: &mut String, ctx: &Ctx<'_>, journal: &Journal) {
    let safe = journal.safe();
    let outboxes = || ctx.server.clients.sessions.iter().map(|session| &session.outbox);
    let clients = outboxes().filter(|outbox| outbox.shows_more_than(safe)).count();
    single(text, "tidegate_held_clients", Kind::Gauge, "Clients with replies that wait for the journal.", clients);
    let bytes: usize = outboxes().map(|outbox| outbox.held_bytes(safe)).sum();
    single(text, "tidegate_held_reply_bytes", Kind::Gauge, "Bytes of replies that wait for the journal.", bytes);
}
