//! The functions of `string` that could run for ever or exhaust memory, within bounds: `find`, `match`, `gmatch`, `gsub`, `rep`.
//! All else of `string` is LuaJIT's.

use std::ffi::c_int;

use super::lua::{CFunction, Kind, Stack, native, upvalue};
use super::pattern::{Capture, Matcher, Stop};
use super::sandbox::check_c_stack;
use super::vm::{Verdict, kill};
use crate::base::limits::{SCRIPT_C_STACK_BYTES, SCRIPT_STRING_MAX_BYTES};

pub(super) const FUNCTIONS: &[(&[u8], CFunction)] =
    &[(b"find", find), (b"gfind", gmatch), (b"gmatch", gmatch), (b"gsub", gsub), (b"match", match_once), (b"rep", rep)];

native! {
    fn find(stack: Stack) -> c_int {
        search(stack, true)
    }

    fn match_once(stack: Stack) -> c_int {
        search(stack, false)
    }

    fn gmatch(stack: Stack) -> c_int {
        stack.check_bytes(1);
        stack.check_bytes(2);
        stack.set_top(2);
        stack.push_light(stack.ctx().cast());
        stack.insert(1);
        stack.push_number(0.0);
        stack.push_closure(gmatch_next, 4);
        1
    }

    /// The iterator of `gmatch`: upvalues are the context, subject, pattern and where to go on.
    fn gmatch_next(stack: Stack) -> c_int {
        let (subject, pattern) = (stack.bytes(upvalue(2)), stack.bytes(upvalue(3)));
        let mut matcher = Matcher::new(subject, pattern, ticker(stack));
        for start in stack.number(upvalue(4)) as usize..=subject.len() {
            if let Some(end) = checked(stack, matcher.match_at(start)) {
                stack.push_number(if end == start { end + 1 } else { end } as f64);
                stack.replace(upvalue(4));
                return push_captures(stack, subject, &matcher, Some((start, end)));
            }
        }
        0
    }

    fn gsub(stack: Stack) -> c_int {
        let (subject, pattern) = (stack.check_bytes(1), stack.check_bytes(2));
        let replacement = stack.kind(3);
        if !matches!(replacement, Kind::Number | Kind::String | Kind::Table | Kind::Function) {
            stack.raise_argument(3, &[b"string/function/table expected"]);
        }
        let most = stack.opt_integer(4, i64::MAX);
        stack.set_top(3);
        let (pattern, anchored) = strip_anchor(pattern);
        let mut matcher = Matcher::new(subject, pattern, ticker(stack));
        let mut output = Output::new(stack, replacement);
        let (mut at, mut copied, mut n) = (0, 0, 0);
        while n < most {
            let found = checked(stack, matcher.match_at(at));
            if let Some(end) = found {
                n += 1;
                output.literal(stack, &subject[copied..at]);
                output.replace(stack, subject, &matcher, at, end);
                copied = end;
            }
            at = match found {
                Some(end) if end > at => end,
                _ if at < subject.len() => at + 1,
                _ => break,
            };
            if anchored {
                break;
            }
        }
        output.literal(stack, &subject[copied.min(subject.len())..]);
        output.finish(stack);
        stack.push_number(n as f64);
        2
    }

    fn rep(stack: Stack) -> c_int {
        let text = stack.check_bytes(1);
        let n = stack.check_integer(2).max(0) as usize;
        if text.len().saturating_mul(n) > SCRIPT_STRING_MAX_BYTES {
            stack.raise(b"resulting string too large");
        }
        let buffer = stack.buffer();
        buffer.reserve(text.len() * n);
        buffer.write(|buffer| {
            if let [byte] = text {
                buffer.resize(n, *byte);
            } else if !text.is_empty() {
                (0..n).for_each(|_| buffer.extend_from_slice(text));
            }
        });
        buffer.push_to(stack);
        1
    }
}

