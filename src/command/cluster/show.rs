//! CLUSTER INFO, NODES, SHARDS, SLOTS and the like: the [`Shard`] in the forms that clients read.

use std::time::Instant;

use super::mode::enabled;
use crate::base::crc::SLOTS;
use crate::engine::{Ctx, Done};
use crate::persist::journal::Journal;
use crate::persist::shard::{Shard, ShardNode};
use crate::session::Session;
use crate::spec::args::Args;
use crate::spec::error::{Error, excerpt};

/// The last slot.
const LAST: u16 = SLOTS - 1;

/// Returns the shard, unless this server is not in Cluster mode.
fn shard(ctx: &Ctx<'_>) -> Result<Shard, Error> {
    enabled(ctx)?;
    let server = &ctx.server;
    let name = &server.identity.node_name;
    Ok(server.persistence.shard(name, place(ctx), server.config.node_id))
}

/// Returns where the client reaches this server if that is a single one: where it says, or else where the client has
/// connected to.
fn place(ctx: &Ctx<'_>) -> (String, u16) {
    let config = &ctx.server.config;
    let (host, port) = reached(ctx.session).unwrap_or_else(|| {
        // By a unix socket.
        let port = if config.port != 0 { config.port } else { config.tls_port };
        ("127.0.0.1".to_owned(), port)
    });
    let host = if config.cluster_announce_ip.is_empty() { host } else { config.cluster_announce_ip.clone() };
    (host, if config.cluster_announce_port == 0 { port } else { config.cluster_announce_port })
}

fn reached(session: &Session) -> Option<(String, u16)> {
    let local: std::net::SocketAddr = session.local_address.parse().ok()?;
    Some((local.ip().to_canonical().to_string(), local.port()))
}

pub(super) fn info(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let shard = shard(ctx)?;
    let (state, ok, failed) = if shard.is_led { ("ok", SLOTS, 0) } else { ("fail", 0, SLOTS) };
    let epoch = shard.epoch;
    let text = [
        format!("cluster_state:{state}"),
        format!("cluster_slots_assigned:{SLOTS}"),
        format!("cluster_slots_ok:{ok}"),
        "cluster_slots_pfail:0".to_owned(),
        format!("cluster_slots_fail:{failed}"),
        format!("cluster_known_nodes:{}", shard.nodes.len()),
        "cluster_size:1".to_owned(),
        format!("cluster_current_epoch:{epoch}"),
        format!("cluster_my_epoch:{epoch}"),
        // There is no bus of a cluster.
        "cluster_stats_messages_sent:0".to_owned(),
        "cluster_stats_messages_received:0".to_owned(),
        "total_cluster_links_buffer_limit_exceeded:0".to_owned(),
    ];
    ctx.reply.verbatim(b"txt", format!("{}\r\n", text.join("\r\n")).as_bytes());
    Ok(())
}

pub(super) fn my_id(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let shard = shard(ctx)?;
    let own = shard.nodes.iter().find(|node| node.is_own);
    let own = own.ok_or(Error::text("ERR this node is no member of its group"))?;
    ctx.reply.bulk(own.name.as_bytes());
    Ok(())
}

pub(super) fn my_shard_id(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let shard = shard(ctx)?;
    ctx.reply.bulk(shard.name.as_bytes());
    Ok(())
}

pub(super) fn nodes(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let shard = shard(ctx)?;
    let lines: String = shard.nodes.iter().map(|node| line(&shard, node) + "\n").collect();
    ctx.reply.verbatim(b"txt", lines.as_bytes());
    Ok(())
}

/// Returns the line of a node in CLUSTER NODES. The times of pings, which would differ from node to node, are 0.
fn line(shard: &Shard, node: &ShardNode) -> String {
    let ShardNode { name, host, port, node_port, .. } = node;
    let own = if node.is_own { "myself," } else { "" };
    let role = match node.is_leader {
        // Another node may be about to lead.
        true if !shard.is_led => "master,fail?",
        true => "master",
        false => "slave",
    };
    let master = shard.leader().filter(|_| !node.is_leader).map_or("-", |leader| &leader.name);
    let epoch = shard.epoch;
    let link = if node.is_reached() { "connected" } else { "disconnected" };
    let slots = if node.is_leader { format!(" 0-{LAST}") } else { String::new() };
    format!("{name} {host}:{port}@{node_port} {own}{role} {master} 0 0 {epoch} {link}{slots}")
}

