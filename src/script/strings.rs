//! Functions of `string`, with bounds on time, memory and arguments.
//!
//! In LuaJIT, `find`, `match`, `gmatch` and `gsub` could run forever, and `rep` could exhaust memory. `sub`, `upper`,
//! `lower` and `reverse` make a string as long as their argument; LuaJIT's are written in assembler and allocate
//! without a check for room. `sub` and `byte` take positions of more than 32 bits, as in Lua 5.1. `format` is LuaJIT's,
//! after a check that refuses the formats that Lua 5.1 refuses. The other functions of `string` are LuaJIT's.

use std::ffi::c_int;
use std::sync::OnceLock;

use super::alarm::is_due;
use super::context::Ctx;
use super::host::Verdict;
use super::integer::truncate;
use super::interrupt::{kill, library};
use super::lua::{CFunction, Kind, Stack, ffi, until_nul, upvalue};
use super::pattern::{Capture, Matcher, Stop};
use super::room::{check_c_stack, make_room};
use crate::script::limits::{
    SCRIPT_C_STACK_BYTES, SCRIPT_CHUNK_BYTES, SCRIPT_SHORT_STRING_BYTES, SCRIPT_STRING_MAX_BYTES,
};

pub(super) const FUNCTIONS: &[(&[u8], CFunction)] = &[
    (b"byte", byte),
    (b"find", find),
    (b"gfind", gmatch),
    (b"gmatch", gmatch),
    (b"gsub", gsub),
    (b"lower", lower),
    (b"match", match_once),
    (b"rep", rep),
    (b"reverse", reverse),
    (b"sub", sub),
    (b"upper", upper),
];

/// LuaJIT's own `format`: a C function, equal in all states. It is kept in a static, because a call would first have to
/// look it up in an upvalue.
static BUILTIN_FORMAT: OnceLock<CFunction> = OnceLock::new();

/// Pushes our `format`, which calls LuaJIT's. LuaJIT's `string` library is at `from`. May raise for lack of memory.
pub(super) fn push_format(stack: Stack<'_>, ctx: *mut Ctx, from: c_int) {
    stack.raw_get_field(from, b"format");
    // SAFETY: the result is `None` for values other than C functions.
    if let Some(builtin) = unsafe { ffi::lua_tocfunction(stack.raw(), -1) } {
        BUILTIN_FORMAT.get_or_init(|| builtin);
    }
    stack.pop(1);
    stack.push_function(ctx, format);
}

library! {
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

    /// The iterator of `gmatch`. Its upvalues are the context, the subject, the pattern and the next position.
    fn gmatch_next(stack: Stack) -> c_int {
        let (subject, pattern) = (stack.bytes(upvalue(2)), until_nul(stack.bytes(upvalue(3))));
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
        let most = stack.opt_c_int(4, c_int::MAX);
        let replacement = stack.kind(3);
        if !matches!(replacement, Kind::Number | Kind::String | Kind::Table | Kind::Function) {
            stack.raise_argument(3, &[b"string/function/table expected"]);
        }
        stack.set_top(3);
        let (pattern, anchored) = strip_anchor(until_nul(pattern));
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
        let n = stack.check_c_int(2).max(0) as usize;
        if text.len().saturating_mul(n) > SCRIPT_STRING_MAX_BYTES {
            stack.raise(b"resulting string too large");
        }
        let (buffer, total) = (stack.buffer(), text.len() * n);
        if total > 0 {
            buffer.reserve(total);
            buffer.extend(text);
        }
        // The contents are appended to themselves, in multiples of the text, so that each copy continues the last.
        let most = text.len().max(SCRIPT_CHUNK_BYTES / text.len().max(1) * text.len());
        while buffer.len() < total {
            let piece = most.min(buffer.len()).min(total - buffer.len());
            buffer.write(|buffer| buffer.extend_from_within(..piece));
            stack.tick();
        }
        buffer.push_to(stack);
        1
    }

    fn sub(stack: Stack) -> c_int {
        let text = stack.check_bytes(1);
        let (from, to) = (position(stack, 2, None, text.len()), position(stack, 3, Some(-1), text.len()));
        let (from, to) = ((from - 1).max(0) as usize, to.min(text.len() as i64) as usize);
        match text.get(from..to).unwrap_or_default() {
            part if part.len() == text.len() => stack.push_value(1),
            part => {
                make_room(stack, part.len());
                stack.push_bytes(part);
            }
        }
        1
    }

    fn byte(stack: Stack) -> c_int {
        let text = stack.check_bytes(1);
        let from = position(stack, 2, Some(1), text.len());
        let to = match stack.kind(3) {
            Kind::None | Kind::Nil => from,
            _ => position(stack, 3, None, text.len()),
        };
        let (from, to) = ((from - 1).max(0) as usize, to.min(text.len() as i64) as usize);
        let part = text.get(from..to).unwrap_or_default();
        if part.len() > c_int::MAX as usize || !stack.reserve(part.len() as c_int) {
            stack.raise(b"stack overflow (string slice too long)");
        }
        part.iter().for_each(|&byte| stack.push_number(f64::from(byte)));
        part.len() as c_int
    }

    fn upper(stack: Stack) -> c_int {
        push_changed(stack, |text, _| text.make_ascii_uppercase())
    }

    fn lower(stack: Stack) -> c_int {
        push_changed(stack, |text, _| text.make_ascii_lowercase())
    }

    fn reverse(stack: Stack) -> c_int {
        push_changed(stack, |text, whole| {
            // Each piece of the new string is the mirrored piece of the old one.
            text.copy_from_slice(whole);
            text.reverse();
        })
    }

    fn format(stack: Stack) -> c_int {
        let text = stack.check_bytes(1);
        if !is_plain(text) {
            check_format(stack, text);
        }
        // SAFETY: a C function that finds its arguments on the stack like this one, and uses no upvalues.
        BUILTIN_FORMAT.get().map_or(0, |format| unsafe { format(stack.raw()) })
    }
}

