//! The `redis` table: functions to call commands, to make errors, to log, and to control replication.

use std::ffi::c_int;

use sha1::{Digest, Sha1};

use super::context::Ctx;
use super::convert::{self, push_error, push_reply};
use super::host::{CommandId, LogLevel, ServerVersion};
use super::interrupt::{kill, library};
use super::lua::{Kind, Stack};
use super::luajit::{self, Gathered};
use crate::base::limits::{QUERY_BUFFER_HARD_MAX_BYTES, SCRATCH_KEEP_BYTES};
use crate::base::num;
use crate::resp::request::{Argv, Span};
use crate::resp::tape::{TapeReader, Token};
use crate::script::limits::SCRIPT_CHUNK_BYTES;

/// Pushes the `redis` table of scripts. May raise for lack of memory.
pub(super) fn push_table(stack: Stack<'_>, ctx: *mut Ctx, version: &ServerVersion) {
    push_function_table(stack, ctx, version);
    add_functions(stack, ctx, &SCRIPT_FUNCTIONS);
}

/// Pushes the `redis` table of running functions. Its fields are set in Redis' order, because scripts may iterate over
/// it. May raise for lack of memory.
pub(super) fn push_function_table(stack: Stack<'_>, ctx: *mut Ctx, version: &ServerVersion) {
    stack.new_table(0, 0);
    add_functions(stack, ctx, &CALLS);
    add_log_and_version(stack, ctx, version);
    add_functions(stack, ctx, &REPLIES_AND_SETTINGS);
    add_numbers(stack, &REPL_NUMBERS);
    add_functions(stack, ctx, &[(b"acl_check_cmd", acl_check_cmd)]);
}

/// Pushes the `redis` table of libraries that are being loaded, without `register_function`. May raise for lack of
/// memory.
pub(super) fn push_load_table(stack: Stack<'_>, ctx: *mut Ctx, version: &ServerVersion) {
    stack.new_table(0, 0);
    add_log_and_version(stack, ctx, version);
}

fn add_log_and_version(stack: Stack<'_>, ctx: *mut Ctx, version: &ServerVersion) {
    let table = stack.top();
    add_functions(stack, ctx, &[(b"log", log)]);
    add_numbers(stack, &LOG_NUMBERS);
    stack.push_number(f64::from(version.number));
    stack.raw_set_field(table, b"REDIS_VERSION_NUM");
    stack.push_bytes(version.text.as_bytes());
    stack.raw_set_field(table, b"REDIS_VERSION");
}

/// Adds functions to the table on top.
fn add_functions(stack: Stack<'_>, ctx: *mut Ctx, functions: &[(&[u8], super::lua::CFunction)]) {
    let table = stack.top();
    for (name, function) in functions {
        convert::push_names(stack, ctx);
        stack.push_closure(*function, convert::UPVALUES);
        stack.raw_set_field(table, name);
    }
}

/// Adds numbers to the table on top.
fn add_numbers(stack: Stack<'_>, numbers: &[(&[u8], f64)]) {
    let table = stack.top();
    for (name, value) in numbers {
        stack.push_number(*value);
        stack.raw_set_field(table, name);
    }
}

const CALLS: [(&[u8], super::lua::CFunction); 2] = [(b"call", call), (b"pcall", pcall)];

const REPLIES_AND_SETTINGS: [(&[u8], super::lua::CFunction); 5] = [
    (b"setresp", setresp),
    (b"sha1hex", sha1hex),
    (b"error_reply", error_reply),
    (b"status_reply", status_reply),
    (b"set_repl", set_repl),
];

/// Functions for scripts only.
const SCRIPT_FUNCTIONS: [(&[u8], super::lua::CFunction); 3] =
    [(b"breakpoint", breakpoint), (b"debug", debug), (b"replicate_commands", replicate_commands)];

const REPL_AOF: u8 = 1;
const REPL_REPLICA: u8 = 2;
const LOG_NUMBERS: [(&[u8], f64); 4] =
    [(b"LOG_DEBUG", 0.0), (b"LOG_VERBOSE", 1.0), (b"LOG_NOTICE", 2.0), (b"LOG_WARNING", 3.0)];
