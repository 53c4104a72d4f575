//! `struct`: packs values into binary strings and unpacks them. It behaves like the library that Redis bundles.
//!
//! A format is a sequence of options: `>` `<` byte order, `!n` alignment, blanks; `b` `B` `h` `H` `l` `L` `T` integers
//! of 1, 2, 8 and 8 bytes, `in` `In` integers of n bytes, `x` a zero byte, `f` `d` floats, `s` a string that ends with
//! a zero byte, `cn` n bytes, `c0` the whole string (when unpacking, the number before it is its length). Lower case
//! means signed.
//!
//! Source: <http://www.inf.puc-rio.br/~roberto/struct/>

use super::context::Ctx;
use super::integer::truncate_unsigned;
use super::interrupt::library;
use super::lua::{CFunction, Kind, Stack};
use super::room::Buffer;

const FUNCTIONS: [(&[u8], CFunction); 3] = [(b"pack", pack), (b"unpack", unpack), (b"size", size)];

/// The most bytes of an integer.
const INTEGER_MAX_BYTES: usize = 32;
const ALIGNMENT_MAX: usize = 8;

/// Pushes the `struct` table. May raise for lack of memory.
pub(super) fn push_table(stack: Stack<'_>, ctx: *mut Ctx) {
    stack.new_table(0, 3);
    let table = stack.top();
    for (name, function) in FUNCTIONS {
        stack.push_function(ctx, function);
        stack.raw_set_field(table, name);
    }
}

library! {
    fn pack(stack: Stack) -> c_int {
        let mut format = Format::new(stack, stack.check_bytes(1));
        // Missing arguments are nil, in messages too.
        stack.push_nil();
        let out = stack.buffer();
        let mut argument = 2;
        while let Some((option, size)) = format.next() {
            let padding = format.padding(out.len(), option, size);
            stack.tick();
            out.reserve(padding);
            out.write(|out| out.resize(out.len() + padding, 0));
            match option {
                b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                    let number = stack.check_number(argument);
                    argument += 1;
                    let mut bytes = [0; INTEGER_MAX_BYTES];
                    bytes[..8].copy_from_slice(&truncate_unsigned(number).to_le_bytes());
                    format.put(out, &mut bytes[..size]);
                }
                b'x' => out.push(0),
                b'f' => {
                    let number = stack.check_number(argument) as f32;
                    argument += 1;
                    format.put(out, &mut number.to_le_bytes());
                }
                b'd' => {
                    let number = stack.check_number(argument);
                    argument += 1;
                    format.put(out, &mut number.to_le_bytes());
                }
                b'c' | b's' => {
                    let text = stack.check_bytes(argument);
                    argument += 1;
                    let size = if size == 0 { text.len() } else { size };
                    let Some(text) = text.get(..size) else { stack.raise_argument(argument, &[b"string too short"]) };
                    out.extend(text);
                    if option == b's' {
                        out.push(0);
                    }
                }
                _ => format.control(option),
            }
        }
        out.push_to(stack);
        1
    }

    fn unpack(stack: Stack) -> c_int {
        let mut format = Format::new(stack, stack.check_bytes(1));
        let data = stack.check_bytes(2);
        let from = stack.opt_integer(3, 1);
        if from == 0 {
            stack.raise_argument(3, &[b"offset must be 1 or greater"]);
        }
        // A negative offset counts as far beyond the end.
        let mut at = usize::try_from(from - 1).unwrap_or(usize::MAX / 2);
        stack.set_top(2);
        let field = |at: usize, size: usize| match at.checked_add(size).and_then(|end| data.get(at..end)) {
            Some(bytes) => bytes,
            None => stack.raise_argument(2, &[b"data string too short"]),
        };
        while let Some((option, mut size)) = format.next() {
            stack.tick();
            at = at.saturating_add(format.padding(at, option, size));
            let bytes = field(at, size);
            if !stack.reserve(2) {
                stack.raise(b"stack overflow (too many results)");
            }
            match option {
                b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                    stack.push_number(format.integer(bytes, option.is_ascii_lowercase()));
                }
                b'x' => {}
                b'f' | b'd' => stack.push_number(format.float(bytes)),
                b'c' => {
                    if size == 0 {
                        if stack.top() == 2 || stack.kind(-1) != Kind::Number {
                            stack.raise(b"format 'c0' needs a previous size");
                        }
                        size = stack.number(-1) as usize;
                        stack.pop(1);
                    }
                    stack.push_bytes(field(at, size));
                }
                b's' => {
                    let rest = data.get(at..).unwrap_or(&[]);
                    let Some(len) = memchr::memchr(0, rest) else { stack.raise(b"unfinished string in data") };
                    stack.push_bytes(&rest[..len]);
                    size = len + 1;
                }
                _ => format.control(option),
            }
            at += size;
        }
        stack.push_number((at + 1) as f64);
        stack.top() - 2
    }

    fn size(stack: Stack) -> c_int {
        let mut format = Format::new(stack, stack.check_bytes(1));
        let mut total = 0usize;
        while let Some((option, size)) = format.next() {
            stack.tick();
            total = total.saturating_add(format.padding(total, option, size));
            match (option, size) {
                (b's', _) => stack.raise_argument(1, &[b"option 's' has no fixed size"]),
                (b'c', 0) => stack.raise_argument(1, &[b"option 'c0' has no fixed size"]),
                _ if !option.is_ascii_alphanumeric() => format.control(option),
                _ => {}
            }
            total = total.saturating_add(size);
        }
        stack.push_number(total as f64);
        1
    }
}

