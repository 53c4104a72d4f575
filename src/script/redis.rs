//! The `redis` table: how a script calls commands, words errors, logs, and tells what it needs of replication.

use std::ffi::c_int;

use sha1::{Digest, Sha1};

use super::context::Ctx;
use super::convert::{self, push_error, push_reply};
use super::host::{LogLevel, ServerVersion};
use super::interrupt::kill;
use super::lua::{Kind, Stack, library};
use super::memory::collect_for;
use super::names::CommandId;
use super::raw::{self, Argument};
use crate::base::limits::{QUERY_BUFFER_HARD_MAX_BYTES, SCRATCH_KEEP_BYTES, SCRIPT_CHUNK_BYTES};
use crate::base::num;
use crate::resp::request::{Argv, Span};
use crate::resp::tape::{TapeReader, Token};

/// Pushes the `redis` table of scripts. May raise for lack of memory.
pub(super) fn push_table(stack: Stack<'_>, ctx: *mut Ctx, version: &ServerVersion) {
    push_function_table(stack, ctx, version);
    add_functions(stack, ctx, &SCRIPT_FUNCTIONS);
}

/// Pushes the `redis` table of functions that run. May raise for lack of memory.
pub(super) fn push_function_table(stack: Stack<'_>, ctx: *mut Ctx, version: &ServerVersion) {
    push_load_table(stack, ctx, version);
    add_functions(stack, ctx, &FUNCTIONS);
    // SAFETY: the context outlives the state.
    if unsafe { !(*ctx).reads_raw } {
        add_functions(stack, ctx, &PLAIN_CALLS);
    }
    add_numbers(stack, &REPL_NUMBERS);
}