const REPL_NUMBERS: [(&[u8], f64); 5] = [
    (b"REPL_NONE", 0.0),
    (b"REPL_AOF", REPL_AOF as f64),
    (b"REPL_SLAVE", REPL_REPLICA as f64),
    (b"REPL_REPLICA", REPL_REPLICA as f64),
    (b"REPL_ALL", (REPL_AOF | REPL_REPLICA) as f64),
];

library! {
    fn call(stack: Stack) -> c_int {
        call_command(stack, true)
    }

    fn pcall(stack: Stack) -> c_int {
        call_command(stack, false)
    }

    fn error_reply(stack: Stack) -> c_int {
        if stack.top() != 1 || stack.kind(1) != Kind::String {
            push_error(stack, b"ERR wrong number or type of arguments", false);
            return 1;
        }
        let text = stack.bytes(1);
        // A text without an error code gets `ERR`. The code is the part before the first blank.
        let text = text.strip_prefix(b"-").unwrap_or(text);
        let buffer = stack.buffer();
        if !text.contains(&b' ') {
            buffer.extend(b"ERR ");
        }
        buffer.reserve(text.len());
        for piece in text.chunks(SCRIPT_CHUNK_BYTES) {
            stack.tick();
            let one_line = |&byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte };
            buffer.write(|buffer| buffer.extend(piece.iter().map(one_line)));
        }
        stack.new_table(0, 1);
        stack.push_value(convert::ERR);
        buffer.push_to(stack);
        stack.raw_set(-3);
        1
    }

    fn status_reply(stack: Stack) -> c_int {
        if stack.top() != 1 || stack.kind(1) != Kind::String {
            push_error(stack, b"ERR wrong number or type of arguments", false);
            return 1;
        }
        stack.new_table(0, 1);
        stack.push_value(1);
        stack.raw_set_field(2, b"ok");
        1
    }

    fn sha1hex(stack: Stack) -> c_int {
        if stack.top() != 1 {
            raise_error(stack, b"ERR wrong number of arguments");
        }
        let mut sha1 = Sha1::new();
        // If this raises, no destructor is skipped.
        const { assert!(!std::mem::needs_drop::<Sha1>()) };
        for piece in stack.text(1).unwrap_or_default().chunks(SCRIPT_CHUNK_BYTES) {
            stack.tick();
            sha1.update(piece);
        }
        stack.push_bytes(&super::store::hex(sha1.finalize().into()));
        1
    }

    fn log(stack: Stack) -> c_int {
        let n = stack.top();
        if n < 2 {
            raise_error(stack, b"ERR redis.log() requires two arguments or more.");
        }
        if !is_number(stack, 1) {
            raise_error(stack, b"ERR First argument must be a number (log level).");
        }
        let Some(level) = LogLevel::from_number(stack.number(1)) else {
            raise_error(stack, b"ERR Invalid log level.");
        };
        let buffer = stack.buffer();
        for i in 2..=n {
            stack.tick();
            if let Some(text) = stack.text(i) {
                if buffer.len() > 0 {
                    buffer.push(b' ');
                }
                buffer.extend(text);
            }
        }
        // SAFETY: the context outlives the state; the engine's `log` does not call back into the VM.
        unsafe { (*stack.ctx()).log(level) };
        end_if_killed(stack);
        0
    }

    fn setresp(stack: Stack) -> c_int {
        if stack.top() != 1 {
            raise_error(stack, b"ERR redis.setresp() requires one argument.");
        }
        let version = stack.number(1) as i64;
        if version != 2 && version != 3 {
            raise_error(stack, b"ERR RESP version must be 2 or 3.");
        }
        // SAFETY: as above.
        unsafe { (*stack.ctx()).set_resp(version as u8) };
        end_if_killed(stack);
        0
    }

    fn acl_check_cmd(stack: Stack) -> c_int {
        if stack.top() == 0 {
            raise_error(stack, b"ERR Please specify at least one argument for this redis.acl_check_cmd() call");
        }
        // SAFETY: the context outlives the state, and neither `gather` nor the engine calls back into Lua.
        let shared = unsafe { &mut *stack.ctx() };
        match gather(stack, shared).and_then(|_| may_call(shared)) {
            Ok(may) => stack.push_boolean(may),
            Err(refusal) => raise_error(stack, refusal),
        }
        end_if_killed(stack);
        1
    }

    fn set_repl(stack: Stack) -> c_int {
        if stack.top() != 1 {
            raise_error(stack, b"ERR redis.set_repl() requires one argument.");
        }
        let flags = stack.number(1) as i64;
        if flags & !i64::from(REPL_AOF | REPL_REPLICA) != 0 {
            raise_error(stack, b"ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.");
        }
        0
    }

    fn replicate_commands(stack: Stack) -> c_int {
        stack.push_boolean(true);
        1
    }

    /// Returns whether there is a debugger, which will then stop.
    fn breakpoint(stack: Stack) -> c_int {
        // SAFETY: the context outlives the state, and holds a debugger only while it is alive.
        let debugger = unsafe { (*stack.ctx()).debugger.map(|mut debugger| debugger.as_mut()) };
        stack.push_boolean(debugger.is_some());
        debugger.into_iter().for_each(|debugger| debugger.break_next());
        1
    }

    fn debug(stack: Stack) -> c_int {
        // SAFETY: as above.
        if let Some(mut debugger) = unsafe { (*stack.ctx()).debugger } {
            // SAFETY: as above; showing values raises nothing.
            unsafe { debugger.as_mut() }.show_values(stack);
        }
        0
    }
}