/// Asks the engine, as the hook does, whether the script may go on.
fn ticker(stack: Stack<'_>) -> impl FnMut() -> bool + Copy {
    let ctx = stack.ctx();
    // SAFETY: the context outlives the state; the engine does not come back into the VM.
    move || unsafe { !(*ctx).is_dying() && (*ctx).ask() == Verdict::Continue }
}

/// What was found, or the error raised.
#[inline]
fn checked(stack: Stack<'_>, found: Result<Option<usize>, Stop>) -> Option<usize> {
    match found {
        Ok(found) => found,
        Err(Stop::Malformed(message)) => stack.raise(message.as_bytes()),
        Err(Stop::Interrupted) => kill(stack, stack.ctx()),
    }
}

fn strip_anchor(pattern: &[u8]) -> (&[u8], bool) {
    match pattern.strip_prefix(b"^") {
        Some(rest) => (rest, true),
        None => (pattern, false),
    }
}

/// `find` answers positions and captures, `match` captures or the whole match.
fn search(stack: Stack<'_>, positions: bool) -> c_int {
    let (subject, pattern) = (stack.check_bytes(1), stack.check_bytes(2));
    let from = match stack.opt_integer(3, 1) {
        back @ ..0 => subject.len().saturating_sub(back.unsigned_abs() as usize),
        forth => (forth.max(1) as usize - 1).min(subject.len()),
    };
    let plain = positions && (stack.boolean(4) || !pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte)));
    if plain {
        return match memchr::memmem::find(&subject[from..], pattern) {
            Some(at) => {
                stack.push_number((from + at + 1) as f64);
                stack.push_number((from + at + pattern.len()) as f64);
                2
            }
            None => {
                stack.push_nil();
                1
            }
        };
    }
    let (pattern, anchored) = strip_anchor(pattern);
    let mut matcher = Matcher::new(subject, pattern, ticker(stack));
    for start in from..=subject.len() {
        if let Some(end) = checked(stack, matcher.match_at(start)) {
            if !positions {
                return push_captures(stack, subject, &matcher, Some((start, end)));
            }
            stack.push_number((start + 1) as f64);
            stack.push_number(end as f64);
            return push_captures(stack, subject, &matcher, None) + 2;
        }
        if anchored {
            break;
        }
    }
    stack.push_nil();
    1
}

/// Pushes all captures, or, when there is none and it is given, the whole match; answers how many.
fn push_captures<T: FnMut() -> bool>(
    stack: Stack<'_>,
    subject: &[u8],
    matcher: &Matcher<'_, T>,
    whole: Option<(usize, usize)>,
) -> c_int {
    let captures = matcher.captures();
    if !stack.reserve(captures.len() as c_int + 1) {
        stack.raise(b"too many captures");
    }
    if captures.is_empty() {
        let Some((start, end)) = whole else { return 0 };
        stack.push_bytes(&subject[start..end]);
        return 1;
    }
    captures.iter().for_each(|capture| push_capture(stack, subject, *capture));
    captures.len() as c_int
}

fn push_capture(stack: Stack<'_>, subject: &[u8], capture: Capture) {
    match capture {
        Capture::Span(from, to) => stack.push_bytes(&subject[from..to]),
        Capture::Position(at) => stack.push_number((at + 1) as f64),
        Capture::Open(_) => stack.raise(b"unfinished capture"),
    }
}

/// Where `gsub` builds its result. With a string as replacement no script runs meanwhile: the scratch buffer serves. With a
/// table or a function, scripts run that may use that buffer: pieces are kept in a Lua table at index 4.
enum Output {
    Buffer,
    Pieces(c_int),
}

impl Output {
    fn new(stack: Stack<'_>, replacement: Kind) -> Output {
        if matches!(replacement, Kind::Number | Kind::String) {
            // Its emptiness is what `buffer` gives; `append` must not empty it again.
            stack.buffer();
            stack.text(3);
            return Output::Buffer;
        }
        stack.new_table(0, 0);
        Output::Pieces(0)
    }

