//! SENTINEL: the leader of the group in the words of Redis Sentinel, for clients that look for it in this way. The
//! commands exist at `sentinel-port` only.
//!
//! The leader is what Sentinel calls a master, the other members are its slaves, and the nodes with a `sentinel-port`
//! are the Sentinels. All replies come from this node's memory, so none waits for another node. Addresses are those
//! that the nodes have announced to the group.
//!
//! A leader is named once an entry of its term is committed, as far as this node knows. While none is known there is no
//! address, and the state of the master says that it is down. Some fields describe what only Sentinel does: pings and
//! queries on a timer. They have the values of a Sentinel that has just heard of each node that can be reached.

use super::help::help;
use crate::base::lsn::Lsn;
use crate::engine::limits::DOWN_AFTER_MS;
use crate::engine::observe::group_watch::GroupWatch;
use crate::engine::{Command, Ctx, Done, Run, ServerState};
use crate::persist::group_view::{GroupView, MemberView};
use crate::persist::journal::Journal;
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Flags, Group};

const NO_MASTER: Error = Error::text("ERR No such master with that name");

const NO_GROUP: Error = Error::text("ERR this node does not know its group yet");

/// An upper bound of the time that the group takes to elect a leader, for clients that show it.
const FAILOVER_TIMEOUT_MS: u64 = 1_000;

/// The group, and what describes it for clients.
pub(super) struct View<'s> {
    name: &'s [u8],
    group: GroupView,
    watch: &'s GroupWatch,
    now_ms: i64,
}

/// A node as Sentinel describes it: names of fields and their values.
type Fields = Vec<(&'static str, String)>;

/// How a node is reached from here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Connected,
    /// There is no connection, which may last for a moment only.
    Disconnected,
    /// There has been no connection for so many ms.
    Down(i64),
    /// There is no such node: no leader is known.
    Unknown,
}

impl<'s> View<'s> {
    pub(super) fn new(server: &'s ServerState) -> Result<View<'s>, Error> {
        let group = server.persistence.journal.as_ref().and_then(Journal::member).ok_or(NO_GROUP)?;
        Ok(View {
            name: &server.config.sentinel_master_name,
            group: group.view(),
            watch: &server.audience.group_watch,
            now_ms: server.time.clock.steady_ms(),
        })
    }

    fn reach(&self, member: Option<&MemberView>) -> Reach {
        let Some(member) = member else { return Reach::Unknown };
        match self.watch.down_since_ms(member.number) {
            _ if member.is_connected => Reach::Connected,
            Some(since_ms) => Reach::Down(self.now_ms - since_ms),
            None => Reach::Disconnected,
        }
    }

    /// Returns the other nodes with a port like this one.
    fn other_sentinels(&self) -> impl Iterator<Item = &MemberView> {
        self.group.members.iter().filter(|member| !member.is_own && member.sentinel_port != 0)
    }

    /// Returns how many voters can be reached from here, with this node if it is one.
    fn usable_voters(&self) -> usize {
        self.group.members.iter().filter(|member| member.votes && member.is_connected).count()
    }

    /// The line of INFO that sums the group up.
    pub(super) fn summary(&self) -> String {
        let leader = self.group.leader();
        let status = match self.reach(leader) {
            Reach::Connected | Reach::Disconnected => "ok",
            Reach::Down(_) => "sdown",
            Reach::Unknown => "odown",
        };
        let (host, port) = place(leader);
        format!(
            "name={},status={status},address={host}:{port},slaves={},sentinels={}",
            String::from_utf8_lossy(self.name),
            self.group.followers().count(),
            self.other_sentinels().count() + 1,
        )
    }
}

/// The descriptions of nodes, with the fields of Redis in their order.
impl View<'_> {
    fn master(&self) -> Fields {
        let leader = self.group.leader();
        let name = String::from_utf8_lossy(self.name).into_owned();
        let mut fields = self.node(name, place(leader), leader, "master");
        fields.extend(self.role("master"));
        fields.extend([
            ("config-epoch", self.group.term.to_string()),
            ("num-slaves", self.group.followers().count().to_string()),
            ("num-other-sentinels", self.other_sentinels().count().to_string()),
            ("quorum", self.group.quorum().to_string()),
            ("failover-timeout", FAILOVER_TIMEOUT_MS.to_string()),
            ("parallel-syncs", "1".to_owned()),
        ]);
        fields
    }

