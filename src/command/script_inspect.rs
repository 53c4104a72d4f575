//! Inspection of scripts and functions: SCRIPT LINT, LIST, SHOW, SLOW, STATS, TRACE.
//!
//! A program is named by its SHA1, by the name of a bundled script, or by the name of a function.

use super::script_call::{keys_and_args, write_running};
use crate::base::num;
use crate::engine::run::scripting;
use crate::engine::run::scripting::Callee;
use crate::engine::{Command, Ctx, Done, Run};
use crate::keyspace::effect::{Effect, EffectReader, Pairs, Shown};
use crate::meters::stats::Stats;
use crate::programs::running::ScriptKind;
use crate::programs::scripts::Scripts;
use crate::programs::slow::{SlowCall, Step};
use crate::resp::reply::Reply;
use crate::resp::request::OwnedArgv;
use crate::script::bundled::{BUNDLED, Bundled};
use crate::script::library::{Function, Library};
use crate::script::store::{Script, ScriptFlags, ScriptOrigin, parse_sha1, sha1_hex};
use crate::script::{Handle, Passing, Sha1Hex};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, Flags, Group, KeySpec, Secret};

/// A script or function in the server.
pub(super) struct Program<'a> {
    /// The name of a bundled script, the SHA1 of another script, or the name of a function.
    pub(super) name: &'a [u8],
    sha: Option<&'a Sha1Hex>,
    library: Option<&'a str>,
    origin: &'static str,
    description: Option<&'a [u8]>,
    flags: ScriptFlags,
    /// The text of the script, or of the function's library.
    pub(super) text: &'a [u8],
    handle: Handle,
}

