//! Values as the linter follows them: by where they come from.

use std::borrow::Cow;

use crate::base::num;

/// Where a value comes from. Lists of keys belong to a function: the script itself (0), or one that a library registers.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'a> {
    /// Somewhere.
    Unknown,
    /// `nil`, `true` or `false`.
    Constant,
    /// It stands in the script.
    Literal(Cow<'a, [u8]>),
    /// KEYS of a function.
    Keys(usize),
    /// One of them, and which if that can be told.
    Key(usize, Option<u32>),
    /// How many they are.
    KeyCount(usize),
    /// ARGV.
    Args,
    /// One of them.
    Arg(Option<u32>),
    /// A command answered it, or it is a part of that.
    Reply {
        /// It is as long as what is stored.
        is_unbounded: bool,
    },
    /// It is made of other values.
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
    /// A table that the script makes, or a coroutine.
    Object,
    /// What `unpack` makes of a list: elements like this one.
    Spread(Box<Value<'a>>),
    /// What `ipairs` or `pairs` makes of something.
    Iterator(Box<Value<'a>>),
}

impl<'a> Value<'a> {
    /// What may be one or the other.
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

    /// Whether a table that has it as a key places it by its address.
    pub(super) fn has_address(&self) -> bool {
        matches!(self, Value::Function(_) | Value::Object)
    }

    /// One of the values that this one holds.
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

/// The value at place `i`, if there are so many.
pub(super) fn nth<'a>(values: &[Value<'a>], i: usize) -> Value<'a> {
    values.get(i).cloned().unwrap_or(Value::Unknown)
}

/// The place in a list that a number names.
pub(super) fn index(digits: &[u8]) -> Option<u32> {
    num::parse_i64(digits).and_then(|index| u32::try_from(index).ok()).filter(|&index| index > 0)
}
