//! Lua scripts: EVAL and its variants, and SCRIPT.

use super::help::help;
use super::script_call::{RUNS, end_running, keys_and_args};
use super::script_inspect;
use crate::engine::run::debugging;
use crate::engine::run::scripting;
use crate::engine::run::scripting::Callee;
use crate::engine::{Command, Ctx, Done, Origin, Run};
use crate::programs::running::ScriptKind;
use crate::script::store::{ScriptOrigin, parse_sha1, sha1_hex};
use crate::session::DebugMode;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, Flags, Group, KeySpec, Runs};

/// EVAL and EVAL_RO.
fn eval(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    if ctx.session.debug != DebugMode::Off {
        return debug_eval(ctx, args);
    }
    let command = args.argv();
    let body = args.bytes()?;
    let (keys, args) = keys_and_args(args)?;
    with_script(ctx, body, |ctx, script| scripting::run(ctx, script, keys, args, command, None))
}

/// Caches a script, and runs it. The cache of a group is part of its data, so a node that does not lead forgets a
/// script that is not in it.
fn with_script(ctx: &mut Ctx<'_>, body: &[u8], run: impl FnOnce(&mut Ctx<'_>, Callee<'_>) -> Done) -> Done {
    let sha = sha1_hex(body);
    if ctx.server.persistence.keeps_no_scripts() && !ctx.server.programs.scripts.has(&sha) {
        let (flags, program) = ctx.server.programs.scripts.compile(body)?;
        let done = run(ctx, Callee::of_script(&sha, flags, program));
        ctx.server.programs.scripts.forget(program);
        return done;
    }
    ctx.server.programs.scripts.add(ctx.ks, body, ScriptOrigin::Eval)?;
    let script = Callee::script(&mut ctx.server.programs.scripts, &sha)?;
    run(ctx, script)
}

/// EVAL as a debugging session, which SCRIPT DEBUG has switched on.
#[cold]
fn debug_eval(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    if ctx.origin == Origin::Exec {
        return Err(Error::text("ERR A transaction can't be debugged, call EVAL outside of MULTI"));
    }
    if ctx.origin != Origin::Client {
        return Err(Error::text("ERR A call inside another command can't be debugged"));
    }
    debugging::debug_session(ctx, |ctx, conversation| {
        let command = args.argv();
        let body = args.bytes()?;
        let (keys, args) = keys_and_args(args)?;
        with_script(ctx, body, |ctx, script| {
            scripting::run(ctx, script, keys, args, command, Some((conversation, body)))
        })
    })
}

/// EVALSHA and EVALSHA_RO.
fn evalsha(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    if ctx.session.debug != DebugMode::Off {
        return Err(Error::text("ERR Please use EVAL instead of EVALSHA for debugging"));
    }
    let command = args.argv();
    let name = args.bytes()?;
    let (keys, args) = keys_and_args(args)?;
    // A name of another length belongs to no script and gets the error of an unknown one.
    let sha = parse_sha1(name).unwrap_or([0; 40]);
    let script = Callee::script(&mut ctx.server.programs.scripts, &sha)?;
    scripting::run(ctx, script, keys, args, command, None)
}

/// SCRIPT LOAD. The script is kept durably, like data, so the journal must accept writes.
fn load(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    ctx.server.persistence.admit_logged(&ctx.server.config, Flags::WRITE)?;
    ctx.session.admit_short_of_followers(Flags::WRITE)?;
    let sha = ctx.server.programs.scripts.add(ctx.ks, args.bytes()?, ScriptOrigin::Loaded)?;
    ctx.reply.bulk(&sha);
    Ok(())
}

fn exists(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    ctx.reply.array(args.len());
    for name in args.rest().iter() {
        ctx.reply.integer(i64::from(ctx.server.programs.scripts.has(name)));
    }
    Ok(())
}