    fn slave(&self, member: &MemberView, own_lsn: Lsn) -> Fields {
        let (host, port) = place(Some(member));
        let leader = self.group.leader();
        let (leader_host, leader_port) = place(leader);
        let follows = leader.is_some() && member.is_connected;
        let lsn = if member.is_own { Some(own_lsn) } else { member.lsn };
        let mut fields = self.node(format!("{host}:{port}"), (host, port), Some(member), "slave");
        fields.extend(self.role("slave"));
        fields.extend([
            ("master-link-down-time", "0".to_owned()),
            ("master-link-status", if follows { "ok" } else { "err" }.to_owned()),
            ("master-host", leader_host.to_owned()),
            ("master-port", leader_port.to_string()),
            // As in Redis, 0 is for a replica that is never promoted.
            ("slave-priority", if member.votes { "100" } else { "0" }.to_owned()),
            ("slave-repl-offset", lsn.unwrap_or(Lsn::NONE).to_string()),
            ("replica-announced", "1".to_owned()),
        ]);
        fields
    }

    fn sentinel(&self, member: &MemberView) -> Fields {
        let (host, _) = place(Some(member));
        let mut fields = self.node(id(member), (host, member.sentinel_port), Some(member), "sentinel");
        fields.extend([
            ("last-hello-message", since(self.reach(Some(member))).to_string()),
            ("voted-leader", "?".to_owned()),
            ("voted-leader-epoch", "0".to_owned()),
        ]);
        fields
    }

    /// Returns the fields that all descriptions begin with.
    fn node(&self, name: String, (host, port): (&str, u16), member: Option<&MemberView>, kind: &str) -> Fields {
        let reach = self.reach(member);
        let flags = match reach {
            Reach::Connected => kind.to_owned(),
            Reach::Disconnected => format!("{kind},disconnected"),
            Reach::Down(_) => format!("s_down,{kind},disconnected"),
            Reach::Unknown => format!("s_down,o_down,{kind},disconnected"),
        };
        let mut fields = vec![
            ("name", name),
            ("ip", host.to_owned()),
            ("port", port.to_string()),
            ("runid", member.map(id).unwrap_or_default()),
            ("flags", flags),
            ("link-pending-commands", "0".to_owned()),
            ("link-refcount", "1".to_owned()),
            ("last-ping-sent", since(reach).to_string()),
            ("last-ok-ping-reply", since(reach).to_string()),
            ("last-ping-reply", since(reach).to_string()),
        ];
        if let Reach::Down(ms) = reach {
            fields.push(("s-down-time", (ms - DOWN_AFTER_MS).to_string()));
        }
        fields.push(("down-after-milliseconds", DOWN_AFTER_MS.to_string()));
        fields
    }

    /// Returns what a node said of its role: here the group says it, all the time.
    fn role(&self, role: &str) -> Fields {
        vec![
            ("info-refresh", "0".to_owned()),
            ("role-reported", role.to_owned()),
            ("role-reported-time", (self.now_ms - self.watch.leads_since_ms()).to_string()),
        ]
    }
}

/// Returns where clients reach a node. An unknown host is what Sentinel shows then: no name that anybody could connect
/// to.
fn place(member: Option<&MemberView>) -> (&str, u16) {
    let home = member.and_then(|member| member.home.as_ref());
    home.map_or(("?", 0), |(address, _)| (address.host(), address.port))
}

/// Returns the id of a node: its name in Cluster mode.
fn id(member: &MemberView) -> String {
    member.home.as_ref().map_or_else(String::new, |(_, name)| name.clone())
}

/// Returns for how many ms a node has been silent, as far as this is known.
fn since(reach: Reach) -> i64 {
    if let Reach::Down(ms) = reach { ms } else { 0 }
}