/// Pushes what libraries see of the `redis` table while they are loaded, but for `register_function`. May raise for lack
/// of memory.
pub(super) fn push_load_table(stack: Stack<'_>, ctx: *mut Ctx, version: &ServerVersion) {
    stack.new_table(0, 32);
    let table = stack.top();
    add_functions(stack, ctx, &[(b"log", log)]);
    add_numbers(stack, &LOG_NUMBERS);
    stack.push_bytes(version.text.as_bytes());
    stack.raw_set_field(table, b"REDIS_VERSION");
    stack.push_number(f64::from(version.number));
    stack.raw_set_field(table, b"REDIS_VERSION_NUM");
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

const FUNCTIONS: [(&[u8], super::lua::CFunction); 8] = [
    (b"call", call),
    (b"pcall", pcall),
    (b"error_reply", error_reply),
    (b"status_reply", status_reply),
    (b"sha1hex", sha1hex),
    (b"setresp", setresp),
    (b"set_repl", set_repl),
    (b"acl_check_cmd", acl_check_cmd),
];

/// What takes their place where LuaJIT's layout is not the known one.
const PLAIN_CALLS: [(&[u8], super::lua::CFunction); 2] = [(b"call", plain_call), (b"pcall", plain_pcall)];

/// What scripts have and functions have not.
const SCRIPT_FUNCTIONS: [(&[u8], super::lua::CFunction); 3] =
    [(b"replicate_commands", replicate_commands), (b"breakpoint", breakpoint), (b"debug", debug)];

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
        call_command::<true>(stack, true)
    }

    fn pcall(stack: Stack) -> c_int {
        call_command::<true>(stack, false)
    }

    fn plain_call(stack: Stack) -> c_int {
        call_command::<false>(stack, true)
    }

    fn plain_pcall(stack: Stack) -> c_int {
        call_command::<false>(stack, false)
    }

    fn error_reply(stack: Stack) -> c_int {
        if stack.top() != 1 || stack.kind(1) != Kind::String {
            push_error(stack, b"ERR wrong number or type of arguments", false);
            return 1;
        }
        let text = stack.bytes(1);
        // A text without a code of its own gets `ERR`: the code is what stands before the first blank.
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
        // Raising frees nothing.
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
        // SAFETY: the context outlives the state; the engine's `log` does not come back into the VM.
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
        // SAFETY: the context outlives the state, and neither `gather` nor the engine comes back into Lua.
        let shared = unsafe { &mut *stack.ctx() };
        match gather(raw::plain_arguments(stack), shared).and_then(|_| may_call(shared)) {
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

    /// Answers whether there is a debugger to stop for.
    fn breakpoint(stack: Stack) -> c_int {
        // SAFETY: the context outlives the state, and holds a debugger only while it is there.
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

/// Raises `{err=text}`: such errors carry no position of their own.
#[cold]
pub(super) fn raise_error(stack: Stack<'_>, text: &[u8]) -> ! {
    push_error(stack, text, false);
    stack.raise_top()
}

/// Raises if the engine gave up on this script.
fn end_if_killed(stack: Stack<'_>) {
    let ctx = stack.ctx();
    // SAFETY: the context outlives the state.
    if unsafe { (*ctx).is_dying() } {
        kill(stack, ctx);
    }
}

/// Runs the command in the arguments and pushes its reply. An error is raised if `raises`, otherwise it is the result. `RAW`: what
/// LuaJIT keeps of the call is read where it lies.
#[inline]
fn call_command<const RAW: bool>(stack: Stack<'_>, raises: bool) -> c_int {
    let ctx = stack.ctx();
    let mut has_collected = false;
    // A loop, so that what reads the arguments is here once, and inlined.
    let gathered = loop {
        // SAFETY: the context outlives the state, and `gather` does not come back into Lua.
        let shared = unsafe { &mut *ctx };
        let gathered =
            if RAW { gather(raw::arguments(stack), shared) } else { gather(raw::plain_arguments(stack), shared) };
        if has_collected || gathered != Err(TOO_LONG) {
            break gathered;
        }
        // They may fit when garbage makes room.
        collect_for(stack, usize::MAX);
        has_collected = true;
    };
    // SAFETY: as above; nor does the engine.
    let shared = unsafe { &mut *ctx };
    let outcome = match gathered {
        Ok(name) => {
            let command = name.and_then(|name| shared.names.find(name).or_else(|| learn(stack, shared)));
            perform(shared, command)
        }
        Err(refusal) => Err(refusal),
    };
    if let Err(refusal) = outcome {
        end_if_killed(stack);
        push_error(stack, refusal, false);
        if raises {
            stack.raise_top();
        }
        return 1;
    }
    // SAFETY: as above; the tape changes only in the next call. Raising while it is borrowed frees nothing.
    let (tape, resp3) = unsafe { ((*ctx).tape.as_bytes(), (*ctx).resp3) };
    let tape_bytes = tape.len();
    let mut tape = TapeReader::new(tape);
    let is_error = matches!(tape.clone().next(), Some(Token::Error(_)));
    if RAW && !(is_error && raises) && raw::is_statement(stack) {
        return 0;
    }
    if tape_bytes > SCRATCH_KEEP_BYTES {
        collect_for(stack, tape_bytes);
    }
    push_reply(stack, &mut tape, resp3, 0);
    if is_error && raises {
        stack.raise_top();
    }
    1
}

/// Asks the engine for the command whose name is the first argument, a string, and remembers the answer.
#[cold]
fn learn(stack: Stack<'_>, ctx: &mut Ctx) -> Option<CommandId> {
    let mut host = ctx.host?;
    let name = stack.bytes(1);
    // SAFETY: the host is the one that `Vm::run` was lent, and that call has not returned.
    let command = unsafe { host.as_mut() }.command_id(name)?;
    ctx.names.note(stack, 1, command);
    Some(command)
}

/// What a script reads whose arguments take more memory than it may have, or than one command may take.
const TOO_LONG: &[u8] = b"ERR Lua redis lib command arguments are too long";

/// Copies the arguments into the context: the command sees one buffer. Answers the address of the command's name, if it is a
/// string. Raises nothing.
#[inline]
fn gather<'a>(
    arguments: impl ExactSizeIterator<Item = Argument<'a>>,
    ctx: &mut Ctx,
) -> Result<Option<usize>, &'static [u8]> {
    if arguments.len() == 0 {
        return Err(b"ERR Please specify at least one argument for this redis lib call");
    }
    // A script may hold a string once and pass it many times.
    let most = ctx.memory.room().min(QUERY_BUFFER_HARD_MAX_BYTES);
    ctx.args.clear();
    ctx.spans.clear();
    let mut name = None;
    for (i, argument) in arguments.enumerate() {
        let start = ctx.args.len();
        match argument {
            Argument::Bytes(bytes) => {
                if i == 0 {
                    name = Some(bytes.as_ptr() as usize);
                }
                if bytes.len() > most - start {
                    return Err(TOO_LONG);
                }
                ctx.args.extend_from_slice(bytes);
            }
            Argument::Number(number) => format_number(&mut ctx.args, number),
            Argument::Other => return Err(b"ERR Lua redis lib command arguments must be strings or integers"),
        }
        if ctx.args.len() > most {
            return Err(TOO_LONG);
        }
        ctx.spans.push(Span::new(start, ctx.args.len() - start));
    }
    Ok(name)
}

/// Asks the engine.
#[inline]
fn perform(ctx: &mut Ctx, command: Option<CommandId>) -> Result<(), &'static [u8]> {
    let Some(mut host) = ctx.host else { return Err(b"ERR redis.call can only be called inside a script invocation") };
    ctx.tape.truncate(0);
    let argv = Argv::new(&ctx.args, &ctx.spans);
    let tape = &mut ctx.tape;
    // SAFETY: the host is the one that `Vm::run` was lent, and that call has not returned.
    let host = unsafe { host.as_mut() };
    match command {
        Some(command) => host.call_known(command, argv, tape),
        None => host.call(argv, tape),
    }
    Ok(())
}

/// Asks the engine whether the script's caller may make the call that was gathered.
fn may_call(ctx: &mut Ctx) -> Result<bool, &'static [u8]> {
    const NONE: &[u8] = b"ERR redis.acl_check_cmd can only be called inside a script invocation";
    let Some(mut host) = ctx.host else { return Err(NONE) };
    // SAFETY: the host is the one that `Vm::run` was lent, and that call has not returned.
    let may = unsafe { host.as_mut() }.may_call(Argv::new(&ctx.args, &ctx.spans));
    may.ok_or(b"ERR Invalid command passed to redis.acl_check_cmd()")
}

/// Writes a number as Redis 7.2 and later pass it to a command: integers up to 2^62 in full, others in the shortest form
/// that reads back.
fn format_number(out: &mut Vec<u8>, number: f64) {
    const LIMIT: f64 = (1u64 << 62) as f64;
    if number.abs() <= LIMIT && number.trunc() == number {
        return num::format_i64(out, number as i64);
    }
    num::format_f64(out, number);
}
