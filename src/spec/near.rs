//! The name that a mistyped one was probably meant to be.

/// Longest name that is compared, in bytes, so that a made-up one costs little.
const NAME_MAX_BYTES: usize = 32;

/// Returns the name, of those given, that the fewest typing errors separate from `typed`: one for a name of up to seven
/// letters, two for a longer one. Case does not count. Of several the first one.
pub(super) fn nearest<'n>(typed: &[u8], names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    if typed.len() < 2 || typed.len() > NAME_MAX_BYTES {
        return None;
    }
    let most = 1 + usize::from(typed.len() > 7);
    let near = names.filter(|name| name.len().abs_diff(typed.len()) <= most && name.len() <= NAME_MAX_BYTES);
    let distances = near.map(|name| (distance(typed, name.as_bytes()), name));
    distances.filter(|(distance, _)| *distance <= most).min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// How many letters must be inserted, removed, replaced, or exchanged with the next one (optimal string alignment).
fn distance(from: &[u8], to: &[u8]) -> usize {
    let mut last = [0; NAME_MAX_BYTES + 1];
    let mut row: [usize; NAME_MAX_BYTES + 1] = std::array::from_fn(|column| column);
    let is_equal = |at: usize, of: usize| from[at].eq_ignore_ascii_case(&to[of]);
    for at in 0..from.len() {
        let before = std::mem::replace(&mut last, row);
        row[0] = at + 1;
        for of in 0..to.len() {
            let replaced = last[of] + usize::from(!is_equal(at, of));
            row[of + 1] = replaced.min(last[of + 1] + 1).min(row[of] + 1);
            if at > 0 && of > 0 && is_equal(at, of - 1) && is_equal(at - 1, of) {
                row[of + 1] = row[of + 1].min(before[of - 1] + 1);
            }
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_are_forgiven() {
        let names = ["get", "getset", "lock.acquire", "set", "expire"];
        for (typed, meant) in [
            ("GETT", Some("get")),
            ("gte", Some("get")),
            ("LOCK.AQUIRE", Some("lock.acquire")),
            ("lock-acqiure", Some("lock.acquire")),
            ("lock_acqiure", Some("lock.acquire")),
            ("EXPIER", Some("expire")),
            ("GEXX", None),
            ("EXPRES", None),
            ("g", None),
            ("", None),
            ("unlock.acquire!", None),
        ] {
            assert_eq!(nearest(typed.as_bytes(), names.into_iter()), meant, "{typed}");
        }
        assert_eq!(nearest(&[b'x'; 1_000], names.into_iter()), None);
    }
}