impl<'a> Program<'a> {
    fn of_script(sha: &'a Sha1Hex, script: &'a Script) -> Program<'a> {
        let &Script { ref body, flags, program: handle, origin, .. } = script;
        let bundled = match origin {
            ScriptOrigin::Bundled => BUNDLED.iter().find(|bundled| bundled.body.as_bytes() == &**body),
            _ => None,
        };
        Program {
            name: bundled.map_or(sha.as_slice(), |bundled| bundled.name.as_bytes()),
            sha: Some(sha),
            library: None,
            origin: match origin {
                ScriptOrigin::Bundled => "bundled",
                ScriptOrigin::Loaded => "loaded",
                ScriptOrigin::Eval => "eval",
            },
            description: bundled.map(|bundled| bundled.summary().as_bytes()),
            flags,
            text: body,
            handle,
        }
    }

    fn of_function(library: &'a Library, function: &'a Function) -> Program<'a> {
        Program {
            name: function.name.as_bytes(),
            sha: None,
            library: Some(&library.name),
            origin: "function",
            description: function.description.as_deref(),
            flags: function.flags,
            text: &library.code,
            handle: function.handle,
        }
    }

    /// Returns the program with this name, if there is one.
    pub(super) fn named(scripts: &'a Scripts, name: &[u8]) -> Option<Program<'a>> {
        let bundled = std::str::from_utf8(name).ok().and_then(Bundled::named).map(Bundled::sha1);
        let script = bundled.or(parse_sha1(name)).and_then(|sha| scripts.store().find_with_name(&sha));
        if let Some((sha, script)) = script {
            return Some(Program::of_script(sha, script));
        }
        let is_wanted = |function: &&Function| function.name.as_bytes().eq_ignore_ascii_case(name);
        scripts.libraries().iter().find_map(|library| {
            let function = library.functions.iter().map(|function| &**function).find(is_wanted)?;
            Some(Program::of_function(library, function))
        })
    }

    /// Returns all programs: bundled scripts, other scripts, functions, each sorted by name.
    fn all(scripts: &'a Scripts) -> Vec<Program<'a>> {
        let mut all: Vec<Program<'a>> =
            scripts.store().iter().map(|(sha, script)| Program::of_script(sha, script)).collect();
        all.sort_unstable_by_key(|program| (program.origin != "bundled", program.name));
        for library in scripts.libraries().iter() {
            all.extend(library.functions.iter().map(|function| Program::of_function(library, function)));
        }
        all
    }

    /// Writes the pairs that LIST and SHOW share.
    fn write(&self, stats: &Stats, reply: &mut Reply) {
        let calls = stats.scripts.of(self.handle);
        let micros = |ticks| stats.nanos(ticks) as f64 / 1_000.0;
        bulk(reply, "name", self.name);
        reply.bulk(b"sha1");
        reply.bulk_or_null(self.sha.map(|sha| sha.as_slice()));
        bulk(reply, "origin", self.origin.as_bytes());
        reply.bulk(b"library");
        reply.bulk_or_null(self.library.map(str::as_bytes));
        number(reply, "calls", calls.map_or(0, |calls| calls.calls));
        number(reply, "errors", calls.map_or(0, |calls| calls.errors));
        for (name, percent) in [("p50_us", 50.0), ("p99_us", 99.0)] {
            reply.bulk(name.as_bytes());
            reply.double(calls.map_or(0.0, |calls| micros(calls.percentile_ticks(percent))));
        }
        reply.bulk(b"max_us");
        reply.double(calls.map_or(0.0, |calls| micros(calls.max_ticks)));
        reply.bulk(b"last_call_ms");
        match calls {
            Some(calls) => reply.integer(calls.last_ms),
            None => reply.null(),
        }
    }
}

/// The number of pairs that [`Program::write`] writes.
const COMMON_PAIRS: usize = 10;

fn bulk(reply: &mut Reply, name: &str, value: &[u8]) {
    reply.bulk(name.as_bytes());
    reply.bulk(value);
}

fn number(reply: &mut Reply, name: &str, value: u64) {
    reply.bulk(name.as_bytes());
    reply.integer(value as i64);
}

fn strings(reply: &mut Reply, argv: &OwnedArgv) {
    let argv = argv.as_argv();
    reply.array(argv.len());
    argv.iter().for_each(|arg| reply.bulk(arg));
}

fn list(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let (server, reply) = (&*ctx.server, &mut *ctx.reply);
    let programs = Program::all(&server.programs.scripts);
    reply.array(programs.len());
    for program in programs {
        reply.map(COMMON_PAIRS);
        program.write(&server.meters.stats, reply);
    }
    Ok(())
}

fn show(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (server, reply) = (&*ctx.server, &mut *ctx.reply);
    let program = Program::named(&server.programs.scripts, args.bytes()?).ok_or(NO_PROGRAM)?;
    reply.map(COMMON_PAIRS + 4);
    program.write(&server.meters.stats, reply);
    reply.bulk(b"description");
    reply.bulk_or_null(program.description);
    reply.bulk(b"flags");
    let flags = program.flags.named();
    reply.set(flags.iter().filter(|(_, is_set)| *is_set).count());
    flags.iter().filter(|(_, is_set)| *is_set).for_each(|(name, _)| reply.status(name));
    number(reply, "bytes", program.text.len() as u64);
    bulk(reply, "body", program.text);
    Ok(())
}

/// The error for the name of a program that does not exist.
pub(super) const NO_PROGRAM: Error = Error::text("NOSCRIPT No script or function with this name.");

fn stats(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let (server, reply) = (&*ctx.server, &mut *ctx.reply);
    let (scripts, calls) = (&server.programs.scripts, &server.meters.stats.scripts);
    let (ended, errors) = calls.totals();
    let of = |origin| scripts.store().iter().filter(|(_, script)| script.origin == origin).count() as u64;
    let numbers = [
        ("scripts", scripts.store().len() as u64),
        ("scripts_bundled", of(ScriptOrigin::Bundled)),
        ("scripts_loaded", of(ScriptOrigin::Loaded)),
        ("scripts_eval", of(ScriptOrigin::Eval)),
        ("scripts_bytes", scripts.text_bytes() as u64),
        ("scripts_evicted", scripts.evicted()),
        ("libraries", scripts.libraries().len() as u64),
        ("functions", scripts.libraries().functions_len() as u64),
        ("libraries_bytes", scripts.libraries().bytes() as u64),
        ("lua_bytes", scripts.memory_bytes() as u64),
        ("calls", ended),
        ("errors", errors),
        ("kills", calls.kills),
        ("rollbacks", calls.rollbacks),
        ("slow_calls", calls.slow.len() as u64),
    ];
    reply.map(numbers.len() + 1);
    numbers.into_iter().for_each(|(name, value)| number(reply, name, value));
    reply.bulk(b"running_script");
    write_running(server, reply);
    Ok(())
}

/// `SCRIPT SLOW [GET [count] | LEN | RESET]`
fn slow(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    const DEFAULT_COUNT: usize = 10;
    let (server, reply) = (&mut *ctx.server, &mut *ctx.reply);
    if args.flag("LEN") {
        args.end()?;
        reply.integer(server.meters.stats.scripts.slow.len() as i64);
        return Ok(());
    }
    if args.flag("RESET") {
        args.end()?;
        server.meters.stats.scripts.slow.clear();
        reply.ok();
        return Ok(());
    }
    if !args.is_empty() && !args.flag("GET") {
        return Err(Error::Syntax);
    }
    let count = match args.peek().map(num::parse_i64) {
        None => DEFAULT_COUNT,
        Some(Some(-1)) => usize::MAX,
        Some(count) => {
            let count = count.and_then(|count| usize::try_from(count).ok());
            count.ok_or(Error::text("ERR count should be greater than or equal to -1"))?
        }
    };
    if args.len() > 1 {
        return Err(Error::Syntax);
    }
    let calls = &server.meters.stats.scripts.slow;
    reply.array(calls.len().min(count));
    calls.iter().take(count).for_each(|call| write_slow(&server.meters.stats, call, reply));
    Ok(())
}

fn write_slow(stats: &Stats, call: &SlowCall, reply: &mut Reply) {
    reply.map(9);
    number(reply, "id", call.id);
    number(reply, "time_ms", call.began_ms as u64);
    number(reply, "duration_us", stats.micros(call.ticks));
    bulk(reply, "name", &call.name);
    reply.bulk(b"command");
    strings(reply, &call.command);
    bulk(reply, "client_address", call.client.0.as_bytes());
    bulk(reply, "client_name", &call.client.1);
    number(reply, "trail_omitted", call.trail.omitted);
    reply.bulk(b"trail");
    reply.array(call.trail.steps.len());
    for Step { at_ticks, ticks, command } in &call.trail.steps {
        reply.map(3);
        number(reply, "at_us", stats.micros(*at_ticks));
        reply.bulk(b"took_us");
        match ticks {
            Some(ticks) => reply.integer(stats.micros(*ticks) as i64),
            None => reply.null(),
        }
        reply.bulk(b"command");
        strings(reply, command);
    }
}

/// Returns the text of the named program, or the argument itself if it is a text.
fn text_of(scripts: &Scripts, named: &[u8]) -> Result<Vec<u8>, Error> {
    match Program::named(scripts, named) {
        Some(program) => Ok(program.text.to_vec()),
        None if is_sha1(named) => Err(NO_PROGRAM),
        None => Ok(named.to_vec()),
    }
}

/// Whether the argument has the form of a script's name rather than of its text.
fn is_sha1(named: &[u8]) -> bool {
    named.len() == 40 && named.iter().all(u8::is_ascii_hexdigit)
}

fn lint(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (server, reply) = (&mut *ctx.server, &mut *ctx.reply);
    let text = text_of(&server.programs.scripts, args.bytes()?)?;
    let warnings = server.programs.scripts.lint(&text, server.table)?;
    reply.array(warnings.len());
    for warning in &warnings {
        reply.map(3);
        number(reply, "line", warning.line.into());
        bulk(reply, "rule", warning.rule.name().as_bytes());
        bulk(reply, "message", warning.message.as_bytes());
    }
    Ok(())
}

/// `SCRIPT TRACE [COMMIT] script numkeys [key...] [arg...]`
fn trace(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let command = args.argv();
    let commit = args.flag("COMMIT");
    let named = args.bytes()?;
    let (keys, args) = keys_and_args(args)?;
    let start = ctx.reply.len();
    let trace = match Program::named(&ctx.server.programs.scripts, named) {
        Some(program) => {
            let (kind, passing) = match program.library {
                Some(_) => (ScriptKind::Function, Passing::Arguments),
                None => (ScriptKind::Script, Passing::Globals),
            };
            // Other commands name a bundled script by its SHA1.
            let name = program.sha.map_or(program.name, |sha| sha.as_slice()).to_vec();
            let callee = Callee { kind, name: &name, program: program.handle, passing, flags: program.flags };
            scripting::trace(ctx, callee, keys, args, commit, command)?
        }
        None if is_sha1(named) => return Err(NO_PROGRAM),
        None => {
            let (flags, program) = ctx.server.programs.scripts.compile(named)?;
            let name = &sha1_hex(named);
            let callee = Callee { kind: ScriptKind::Script, name, program, passing: Passing::Globals, flags };
            let trace = scripting::trace(ctx, callee, keys, args, commit, command);
            ctx.server.programs.scripts.forget(program);
            trace?
        }
    };
    let result = ctx.reply.buffer_mut().split_off(start);
    let (stats, reply) = (&ctx.server.meters.stats, &mut *ctx.reply);
    reply.map(5);
    reply.bulk(b"reply");
    reply.buffer_mut().extend_from_slice(&result);
    reply.bulk(b"rolled_back");
    reply.boolean(trace.rolled_back);
    number(reply, "took_us", stats.micros(trace.ticks));
    number(reply, "omitted", trace.omitted);
    reply.bulk(b"commands");
    reply.array(trace.steps.len());
    for step in &trace.steps {
        reply.map(4);
        reply.bulk(b"command");
        strings(reply, &step.command);
        reply.bulk(b"reply");
        reply.tape(&step.reply);
        reply.bulk(b"took_us");
        reply.double(stats.nanos(step.ticks) as f64 / 1_000.0);
        reply.bulk(b"effects");
        write_effects(reply, &step.effects);
    }
    Ok(())
}

fn write_effects(reply: &mut Reply, stream: &[u8]) {
    let effects: Vec<(u16, Effect<'_>)> = EffectReader::new(stream).collect();
    reply.array(effects.len());
    for (db, effect) in effects {
        let (name, fields) = effect.describe();
        reply.map(fields.len() + 2);
        bulk(reply, "effect", name.as_bytes());
        number(reply, "db", db.into());
        for (name, value) in fields {
            reply.bulk(name.as_bytes());
            match (name, value) {
                ("pairs", Shown::Bytes(pairs)) => {
                    let pairs: Vec<_> = Pairs::new(pairs).collect();
                    reply.map(pairs.len());
                    pairs.iter().flat_map(|(field, value)| [field, value]).for_each(|bytes| reply.bulk(bytes));
                }
                ("steps", Shown::Bytes(steps)) => write_effects(reply, steps),
                (_, Shown::Bytes(bytes)) => reply.bulk(bytes),
                (_, Shown::Integer(value)) => reply.integer(value),
                (_, Shown::Double(value)) => reply.double(value),
                (_, Shown::Id(id)) => reply.bulk(format!("{}-{}", id.ms, id.seq).as_bytes()),
                (_, Shown::Nothing) => reply.null(),
            }
        }
    }
}

/// Fields that the entries below share.
const SUB: Command = Command {
    flags: Flags::NOSCRIPT.union(Flags::STALE),
    group: Group::Scripting,
    since: "0.1.0",
    tips: &["nondeterministic_output"],
    ..Command::EMPTY
};

pub(super) const LINT: Command = Command {
    name: "lint",
    arity: 3,
    complexity: "O(N) in the length of the script",
    summary: "Warns of undeclared keys, arguments passed as keys, and other traps in a script.",
    syntax: "script",
    run: Run::Now(lint),
    ..SUB
};

pub(super) const LIST: Command = Command {
    name: "list",
    arity: 2,
    complexity: "O(N log N) in the number of scripts and functions",
    summary: "Returns all scripts and functions with statistics of their calls.",
    run: Run::Now(list),
    ..SUB
};

pub(super) const SHOW: Command = Command {
    name: "show",
    arity: 3,
    complexity: "O(N) in the number of libraries",
    summary: "Returns the text of a script or function with its statistics.",
    syntax: "name",
    run: Run::Now(show),
    ..SUB
};

pub(super) const SLOW: Command = Command {
    name: "slow",
    arity: -2,
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::STALE),
    complexity: "O(N) in the number of calls kept",
    summary: "Returns, counts or clears the slowest calls of scripts and functions.",
    syntax: "[GET [count] | LEN | RESET]",
    run: Run::Now(slow),
    ..SUB
};

pub(super) const STATS: Command = Command {
    name: "stats",
    arity: 2,
    flags: Flags::NOSCRIPT.union(Flags::STALE).union(Flags::ALLOW_BUSY),
    complexity: "O(N) in the number of scripts",
    summary: "Returns the numbers of scripts, functions and calls, their memory, and the running script.",
    run: Run::Now(stats),
    ..SUB
};

pub(super) const TRACE: Command = Command {
    name: "trace",
    arity: -4,
    flags: Flags::NOSCRIPT
        .union(Flags::STALE)
        .union(Flags::NO_MULTI)
        .union(Flags::SKIP_MONITOR)
        .union(Flags::NO_MANDATORY_KEYS)
        .union(Flags::MOVABLEKEYS)
        .union(Flags::MAY_REPLICATE),
    keys: &[KeySpec::unknown(Access::Update)],
    complexity: "Depends on the script.",
    summary: "Runs a script and returns what each command did; rolled back without COMMIT.",
    syntax: "[COMMIT] script numkeys [key...] [arg...]",
    // The arguments may be a command, if a user mistakes this for a trace of commands: a password must not be shown.
    secrets: &[Secret::Call { first: 2 }],
    run: Run::Now(trace),
    ..SUB
};
