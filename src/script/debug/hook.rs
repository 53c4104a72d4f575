//! The debugger's line hook, and the client's commands at the line where a script has stopped.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::listing::Refusal;
use super::{Debugger, show};
use crate::script::alarm::change_hook;
use crate::script::chunk::{is_script, load};
use crate::script::context::Ctx;
use crate::script::host::{Host as _, Verdict};
use crate::script::interrupt::{hook_context, kill};
use crate::script::limits::{DEBUG_HOOK_INSTRUCTIONS, DEBUG_LEVELS_MAX, DEBUG_LINE_MIN_BYTES};
use crate::script::lua::{Kind, REGISTRY, Stack, c_bytes, ffi, native, upvalue};

/// A stopped script, as the hook sees it. Nothing may be borrowed from the debugger during a call that may raise.
#[derive(Clone, Copy)]
struct Site {
    stack: Stack<'static>,
    ctx: *mut Ctx,
    debugger: NonNull<Debugger<'static>>,
}

/// Lua calls this at each line of a debugged script, and every [`DEBUG_HOOK_INSTRUCTIONS`].
unsafe extern "C-unwind" fn hook(state: *mut ffi::lua_State, record: *mut ffi::lua_Debug) {
    // SAFETY: Lua calls this with a live state and a record of the function that runs. The context outlives the state,
    // and the debugger is there until `Vm::debug` has taken it out of the context.
    unsafe {
        let stack = Stack::new(state);
        let ctx = hook_context(stack);
        if ctx.is_null() {
            return;
        }
        let Some(debugger) = (*ctx).debugger else { return };
        if (*record).event == ffi::LUA_HOOKCOUNT {
            (*ctx).memory.collect_if_due();
            if (*ctx).is_dying() || (*ctx).ask() != Verdict::Continue {
                kill(stack, ctx);
            }
            if ffi::lua_gethookcount(state) != DEBUG_HOOK_INSTRUCTIONS {
                arm(state, ffi::lua_gethookmask(state) & ffi::LUA_MASKLINE != 0);
            }
            return;
        }
        ffi::lua_getinfo(state, c"S".as_ptr(), record);
        if is_script(&*record) {
            Site { stack, ctx, debugger }.arrive((*record).currentline as usize);
        }
    }
}

/// Sets the hook: for lines and instructions, or, while the client's code runs, for instructions only.
fn arm(state: *mut ffi::lua_State, lines: bool) {
    let mask = ffi::LUA_MASKCOUNT | if lines { ffi::LUA_MASKLINE } else { 0 };
    // SAFETY: the state is live; LuaJIT has one hook for all its coroutines.
    unsafe { change_hook(state, Some(hook), mask, DEBUG_HOOK_INSTRUCTIONS) };
}

/// Begins to debug: from here on the hook is called at each line.
pub(in crate::script) fn begin(state: *mut ffi::lua_State) {
    arm(state, true);
}