/// The position in argument `i`, from 1. A negative one counts from the end. Without a default the argument is
/// required.
fn position(stack: Stack<'_>, i: c_int, default: Option<i64>, len: usize) -> i64 {
    let given = match default {
        Some(default) if matches!(stack.kind(i), Kind::None | Kind::Nil) => default,
        _ => truncate(stack.check_number(i)),
    };
    let position = if given < 0 { given.saturating_add(len as i64 + 1) } else { given };
    position.max(0)
}

/// Pushes a string that `change` makes from argument 1, piece by piece. `change` gets the new piece, which holds the
/// old bytes, and the piece of the old string at the same distance from its other end.
#[inline]
fn push_changed(stack: Stack<'_>, change: impl Fn(&mut [u8], &[u8])) -> c_int {
    let text = stack.check_bytes(1);
    let mut short = [0; SCRIPT_SHORT_STRING_BYTES];
    if let Some(short) = short.get_mut(..text.len()) {
        short.copy_from_slice(text);
        change(short, text);
        stack.push_bytes(short);
        return 1;
    }
    let buffer = stack.buffer();
    buffer.reserve(text.len());
    for (there, mirrored) in text.chunks(SCRIPT_CHUNK_BYTES).zip(mirrored_chunks(text)) {
        stack.tick();
        buffer.write(|out| {
            let start = out.len();
            out.extend_from_slice(there);
            change(&mut out[start..], mirrored);
        });
    }
    buffer.push_to(stack);
    1
}

/// The pieces of a text from its end on, each as long as its counterpart in `chunks`.
fn mirrored_chunks(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.rchunks(SCRIPT_CHUNK_BYTES)
}

/// Whether a format is short, with known options only and no flags or widths. Most formats are like that, and
/// [`check_format`] would accept them with any arguments.
#[inline]
fn is_plain(format: &[u8]) -> bool {
    const SHORT: usize = 32;
    if format.len() > SHORT {
        return false;
    }
    let mut rest = format;
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte == b'%' {
            if let [b'.', b'0'..=b'9', after @ ..] = rest {
                rest = after;
            }
            let [b'd' | b'f' | b'g' | b's' | b'x', after @ ..] = rest else { return false };
            rest = after;
        }
    }
    true
}

