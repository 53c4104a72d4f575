//! Parameters with several values: numbers, pairs of numbers, and lines about users.

use super::kind::{Args, Origin, Shape, words};
use super::refusal::Refusal;
use crate::base::num::{parse_f64, parse_i64};
use crate::config::limits::{METRICS_PREFIX_MAX_BYTES, METRICS_PREFIXES_MAX};

/// Scores of a master, a replica and a child process.
pub(super) struct OomScores;

impl OomScores {
    pub(super) fn shape(&self) -> Shape {
        Shape::Many("SCORE SCORE SCORE")
    }

    pub(super) fn set(&self, field: &mut [i32; 3], args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let words: Vec<_> = words(args).collect();
        let [master, replica, child] = words[..] else { return Err(Refusal::Arity) };
        let score = |text| {
            let score = parse_i64(text).and_then(|score| i32::try_from(score).ok());
            score.filter(|score| (-2_000..=2_000).contains(score)).ok_or(Refusal::OomScores)
        };
        *field = [score(master)?, score(replica)?, score(child)?];
        Ok(())
    }

    pub(super) fn get(&self, field: &[i32; 3], out: &mut Vec<u8>) {
        out.extend_from_slice(field.map(|score| score.to_string()).join(" ").as_bytes());
    }
}

/// A snapshot is due once at least this many changes and this many seconds have passed since the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavePoint {
    /// Number of seconds, at least 1.
    pub seconds: i64,
    /// Number of changes.
    pub changes: i64,
}

/// Pairs of seconds and changes; a single empty argument for none.
pub(super) struct SavePoints;

impl SavePoints {
    pub(super) fn shape(&self) -> Shape {
        Shape::Groups("SECONDS CHANGES", 2)
    }

    pub(super) fn set(&self, field: &mut Vec<SavePoint>, args: Args<'_>, origin: Origin) -> Result<(), Refusal> {
        if args == [b""] {
            field.clear();
            return Ok(());
        }
        let words: Vec<_> = words(args).collect();
        let (pairs, []) = words.as_chunks::<2>() else { return Err(Refusal::SavePoints) };
        let number = |text, low| parse_i64(text).filter(|&value| value >= low).ok_or(Refusal::SavePoints);
        let points = pairs
            .iter()
            .map(|[seconds, changes]| Ok(SavePoint { seconds: number(seconds, 1)?, changes: number(changes, 0)? }))
            .collect::<Result<Vec<_>, _>>()?;
        if origin == Origin::Set {
            field.clear();
        }
        field.extend(points);
        Ok(())
    }

    pub(super) fn get(&self, field: &[SavePoint], out: &mut Vec<u8>) {
        let texts: Vec<_> = field.iter().map(|point| format!("{} {}", point.seconds, point.changes)).collect();
        out.extend_from_slice(texts.join(" ").as_bytes());
    }
}

/// A line about a user: its name and its rules, which are not interpreted here.
pub type UserLine = Vec<Vec<u8>>;

/// Lines about users, which add up.
pub(super) struct UserLines;

impl UserLines {
    pub(super) fn shape(&self) -> Shape {
        Shape::Many("NAME RULES")
    }

    pub(super) fn set(&self, field: &mut Vec<UserLine>, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let words: Vec<Vec<u8>> = words(args).filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect();
        if !words.is_empty() {
            field.push(words);
        }
        Ok(())
    }

    /// Shows nothing, because hashes of passwords are among the rules. ACL LIST shows the resulting users.
    pub(super) fn get(&self, _: &[UserLine], _: &mut Vec<u8>) {}
}

/// Percentages; a single empty argument for none.
pub(super) struct Percentiles;

impl Percentiles {
    pub(super) fn shape(&self) -> Shape {
        Shape::Many("PERCENT")
    }

    pub(super) fn set(&self, field: &mut Vec<f64>, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        if args == [b""] {
            field.clear();
            return Ok(());
        }
        let read = |word| match parse_f64(word).ok_or(Refusal::Percentiles)? {
            percent if (0.0..=100.0).contains(&percent) => Ok(percent),
            _ => Err(Refusal::PercentileRange),
        };
        *field = words(args).map(read).collect::<Result<_, _>>()?;
        Ok(())
    }

    pub(super) fn get(&self, field: &[f64], out: &mut Vec<u8>) {
        let texts: Vec<_> = field.iter().map(|percent| percent_text(*percent)).collect();
        out.extend_from_slice(texts.join(" ").as_bytes());
    }
}

/// Formats a percentage with up to six digits after the point.
pub fn percent_text(percent: f64) -> String {
    let text = format!("{percent:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Prefixes of keys, without blanks.
pub(super) struct Prefixes;

impl Prefixes {
    pub(super) fn shape(&self) -> Shape {
        Shape::Many("PREFIX")
    }

    pub(super) fn set(&self, field: &mut Vec<String>, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let prefix =
            |word: &[u8]| String::from_utf8(word.to_vec()).ok().filter(|one| one.len() <= METRICS_PREFIX_MAX_BYTES);
        let prefixes: Option<Vec<_>> = words(args).filter(|word| !word.is_empty()).map(prefix).collect();
        *field = prefixes.filter(|all| all.len() <= METRICS_PREFIXES_MAX).ok_or(Refusal::KeyPrefixes)?;
        Ok(())
    }

    pub(super) fn get(&self, field: &[String], out: &mut Vec<u8>) {
        out.extend_from_slice(field.join(" ").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn save_points_accumulate_only_in_a_file() {
        let mut points = Vec::new();
        SavePoints.set(&mut points, &[b"60", b"1"], Origin::Load).expect("a pair");
        SavePoints.set(&mut points, &[b"70 2"], Origin::Load).expect("a pair in one word");
        assert_eq!(points.len(), 2);
        for bad in ["10", "abc d", "0 10", "3600  1", " ", "60 -1", "1 2 "] {
            assert_eq!(
                SavePoints.set(&mut points, &[bad.as_bytes()], Origin::Set),
                Err(Refusal::SavePoints),
                "{bad:?}"
            );
        }
        SavePoints.set(&mut points, &[b"5 6"], Origin::Set).expect("a pair");
        assert_eq!(points, [SavePoint { seconds: 5, changes: 6 }]);
        SavePoints.set(&mut points, &[b""], Origin::Load).expect("none");
        assert!(points.is_empty());
    }
}
