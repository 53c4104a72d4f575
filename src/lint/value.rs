//! Values as the linter follows them: by their sources.

use std::borrow::Cow;

use crate::base::num;

/// The source of a value. Each list of keys belongs to a function: the script itself (0), or one that a library
/// registers.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'a> {
    /// Not known.
    Unknown,
    /// `nil`, `true` or `false`.
    Constant,
    /// Written in the script.
    Literal(Cow<'a, [u8]>),
    /// KEYS of a function.
    Keys(usize),
    /// An element of KEYS, with its index if known.
    Key(usize, Option<u32>),
    /// `#KEYS`.
    KeyCount(usize),
    /// ARGV.
    Args,
    /// An element of ARGV, with its index if known.
    Arg(Option<u32>),
    /// The reply of a command, or a part of one.
    Reply {
        /// Its length is that of the stored value.
        is_unbounded: bool,
    },
    /// Computed from other values.
    Computed,
    /// `redis`.
    Redis,
    /// `redis.call` or `redis.pcall`.
    Call,
    /// `redis.register_function`.
    Register,
    /// A global of the sandbox, or a field of one: `string.format`.
    Global(Cow<'a, [u8]>),
    /// A function of this text.
    Function(usize),
    /// A table created by the script, or a coroutine.
    Object,
    /// The values that `unpack` returns, each like this one.
    Spread(Box<Value<'a>>),
    /// The iterator that `ipairs` or `pairs` returns for this value.
    Iterator(Box<Value<'a>>),
}

impl<'a> Value<'a> {
    /// The value of a variable that may hold either.
    pub(super) fn join(self, other: Value<'a>) -> Value<'a> {
        use Value::{Arg, Computed, Constant, Key, Literal, Reply, Unknown};
        match (self, other) {
            (a, b) if a == b => a,
            (Constant, value) | (value, Constant) => value,
            (Literal(_), value @ (Key(..) | Arg(_) | Reply { .. })) => value,
            (value @ (Key(..) | Arg(_) | Reply { .. }), Literal(_)) => value,
            (Key(a, _), Key(b, _)) if a == b => Key(a, None),
            (Arg(_), Arg(_)) => Arg(None),
            (Reply { is_unbounded: a }, Reply { is_unbounded: b }) => Reply { is_unbounded: a || b },
            (Literal(_) | Arg(_) | Computed, Literal(_) | Arg(_) | Computed) => Computed,
            _ => Unknown,
        }
    }

    /// Whether a table places a key of this kind by its address.
    pub(super) fn has_address(&self) -> bool {
        matches!(self, Value::Function(_) | Value::Object)
    }

    /// An element of this value.
    pub(super) fn element(&self) -> Value<'a> {
        match *self {
            Value::Keys(of) => Value::Key(of, None),
            Value::Args => Value::Arg(None),
            Value::Reply { .. } => Value::Reply { is_unbounded: false },
            Value::Computed => Value::Computed,
            _ => Value::Unknown,
        }
    }
}

/// The value at index `i`; unknown past the end.
pub(super) fn nth<'a>(values: &[Value<'a>], i: usize) -> Value<'a> {
    values.get(i).cloned().unwrap_or(Value::Unknown)
}

/// A number as an index of a list, from 1.
pub(super) fn index(digits: &[u8]) -> Option<u32> {
    num::parse_i64(digits).and_then(|index| u32::try_from(index).ok()).filter(|&index| index > 0)
}