/// A format being read, with the state set by its control options.
struct Format<'a> {
    stack: Stack<'a>,
    rest: &'a [u8],
    big_endian: bool,
    alignment: usize,
}

impl<'a> Format<'a> {
    fn new(stack: Stack<'a>, text: &'a [u8]) -> Format<'a> {
        Format { stack, rest: text, big_endian: cfg!(target_endian = "big"), alignment: 1 }
    }

    /// The next option and the bytes it takes: 0 for control options, `s` and `c0`.
    fn next(&mut self) -> Option<(u8, usize)> {
        // A NUL byte ends a format, as in C.
        let (&option, rest) = self.rest.split_first().filter(|(option, _)| **option != 0)?;
        self.rest = rest;
        let size = match option {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'f' => 4,
            b'l' | b'L' | b'T' | b'd' => 8,
            b'c' => self.count(1),
            b'i' | b'I' => self.integer_size(),
            _ => 0,
        };
        Some((option, size))
    }

    fn integer_size(&mut self) -> usize {
        let size = self.count(4);
        if size > INTEGER_MAX_BYTES {
            let mut digits = itoa::Buffer::new();
            let size = digits.format(size).as_bytes();
            self.stack.raise_parts(&[b"integral size ", size, b" is larger than limit of 32"]);
        }
        size
    }

    /// Reads a number, or returns `default` if there is none.
    fn count(&mut self, default: usize) -> usize {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return default;
        }
        let (text, rest) = self.rest.split_at(digits);
        self.rest = rest;
        let value = text.iter().try_fold(0i32, |n, digit| n.checked_mul(10)?.checked_add(i32::from(digit - b'0')));
        match value {
            Some(value) => value as usize,
            None => self.stack.raise(b"integral size overflow"),
        }
    }

    /// Number of padding bytes before an option of `size` bytes at `at`.
    fn padding(&self, at: usize, option: u8, size: usize) -> usize {
        let size = size.min(self.alignment);
        // As in the original, sizes that are not powers of two also serve as masks.
        if size == 0 || option == b'c' { 0 } else { size.wrapping_sub(at & (size - 1)) & (size - 1) }
    }

    fn control(&mut self, option: u8) {
        match option {
            b' ' => {}
            b'>' => self.big_endian = true,
            b'<' => self.big_endian = false,
            b'!' => {
                let alignment = self.count(ALIGNMENT_MAX);
                if !alignment.is_power_of_two() {
                    let mut digits = itoa::Buffer::new();
                    let alignment = digits.format(alignment).as_bytes();
                    self.stack.raise_parts(&[b"alignment ", alignment, b" is not a power of 2"]);
                }
                self.alignment = alignment;
            }
            _ => self.stack.raise_argument(1, &[b"invalid format option '", &[option], b"'"]),
        }
    }

    /// Writes little-endian bytes in the format's order.
    fn put(&self, out: Buffer<'_>, bytes: &mut [u8]) {
        if self.big_endian {
            bytes.reverse();
        }
        out.extend(bytes);
    }

    fn integer(&self, bytes: &[u8], signed: bool) -> f64 {
        let push = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        let value = if self.big_endian { bytes.iter().fold(0, push) } else { bytes.iter().rev().fold(0, push) };
        if !signed {
            return value as f64;
        }
        let shift = 64 - 8 * bytes.len().min(8) as u32;
        let value = if shift == 64 { 0 } else { (value << shift) as i64 >> shift };
        value as f64
    }

    /// A float of 4 or 8 bytes.
    fn float(&self, bytes: &[u8]) -> f64 {
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        if self.big_endian {
            wide[..bytes.len()].reverse();
        }
        match bytes.len() {
            4 => f64::from(f32::from_le_bytes([wide[0], wide[1], wide[2], wide[3]])),
            _ => f64::from_le_bytes(wide),
        }
    }
}