/// The debugger's next step after a command of the client.
enum Next {
    /// Read the next command.
    Stay,
    /// Let the script continue.
    Resume,
    /// End the script with this error.
    End(&'static str),
}

/// A command of the debugger.
struct Command {
    /// Its name. The first letter is enough to call it.
    name: &'static str,
    /// The least number of arguments.
    min_args: usize,
    /// Its forms for `help`: the arguments, and their meaning.
    forms: &'static [(&'static str, &'static str)],
    run: fn(Site) -> Next,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "step",
        min_args: 0,
        forms: &[("", "Runs to the next line, also into called functions.")],
        run: Site::step,
    },
    Command { name: "next", min_args: 0, forms: &[("", "Same as step.")], run: Site::step },
    Command {
        name: "continue",
        min_args: 0,
        forms: &[("", "Runs to the next breakpoint, or to the end.")],
        run: |_| Next::Resume,
    },
    Command {
        name: "list",
        min_args: 0,
        forms: &[
            ("", "Shows the script around the current line."),
            ("<line>", "Shows the script around a line; 0 is the current one."),
            ("<line> <n>", "Shows a line with n lines before and n after it."),
        ],
        run: Site::list,
    },
    Command { name: "whole", min_args: 0, forms: &[("", "Shows the whole script.")], run: Site::whole },
    Command {
        name: "print",
        min_args: 0,
        forms: &[
            ("", "Shows the local variables of the current function."),
            ("<name>", "Shows a variable: a local one, KEYS or ARGV."),
        ],
        run: Site::print,
    },
    Command {
        name: "break",
        min_args: 0,
        forms: &[
            ("", "Shows the breakpoints."),
            ("<line>", "Sets a breakpoint."),
            ("-<line>", "Removes a breakpoint."),
            ("0", "Removes all breakpoints."),
        ],
        run: Site::break_at,
    },
    Command {
        name: "trace",
        min_args: 0,
        forms: &[("", "Shows the callers of the current function.")],
        run: Site::trace,
    },
    Command {
        name: "eval",
        min_args: 0,
        forms: &[("<code>", "Runs Lua code, which does not see local variables.")],
        run: Site::eval,
    },
    Command { name: "redis", min_args: 1, forms: &[("<command>", "Runs a command.")], run: Site::redis },
    Command {
        name: "maxlen",
        min_args: 0,
        forms: &[("", "Shows the length limit of lines with values."), ("<bytes>", "Sets this limit; 0 for none.")],
        run: Site::max_len,
    },
    Command {
        name: "abort",
        min_args: 0,
        forms: &[("", "Ends the script.")],
        run: |_| Next::End("ERR script aborted for user request"),
    },
    Command { name: "help", min_args: 0, forms: &[("", "Shows this help.")], run: Site::help },
];

impl Command {
    fn is_called(&self, word: &[u8]) -> bool {
        let name = self.name.as_bytes();
        name.eq_ignore_ascii_case(word) || name[..1].eq_ignore_ascii_case(word)
    }
}