/// Raises for formats that Lua 5.1 refuses and LuaJIT does not, or with another message. Refusals with equal messages
/// are left to LuaJIT.
fn check_format(stack: Stack<'_>, mut format: &[u8]) {
    const FLAGS: &[u8] = b"-+ #0";
    let mut argument = 1;
    while let Some(at) = memchr::memchr(b'%', format) {
        stack.tick();
        format = &format[at + 1..];
        if let Some(rest) = format.strip_prefix(b"%") {
            format = rest;
            continue;
        }
        argument += 1;
        if stack.kind(argument) == Kind::None {
            stack.raise_argument(argument, &[b"no value"]);
        }
        let flags = format.iter().take_while(|byte| FLAGS.contains(byte)).count();
        if flags > FLAGS.len() {
            stack.raise(b"invalid format (repeated flags)");
        }
        format = skip_two_digits(&format[flags..]);
        if let Some(precision) = format.strip_prefix(b".") {
            format = skip_two_digits(precision);
        }
        let fits = match format.first() {
            Some(b'c' | b'd' | b'i' | b'o' | b'u' | b'x' | b'X' | b'e' | b'E' | b'f' | b'g' | b'G') => {
                stack.is_number(argument)
            }
            Some(b'q' | b's') => matches!(stack.kind(argument), Kind::String | Kind::Number),
            Some(byte) if byte.is_ascii_digit() => stack.raise(b"invalid format (width or precision too long)"),
            // A NUL byte ends the message, as in C.
            Some(0) | None => stack.raise(b"invalid option '%' to 'format'"),
            Some(byte) => stack.raise_parts(&[b"invalid option '%", &[*byte], b"' to 'format'"]),
        };
        if !fits {
            return;
        }
        format = &format[1..];
    }
}

fn skip_two_digits(text: &[u8]) -> &[u8] {
    let digits = text.iter().take(2).take_while(|byte| byte.is_ascii_digit()).count();
    &text[digits..]
}

/// Returns a function that, like the hook, asks the engine whether the script may go on, if the clock has ticked.
fn ticker(stack: Stack<'_>) -> impl FnMut() -> bool + Copy {
    let ctx = stack.ctx();
    // SAFETY: the context outlives the state; the engine does not call back into the VM.
    move || unsafe { !(*ctx).is_dying() && (!is_due() || (*ctx).ask() == Verdict::Continue) }
}

/// Returns the match, or raises the error.
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

/// `find` returns positions and captures; `match` returns captures, or the whole match.
fn search(stack: Stack<'_>, positions: bool) -> c_int {
    let (subject, pattern) = (stack.check_bytes(1), stack.check_bytes(2));
    let from = match stack.opt_integer(3, 1) {
        back @ ..0 => subject.len().saturating_sub(back.unsigned_abs() as usize),
        forth => (forth.max(1) as usize - 1).min(subject.len()),
    };
    let plain = positions && (stack.boolean(4) || !until_nul(pattern).iter().any(|byte| b"^$*+?.([%-".contains(byte)));
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
    let (pattern, anchored) = strip_anchor(until_nul(pattern));
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

/// Pushes all captures. If there are none, pushes the whole match, if given. Returns the number of values.
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

/// The place where `gsub` builds its result. If the replacement is a string, that is the scratch buffer, because no
/// script runs during the replacement. With a table or a function, scripts run that may use that buffer, so the pieces
/// are kept in a Lua table at index 4.
enum Output {
    Buffer,
    Pieces(c_int),
}

impl Output {
    fn new(stack: Stack<'_>, replacement: Kind) -> Output {
        if matches!(replacement, Kind::Number | Kind::String) {
            // Empties the buffer; `append` must not empty it again.
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
            // The function may be LuaJIT's own, and slow.
            stack.tick();
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
            stack.tick();
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
        stack.tick();
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
            // Lua 5.1 copies the NUL byte after the string here.
            None => append(stack, b"\0"),
        }
    }
    append(stack, template);
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Toy, eval, vm};
    use crate::resp::reply::Form;

    #[test]
    fn both_paths_of_format_give_the_same_result() {
        let mut vm = vm();
        let mut run = |format: &str, argument: &str| {
            let script = format!(
                "local ok, text = pcall(string.format, '{format}', {argument}) \
                 return {{ok and 1 or 0, (text:gsub('~', ''))}}"
            );
            eval(&mut vm, &mut Toy::default(), Form::Resp2, &script)
        };
        // Long enough not to count as a plain format.
        let padding = "~".repeat(40);
        for format in
            ["%d", "%.0f", "a %s b %x", "%g%", "%%", "%", "%.", "%.3", "%5d", "%.12f", "%.123f", "%z", "%n", "plain"]
        {
            for argument in ["1.5", "'12', -3", "'x'", "true", "nil", "1, 2"] {
                let (short, long) = (run(format, argument), run(&format!("{padding}{format}"), argument));
                assert_eq!(short, long, "{format} of {argument}");
            }
        }
    }
}