    fn literal(&mut self, stack: Stack<'_>, text: &[u8]) {
        match self {
            Output::Buffer => append(stack, text),
            Output::Pieces(_) if text.is_empty() => {}
            Output::Pieces(n) => {
                *n += 1;
                stack.push_bytes(text);
                stack.raw_set_at(4, *n);
            }
        }
    }

    fn replace<T: FnMut() -> bool>(
        &mut self,
        stack: Stack<'_>,
        subject: &[u8],
        matcher: &Matcher<'_, T>,
        start: usize,
        end: usize,
    ) {
        let whole = &subject[start..end];
        let Output::Pieces(n) = self else { return append_template(stack, subject, matcher, whole) };
        if stack.kind(3) == Kind::Function {
            check_c_stack(stack, SCRIPT_C_STACK_BYTES);
            stack.push_value(3);
            let args = push_captures(stack, subject, matcher, Some((start, end)));
            stack.call(args, 1);
        } else {
            match matcher.captures().first() {
                Some(capture) => push_capture(stack, subject, *capture),
                None => stack.push_bytes(whole),
            }
            stack.get(3);
        }
        match stack.kind(-1) {
            Kind::String | Kind::Number => {
                stack.text(-1);
                *n += 1;
                stack.raw_set_at(4, *n);
            }
            _ if !stack.boolean(-1) => {
                stack.pop(1);
                self.literal(stack, whole);
            }
            _ => refuse_replacement(stack),
        }
    }

    fn finish(self, stack: Stack<'_>) {
        let Output::Pieces(n) = self else { return append_done(stack) };
        let buffer = stack.buffer();
        for i in 1..=n {
            stack.raw_get_at(4, i);
            buffer.extend(stack.bytes(-1));
            stack.pop(1);
        }
        buffer.push_to(stack);
    }
}

fn refuse_replacement(stack: Stack<'_>) -> ! {
    let name = stack.kind_name(-1);
    stack.push_where(1);
    stack.push_bytes(b"invalid replacement value (a ");
    stack.push_bytes(name.as_bytes());
    stack.push_bytes(b")");
    stack.concat(4);
    stack.raise_top()
}

fn append(stack: Stack<'_>, text: &[u8]) {
    let buffer = stack.buffer_as_is();
    if buffer.len() + text.len() > SCRIPT_STRING_MAX_BYTES {
        stack.raise(b"resulting string too large");
    }
    buffer.extend(text);
}

fn append_done(stack: Stack<'_>) {
    stack.buffer_as_is().push_to(stack);
}

/// Appends the replacement string with its `%0` to `%9` filled in.
fn append_template<T: FnMut() -> bool>(stack: Stack<'_>, subject: &[u8], matcher: &Matcher<'_, T>, whole: &[u8]) {
    let mut template = stack.bytes(3);
    while let Some(at) = memchr::memchr(b'%', template) {
        append(stack, &template[..at]);
        let escaped = template.get(at + 1);
        template = template.get(at + 2..).unwrap_or(&[]);
        match escaped {
            Some(b'0') => append(stack, whole),
            Some(digit @ b'1'..=b'9') => match matcher.captures().get(usize::from(digit - b'1')) {
                Some(&Capture::Span(from, to)) => append(stack, &subject[from..to]),
                Some(&Capture::Position(at)) => append(stack, itoa::Buffer::new().format(at + 1).as_bytes()),
                Some(Capture::Open(_)) => stack.raise(b"unfinished capture"),
                None if *digit == b'1' && matcher.captures().is_empty() => append(stack, whole),
                None => stack.raise(b"invalid capture index"),
            },
            Some(&other) => append(stack, &[other]),
            // Lua 5.1 copies the NUL byte behind the string here.
            None => append(stack, b"\0"),
        }
    }
    append(stack, template);
}