impl Site {
    /// The debugger. No borrow from it may live during a call that may raise, or that runs the script's code.
    fn debugger(&mut self) -> &mut Debugger<'static> {
        // SAFETY: see `hook`; nothing else borrows from it, by the rule above.
        unsafe { self.debugger.as_mut() }
    }

    fn say(&mut self, line: impl Into<Vec<u8>>) -> Next {
        self.debugger().screen.say(line);
        Next::Stay
    }

    /// Called when the script reaches a line: stops there if there is a reason to.
    fn arrive(mut self, line: usize) {
        let (thread, depth) = (self.stack.raw() as usize, self.depth());
        let debugger = self.debugger();
        if !debugger.trail.arrive(thread, depth, line) {
            return;
        }
        let Some(reason) = debugger.arrive(line) else { return };
        debugger.screen.say(format!("* Stopped at {line}, stop reason = {reason}"));
        debugger.list(line, 0);
        self.run_commands();
    }

    /// Runs the client's commands until the script may continue. Raises if it must end.
    fn run_commands(mut self) {
        loop {
            let end = match self.debugger().next_command() {
                None => match self.run_command() {
                    Next::Stay => continue,
                    Next::Resume => return self.debugger().is_overdue = false,
                    Next::End(words) => Some(words),
                },
                end => end,
            };
            // SAFETY: the context outlives the state.
            unsafe { (*self.ctx).own_last_words = end };
            kill(self.stack, self.ctx);
        }
    }

    fn run_command(mut self) -> Next {
        let command = self.debugger().command.as_argv();
        let word = command.get(0).unwrap_or_default();
        match COMMANDS.iter().find(|known| known.is_called(word)) {
            Some(known) if command.len() > known.min_args => (known.run)(self),
            _ => self.say("<error> Unknown Redis Lua debugger command or wrong number of arguments."),
        }
    }

    fn step(mut self) -> Next {
        self.debugger().is_stepping = true;
        Next::Resume
    }

    fn list(mut self) -> Next {
        const CONTEXT: usize = 5;
        let debugger = self.debugger();
        let number = |i| std::str::from_utf8(debugger.command.as_argv().get(i)?).ok()?.parse::<usize>().ok();
        let line = number(1).filter(|&line| line > 0).unwrap_or(debugger.listing.current);
        let context = number(2).unwrap_or(CONTEXT);
        debugger.list(line, context);
        Next::Stay
    }

    fn whole(mut self) -> Next {
        self.debugger().list(1, usize::MAX);
        Next::Stay
    }

    fn break_at(mut self) -> Next {
        let debugger = self.debugger();
        let (listing, screen) = (&mut debugger.listing, &mut debugger.screen);
        let arguments = debugger.command.as_argv().skip(1);
        if arguments.is_empty() {
            let breakpoints = listing.breakpoints();
            match breakpoints.len() {
                0 => screen.say("No breakpoints set. Use 'b <line>' to add one."),
                n => screen.say(format!("{n} breakpoints set:")),
            }
            breakpoints.for_each(|line| screen.say(line));
        }
        for argument in arguments.iter() {
            let number = std::str::from_utf8(argument).ok().filter(|text| !text.starts_with('+'));
            match number.and_then(|text| text.parse::<isize>().ok()) {
                None => screen.say([b"Invalid argument:'", argument, b"'"].concat()),
                Some(0) => {
                    listing.clear_breakpoints();
                    screen.say("All breakpoints removed.");
                }
                Some(line) if line < 0 => screen.say(match listing.remove_breakpoint(line.unsigned_abs()) {
                    true => "Breakpoint removed.",
                    false => "No breakpoint in the specified line.",
                }),
                Some(line) => match listing.set_breakpoint(line as usize) {
                    Ok(()) => listing.around(line as usize, 1).for_each(|line| screen.say(line)),
                    Err(Refusal::NoSuchLine) => screen.say("Wrong line number."),
                    Err(Refusal::TooMany) => screen.say("Too many breakpoints set."),
                },
            }
        }
        Next::Stay
    }

    fn trace(mut self) -> Next {
        for level in 0..DEBUG_LEVELS_MAX {
            let Some(record) = self.record(level, c"nSl") else { break };
            if !is_script(&record) {
                continue;
            }
            // SAFETY: both are strings that Lua owns, or null.
            let (what, name) = unsafe { (c_bytes(record.what), c_bytes(record.name)) };
            let name = match name {
                _ if what == b"main" => b"top level",
                b"" => b"a function without a name".as_slice(),
                name => name,
            };
            let word: &[u8] = if level == 0 { b"In " } else { b"From " };
            self.say([word, name, b":"].concat());
            let line = self.debugger().listing.line(record.currentline.max(0) as usize);
            self.say(line);
        }
        Next::Stay
    }

    fn print(mut self) -> Next {
        let stack = self.stack;
        let debugger = self.debugger();
        debugger.code.clear();
        let Some(name) = debugger.command.as_argv().get(1) else { return self.print_locals() };
        let is_global = matches!(name, b"KEYS" | b"ARGV");
        debugger.code.extend_from_slice(b"return ");
        debugger.code.extend_from_slice(name);
        let name = name.to_vec();
        let top = stack.top();
        let is_local = self.push_local(&name);
        drop(name);
        if is_local || is_global && self.evaluate() {
            self.debugger().screen.say_trimmed("<value> ", |out, limit| show::value(stack, out, limit));
        } else {
            self.say("No such variable.");
        }
        stack.set_top(top);
        Next::Stay
    }

    fn print_locals(mut self) -> Next {
        let stack = self.stack;
        let mut is_empty = true;
        if let Some(record) = self.record(0, c"") {
            for n in 1.. {
                let Some(name) = self.push_nth_local(&record, n) else { break };
                if name != b"(*temporary)" {
                    is_empty = false;
                    self.debugger().screen.say_trimmed("<value> ", |out, limit| {
                        out.extend_from_slice(name);
                        out.extend_from_slice(b" = ");
                        show::value(stack, out, limit);
                    });
                }
                stack.pop(1);
            }
        }
        if is_empty {
            self.say("No local variables in the current context.");
        }
        Next::Stay
    }

    fn eval(mut self) -> Next {
        let stack = self.stack;
        let debugger = self.debugger();
        debugger.code.clear();
        debugger.code.extend_from_slice(b"return");
        for word in debugger.command.as_argv().skip(1).iter() {
            debugger.code.push(b' ');
            debugger.code.extend_from_slice(word);
        }
        let top = stack.top();
        if self.evaluate() {
            self.debugger().screen.say_trimmed("<retval> ", |out, limit| show::value(stack, out, limit));
        } else {
            if stack.kind(-1) == Kind::Table {
                stack.raw_get_field(stack.top(), b"err");
            }
            self.debugger().screen.say_trimmed("<error> ", |out, limit| match stack.kind(-1) {
                Kind::String => out.extend_from_slice(stack.bytes(-1)),
                _ => show::value(stack, out, limit),
            });
        }
        stack.set_top(top);
        Next::Stay
    }

    /// Runs the debugger's `code` and pushes its value. If it fails, pushes the error and returns false.
    fn evaluate(&mut self) -> bool {
        let (stack, state) = (self.stack, self.stack.raw());
        arm(state, false);
        let debugger = self.debugger();
        debugger.code_ended = false;
        stack.raw_get_at(REGISTRY, debugger.evaluate);
        stack.push_light(debugger.code.as_ptr().cast_mut().cast());
        stack.push_number(debugger.code.len() as f64);
        // SAFETY: a protected call of a function with two arguments; the code stays in the debugger.
        unsafe { ffi::lua_pcall(state, 2, 1, 0) };
        // SAFETY: the context outlives the state.
        if unsafe { (*self.ctx).is_dying() } {
            kill(stack, self.ctx);
        }
        arm(state, true);
        self.debugger().code_ended
    }

    fn redis(mut self) -> Next {
        let ctx = self.ctx;
        let debugger = self.debugger();
        let command = std::mem::take(&mut debugger.command);
        debugger.is_stepping = true;
        // SAFETY: the context outlives the state; a stopped script reads no reply.
        let tape = unsafe { &mut (*ctx).tape };
        tape.truncate(0);
        debugger.call(command.as_argv().skip(1), tape);
        debugger.is_stepping = false;
        Next::Stay
    }

    fn max_len(mut self) -> Next {
        let debugger = self.debugger();
        if let Some(argument) = debugger.command.as_argv().get(1) {
            let Some(bytes) = std::str::from_utf8(argument).ok().and_then(|text| text.parse::<usize>().ok()) else {
                return self.say("<error> maxlen takes a number of bytes, 0 for no limit.");
            };
            debugger.screen.max_len = if bytes == 0 { 0 } else { bytes.max(DEBUG_LINE_MIN_BYTES) };
            debugger.screen.hinted = true;
        }
        match self.debugger().screen.max_len {
            0 => self.say("<value> replies are unlimited."),
            bytes => self.say(format!("<value> replies are truncated at {bytes} bytes.")),
        }
    }

    fn help(mut self) -> Next {
        self.say("Commands of the debugger; their first letter is enough:");
        for command in COMMANDS {
            for (arguments, meaning) in command.forms {
                let (first, rest) = command.name.split_at(1);
                let usage = format!("[{first}]{rest} {arguments}");
                self.say(format!("{usage:<22}{meaning}"));
            }
        }
        self.say("Functions for scripts:");
        self.say(format!("{:<22}Stops at the next line.", "redis.breakpoint()"));
        self.say(format!("{:<22}Shows values here.", "redis.debug(...)"))
    }

    /// Lua's record of the function `level` levels up, with the fields in `what`.
    fn record(&self, level: c_int, what: &std::ffi::CStr) -> Option<ffi::lua_Debug> {
        let mut record = MaybeUninit::<ffi::lua_Debug>::zeroed();
        // SAFETY: the record is filled before it is read; zeros are valid in fields that Lua was not asked for.
        unsafe {
            if ffi::lua_getstack(self.stack.raw(), level, record.as_mut_ptr()) == 0 {
                return None;
            }
            ffi::lua_getinfo(self.stack.raw(), what.as_ptr(), record.as_mut_ptr());
            Some(record.assume_init())
        }
    }

    /// Number of functions below the running one in this coroutine.
    fn depth(&mut self) -> usize {
        let state = self.stack.raw();
        let mut record = MaybeUninit::<ffi::lua_Debug>::zeroed();
        // SAFETY: the state is live; the record is only written.
        let mut has_level =
            |level: usize| unsafe { ffi::lua_getstack(state, level as c_int, record.as_mut_ptr()) != 0 };
        // The depth rarely changes by more than one from line to line.
        let mut depth = self.debugger().trail.last_depth();
        while depth > 0 && !has_level(depth) {
            depth -= 1;
        }
        while has_level(depth + 1) {
            depth += 1;
        }
        depth
    }

    /// Pushes the innermost visible local variable of this name. Returns false, with nothing pushed, if there is none.
    fn push_local(&mut self, name: &[u8]) -> bool {
        let stack = self.stack;
        for level in 0..DEBUG_LEVELS_MAX {
            let Some(record) = self.record(level, c"S") else { break };
            if !is_script(&record) {
                continue;
            }
            let top = stack.top();
            for n in 1.. {
                let Some(local) = self.push_nth_local(&record, n) else { break };
                // A later variable hides an earlier one of its name.
                if local == name {
                    stack.insert(top + 1);
                    stack.set_top(top + 1);
                } else {
                    stack.pop(1);
                }
            }
            if stack.top() > top {
                return true;
            }
        }
        false
    }

    /// Pushes the `n`th local variable of a function, from 1, and returns its name.
    fn push_nth_local(&self, record: &ffi::lua_Debug, n: c_int) -> Option<&'static [u8]> {
        // SAFETY: the record was filled for an active function; names lie in the script's code, which stays alive.
        unsafe {
            let name = ffi::lua_getlocal(self.stack.raw(), record, n);
            (!name.is_null()).then(|| c_bytes(name))
        }
    }
}