fn write(reply: &mut Reply, fields: &Fields) {
    reply.map(fields.len());
    for (name, value) in fields {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
}

fn write_all(reply: &mut Reply, nodes: &[Fields]) {
    reply.array(nodes.len());
    nodes.iter().for_each(|fields| write(reply, fields));
}

/// Returns what this node knows now. The engine may not have heard the newest while a script holds it.
fn view<'c>(ctx: &'c mut Ctx<'_>) -> Result<(View<'c>, &'c mut Reply), Error> {
    ctx.server.follow_journal();
    Ok((View::new(ctx.server)?, ctx.reply))
}

/// As [`view`], for a command whose next argument must name the group.
fn view_of_master<'c>(ctx: &'c mut Ctx<'_>, args: &mut Args<'_>) -> Result<(View<'c>, &'c mut Reply), Error> {
    let name = args.bytes()?;
    if name != ctx.server.config.sentinel_master_name {
        return Err(NO_MASTER);
    }
    view(ctx)
}

fn get_master_addr_by_name(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let is_known = args.bytes()? == ctx.server.config.sentinel_master_name;
    let (view, reply) = view(ctx)?;
    match view.group.leader().filter(|_| is_known) {
        None => reply.null_array(),
        leader => {
            let (host, port) = place(leader);
            reply.array(2);
            reply.bulk(host.as_bytes());
            reply.bulk_integer(port.into());
        }
    }
    Ok(())
}

fn masters(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let (view, reply) = view(ctx)?;
    write_all(reply, &[view.master()]);
    Ok(())
}

fn master(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (view, reply) = view_of_master(ctx, &mut args)?;
    write(reply, &view.master());
    Ok(())
}

fn replicas(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let own_lsn = ctx.server.persistence.last_lsn();
    let (view, reply) = view_of_master(ctx, &mut args)?;
    write_all(reply, &view.group.followers().map(|member| view.slave(member, own_lsn)).collect::<Vec<_>>());
    Ok(())
}

fn sentinels(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (view, reply) = view_of_master(ctx, &mut args)?;
    write_all(reply, &view.other_sentinels().map(|member| view.sentinel(member)).collect::<Vec<_>>());
    Ok(())
}

fn my_id(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let (view, reply) = view(ctx)?;
    let own = view.group.members.iter().find(|member| member.is_own).ok_or(NO_GROUP)?;
    reply.bulk(id(own).as_bytes());
    Ok(())
}

/// CKQUORUM: whether a quorum of the voters can be reached from here. The texts are those of Redis.
fn check_quorum(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (view, reply) = view_of_master(ctx, &mut args)?;
    let usable = view.usable_voters();
    if usable < view.group.quorum() {
        return Err(Error::owned(format!(
            "NOQUORUM {usable} usable Sentinels. Not enough available Sentinels to reach the specified quorum for this \
             master. Not enough available Sentinels to reach the majority and authorize a failover"
        )));
    }
    reply.status(&format!("OK {usable} usable Sentinels. Quorum and failover authorization can be reached"));
    Ok(())
}

/// FAILOVER: begins to hand leadership over to the voter that has most of the log.
fn fail_over(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (view, _) = view_of_master(ctx, &mut args)?;
    let Some(leader) = view.group.leader() else {
        return Err(Error::text("INPROG Failover already in progress"));
    };
    if !leader.is_own {
        let (number, (host, port)) = (leader.number, place(Some(leader)));
        return Err(Error::owned(format!(
            "ERR this node does not lead: send SENTINEL FAILOVER to node {number}, or FAILOVER to {host}:{port}"
        )));
    }
    let group = ctx.server.persistence.journal.as_mut().and_then(Journal::group).ok_or(NO_GROUP)?;
    let heir = group.heir(None).ok_or(Error::text("NOGOODSLAVE No suitable replica to promote"))?;
    group.transfer(heir).map_err(|refusal| Error::owned(format!("ERR {refusal}")))?;
    ctx.reply.ok();
    Ok(())
}

fn refuse_members(_: &mut Ctx<'_>, _: Args<'_>) -> Done {
    Err(Error::text(
        "ERR a node knows its own group only, whose members NODE ADD and NODE REMOVE change (see docs/replication.md)",
    ))
}

fn refuse_settings(_: &mut Ctx<'_>, _: Args<'_>) -> Done {
    Err(Error::text(
        "ERR the group elects its leader without settings of Sentinel; other parameters are those of the server (see \
         docs/replication.md)",
    ))
}

