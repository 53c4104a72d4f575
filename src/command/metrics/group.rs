//! Metrics of a node in a group: who leads, who votes, who follows, and how far.

use crate::engine::Ctx;
use crate::meters::exposition::{Kind, head, sample, single};
use crate::persist::group_admin::{NodeRow, Reach, Role};
use crate::persist::journal::Journal;

/// Writes the state of the group, and of the links with its other nodes, if the server is a node.
pub(super) fn write(text: &mut String, ctx: &Ctx<'_>) {
    let Some(group) = ctx.server.persistence.journal.as_ref().and_then(Journal::member) else { return };
    let gauge =
        |text: &mut String, metric: &str, help: &str, value: u64| single(text, metric, Kind::Gauge, help, value);
    gauge(text, "tidegate_group_leads", "Whether this node leads its group.", group.leads().into());
    gauge(text, "tidegate_group_has_leader", "Whether this node knows a leader.", group.leader().is_some().into());
    gauge(text, "tidegate_group_term", "The term of the group; each leader has one of its own.", group.facts().term.0);
    let nodes = group.nodes();
    let voters = nodes.iter().filter(|node| matches!(node.role, Role::Leader | Role::Voter));
    let reached = voters.clone().filter(|node| node.reach != Reach::Disconnected).count();
    gauge(text, "tidegate_group_voters", "Nodes that vote.", voters.clone().count() as u64);
    let help = "Nodes that vote and are connected with this one, which counts, too.";
    gauge(text, "tidegate_group_voters_connected", help, reached as u64);
    let help = "Whether, as far as this node knows, more than half of the nodes that vote have a leader.";
    let has_quorum = if group.leads() { 2 * reached > voters.clone().count() } else { group.leader().is_some() };
    gauge(text, "tidegate_group_has_quorum", help, has_quorum.into());
    if let Some(age) = group.age() {
        let help = "Seconds by which the data of this node is behind its leader's, at most.";
        single(text, "tidegate_group_lag_seconds", Kind::Gauge, help, age.as_secs_f64());
    }
    let help = "Times that this node began to lead.";
    single(text, "tidegate_group_reigns_total", Kind::Counter, help, group.reigns());
    head(text, "tidegate_group_reigns_ended_total", "counter", "Times that this node stopped leading, and why.");
    for (why, count) in group.ends() {
        sample(text, "tidegate_group_reigns_ended_total", &[("why", why)], count);
    }
    let others: Vec<&NodeRow> =
        nodes.iter().filter(|node| node.reach != Reach::Own && node.role != Role::Waiting).collect();
    let of_each = |text: &mut String, metric: &str, kind: Kind, help: &str, value: &dyn Fn(&NodeRow) -> Option<u64>| {
        head(text, metric, kind.name(), help);
        for node in &others {
            if let Some(value) = value(node) {
                sample(text, metric, &[("node", &node.number.to_string())], value);
            }
        }
    };
    let (gauge, counter) = (Kind::Gauge, Kind::Counter);
    of_each(text, "tidegate_node_connected", gauge, "Whether another node is connected.", &|node| {
        Some((node.reach == Reach::Connected).into())
    });
    let help = "Entries of the log that another node lacks, as its leader knows.";
    of_each(text, "tidegate_node_missing_entries", gauge, help, &|node| node.missing.filter(|_| group.leads()));
    of_each(text, "tidegate_node_sent_bytes_total", counter, "Bytes sent to another node.", &|node| {
        Some(node.traffic.sent_bytes)
    });
    of_each(text, "tidegate_node_received_bytes_total", counter, "Bytes received from another node.", &|node| {
        Some(node.traffic.received_bytes)
    });
    let help = "Messages to another node that were dropped, because it was not connected or too slow.";
    of_each(text, "tidegate_node_dropped_messages_total", counter, help, &|node| Some(node.traffic.dropped));
}
