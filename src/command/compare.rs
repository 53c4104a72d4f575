//! Compare and act: DELEX and DELIFEQ delete a string only if it has an expected value, and SET stores on the same
//! conditions. So a program can release a lock or replace a document without a script. DIGEST lets a client compare a
//! long string without sending it.

use std::borrow::Cow;

use twox_hash::XxHash3_64;

use super::string_value::{read_string, string_at};
use crate::engine::{Command, Ctx, Done, Run};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, Flags, Group, KeySpec};
use crate::value::string::{Digits, StringRef};

/// The condition on a string.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equals,
    Differs,
    DigestEquals,
    DigestDiffers,
}

/// The hexadecimal digits of a digest.
const DIGEST_LEN: usize = 16;

impl Comparison {
    /// All conditions with their option words.
    pub(super) const ALL: [(&str, Comparison); 4] = [
        ("ifeq", Comparison::Equals),
        ("ifne", Comparison::Differs),
        ("ifdeq", Comparison::DigestEquals),
        ("ifdne", Comparison::DigestDiffers),
    ];

    /// Whether the condition holds for a string. A digest must have 16 characters; that they are digits is not checked,
    /// and their case does not count.
    pub(super) fn holds(self, string: StringRef<'_>, text: &[u8]) -> Result<bool, Error> {
        let mut digits = Digits::new();
        let bytes = string.as_bytes(&mut digits);
        let by_digest = matches!(self, Comparison::DigestEquals | Comparison::DigestDiffers);
        if by_digest && text.len() != DIGEST_LEN {
            return Err(Error::text("ERR must be exactly 16 hexadecimal characters"));
        }
        let same = if by_digest { digest(bytes).as_bytes().eq_ignore_ascii_case(text) } else { bytes == text };
        Ok(same != self.holds_for_none())
    }

    /// Whether the condition holds without a string: an absent string differs from every text.
    pub(super) fn holds_for_none(self) -> bool {
        matches!(self, Comparison::Differs | Comparison::DigestDiffers)
    }
}

/// The digest of a string: XXH3, 64 bits, no seed, in lower-case hexadecimal.
fn digest(bytes: &[u8]) -> String {
    format!("{:016x}", XxHash3_64::oneshot(bytes))
}

fn digest_of(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let found = read_string(ctx, args.bytes()?)?.map(|string| digest(string.as_bytes(&mut Digits::new())));
    ctx.reply.bulk_or_null(found.as_deref().map(str::as_bytes));
    Ok(())
}

fn delex(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    if !matches!(args.len(), 1 | 3) {
        return Err(Error::Arity(Cow::Borrowed(ctx.name())));
    }
    let key = args.bytes()?;
    let db = ctx.session.db;
    let slot = ctx.ks.find(db, key);
    let mut deletes = slot.is_some();
    if let Some(slot) = slot.filter(|_| !args.is_empty()) {
        let string = string_at(ctx.ks, db, slot)
            .map_err(|_| Error::text("ERR Key should be of string type if conditions are specified"))?;
        let comparison = args
            .one_of(&Comparison::ALL)
            .ok_or(Error::text("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"))?;
        deletes = comparison.holds(string, args.bytes()?)?;
    }
    if let Some(slot) = slot.filter(|_| deletes) {
        ctx.ks.remove(db, slot);
    }
    ctx.reply.integer(i64::from(deletes));
    Ok(())
}

fn delifeq(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, text) = (args.bytes()?, args.bytes()?);
    let db = ctx.session.db;
    let slot = ctx.ks.find(db, key);
    let deletes = match slot {
        Some(slot) => Comparison::Equals.holds(string_at(ctx.ks, db, slot)?, text)?,
        None => false,
    };
    if let Some(slot) = slot.filter(|_| deletes) {
        ctx.ks.remove(db, slot);
    }
    ctx.reply.integer(i64::from(deletes));
    Ok(())
}

const STRING: Command = Command { group: Group::String, ..Command::EMPTY };

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "delex",
        arity: -2,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::DeleteIf)],
        since: "8.4.0",
        complexity: "O(1); O(N) for the digest of a string of N bytes",
        summary: "Deletes a key, optionally only if its string or digest matches or differs.",
        syntax: "key [IFEQ ifeq-value | IFNE ifne-value | IFDEQ ifdeq-digest | IFDNE ifdne-digest]",
        run: Run::Now(delex),
        ..STRING
    },
    Command {
        name: "delifeq",
        arity: 3,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Remove)],
        // Valkey's version.
        since: "9.0.0",
        summary: "Deletes a key if its string has the given value.",
        syntax: "key value",
        run: Run::Now(delifeq),
        ..STRING
    },
    Command {
        name: "digest",
        arity: 2,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Read)],
        since: "8.4.0",
        complexity: "O(N) for a string of N bytes",
        summary: "Returns the digest of a string, for comparisons.",
        syntax: "key",
        run: Run::Now(digest_of),
        ..STRING
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_equal_those_that_redis_publishes() {
        let cases = [
            ("Hello world", "b6acb9d84a38ff74"),
            ("hello", "9555e8555c62dcfd"),
            ("", "2d06800538d394c2"),
            ("123", "404a763b3f4c8c9a"),
            ("v8", "0cc76dbb41381419"),
            (
                "v8lf0c11xh8ymlqztfd3eeq16kfn4sspw7fqmnuuq3k3t75em5wdizgcdw7uc26nnf961u2jkfzkjytls2kwlj7626sd",
                "00006c38adf31777",
            ),
        ];
        for (text, wanted) in cases {
            assert_eq!(digest(text.as_bytes()), wanted, "{text}");
        }
    }
}