fn is_number(stack: Stack<'_>, i: c_int) -> bool {
    match stack.kind(i) {
        Kind::Number => true,
        Kind::String => std::str::from_utf8(stack.bytes(i)).is_ok_and(|text| text.trim().parse::<f64>().is_ok()),
        _ => false,
    }
}

/// Raises `{err=text}`, an error without a position.
#[cold]
pub(super) fn raise_error(stack: Stack<'_>, text: &[u8]) -> ! {
    push_error(stack, text, false);
    stack.raise_top()
}

/// Raises if the script must die.
fn end_if_killed(stack: Stack<'_>) {
    let ctx = stack.ctx();
    // SAFETY: the context outlives the state.
    if unsafe { (*ctx).is_dying() } {
        kill(stack, ctx);
    }
}

/// Runs the command given by the arguments and pushes its reply. An error reply is raised if `raises`, otherwise it is
/// the result.
#[inline]
fn call_command(stack: Stack<'_>, raises: bool) -> c_int {
    let ctx = stack.ctx();
    let mut has_collected = false;
    // A loop, so that the code that reads the arguments exists once, inlined.
    let gathered = loop {
        // SAFETY: the context outlives the state, and `gather` does not call back into Lua.
        let shared = unsafe { &mut *ctx };
        let gathered = gather(stack, shared);
        if has_collected || !matches!(gathered, Err(TOO_LONG)) {
            break gathered;
        }
        // The arguments may fit after a garbage collection.
        stack.memory().collect_for(usize::MAX);
        has_collected = true;
    };
    // SAFETY: as above; the engine does not call back, either.
    let shared = unsafe { &mut *ctx };
    if shared.loading.is_some() {
        stack.raise(b"Script attempted to access nonexistent global variable 'call'");
    }
    let outcome = gathered.and_then(|gathered| {
        let command = gathered.name.and_then(|name| shared.names.find(name).or_else(|| learn(stack, shared)));
        perform(shared, command).map(|()| gathered.is_statement)
    });
    let is_statement = match outcome {
        Ok(is_statement) => is_statement,
        Err(refusal) => {
            end_if_killed(stack);
            push_error(stack, refusal, false);
            if raises {
                stack.raise_top();
            }
            return 1;
        }
    };
    // SAFETY: as above; the tape changes only in the next call. If this raises while it is borrowed, no destructor is
    // skipped.
    let (tape, resp3) = unsafe { ((*ctx).tape.as_bytes(), (*ctx).resp3) };
    let tape_bytes = tape.len();
    let mut tape = TapeReader::new(tape);
    let is_error = matches!(tape.clone().next(), Some(Token::Error(_)));
    if is_statement && !(is_error && raises) {
        return 0;
    }
    if tape_bytes > SCRATCH_KEEP_BYTES {
        stack.memory().collect_for(tape_bytes);
    }
    push_reply(stack, &mut tape, resp3, 0);
    if is_error && raises {
        stack.raise_top();
    }
    1
}

