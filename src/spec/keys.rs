//! Finds the arguments of a command that are keys.
//!
//! The declared key specs locate the keys of every command. How the keys are accessed depends on options only for the
//! few commands whose spec says [`Access::Varying`].

use super::{Access, Begin, Command, Find, Flags, KeyArg, KeySpec};
use crate::resp::request::Argv;

/// Returns the keys in `argv`, a call of `command` with valid arity. `None` if a count or word that locates the keys
/// does not fit the arguments.
pub(crate) fn keys_of<R>(command: &Command<R>, argv: Argv<'_>) -> Option<Vec<KeyArg>> {
    if let Some(find) = command.find_keys {
        return find(argv);
    }
    let mut found = Vec::new();
    let mut sound = true;
    for spec in command.keys.iter().filter(|spec| spec.access != Access::Channel) {
        sound &= keys_of_spec(spec, argv, &mut found).is_some();
    }
    if command.flags.contains(Flags::NO_MANDATORY_KEYS) {
        return Some(if sound { found } else { Vec::new() });
    }
    if let Some(access_by) = command.access_by {
        found
            .iter_mut()
            .filter(|key| matches!(key.access, Access::Varying | Access::Modify))
            .for_each(|key| key.access = access_by(argv));
    }
    (sound && !found.is_empty()).then_some(found)
}

/// Returns the positions that COMMAND INFO shows: the first key, the last (from the end when negative), and the step.
/// All are zero when no single range covers the keys.
pub(crate) fn legacy_range<R>(command: &Command<R>) -> (i64, i64, i64) {
    if let [KeySpec { begin: Begin::Index(index), find: Find::Range { last, step, .. }, .. }] = command.keys {
        let (index, last) = (*index as i64, i64::from(*last));
        return (index, if last < 0 { last } else { index + last }, *step as i64);
    }
    let mut covered: Option<(i64, i64)> = None;
    for spec in command.keys {
        let KeySpec { begin: Begin::Index(index), find: Find::Range { last, step: 1, .. }, .. } = spec else {
            continue;
        };
        let index = *index as i64;
        let end = if *last < 0 { i64::from(*last) } else { index + i64::from(*last) };
        covered = match covered {
            None => Some((index, end)),
            // Ranges that are not adjacent can't be shown as one.
            Some((_, before)) if before + 1 != index => continue,
            Some((first, _)) => Some((first, end)),
        };
    }
    covered.map_or((0, 0, 0), |(first, last)| (first, last, 1))
}

fn keys_of_spec(spec: &KeySpec, argv: Argv<'_>, found: &mut Vec<KeyArg>) -> Option<()> {
    let begin = match spec.begin {
        Begin::Index(index) => index,
        Begin::Keyword(word, from) => {
            // An absent option brings no keys.
            let is_word = |at: &usize| argv[*at].eq_ignore_ascii_case(word.as_bytes());
            let found = match usize::try_from(from) {
                Ok(from) => (from..argv.len()).find(is_word),
                Err(_) => (0..(argv.len() + 1).saturating_sub(from.unsigned_abs() as usize)).rev().find(is_word),
            };
            let Some(at) = found else { return Some(()) };
            at + 1
        }
        Begin::Unknown => return Some(()),
    };
    let (first, end, step) = match spec.find {
        Find::Range { last, step, limit } => {
            let left = argv.len().checked_sub(begin)?;
            let end = match last {
                last if last >= 0 => begin + last as usize + 1,
                _ if limit > 1 => begin + left / limit,
                last => (argv.len() + 1).checked_sub(last.unsigned_abs() as usize)?,
            };
            (begin, end, step)
        }
        Find::Counted => {
            let count = crate::base::num::parse_i64(argv.get(begin)?)?;
            let count = usize::try_from(count).ok()?;
            (begin + 1, (begin + 1).checked_add(count)?, 1)
        }
        Find::Unknown => return Some(()),
        Find::CountedPairs => {
            let count = usize::try_from(crate::base::num::parse_i64(argv.get(begin)?)?).ok()?;
            (begin + 1, (begin + 1).checked_add(count.checked_mul(2)?)?, 2)
        }
    };
    if end > argv.len() {
        return None;
    }
    found.extend((first..end).step_by(step.max(1)).map(|index| KeyArg { index, access: spec.access }));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::request::OwnedArgv;

    fn indexes(command: &Command<()>, line: &str) -> Option<Vec<usize>> {
        let mut argv = OwnedArgv::from_argv(Argv::new(&[], &[]));
        line.split(' ').for_each(|word| argv.push(word.as_bytes()));
        keys_of(command, argv.as_argv()).map(|keys| keys.iter().map(|key| key.index).collect())
    }

    #[test]
    fn every_kind_of_spec_finds_its_keys() {
        const STREAMS: KeySpec = KeySpec {
            begin: Begin::Keyword("STREAMS", 1),
            find: Find::Range { last: -1, step: 1, limit: 2 },
            access: Access::Read,
        };
        const SPECS: &[(&[KeySpec], Flags)] = &[
            (&[KeySpec::one(1, Access::Read)], Flags::NONE),
            (&[KeySpec::rest(1, 2, Access::Read)], Flags::NONE),
            (&[KeySpec::range(1, -2, 1, Access::Read)], Flags::NONE),
            (&[STREAMS], Flags::NONE),
            (&[KeySpec::one(1, Access::Overwrite), KeySpec::counted(2, Access::Read)], Flags::NONE),
            (&[KeySpec::counted(2, Access::Update)], Flags::NO_MANDATORY_KEYS),
        ];
        let commands: Vec<Command<()>> =
            SPECS.iter().map(|&(keys, flags)| Command { keys, flags, ..Command::new(()) }).collect();
        let [one, pairs, but_last, streams, store, script] = commands.as_slice() else { unreachable!() };
        for (command, line, want) in [
            (one, "get k", Some(vec![1])),
            (pairs, "mset a 1 b 2", Some(vec![1, 3])),
            (but_last, "blpop a b 0", Some(vec![1, 2])),
            (streams, "xread COUNT 1 streams a b 0 0", Some(vec![4, 5])),
            (streams, "xread COUNT 1 foo a", None),
            (store, "zunionstore d 2 a b WEIGHTS", Some(vec![1, 3, 4])),
            (store, "zunionstore d 5 a b", None),
            (store, "zunionstore d 18446744073709551615 a", None),
            (script, "eval x 1 a b", Some(vec![3])),
            (script, "eval x 9 a b", Some(vec![])),
            (script, "eval x -1 a b", Some(vec![])),
        ] {
            assert_eq!(indexes(command, line), want, "{line}");
        }
        assert_eq!(legacy_range(but_last), (1, -2, 1));
        assert_eq!(legacy_range(store), (1, 1, 1));
        assert_eq!(legacy_range(streams), (0, 0, 0));
    }
}
