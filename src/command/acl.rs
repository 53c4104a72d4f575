//! ACL: users, their permissions, and the log of refused calls.

use std::path::PathBuf;

use super::help::help;
use crate::acl::check::{Denied, check};
use crate::acl::file;
use crate::acl::rule::{is_no_name, merge_selectors};
use crate::acl::selector::Selector;
use crate::acl::user::User;
use crate::acl::users::DEFAULT_NAME;
use crate::base::os::replace_file::replace_file;
use crate::base::rng::Rng;
use crate::config::AclPubsubDefault;
use crate::engine::client::access::refusal;
use crate::engine::{Command, Ctx, Done, Run};
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::categories::{CATEGORIES, belongs_to};
use crate::spec::error::{Error, excerpt};
use crate::spec::{Audited, Flags, Group, Secret};

fn set_user(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let name = args.bytes()?;
    if is_no_name(name) {
        return Err(Error::text("ERR Usernames can't contain spaces or null characters"));
    }
    let rules = merge_selectors(args.rest()).map_err(|open| {
        Error::owned(format!(
            "ERR Unmatched parenthesis in acl selector starting at '{}'.",
            String::from_utf8_lossy(&open)
        ))
    })?;
    let all_channels = has_all_channels(ctx);
    let mut user = ctx.server.acl.find(name).map_or_else(|| User::new(all_channels), |(_, user)| user.clone());
    user.apply_all(rules.iter().map(Vec::as_slice), ctx.server.table, all_channels).map_err(|(rule, error)| {
        let rule = String::from_utf8_lossy(&rule);
        Error::owned(format!("ERR Error in ACL SETUSER modifier '{rule}': {error}"))
    })?;
    ctx.server.acl.put(name, user);
    ctx.server.connections().users_changed(ctx.session);
    ctx.reply.ok();
    Ok(())
}

fn has_all_channels(ctx: &Ctx<'_>) -> bool {
    ctx.server.config.acl_pubsub_default == AclPubsubDefault::AllChannels
}

fn del_user(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    let names = args.rest();
    if names.iter().any(|name| name == DEFAULT_NAME) {
        return Err(Error::text("ERR The 'default' user cannot be removed"));
    }
    let removed = names.iter().filter(|name| ctx.server.acl.remove(name)).count();
    ctx.server.connections().users_changed(ctx.session);
    ctx.reply.integer(removed as i64);
    Ok(())
}

fn get_user(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let Some((_, user)) = ctx.server.acl.find(args.bytes()?) else {
        ctx.reply.null();
        return Ok(());
    };
    let reply = &mut *ctx.reply;
    let [root, others @ ..] = user.selectors() else { return Ok(()) };
    reply.map(6 + usize::from(!root.allows_all_databases()));
    reply.bulk(b"flags");
    let flags: Vec<&str> = user.flags().collect();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(user.passwords().len());
    user.passwords().for_each(|hash| reply.bulk(hash.as_bytes()));
    let write_fields = |reply: &mut Reply, selector: &Selector| {
        let databases = selector.show_databases().map(|shown| ("databases", shown));
        let fields = [
            ("commands", selector.show_commands()),
            ("keys", selector.show_keys()),
            ("channels", selector.show_channels()),
        ];
        for (field, value) in fields.into_iter().chain(databases) {
            reply.bulk(field.as_bytes());
            reply.bulk(&value);
        }
    };
    write_fields(reply, root);
    reply.bulk(b"selectors");
    reply.array(others.len());
    for selector in others {
        reply.map(3 + usize::from(!selector.allows_all_databases()));
        write_fields(reply, selector);
    }
    Ok(())
}

fn list(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let users = ctx.server.acl.iter();
    ctx.reply.array(users.len());
    for (name, user) in users {
        ctx.reply.bulk(&[b"user ", name, b" ", &user.show()].concat());
    }
    Ok(())
}

fn users(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let users = ctx.server.acl.iter();
    ctx.reply.array(users.len());
    users.for_each(|(name, _)| ctx.reply.bulk(name));
    Ok(())
}

fn who_am_i(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    ctx.reply.bulk(ctx.server.acl.name(ctx.session.user));
    Ok(())
}

fn cat(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let Some(name) = args.peek() else {
        ctx.reply.array(CATEGORIES.len());
        CATEGORIES.iter().for_each(|category| ctx.reply.bulk(&category.as_bytes()[1..]));
        return Ok(());
    };
    args.bytes()?;
    args.end().map_err(|_| too_many(ctx.name()))?;
    let category = CATEGORIES.iter().find(|category| category.as_bytes()[1..].eq_ignore_ascii_case(name));
    let category = category.ok_or_else(|| Error::owned(format!("ERR Unknown category '{}'", excerpt(name, 128))))?;
    let all = ctx.table().iter().flat_map(|entry| std::iter::once(entry).chain(&entry.sub));
    let names: Vec<&str> =
        all.filter(|entry| belongs_to(entry.command, category)).map(|entry| entry.full_name.as_str()).collect();
    ctx.reply.array(names.len());
    names.iter().for_each(|name| ctx.reply.bulk(name.as_bytes()));
    Ok(())
}