/// Chunk name of the client's code.
const CHUNK_NAME: &std::ffi::CStr = c"@ldb_eval";

native! {
    /// Runs the code at a light userdata (1) with a length (2). The code begins with `return`; if it does not compile,
    /// it is run without that word. Its globals are those of scripts: after the context, the upvalues are their two
    /// tables.
    ///
    /// It always raises: the code's error, or its value, after it has told the debugger that the code ended. When a
    /// protected call fails, LuaJIT restores its state of hooks from before the call, and that is needed here.
    pub(in crate::script) fn evaluate(stack: Stack) -> c_int {
        // SAFETY: `Site::evaluate` passes a slice that outlives this call.
        let code = unsafe {
            std::slice::from_raw_parts(ffi::lua_touserdata(stack.raw(), 1).cast::<u8>(), stack.number(2) as usize)
        };
        leave_hook(stack);
        if load(stack, code, CHUNK_NAME, upvalue(2), upvalue(3)).is_none() {
            stack.pop(1);
            let code = code.strip_prefix(b"return").unwrap_or(code);
            if load(stack, code, CHUNK_NAME, upvalue(2), upvalue(3)).is_none() {
                stack.raise_top();
            }
        }
        stack.call(0, 1);
        // SAFETY: the context outlives the state, and holds a debugger only while it is there.
        if let Some(mut debugger) = unsafe { (*stack.ctx()).debugger } {
            // SAFETY: as above; nothing else borrows from it now.
            unsafe { debugger.as_mut() }.code_ended = true;
        }
        stack.raise_top()
    }

    fn fail(stack: Stack) -> c_int {
        stack.push_nil();
        stack.raise_top()
    }
}

/// Makes LuaJIT believe that the hook has ended, so that it calls hooks again. A failing coroutine has that effect.
fn leave_hook(stack: Stack<'_>) {
    // SAFETY: the state is live; the coroutine is on its stack until it has failed.
    unsafe {
        let coroutine = ffi::lua_newthread(stack.raw());
        Stack::new(coroutine).push_closure(fail, 0);
        ffi::lua_resume_(coroutine, 0);
    }
    stack.pop(1);
}

#[cfg(test)]
mod tests {
    use super::COMMANDS;

    #[test]
    fn every_command_has_a_letter_of_its_own() {
        let mut letters: Vec<u8> = COMMANDS.iter().map(|command| command.name.as_bytes()[0]).collect();
        letters.sort_unstable();
        letters.dedup();
        assert_eq!(letters.len(), COMMANDS.len());
    }
}