/// SCRIPT FLUSH. Scripts are small, so ASYNC and SYNC do the same.
fn flush(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    if !args.is_empty() && (args.len() > 1 || args.one_of(&[("ASYNC", ()), ("SYNC", ())]).is_none()) {
        return Err(Error::text("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    ctx.server.persistence.admit_logged(&ctx.server.config, Flags::WRITE)?;
    ctx.session.admit_short_of_followers(Flags::WRITE)?;
    ctx.server.programs.scripts.flush(ctx.ks);
    ctx.reply.ok();
    Ok(())
}

/// SCRIPT DEBUG. All earlier replies must have been sent, because they can't come between the lines of a debugger.
fn debug(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    if !ctx.reply.is_empty() || ctx.session.has_unsent() {
        return Err(Error::text("ERR SCRIPT DEBUG must be called outside a pipeline"));
    }
    let modes = [("NO", DebugMode::Off), ("YES", DebugMode::Rollback), ("SYNC", DebugMode::Keep)];
    ctx.session.debug = args.one_of(&modes).ok_or(Error::text("ERR Use SCRIPT DEBUG YES/SYNC/NO"))?;
    ctx.reply.ok();
    Ok(())
}

fn kill(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    end_running(ctx, ScriptKind::Script)
}

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "eval",
        arity: -3,
        flags: RUNS.union(Flags::MAY_REPLICATE),
        keys: &[KeySpec::counted(2, Access::Update)],
        group: Group::Scripting,
        since: "2.6.0",
        complexity: "Depends on the script.",
        summary: "Runs a Lua script.",
        syntax: "script numkeys [key...] [arg...]",
        runs: Some(Runs::Text),
        run: Run::Now(eval),
        ..Command::EMPTY
    },
    Command {
        name: "eval_ro",
        arity: -3,
        flags: RUNS.union(Flags::READONLY),
        keys: &[KeySpec::counted(2, Access::Read)],
        group: Group::Scripting,
        since: "7.0.0",
        complexity: "Depends on the script.",
        summary: "Runs a read-only Lua script.",
        syntax: "script numkeys [key...] [arg...]",
        runs: Some(Runs::Text),
        run: Run::Now(eval),
        ..Command::EMPTY
    },
    Command {
        name: "evalsha",
        arity: -3,
        flags: RUNS.union(Flags::MAY_REPLICATE),
        keys: &[KeySpec::counted(2, Access::Update)],
        group: Group::Scripting,
        since: "2.6.0",
        complexity: "Depends on the script.",
        summary: "Runs a Lua script from the cache, by its SHA1.",
        syntax: "sha1 numkeys [key...] [arg...]",
        runs: Some(Runs::Sha1),
        run: Run::Now(evalsha),
        ..Command::EMPTY
    },
    Command {
        name: "evalsha_ro",
        arity: -3,
        flags: RUNS.union(Flags::READONLY),
        keys: &[KeySpec::counted(2, Access::Read)],
        group: Group::Scripting,
        since: "7.0.0",
        complexity: "Depends on the script.",
        summary: "Runs a read-only Lua script from the cache, by its SHA1.",
        syntax: "sha1 numkeys [key...] [arg...]",
        runs: Some(Runs::Sha1),
        run: Run::Now(evalsha),
        ..Command::EMPTY
    },
    Command {
        name: "script",
        arity: -2,
        group: Group::Scripting,
        since: "2.6.0",
        complexity: "Depends on the subcommand.",
        summary: "A container for commands about scripts.",
        sub: &[
            Command {
                name: "debug",
                arity: 3,
                // A debugging session blocks the server.
                flags: Flags::NOSCRIPT.union(Flags::ADMIN),
                group: Group::Scripting,
                since: "3.2.0",
                summary: "Makes the next EVAL of the connection run under the debugger.",
                syntax: "<YES | SYNC | NO>:mode",
                run: Run::Now(debug),
                ..Command::EMPTY
            },
            Command {
                name: "exists",
                arity: -3,
                flags: Flags::NOSCRIPT,
                group: Group::Scripting,
                since: "2.6.0",
                complexity: "O(N) in the number of names",
                summary: "Returns which scripts are in the cache.",
                syntax: "sha1...",
                tips: &["request_policy:all_shards", "response_policy:agg_logical_and"],
                run: Run::Now(exists),
                ..Command::EMPTY
            },
            Command {
                name: "flush",
                arity: -2,
                flags: Flags::NOSCRIPT,
                group: Group::Scripting,
                since: "2.6.0",
                complexity: "O(N) in the number of scripts",
                summary: "Clears the script cache, except for bundled scripts.",
                syntax: "[ASYNC | SYNC]:flush-type",
                tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
                run: Run::Now(flush),
                ..Command::EMPTY
            },
            Command {
                name: "help",
                arity: 2,
                flags: Flags::LOADING.union(Flags::STALE),
                group: Group::Scripting,
                since: "5.0.0",
                summary: "Lists the subcommands.",
                run: Run::Now(help),
                ..Command::EMPTY
            },
            Command {
                name: "kill",
                arity: 2,
                flags: Flags::NOSCRIPT.union(Flags::ALLOW_BUSY),
                group: Group::Scripting,
                since: "2.6.0",
                summary: "Ends and undoes the running script; without script-rollback, only before its first write.",
                tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
                run: Run::Now(kill),
                ..Command::EMPTY
            },
            script_inspect::LINT,
            script_inspect::LIST,
            Command {
                name: "load",
                arity: 3,
                flags: Flags::NOSCRIPT.union(Flags::STALE),
                group: Group::Scripting,
                since: "2.6.0",
                complexity: "O(N) in the length of the script",
                summary: "Loads a script into the cache and returns its SHA1.",
                syntax: "script",
                tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
                run: Run::Now(load),
                ..Command::EMPTY
            },
            script_inspect::SHOW,
            script_inspect::SLOW,
            script_inspect::STATS,
            script_inspect::TRACE,
        ],
        ..Command::EMPTY
    },
];

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;
    use std::sync::Arc;
    use std::time::Duration;

    use crate::base::clock::Clock;
    use crate::base::rng::Rng;
    use crate::config::Config;
    use crate::engine::limits::{DEBUG_COMMAND_MAX_BYTES, DEBUG_UNSENT_MAX_BYTES};
    use crate::engine::{Engine, Fed, RawSockets, ServerState};
    use crate::keyspace::Keyspace;
    use crate::resp::reply::{Form, Reply};
    use crate::resp::request::Decoder;
    use crate::session::Peer;
    use crate::spec::session_key::SessionKey;

    /// The socket of a client that reads everything and says nothing.
    struct Silent(Rc<RefCell<Vec<u8>>>);

    impl RawSockets for Silent {
        fn send_unsent(&mut self, _: &mut ServerState) {}

        fn serve(&mut self, _: &mut Keyspace, _: &mut ServerState) {}

        fn exchange(&mut self, _: SessionKey, unsent: &mut Vec<u8>, _: Option<&mut Vec<u8>>, _: Duration) -> bool {
            self.0.borrow_mut().append(unsent);
            true
        }
    }

    fn engine(config: Config) -> Engine {
        let clock = Clock::manual(1_700_000_000_000);
        Engine::new(config, crate::command::table(), clock, Rng::seeded(1)).expect("a fresh engine")
    }

    /// The socket of a client that asks without end, one second later each time.
    struct Talker {
        clock: Arc<quanta::Mock>,
        reads: bool,
        /// The most bytes that it was given to read at once.
        most: Rc<Cell<usize>>,
        /// The most bytes that it has sent ahead.
        most_heard: Rc<Cell<usize>>,
    }

    impl RawSockets for Talker {
        fn send_unsent(&mut self, _: &mut ServerState) {}

        fn serve(&mut self, _: &mut Keyspace, _: &mut ServerState) {}

        fn exchange(
            &mut self,
            _: SessionKey,
            unsent: &mut Vec<u8>,
            received: Option<&mut Vec<u8>>,
            _: Duration,
        ) -> bool {
            self.clock.increment(Duration::from_secs(1));
            self.most.set(self.most.get().max(unsent.len()));
            if self.reads {
                unsent.clear();
            }
            if let Some(received) = received {
                received.extend_from_slice(&b"help\r\n".repeat(1_000));
                self.most_heard.set(self.most_heard.get().max(received.len()));
            }
            true
        }
    }

    /// Returns the last reply to such a client, and the most bytes that it was given to read at once.
    fn talk(reads: bool, config: Config) -> (String, usize) {
        let mut engine = engine(config);
        let (clock, mock) = quanta::Clock::mock();
        engine.server.meters.stats.clock = clock;
        let (most, most_heard) = (Rc::<Cell<usize>>::default(), Rc::<Cell<usize>>::default());
        let talker = Talker { clock: mock, reads, most: most.clone(), most_heard: most_heard.clone() };
        engine.server.network.raw_sockets = Some(Box::new(talker));
        let session = engine.server.open_session(Peer::default());
        let (mut decoder, mut out) = (Decoder::new(), Reply::new(Form::Resp2));
        let fed = engine.feed(session, &mut decoder, b"SCRIPT DEBUG YES\r\nEVAL \"return 1\" 0\r\n", &mut out);
        assert_eq!(fed, Fed::Suspended);
        assert!(most_heard.get() <= DEBUG_COMMAND_MAX_BYTES + (64 << 10), "{}", most_heard.get());
        (out.as_bytes().escape_ascii().to_string(), most.get())
    }

    #[test]
    fn a_debugger_buffers_little_for_a_client_that_does_not_read() {
        let (reply, most) = talk(false, Config::default());
        assert!(reply.starts_with("-ERR the client of the debugger did not read its output"), "{reply}");
        assert!((DEBUG_UNSENT_MAX_BYTES..DEBUG_UNSENT_MAX_BYTES + (64 << 10)).contains(&most), "{most}");
    }

    #[test]
    fn a_debugger_does_not_block_the_server_forever() {
        let (reply, _) = talk(true, Config { script_debug_session_limit_s: 60, ..Config::default() });
        assert!(reply.starts_with("-ERR the debugging session reached"), "{reply}");
    }

    #[test]
    fn a_debugger_does_not_wait_forever() {
        let mut engine = engine(Config { script_debug_timeout_s: 0, ..Config::default() });
        let read = Rc::<RefCell<Vec<u8>>>::default();
        engine.server.network.raw_sockets = Some(Box::new(Silent(read.clone())));
        let session = engine.server.open_session(Peer::default());
        let (mut decoder, mut out) = (Decoder::new(), Reply::new(Form::Resp2));
        let input = b"SCRIPT DEBUG SYNC\r\nEVAL \"return 1\" 0\r\nPING\r\n";
        let fed = engine.feed(session, &mut decoder, input, &mut out);
        assert_eq!(fed, Fed::Suspended, "the connection is to be closed");
        let read = read.borrow().escape_ascii().to_string();
        let stop = "*2\\r\\n+* Stopped at 1, stop reason = step over\\r\\n+-> 1   return 1\\r\\n";
        assert_eq!(read, format!("+OK\\r\\n{stop}"));
        let last = engine.server.clients.sessions.get_mut(session).expect("it is open").unsent(usize::MAX).to_vec();
        assert_eq!(last, b"*1\r\n+<endsession>\r\n", "the last lines leave like a reply");
        let reply = out.as_bytes();
        assert!(reply.starts_with(b"-ERR the client of the debugger sent nothing"), "{}", reply.escape_ascii());
        assert_eq!(reply.iter().filter(|&&byte| byte == b'\n').count(), 1, "later requests are not run");
    }
}