/// The error of a subcommand that takes no further argument.
fn too_many(full_name: &str) -> Error {
    let name = full_name.trim_start_matches("acl|").to_uppercase();
    Error::owned(format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try ACL HELP."))
}

fn gen_pass(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    const BITS: Error = Error::text(
        "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
    );
    let bits = match args.peek() {
        None => 256,
        Some(_) => usize::try_from(args.int()?).ok().filter(|bits| (1..=4_096).contains(bits)).ok_or(BITS)?,
    };
    args.end().map_err(|_| too_many(ctx.name()))?;
    // Not the generator behind RANDOMKEY, which is reproducible in a simulated server: a password must not be
    // predictable.
    let mut rng = Rng::from_entropy();
    let digits: String = (0..bits.div_ceil(4)).map(|_| format!("{:x}", rng.next_u64() & 15)).collect();
    ctx.reply.bulk(digits.as_bytes());
    Ok(())
}

fn dry_run(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let name = args.bytes()?;
    let (_, user) = ctx
        .server
        .acl
        .find(name)
        .ok_or_else(|| Error::owned(format!("ERR User '{}' not found", String::from_utf8_lossy(name))))?;
    let argv = args.rest();
    let entry = ctx.table().named_by(argv).ok_or_else(|| {
        Error::owned(format!("ERR Command '{}' not found", String::from_utf8_lossy(argv.get(0).unwrap_or_default())))
    })?;
    if !entry.command.accepts(argv.len()) {
        return Err(Error::Arity(entry.full_name.clone().into()));
    }
    let place = ctx.session.place(ctx.server.config.databases);
    match check(user, ctx.server.table, entry, argv, place) {
        Ok(()) => ctx.reply.ok(),
        Err(denied) => {
            let current = place.db.to_string();
            let object = match denied {
                Denied::Command(_) => None,
                Denied::Database(0) => Some(current.as_bytes()),
                Denied::Database(at) | Denied::Key(at) | Denied::Channel(at) => argv.get(at),
            };
            let entry = match denied {
                Denied::Command(at) => ctx.server.table.named_at(entry, argv, at),
                _ => entry,
            };
            ctx.reply.bulk(refusal(name, entry, denied, object).as_bytes());
        }
    }
    Ok(())
}

fn log(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    if args.len() > 1 {
        return Err(too_many(ctx.name()));
    }
    if args.flag("RESET") {
        ctx.server.acl.log.clear();
        ctx.reply.ok();
        return Ok(());
    }
    let count = match args.peek() {
        None => 10,
        Some(_) => usize::try_from(args.int()?.max(0)).unwrap_or(usize::MAX),
    };
    let now_ms = ctx.server.time.clock.now_ms();
    let log = &ctx.server.acl.log;
    ctx.reply.array(log.iter().len().min(count));
    for cases in log.iter().take(count) {
        let reply = &mut *ctx.reply;
        reply.map(10);
        reply.bulk(b"count");
        reply.integer(cases.count as i64);
        for (field, value) in [
            ("reason", cases.case.reason.name().as_bytes()),
            ("context", cases.case.context.name().as_bytes()),
            ("object", &cases.case.object),
            ("username", &cases.case.user),
        ] {
            reply.bulk(field.as_bytes());
            reply.bulk(value);
        }
        reply.bulk(b"age-seconds");
        reply.double((now_ms - cases.updated_ms).max(0) as f64 / 1_000.0);
        reply.bulk(b"client-info");
        reply.bulk(&cases.case.client);
        for (field, value) in [
            ("entry-id", cases.id as i64),
            ("timestamp-created", cases.created_ms),
            ("timestamp-last-updated", cases.updated_ms),
        ] {
            reply.bulk(field.as_bytes());
            reply.integer(value);
        }
    }
    Ok(())
}

/// The path of the ACL file; an error if none is configured.
fn acl_file(ctx: &Ctx<'_>) -> Result<PathBuf, Error> {
    let config = &ctx.server.config;
    if config.aclfile.as_os_str().is_empty() {
        return Err(Error::text(
            "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL \
             SETUSER \
             command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to \
             store \
             users in the Redis configuration.",
        ));
    }
    Ok(config.dir.join(&config.aclfile))
}

fn load(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let path = acl_file(ctx)?;
    let users = file::load(&path, ctx.server.table, has_all_channels(ctx))
        .map_err(|faults| Error::owned(format!("ERR {faults}")))?;
    ctx.server.acl.replace(users);
    ctx.server.connections().users_changed(ctx.session);
    ctx.reply.ok();
    Ok(())
}

fn save(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let path = acl_file(ctx)?;
    let written = replace_file(&path, &file::write(&ctx.server.acl));
    written.map_err(|error| {
        tracing::warn!(path = %path.display(), %error, "the users could not be saved");
        Error::text("ERR There was an error trying to save the ACLs. Please check the server logs for more information")
    })?;
    ctx.reply.ok();
    Ok(())
}

/// Fields that most subcommands of ACL share.
const SUB: Command =
    Command { flags: OPEN_FLAGS.union(Flags::ADMIN), group: Group::Server, since: "6.0.0", ..Command::EMPTY };

/// As [`SUB`], for subcommands that every user may call.
const OPEN: Command = Command { flags: OPEN_FLAGS, ..SUB };

const OPEN_FLAGS: Flags = Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE).union(Flags::SENTINEL);

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "acl",
    arity: -2,
    flags: Flags::SENTINEL,
    group: Group::Server,
    since: "6.0.0",
    complexity: "Depends on subcommand.",
    summary: "A container for access control commands.",
    sub: &[
        Command {
            name: "cat",
            arity: -2,
            complexity: "O(1) since the categories and commands are a fixed set.",
            summary: "Lists the categories of commands, or the commands of one.",
            syntax: "[category]",
            run: Run::Now(cat),
            ..OPEN
        },
        Command {
            name: "deluser",
            arity: -3,
            secrets: &[Secret::From(2)],
            complexity: "O(1) amortized time considering the typical user.",
            summary: "Removes users and closes their connections.",
            syntax: "username...",
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            audited: Some(Audited::Users),
            run: Run::Now(del_user),
            ..SUB
        },
        Command {
            name: "dryrun",
            arity: -4,
            // The call may contain a password.
            secrets: &[Secret::From(4)],
            since: "7.0.0",
            summary: "Tests whether a user may run a command, without running it.",
            syntax: "username command [arg...]",
            run: Run::Now(dry_run),
            ..SUB
        },
        Command {
            name: "genpass",
            arity: -2,
            summary: "Returns a random password.",
            syntax: "[bits:integer]",
            run: Run::Now(gen_pass),
            ..OPEN
        },
        Command {
            name: "getuser",
            arity: 3,
            secrets: &[Secret::From(2)],
            complexity: "O(N). Where N is the number of password, command and pattern rules that the user has.",
            summary: "Returns the rules of a user.",
            syntax: "username",
            run: Run::Now(get_user),
            ..SUB
        },
        Command {
            name: "help",
            arity: 2,
            summary: "Lists the subcommands.",
            flags: Flags::LOADING.union(Flags::STALE).union(Flags::SENTINEL),
            run: Run::Now(help),
            ..OPEN
        },
        Command {
            name: "list",
            arity: 2,
            complexity: "O(N). Where N is the number of configured users.",
            summary: "Returns the rules of all users.",
            run: Run::Now(list),
            ..SUB
        },
        Command {
            name: "load",
            arity: 2,
            complexity: "O(N). Where N is the number of configured users.",
            summary: "Loads the users from the ACL file.",
            audited: Some(Audited::Users),
            run: Run::Now(load),
            ..SUB
        },
        Command {
            name: "log",
            arity: -2,
            complexity: "O(N) with N being the number of entries shown.",
            summary: "Lists or clears the record of refused calls.",
            syntax: "[count:integer | RESET]:operation",
            run: Run::Now(log),
            ..SUB
        },
        Command {
            name: "save",
            arity: 2,
            complexity: "O(N). Where N is the number of configured users.",
            summary: "Writes the users to the ACL file.",
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            run: Run::Now(save),
            ..SUB
        },
        Command {
            name: "setuser",
            arity: -3,
            secrets: &[Secret::From(2)],
            complexity: "O(N). Where N is the number of rules provided.",
            summary: "Creates a user or changes its rules.",
            syntax: "username [rule...]",
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            audited: Some(Audited::Users),
            run: Run::Now(set_user),
            ..SUB
        },
        Command {
            name: "users",
            arity: 2,
            complexity: "O(N). Where N is the number of configured users.",
            summary: "Returns the names of all users.",
            run: Run::Now(users),
            ..SUB
        },
        Command {
            name: "whoami",
            arity: 2,
            summary: "Returns the user of the connection.",
            run: Run::Now(who_am_i),
            ..OPEN
        },
    ],
    ..Command::EMPTY
}];
