//! The debugger: stops a script at its lines, shows its state to a client, and obeys the client's commands.
//!
//! A debugged script runs like any other, with two differences. LuaJIT calls a hook at each line, too, not only after a
//! number of instructions (`hook`). And the script's host is the `Debugger`, which stands between the script and the
//! engine and so sees every `redis.call`. Other scripts pay nothing for either.
//!
//! ```text
//! script --line hook--> Debugger --prompt--> Console (engine) ... client: "step", "print x", "continue"
//!        --redis.call-> Debugger --call------> Console (engine)
//! ```
//!
//! Output for the client gathers as lines on a screen. It is sent as one reply when the script stops the next time, or
//! ends. The prefixes of the lines are Redis' (`<value>`, `<reply>`, `->`); redis-cli colours lines by them.
//!
//! The client's code (`eval`) runs inside the hook, and LuaJIT calls no hook within a hook: an endless loop there could
//! not be stopped. So `evaluate` makes LuaJIT believe that the hook has ended before it runs that code.

pub(super) mod hook;
mod listing;
mod show;
mod trail;

use std::ffi::c_int;

use super::host::{Host, LogLevel, Verdict};
use super::lua::Stack;
use crate::resp::reply::Reply;
use crate::resp::request::{Argv, OwnedArgv};
use crate::resp::tape::{TapeReader, Token};
use crate::script::limits::{DEBUG_LINE_DEFAULT_BYTES, DEBUG_SCREEN_MAX_BYTES};
use listing::Listing;
use trail::Trail;

/// The host of a debugged script: besides commands, it carries the conversation with the client.
pub trait Console: Host {
    /// Sends the client these lines as one reply, and waits for its next command.
    fn prompt(&mut self, lines: Vec<Vec<u8>>) -> Answer;
    /// Whether the script has run for so long since the client's last command that it looks endless.
    fn is_overdue(&mut self) -> bool;
    /// Called after the script has ended, with the lines that the client has not seen.
    fn finish(&mut self, lines: Vec<Vec<u8>>);
}

/// The result of a prompt.
pub enum Answer {
    /// The client's next command.
    Command(OwnedArgv),
    /// No further command will come. The script ends with this error, and can't catch it.
    End(&'static str),
}

/// See the module's header.
pub(super) struct Debugger<'a> {
    console: &'a mut dyn Console,
    listing: Listing<'a>,
    trail: Trail,
    /// Lines that the client has not seen yet.
    screen: Screen,
    /// The client's last command.
    command: OwnedArgv,
    /// The client's code, while it runs.
    code: Vec<u8>,
    /// Whether the client's code ended without an error.
    code_ended: bool,
    /// A reference to [`hook::evaluate`].
    evaluate: c_int,
    /// Stops at the next line; until then every command of the script is shown.
    is_stepping: bool,
    /// The script asked to stop at the next line.
    breaks: bool,
    /// The script looks endless.
    is_overdue: bool,
    /// The script chose RESP3.
    resp3: bool,
}

impl<'a> Debugger<'a> {
    /// Returns a debugger that stops at the first line of `source`. `evaluate` is a reference to [`hook::evaluate`].
    pub(super) fn new(console: &'a mut dyn Console, source: &'a [u8], evaluate: c_int) -> Debugger<'a> {
        Debugger {
            console,
            listing: Listing::new(source),
            trail: Trail::default(),
            screen: Screen::default(),
            command: OwnedArgv::default(),
            code: Vec::new(),
            code_ended: false,
            evaluate,
            is_stepping: true,
            breaks: false,
            is_overdue: false,
            resp3: false,
        }
    }

    /// `redis.breakpoint()`: stops at the next line.
    pub(super) fn break_next(&mut self) {
        self.breaks = true;
    }

    /// `redis.debug()`: shows all values on the stack.
    pub(super) fn show_values(&mut self, stack: Stack<'_>) {
        let mut line = format!("<debug> line {}:", self.listing.current).into_bytes();
        for i in 1..=stack.top() {
            line.extend_from_slice(if i == 1 { b" " } else { b", " });
            stack.push_value(i);
            show::value(stack, &mut line, DEBUG_SCREEN_MAX_BYTES / 2);
            stack.pop(1);
        }
        self.screen.say(line);
    }

    /// Called when the script has ended.
    pub(super) fn finish(&mut self) {
        let lines = self.screen.take();
        self.console.finish(lines);
    }

    /// Notes that the script has reached a line. Returns the reason to stop there, if there is one.
    fn arrive(&mut self, line: usize) -> Option<&'static str> {
        self.listing.current = line;
        let reason = if self.breaks {
            "redis.breakpoint() called"
        } else if self.listing.stops_at(line) {
            "break point"
        } else if self.is_overdue {
            "timeout reached, infinite loop?"
        } else if self.is_stepping {
            "step over"
        } else {
            return None;
        };
        (self.breaks, self.is_overdue, self.is_stepping) = (false, false, false);
        Some(reason)
    }

    /// Sends the screen and waits for the next command. If none will come, returns the error with which the script
    /// ends.
    fn next_command(&mut self) -> Option<&'static str> {
        match self.console.prompt(self.screen.take()) {
            Answer::Command(command) => {
                self.command = command;
                None
            }
            Answer::End(words) => Some(words),
        }
    }

    fn list(&mut self, number: usize, context: usize) {
        self.listing.around(number, context).for_each(|line| self.screen.say(line));
    }
}

