//! The kinds of parameter values: how each is read from arguments and written back.
//!
//! A kind works on a field of [`Config`](super::Config) in place. Any value that `set` accepts is returned by `get` in
//! canonical form, and setting that form changes nothing. This file has everything that kinds share, and the kinds of
//! plain values; other kinds have files of their own.

use super::refusal::Refusal;
use crate::base::num::parse_i64;

/// The origin of a value, which matters for parameters that may be given several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A line of the configuration file or a flag: repeated ones add up.
    Load,
    /// CONFIG SET: the new value replaces all earlier ones.
    Set,
}

/// The form of a parameter's arguments.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// One argument, with its name in the help.
    One(&'static str),
    /// One of these words.
    Word(fn() -> Vec<&'static str>),
    /// Any number of arguments, with their name in the help.
    Many(&'static str),
    /// Groups of arguments, with their name in the help and the size of a group. Each group may stand in a line of its
    /// own.
    Groups(&'static str, usize),
}

/// The arguments of a line, without the name of the parameter.
pub(super) type Args<'a> = &'a [&'a [u8]];

/// Returns the argument if there is exactly one.
pub(super) fn only<'a>(args: Args<'a>) -> Result<&'a [u8], Refusal> {
    match args {
        [one] => Ok(one),
        _ => Err(Refusal::Arity),
    }
}

/// `yes` or `no`.
pub(super) struct YesNo;

impl YesNo {
    pub(super) fn shape(&self) -> Shape {
        Shape::Word(|| vec!["yes", "no"])
    }

    pub(super) fn set(&self, field: &mut bool, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        *field = match only(args)? {
            arg if arg.eq_ignore_ascii_case(b"yes") => true,
            arg if arg.eq_ignore_ascii_case(b"no") => false,
            _ => return Err(Refusal::YesNo),
        };
        Ok(())
    }

    pub(super) fn get(&self, field: &bool, out: &mut Vec<u8>) {
        out.extend_from_slice(if *field { b"yes" } else { b"no" });
    }
}

/// The notation of a number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    Decimal,
    Octal,
    /// Bytes, optionally with a unit such as `kb`.
    Memory,
}

/// A number within bounds.
pub(super) struct Int {
    base: Base,
    low: i128,
    high: i128,
    /// Values outside of this range are accepted, but cut to it.
    clamp: (i128, i128),
}

pub(super) const fn int(low: i128, high: i128) -> Int {
    Int { base: Base::Decimal, low, high, clamp: (low, high) }
}

pub(super) const fn octal(low: i128, high: i128) -> Int {
    Int { base: Base::Octal, low, high, clamp: (low, high) }
}

pub(super) const fn memory(low: i128, high: i128) -> Int {
    Int { base: Base::Memory, low, high, clamp: (low, high) }
}

impl Int {
    pub(super) const fn clamped(self, low: i128, high: i128) -> Int {
        Int { clamp: (low, high), ..self }
    }

    pub(super) fn shape(&self) -> Shape {
        Shape::One(match self.base {
            Base::Decimal => "N",
            Base::Octal => "OCTAL",
            Base::Memory => "BYTES",
        })
    }

    pub(super) fn set<T: TryFrom<i128>>(&self, field: &mut T, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let arg = only(args)?;
        let value = match self.base {
            Base::Decimal => i128::from(parse_i64(arg).ok_or(Refusal::Integer)?),
            Base::Octal => parse_octal(arg).ok_or(Refusal::Octal)?,
            Base::Memory => i128::from(parse_memory(arg).ok_or(Refusal::Memory)?),
        };
        let out_of_range = || Refusal::Range(self.text(self.low), self.text(self.high));
        if !(self.low..=self.high).contains(&value) {
            return Err(out_of_range());
        }
        *field = T::try_from(value.clamp(self.clamp.0, self.clamp.1)).map_err(|_| out_of_range())?;
        Ok(())
    }

    pub(super) fn get<T: Copy + TryInto<i128>>(&self, field: &T, out: &mut Vec<u8>) {
        // Every field is of an integer type of 64 bits at most.
        let value = (*field).try_into().unwrap_or_default();
        out.extend_from_slice(self.text(value).as_bytes());
    }

    fn text(&self, value: i128) -> String {
        if self.base == Base::Octal { format!("{value:o}") } else { value.to_string() }
    }
}

fn parse_octal(text: &[u8]) -> Option<i128> {
    let octal = !text.is_empty() && text.len() <= 20 && text.iter().all(|byte| matches!(byte, b'0'..=b'7'));
    octal.then(|| text.iter().fold(0, |value, byte| value * 8 + i128::from(byte - b'0')))
}

/// Parses a number of bytes: digits and an optional unit, `k`, `m`, `g` (powers of 1,000) or `kb`, `mb`, `gb` (of
/// 1,024), in any case.
pub fn parse_memory(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1_000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    // Without digits the value is 0, as in Redis.
    let number =
        number.iter().try_fold(0u64, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
    number?.checked_mul(factor)
}

/// Any bytes.
pub(super) struct Text;

impl Text {
    pub(super) fn shape(&self) -> Shape {
        Shape::One("TEXT")
    }

    pub(super) fn set(&self, field: &mut Vec<u8>, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        *field = only(args)?.to_vec();
        Ok(())
    }

    pub(super) fn get(&self, field: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(field);
    }
}

/// Splits all arguments into words: CONFIG SET gives the whole list as one argument, separated by single spaces.
pub(super) fn words<'a>(args: Args<'a>) -> impl Iterator<Item = &'a [u8]> {
    args.iter().flat_map(|arg| arg.split(|&byte| byte == b' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_memory_are_read() {
        for (text, bytes) in
            [("0", 0), ("12b", 12), ("1k", 1_000), ("1KB", 1_024), ("2Gb", 2 << 30), ("3m", 3_000_000), ("", 0)]
        {
            assert_eq!(parse_memory(text.as_bytes()), Some(bytes), "{text}");
        }
        for text in ["-1", " 5", "10qb", "101%", "99999999999999999999", "18446744073709551615kb"] {
            assert_eq!(parse_memory(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn octal_values_are_read_and_shown_in_octal() {
        let mut mode = 0u32;
        let perm = octal(0, 0o777);
        assert_eq!(perm.set(&mut mode, &[b"750"], Origin::Load), Ok(()));
        assert_eq!(mode, 0o750);
        let refused = perm.set(&mut mode, &[b"7777"], Origin::Load).map_err(|refusal| refusal.to_string());
        assert_eq!(refused, Err("argument must be between 0 and 777 inclusive".into()));
        assert_eq!(perm.set(&mut mode, &[b"9"], Origin::Load), Err(Refusal::Octal));
    }
}
