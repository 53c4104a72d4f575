//! Shared by HRANDFIELD, SRANDMEMBER and ZRANDMEMBER: a count that may be negative, and a bound on its draws.

use crate::base::rng::Rng;
use crate::command::limits::{RANDOM_DRAWS_MAX, REPLY_FORESEEN_BYTES, REPLY_FORESEEN_ITEMS};
use crate::engine::Ctx;
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;

/// The number of elements to draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// Up to this many different elements.
    Different(usize),
    /// Exactly this many, with repetition.
    Repeated(usize),
}

impl Count {
    /// Takes the count: a negative one allows repetition.
    pub(super) fn parse(args: &mut Args<'_>) -> Result<Count, Error> {
        const RANGE: &str =
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
        match args.int()? {
            i64::MIN => Err(Error::text(RANGE)),
            count if count < 0 => Ok(Count::Repeated(count.unsigned_abs() as usize)),
            count => Ok(Count::Different(count as usize)),
        }
    }

    /// The number itself.
    pub(super) fn get(self) -> usize {
        match self {
            Count::Different(count) | Count::Repeated(count) => count,
        }
    }
}

/// Returns a generator for one call, so that the keyspace's own need not stay borrowed.
pub(super) fn rng(ctx: &mut Ctx<'_>) -> Rng {
    Rng::seeded(ctx.ks.rng.next_u64())
}

/// Returns one of `items` at random; `None` if there is none.
pub(super) fn one_of<T: Copy>(items: &[T], rng: &mut Rng) -> Option<T> {
    if items.is_empty() { None } else { items.get(rng.below(items.len() as u64) as usize).copied() }
}

/// Writes `count` draws with repetition, each by a call of `write`, which takes its chances from `rng`. The count may
/// exceed the number of elements by far, so it is bounded.
pub(super) fn repeat(
    reply: &mut Reply,
    count: usize,
    mut rng: Rng,
    mut write: impl FnMut(&mut Reply, &mut Rng),
) -> Result<(), Error> {
    if count > RANDOM_DRAWS_MAX {
        return Err(Error::OutOfRange);
    }
    let start = reply.len();
    for drawn in 0..count {
        if drawn == REPLY_FORESEEN_ITEMS && reply.len() - start > REPLY_FORESEEN_BYTES {
            // With a copy of the generator the next draws are the same.
            let (mut scratch, mut rng) = (Reply::new(reply.form()), rng.clone());
            let size = |_| {
                scratch.truncate(0);
                write(&mut scratch, &mut rng);
                scratch.len()
            };
            reply.announce((drawn..count).map(size));
        }
        // Only once the reply is cut, because its head has already announced the number of elements.
        if reply.is_cut() {
            break;
        }
        write(reply, &mut rng);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::reply::Form;
    use crate::resp::request::OwnedArgv;

    #[test]
    fn counts_say_whether_elements_repeat() {
        let parse = |text: &str| {
            let mut argv = OwnedArgv::default();
            argv.push(text.as_bytes());
            Count::parse(&mut Args::new(argv.as_argv(), 0))
        };
        assert_eq!(parse("3"), Ok(Count::Different(3)));
        assert_eq!(parse("-3"), Ok(Count::Repeated(3)));
        assert_eq!(parse("0"), Ok(Count::Different(0)));
        assert_eq!(parse("x"), Err(Error::NotInteger));
        assert!(matches!(parse("-9223372036854775808"), Err(Error::Text(_))));
    }

    #[test]
    fn repeated_draws_are_bounded() {
        let rng = || Rng::seeded(1);
        let mut reply = Reply::new(Form::Resp2);
        assert_eq!(repeat(&mut reply, 10, rng(), |reply, _| reply.integer(1)), Ok(()));
        assert_eq!(reply.len(), 40);
        for count in [RANDOM_DRAWS_MAX + 1, usize::MAX] {
            assert_eq!(repeat(&mut reply, count, rng(), |reply, _| reply.integer(1)), Err(Error::OutOfRange));
        }
        reply.set_must_fit(true);
        reply.set_limit(100);
        assert_eq!(repeat(&mut reply, RANDOM_DRAWS_MAX, rng(), |reply, _| reply.bulk(b"member")), Ok(()));
        assert!(reply.is_cut() && reply.len() <= 200);
    }

    #[test]
    fn draws_that_exceed_the_limit_are_neither_written_nor_all_counted() {
        let (member, mut drawn) = (vec![b'x'; REPLY_FORESEEN_BYTES], 0);
        let mut reply = Reply::new(Form::Resp2);
        reply.set_must_fit(true);
        reply.set_limit(20 * REPLY_FORESEEN_BYTES);
        let write = |reply: &mut Reply, _: &mut Rng| {
            drawn += 1;
            reply.bulk(&member);
        };
        assert_eq!(repeat(&mut reply, RANDOM_DRAWS_MAX, Rng::seeded(1), write), Ok(()));
        assert!(reply.is_cut() && reply.len() < 9 * REPLY_FORESEEN_BYTES, "{}", reply.len());
        assert!(drawn < 22, "{drawn} draws");
    }
}
