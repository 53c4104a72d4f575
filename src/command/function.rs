//! Functions: FCALL and FCALL_RO, which call them, and FUNCTION, which manages their libraries.

use super::help::help;
use super::script_call::{RUNS, end_running, keys_and_args_or, write_running};
use crate::base::glob;
use crate::engine::run::scripting;
use crate::engine::run::scripting::Callee;
use crate::engine::{Command, Ctx, Done, Run};
use crate::programs::running::ScriptKind;
use crate::programs::scripts::RestorePolicy;
use crate::rdb::libraries;
use crate::resp::reply::Reply;
use crate::script::library::{Function, Library};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, Flags, Group, KeySpec, Runs};

/// FCALL and FCALL_RO.
fn fcall(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let command = args.argv();
    let function = ctx.server.programs.scripts.function(args.bytes()?);
    let function = function.cloned().ok_or(Error::text("ERR Function not found"))?;
    let (keys, args) = keys_and_args_or(args, Error::text("ERR Bad number of keys provided"))?;
    scripting::run(ctx, Callee::function(&function), keys, args, command, None)
}

fn load(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let mut replace = false;
    while args.len() > 1 {
        if !args.flag("REPLACE") {
            return Err(Error::lossy(&[b"ERR Unknown option given: ", args.bytes()?].concat()));
        }
        replace = true;
    }
    let server = &mut *ctx.server;
    let name = server.programs.scripts.load_library(ctx.ks, args.bytes()?, replace, &server.meters.stats.clock)?;
    ctx.reply.bulk(name.as_bytes());
    Ok(())
}

fn delete(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    if !ctx.server.programs.scripts.delete_library(ctx.ks, args.bytes()?) {
        return Err(Error::text("ERR Library not found"));
    }
    ctx.reply.ok();
    Ok(())
}