/// Fields that most subcommands of SENTINEL share.
const SUB: Command = Command {
    arity: 3,
    flags: Flags::ADMIN.union(Flags::ALLOW_BUSY).union(Flags::SENTINEL).union(Flags::ONLY_SENTINEL),
    group: Group::Sentinel,
    since: "2.8.4",
    complexity: "O(N) where N is the number of nodes",
    syntax: "master-name",
    ..Command::EMPTY
};

/// As [`SUB`], for changes that are not possible here.
const REFUSED: Command = Command { complexity: "O(1)", ..SUB };

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "sentinel",
    arity: -2,
    flags: SUB.flags,
    group: Group::Sentinel,
    since: "2.8.4",
    complexity: "Depends on subcommand.",
    summary: "A container for the commands of Redis Sentinel.",
    sub: &[
        Command {
            name: "ckquorum",
            summary: "Tells whether enough nodes can be reached to elect a leader.",
            run: Run::Now(check_quorum),
            ..SUB
        },
        Command {
            name: "config",
            arity: -4,
            since: "6.2.0",
            summary: "Fails: there are no settings of Sentinel.",
            syntax: "<SET parameter value | GET parameter>:action",
            run: Run::Now(refuse_settings),
            ..REFUSED
        },
        Command {
            name: "failover",
            summary: "Begins to hand leadership over to another node. Only the leader can.",
            run: Run::Now(fail_over),
            ..SUB
        },
        Command {
            name: "flushconfig",
            arity: 2,
            summary: "Fails: there are no settings of Sentinel.",
            syntax: "",
            run: Run::Now(refuse_settings),
            ..REFUSED
        },
        Command {
            name: "get-master-addr-by-name",
            complexity: "O(1)",
            summary: "Returns the host and the port of the leader.",
            run: Run::Now(get_master_addr_by_name),
            ..SUB
        },
        Command {
            name: "help",
            arity: 2,
            flags: Flags::LOADING
                .union(Flags::STALE)
                .union(Flags::ALLOW_BUSY)
                .union(Flags::SENTINEL)
                .union(Flags::ONLY_SENTINEL),
            since: "6.2.0",
            complexity: "O(1)",
            summary: "Lists the subcommands.",
            syntax: "",
            run: Run::Now(help),
            ..SUB
        },
        Command { name: "master", summary: "Returns the state of the leader.", run: Run::Now(master), ..SUB },
        Command {
            name: "masters",
            arity: 2,
            summary: "Returns the state of the leader, as a list of one.",
            syntax: "",
            run: Run::Now(masters),
            ..SUB
        },
        Command {
            name: "monitor",
            arity: 6,
            summary: "Fails: a node knows its own group only.",
            syntax: "name ip port:integer quorum:integer",
            run: Run::Now(refuse_members),
            ..REFUSED
        },
        Command {
            name: "myid",
            arity: 2,
            since: "6.2.0",
            complexity: "O(1)",
            summary: "Returns the id of this node.",
            syntax: "",
            run: Run::Now(my_id),
            ..SUB
        },
        Command {
            name: "remove",
            summary: "Fails: a node knows its own group only.",
            run: Run::Now(refuse_members),
            ..REFUSED
        },
        Command {
            name: "replicas",
            since: "5.0.0",
            summary: "Returns the states of the nodes that follow the leader.",
            run: Run::Now(replicas),
            ..SUB
        },
        Command {
            name: "reset",
            summary: "Fails: the members of the group are not found by chance.",
            syntax: "pattern",
            run: Run::Now(refuse_members),
            ..REFUSED
        },
        Command {
            name: "sentinels",
            summary: "Returns the states of the other nodes that speak Sentinel's protocol.",
            run: Run::Now(sentinels),
            ..SUB
        },
        Command {
            name: "set",
            arity: -5,
            summary: "Fails: there are no settings of Sentinel.",
            syntax: "master-name (option value)...",
            run: Run::Now(refuse_settings),
            ..REFUSED
        },
        Command {
            name: "slaves",
            since: "2.8.0",
            summary: "Returns the states of the nodes that follow the leader.",
            run: Run::Now(replicas),
            ..SUB
        },
    ],
    run: Run::Container,
    ..Command::EMPTY
}];
