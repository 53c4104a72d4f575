//! A cursor over a command's arguments that returns the exact Redis error for arguments that do not fit.
//!
//! Arity is checked before a handler runs, so a missing argument is a syntax error of the options.

use super::error::Error;
use crate::base::num;
use crate::resp::request::Argv;

/// The arguments after the command's name (and its subcommand's). See the module's header.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    argv: Argv<'a>,
    next: usize,
}

impl<'a> Args<'a> {
    /// Makes a cursor over `argv` that begins at index `next`.
    #[inline]
    pub fn new(argv: Argv<'a>, next: usize) -> Args<'a> {
        Args { argv, next }
    }

    /// Returns the whole command, including its name.
    #[inline]
    pub fn argv(&self) -> Argv<'a> {
        self.argv
    }

    /// Returns the index in [`argv`](Self::argv) of the next argument.
    #[inline]
    pub fn position(&self) -> usize {
        self.next
    }

    /// Returns the number of remaining arguments.
    #[inline]
    pub fn len(&self) -> usize {
        self.argv.len() - self.next.min(self.argv.len())
    }

    /// Returns whether no argument remains.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the next argument without consuming it.
    #[inline]
    pub fn peek(&self) -> Option<&'a [u8]> {
        self.argv.get(self.next)
    }

    /// Takes the next argument.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], Error> {
        // This is on the hot path of every command: `ok_or` would build an error each time and drop it.
        let Some(arg) = self.argv.get(self.next) else { return Err(Error::Syntax) };
        self.next += 1;
        Ok(arg)
    }

    /// Takes the next argument as a 64-bit integer.
    #[inline]
    pub fn int(&mut self) -> Result<i64, Error> {
        let Some(value) = num::parse_i64(self.bytes()?) else { return Err(Error::NotInteger) };
        Ok(value)
    }

    /// Takes the next argument as a 64-bit integer; fails with `error` if it is not one.
    #[inline]
    pub fn int_or(&mut self, error: Error) -> Result<i64, Error> {
        num::parse_i64(self.bytes()?).ok_or(error)
    }

    /// Takes the next argument as an integer that is not negative.
    pub fn positive(&mut self) -> Result<i64, Error> {
        match self.int()? {
            value if value < 0 => Err(Error::NotPositive),
            value => Ok(value),
        }
    }

    /// Takes the next argument as a double (never NaN).
    pub fn double(&mut self) -> Result<f64, Error> {
        num::parse_f64(self.bytes()?).ok_or(Error::NotFloat)
    }

    /// Takes the next argument if it is this word, in any case.
    #[inline]
    pub fn flag(&mut self, word: &str) -> bool {
        let here = self.peek().is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
        self.next += usize::from(here);
        here
    }

    /// As [`flag`](Self::flag), only if at least `values` arguments follow the word: an option without its value is a
    /// syntax error that the end of the option loop reports.
    pub fn option(&mut self, word: &str, values: usize) -> bool {
        self.len() > values && self.flag(word)
    }

    /// Takes the next argument if it is one of these words, in any case, and returns which.
    pub fn one_of<T: Copy>(&mut self, words: &[(&str, T)]) -> Option<T> {
        words.iter().find(|(word, _)| self.flag(word)).map(|(_, value)| *value)
    }

    /// Returns the remaining arguments without consuming them.
    #[inline]
    pub fn rest(&self) -> Argv<'a> {
        self.argv.skip(self.next)
    }

    /// Takes the next `n` arguments as a separate cursor; a syntax error if fewer remain.
    pub fn take(&mut self, n: usize) -> Result<Argv<'a>, Error> {
        if n > self.len() {
            return Err(Error::Syntax);
        }
        let taken = self.argv.slice(self.next, n);
        self.next += n;
        Ok(taken)
    }

    /// Returns a syntax error if any argument remains.
    #[inline]
    pub fn end(&self) -> Result<(), Error> {
        if self.is_empty() { Ok(()) } else { Err(Error::Syntax) }
    }
}