pub(super) fn replicas(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let shard = shard(ctx)?;
    if !known(&shard, args.bytes()?)?.is_leader {
        return Err(Error::text("ERR The specified node is not a master"));
    }
    let lines: Vec<String> = shard.nodes.iter().filter(|node| !node.is_leader).map(|node| line(&shard, node)).collect();
    ctx.reply.array(lines.len());
    lines.iter().for_each(|line| ctx.reply.bulk(line.as_bytes()));
    Ok(())
}

/// COUNT-FAILURE-REPORTS: nodes of a group do not report each other.
pub(super) fn count_failure_reports(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    known(&shard(ctx)?, args.bytes()?)?;
    ctx.reply.integer(0);
    Ok(())
}

/// Returns the node of this name.
fn known<'s>(shard: &'s Shard, name: &[u8]) -> Result<&'s ShardNode, Error> {
    let node = shard.nodes.iter().find(|node| node.name.as_bytes() == name);
    node.ok_or_else(|| Error::owned(format!("ERR Unknown node {}", excerpt(name, 128))))
}

/// SLOTS: one range, its leader, and the followers that can be reached. Without any leader so far nobody serves it.
pub(super) fn slots(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let shard = shard(ctx)?;
    if shard.leader().is_none() {
        ctx.reply.array(0);
        return Ok(());
    }
    let nodes: Vec<&ShardNode> = shard.nodes.iter().filter(|node| node.is_leader || node.is_reached()).collect();
    ctx.reply.array(1);
    ctx.reply.array(2 + nodes.len());
    ctx.reply.integer(0);
    ctx.reply.integer(LAST.into());
    for node in nodes {
        ctx.reply.array(4);
        ctx.reply.bulk(node.host.as_bytes());
        ctx.reply.integer(node.port.into());
        ctx.reply.bulk(node.name.as_bytes());
        // Other forms of the address: there are none.
        ctx.reply.map(0);
    }
    Ok(())
}

/// SHARDS. A node knows only its own offset, and shows it for all. A single server has none, as in ROLE.
pub(super) fn shards(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let shard = shard(ctx)?;
    let persistence = &ctx.server.persistence;
    let group = persistence.journal.as_ref().and_then(Journal::member);
    let offset = group.map_or(0, |_| i64::try_from(persistence.last_lsn().get()).unwrap_or(i64::MAX));
    let is_loading = persistence.loading.is_some();
    let health = |node: &ShardNode| match node {
        node if node.is_own && is_loading => "loading",
        node if !node.is_reached() || node.is_leader && !shard.is_led => "fail",
        _ => "online",
    };
    let reply = &mut *ctx.reply;
    reply.array(1);
    reply.map(2);
    reply.bulk(b"slots");
    if shard.leader().is_some() {
        reply.array(2);
        reply.integer(0);
        reply.integer(LAST.into());
    } else {
        reply.array(0);
    }
    reply.bulk(b"nodes");
    reply.array(shard.nodes.len());
    for node in &shard.nodes {
        reply.map(7);
        reply.bulk(b"id");
        reply.bulk(node.name.as_bytes());
        reply.bulk(b"port");
        reply.integer(node.port.into());
        for name in ["ip", "endpoint"] {
            reply.bulk(name.as_bytes());
            reply.bulk(node.host.as_bytes());
        }
        reply.bulk(b"role");
        reply.bulk(if node.is_leader { b"master" } else { b"replica" });
        reply.bulk(b"replication-offset");
        reply.integer(offset);
        reply.bulk(b"health");
        reply.bulk(health(node).as_bytes());
    }
    Ok(())
}

/// LINKS: two connections with each other node that is reached. What they hold unsent is not known here, so it is 0.
pub(super) fn links(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let shard = shard(ctx)?;
    let now_ms = ctx.server.time.clock.now_ms();
    let at_ms = |since: Instant| now_ms.saturating_sub(since.elapsed().as_millis() as i64);
    let reached = || shard.nodes.iter().filter_map(|node| Some((node, node.linked_since?)));
    ctx.reply.array(2 * reached().count());
    for (node, [from_here, from_there]) in reached() {
        for (direction, since) in [("to", from_here), ("from", from_there)] {
            ctx.reply.map(6);
            ctx.reply.bulk(b"direction");
            ctx.reply.bulk(direction.as_bytes());
            ctx.reply.bulk(b"node");
            ctx.reply.bulk(node.name.as_bytes());
            ctx.reply.bulk(b"create-time");
            ctx.reply.integer(at_ms(since));
            ctx.reply.bulk(b"events");
            ctx.reply.bulk(b"r");
            for name in ["send-buffer-allocated", "send-buffer-used"] {
                ctx.reply.bulk(name.as_bytes());
                ctx.reply.integer(0);
            }
        }
    }
    Ok(())
}