/// Asks the engine for the command named by the first argument, a string, and remembers the answer.
#[cold]
fn learn(stack: Stack<'_>, ctx: &mut Ctx) -> Option<CommandId> {
    let mut host = ctx.host?;
    let name = stack.bytes(1);
    // SAFETY: `Vm::run` has borrowed the host and has not returned.
    let command = unsafe { host.as_mut() }.command_id(name)?;
    ctx.names.note(stack, &ctx.memory, 1, command);
    Some(command)
}

/// The error for arguments that take more memory than the script may have, or than one command may take.
const TOO_LONG: &[u8] = b"ERR Lua redis lib command arguments are too long";

/// Copies the arguments into the context, as one buffer for the command. Never raises.
#[inline]
fn gather(stack: Stack<'_>, ctx: &mut Ctx) -> Result<Gathered, &'static [u8]> {
    // A script may hold a string once and pass it many times, so the copies are limited.
    let most = ctx.memory.room().min(QUERY_BUFFER_HARD_MAX_BYTES);
    ctx.args.clear();
    ctx.spans.clear();
    loop {
        let gathered = luajit::gather(stack, &mut ctx.args, &mut ctx.spans, most);
        if gathered.left > 0 {
            gather_one(stack, ctx, most)?;
        } else if ctx.spans.is_empty() {
            return Err(b"ERR Please specify at least one argument for this redis lib call");
        } else {
            return Ok(gathered);
        }
    }
}

/// Copies the first argument without a span: a number other than a small natural one, or a string that needs more room.
#[cold]
fn gather_one(stack: Stack<'_>, ctx: &mut Ctx, most: usize) -> Result<(), &'static [u8]> {
    let start = ctx.args.len();
    let i = ctx.spans.len() as c_int + 1;
    match stack.kind(i) {
        Kind::String => {
            let bytes = stack.bytes(i);
            if bytes.len() > most - start {
                return Err(TOO_LONG);
            }
            ctx.args.extend_from_slice(bytes);
        }
        Kind::Number => format_number(&mut ctx.args, stack.number(i)),
        _ => return Err(b"ERR Lua redis lib command arguments must be strings or integers"),
    }
    if ctx.args.len() > most {
        return Err(TOO_LONG);
    }
    ctx.spans.push(Span::new(start, ctx.args.len() - start));
    Ok(())
}

/// Lets the engine run the gathered command.
#[inline]
fn perform(ctx: &mut Ctx, command: Option<CommandId>) -> Result<(), &'static [u8]> {
    let Some(mut host) = ctx.host else { return Err(b"ERR redis.call can only be called inside a script invocation") };
    ctx.tape.truncate(0);
    let argv = Argv::new(&ctx.args, &ctx.spans);
    let tape = &mut ctx.tape;
    // SAFETY: `Vm::run` has borrowed the host and has not returned.
    let host = unsafe { host.as_mut() };
    match command {
        Some(command) => host.call_known(command, argv, tape),
        None => host.call(argv, tape),
    }
    Ok(())
}

/// Asks the engine whether the script's caller may make the gathered call.
fn may_call(ctx: &mut Ctx) -> Result<bool, &'static [u8]> {
    const NONE: &[u8] = b"ERR redis.acl_check_cmd can only be called inside a script invocation";
    let Some(mut host) = ctx.host else { return Err(NONE) };
    // SAFETY: `Vm::run` has borrowed the host and has not returned.
    let may = unsafe { host.as_mut() }.may_call(Argv::new(&ctx.args, &ctx.spans));
    may.ok_or(b"ERR Invalid command passed to redis.acl_check_cmd()")
}

/// Writes a number as Redis 7.2 and later pass it to a command: integers up to 2^62 in full, others in the shortest
/// form that reads back as the number.
fn format_number(out: &mut Vec<u8>, number: f64) {
    const LIMIT: f64 = (1u64 << 62) as f64;
    if number.abs() <= LIMIT && number.trunc() == number {
        return num::format_i64(out, number as i64);
    }
    num::format_f64(out, number);
}