impl Host for Debugger<'_> {
    fn call(&mut self, argv: Argv<'_>, reply: &mut Reply) {
        if self.is_stepping {
            self.screen.say(command_line(argv));
        }
        self.console.call(argv, reply);
        if self.is_stepping {
            let tape = TapeReader::new(reply.as_bytes());
            if let Some(Token::Error(text)) = tape.clone().next() {
                self.screen.say([b"<error> -", text].concat());
            }
            let resp3 = self.resp3;
            self.screen.say_trimmed("<reply> ", |out, limit| show::reply(&mut tape.clone(), resp3, out, limit));
        }
    }

    fn interrupted(&mut self) -> Verdict {
        self.is_overdue = self.console.is_overdue();
        self.console.interrupted()
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        self.console.log(level, message);
    }

    fn set_resp(&mut self, version: u8) {
        self.resp3 = version == 3;
        self.console.set_resp(version);
    }
}

/// A command of the script, with its first arguments.
fn command_line(argv: Argv<'_>) -> Vec<u8> {
    const SHOWN: usize = 10;
    let mut line = b"<redis>".to_vec();
    for argument in argv.iter().take(SHOWN) {
        line.push(b' ');
        line.extend_from_slice(argument);
    }
    if argv.len() > SHOWN {
        line.extend_from_slice(format!(" ... ({} more)", argv.len() - SHOWN).as_bytes());
    }
    line
}

/// The lines that the client will see next.
struct Screen {
    lines: Vec<Vec<u8>>,
    bytes: usize,
    /// Number of lines dropped for lack of room.
    left_out: usize,
    /// The most bytes of a line with a value; 0 for no limit.
    max_len: usize,
    /// Whether the client has been told that lines are trimmed.
    hinted: bool,
}

impl Default for Screen {
    fn default() -> Screen {
        Screen { lines: Vec::new(), bytes: 0, left_out: 0, max_len: DEBUG_LINE_DEFAULT_BYTES, hinted: false }
    }
}

impl Screen {
    fn say(&mut self, line: impl Into<Vec<u8>>) {
        let line = line.into();
        self.bytes += line.len();
        if self.bytes <= DEBUG_SCREEN_MAX_BYTES {
            self.lines.push(line);
        } else {
            self.left_out += 1;
        }
    }

    /// Shows the prefix and the text that `write` appends, trimmed. `write` gets the limit; bytes beyond it are cut
    /// off.
    fn say_trimmed(&mut self, prefix: &str, write: impl FnOnce(&mut Vec<u8>, usize)) {
        let limit = if self.max_len == 0 { DEBUG_SCREEN_MAX_BYTES / 2 } else { self.max_len };
        let mut line = prefix.as_bytes().to_vec();
        write(&mut line, limit);
        let is_long = line.len() > limit;
        if is_long {
            line.truncate(limit);
            line.extend_from_slice(b" ...");
        }
        self.say(line);
        if is_long && !std::mem::replace(&mut self.hinted, true) {
            self.say("<hint> This line is trimmed; 'maxlen 0' turns the limit off.");
        }
    }

    fn take(&mut self) -> Vec<Vec<u8>> {
        let mut lines = std::mem::take(&mut self.lines);
        if self.left_out > 0 {
            lines.push(format!("<hint> {} more lines were dropped.", self.left_out).into_bytes());
        }
        (self.bytes, self.left_out) = (0, 0);
        lines
    }
}

#[cfg(test)]
pub(super) mod tests;