/// FUNCTION FLUSH. Libraries are small, so ASYNC and SYNC do the same.
fn flush(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    if args.len() > 1 {
        return Err(too_many(args));
    }
    if !args.is_empty() && args.one_of(&[("ASYNC", ()), ("SYNC", ())]).is_none() {
        return Err(Error::text("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
    }
    ctx.server.programs.scripts.flush_libraries(ctx.ks);
    ctx.reply.ok();
    Ok(())
}

fn too_many(args: Args<'_>) -> Error {
    let name = args.argv().get(1).unwrap_or_default();
    Error::lossy(
        &[b"ERR unknown subcommand or wrong number of arguments for '", name, b"'. Try FUNCTION HELP."].concat(),
    )
}

fn dump(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let payload = libraries::dump(ctx.server.programs.scripts.libraries().iter().map(|library| &*library.code));
    ctx.reply.bulk(&payload);
    Ok(())
}

fn restore(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    const POLICIES: [(&str, RestorePolicy); 3] =
        [("APPEND", RestorePolicy::Append), ("REPLACE", RestorePolicy::Replace), ("FLUSH", RestorePolicy::Flush)];
    if args.len() > 2 {
        return Err(too_many(args));
    }
    let payload = args.bytes()?;
    let policy = if args.is_empty() { Some(RestorePolicy::Append) } else { args.one_of(&POLICIES) };
    let policy = policy
        .ok_or(Error::text("ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE."))?;
    let codes = libraries::load(payload).map_err(|error| Error::owned(error.to_string()))?;
    let server = &mut *ctx.server;
    server.programs.scripts.restore_libraries(ctx.ks, &codes, policy, &server.meters.stats.clock)?;
    ctx.reply.ok();
    Ok(())
}

fn list(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (mut pattern, mut with_code) = (None, false);
    while !args.is_empty() {
        if !with_code && args.flag("WITHCODE") {
            with_code = true;
        } else if pattern.is_none() && args.flag("LIBRARYNAME") {
            if args.is_empty() {
                return Err(Error::text("ERR library name argument was not given"));
            }
            pattern = Some(args.bytes()?);
        } else {
            return Err(Error::lossy(&[b"ERR Unknown argument ", args.bytes()?].concat()));
        }
    }
    let scripts = &ctx.server.programs.scripts;
    let mut libraries: Vec<&Library> = scripts.libraries().iter().collect();
    if let Some(pattern) = pattern {
        libraries.retain(|library| glob::matches_nocase(pattern, library.name.as_bytes()));
        // The bundled library is listed only if named: programs expect a fresh server to have none.
        let named = |library: &&Library| pattern.eq_ignore_ascii_case(library.name.as_bytes());
        libraries.extend(scripts.bundled_library().filter(named));
    }
    ctx.reply.array(libraries.len());
    libraries.iter().for_each(|library| write_library(ctx.reply, library, with_code));
    Ok(())
}

fn write_library(reply: &mut Reply, library: &Library, with_code: bool) {
    reply.map(if with_code { 4 } else { 3 });
    reply.bulk(b"library_name");
    reply.bulk(library.name.as_bytes());
    reply.bulk(b"engine");
    reply.bulk(b"LUA");
    reply.bulk(b"functions");
    reply.array(library.functions.len());
    library.functions.iter().for_each(|function| write_function(reply, function));
    if with_code {
        reply.bulk(b"library_code");
        reply.bulk(&library.code);
    }
}

fn write_function(reply: &mut Reply, function: &Function) {
    reply.map(3);
    reply.bulk(b"name");
    reply.bulk(function.name.as_bytes());
    reply.bulk(b"description");
    reply.bulk_or_null(function.description.as_deref());
    reply.bulk(b"flags");
    let flags = function.flags.named();
    reply.set(flags.iter().filter(|(_, is_set)| *is_set).count());
    flags.iter().filter(|(_, is_set)| *is_set).for_each(|(name, _)| reply.status(name));
}

fn stats(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let (server, reply) = (&*ctx.server, &mut *ctx.reply);
    if let Some(script) = &server.programs.running
        && script.kind == ScriptKind::Script
    {
        return Err(script.kind.busy_error());
    }
    reply.map(2);
    reply.bulk(b"running_script");
    write_running(server, reply);
    let libraries = server.programs.scripts.libraries();
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.integer(libraries.len() as i64);
    reply.bulk(b"functions_count");
    reply.integer(libraries.functions_len() as i64);
    Ok(())
}

fn kill(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    end_running(ctx, ScriptKind::Function)
}

const ALL_SHARDS: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "fcall",
        arity: -3,
        flags: RUNS.union(Flags::MAY_REPLICATE),
        keys: &[KeySpec::counted(2, Access::Update)],
        group: Group::Scripting,
        since: "7.0.0",
        complexity: "Depends on the function.",
        summary: "Calls a function of a library.",
        syntax: "function numkeys [key...] [arg...]",
        runs: Some(Runs::Function),
        run: Run::Now(fcall),
        ..Command::EMPTY
    },
    Command {
        name: "fcall_ro",
        arity: -3,
        flags: RUNS.union(Flags::READONLY),
        keys: &[KeySpec::counted(2, Access::Read)],
        group: Group::Scripting,
        since: "7.0.0",
        complexity: "Depends on the function.",
        summary: "Calls a read-only function of a library.",
        syntax: "function numkeys [key...] [arg...]",
        runs: Some(Runs::Function),
        run: Run::Now(fcall),
        ..Command::EMPTY
    },
    Command {
        name: "function",
        arity: -2,
        group: Group::Scripting,
        since: "7.0.0",
        complexity: "Depends on the subcommand.",
        summary: "A container for function commands.",
        sub: &[
            Command {
                name: "delete",
                arity: 3,
                flags: Flags::NOSCRIPT.union(Flags::WRITE),
                group: Group::Scripting,
                since: "7.0.0",
                complexity: "O(1)",
                summary: "Deletes a library and its functions.",
                syntax: "library-name",
                tips: ALL_SHARDS,
                run: Run::Now(delete),
                ..Command::EMPTY
            },
            Command {
                name: "dump",
                arity: 2,
                flags: Flags::NOSCRIPT,
                group: Group::Scripting,
                since: "7.0.0",
                complexity: "O(N) in the number of functions",
                summary: "Returns all libraries as a payload for FUNCTION RESTORE.",
                run: Run::Now(dump),
                ..Command::EMPTY
            },
            Command {
                name: "flush",
                arity: -2,
                flags: Flags::NOSCRIPT.union(Flags::WRITE),
                group: Group::Scripting,
                since: "7.0.0",
                complexity: "O(N) in the number of functions",
                summary: "Deletes all libraries.",
                syntax: "[ASYNC | SYNC]:flush-type",
                tips: ALL_SHARDS,
                run: Run::Now(flush),
                ..Command::EMPTY
            },
            Command {
                name: "help",
                arity: 2,
                flags: Flags::LOADING.union(Flags::STALE),
                group: Group::Scripting,
                since: "7.0.0",
                summary: "Lists the subcommands.",
                run: Run::Now(help),
                ..Command::EMPTY
            },
            Command {
                name: "kill",
                arity: 2,
                flags: Flags::NOSCRIPT.union(Flags::ALLOW_BUSY),
                group: Group::Scripting,
                since: "7.0.0",
                summary: "Ends and undoes the running function; without script-rollback, only before its first write.",
                tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
                run: Run::Now(kill),
                ..Command::EMPTY
            },
            Command {
                name: "list",
                arity: -2,
                flags: Flags::NOSCRIPT,
                group: Group::Scripting,
                since: "7.0.0",
                complexity: "O(N) in the number of functions",
                summary: "Lists the libraries and their functions.",
                syntax: "[LIBRARYNAME library-name-pattern] [WITHCODE]",
                tips: &["nondeterministic_output_order"],
                run: Run::Now(list),
                ..Command::EMPTY
            },
            Command {
                name: "load",
                arity: -3,
                flags: Flags::NOSCRIPT.union(Flags::WRITE).union(Flags::DENYOOM),
                group: Group::Scripting,
                since: "7.0.0",
                complexity: "O(N) in the length of the library",
                summary: "Loads a library of functions and returns its name.",
                syntax: "[REPLACE] function-code",
                tips: ALL_SHARDS,
                run: Run::Now(load),
                ..Command::EMPTY
            },
            Command {
                name: "restore",
                arity: -3,
                flags: Flags::NOSCRIPT.union(Flags::WRITE).union(Flags::DENYOOM),
                group: Group::Scripting,
                since: "7.0.0",
                complexity: "O(N) in the number of functions in the payload",
                summary: "Loads the libraries from a payload of FUNCTION DUMP.",
                syntax: "serialized-value [FLUSH | APPEND | REPLACE]:policy",
                tips: ALL_SHARDS,
                run: Run::Now(restore),
                ..Command::EMPTY
            },
            Command {
                name: "stats",
                arity: 2,
                flags: Flags::NOSCRIPT.union(Flags::ALLOW_BUSY),
                group: Group::Scripting,
                since: "7.0.0",
                complexity: "O(1)",
                summary: "Returns the running function and the number of libraries and functions.",
                tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
                run: Run::Now(stats),
                ..Command::EMPTY
            },
        ],
        ..Command::EMPTY
    },
];
