//! What a call of LIMIT.TAKE says: its options, and rules that each have a key, a kind, and as many parameters as their kind takes. So
//! it can be read from front to back without knowing what the keys hold, which is how [`find_keys`] tells where they are.

use crate::base::hasher::hash_bytes;
use crate::base::limits::{
    HOLDER_MAX_BYTES, LIMIT_EXACT_MAX, LIMIT_EXACT_UNITS_MAX, LIMIT_REQUEST_MAX_BYTES, LIMIT_REQUEST_MAX_MS,
    LIMIT_RULES_MAX, LIMIT_WINDOW_MAX_MS,
};
use crate::base::num;
use crate::command::coordination::gate::COUNTED;
use crate::resp::request::Argv;
use crate::spec::args::Args;
use crate::spec::error::{Error, excerpt};
use crate::spec::{Access, KeyArg};
use crate::value::gcra::{BadRate, Rate};
use crate::value::grants::UNITS_MAX;

/// Longest offset of a time zone, either way.
const OFFSET_MAX_MINUTES: i64 = 24 * 60 - 1;

/// A call.
pub(super) struct Call<'a> {
    /// The key under which what it takes is kept.
    pub request: Option<&'a [u8]>,
    /// Whether it only asks.
    pub only_asks: bool,
    /// How much it takes of each rule.
    pub units: i64,
    /// Not empty, and no two have one key.
    pub rules: Vec<Rule<'a>>,
}

/// One limit.
pub(super) struct Rule<'a> {
    /// Where it counts.
    pub key: &'a [u8],
    /// How it counts.
    pub kind: Kind,
    /// The hash of the key.
    pub hash: u64,
}

/// How a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A leaky bucket.
    Gcra(Rate),
    /// So many within a window that begins with the first of them.
    Fixed { max: i64, window_ms: i64 },
    /// So many within an hour, a day, ... of the calendar.
    Calendar { max: i64, unit: Unit, offset_minutes: i64 },
    /// So many within any window, by estimate.
    Sliding { max: i64, window_ms: i64 },
    /// So many within any window.
    Exact { max: i64, window_ms: i64 },
    /// So many at the same time, each for as long as a lease.
    Concurrency { limit: i64, lease_ms: i64 },
}

impl Kind {
    /// Its word, as WHY answers it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Gcra(_) => "gcra",
            Kind::Fixed { .. } => "fixed",
            Kind::Calendar { .. } => "calendar",
            Kind::Sliding { .. } => "sliding",
            Kind::Exact { .. } => "exact",
            Kind::Concurrency { .. } => "concurrency",
        }
    }
}

/// A window of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Hour,
    Day,
    /// From Monday on.
    Week,
    Month,
}

/// How a kind is written.
#[derive(Clone, Copy, Debug)]
enum Word {
    Gcra,
    Fixed,
    Sliding,
    Exact,
    Calendar,
    Concurrency,
}

/// The kinds' words, with their parameters in order.
const WORDS: [(&str, Word, &[&str]); 6] = [
    ("GCRA", Word::Gcra, &["rate", "period-ms", "burst"]),
    ("FIXED", Word::Fixed, &["max", "window-ms"]),
    ("SLIDING", Word::Sliding, &["max", "window-ms"]),
    ("EXACT", Word::Exact, &["max", "window-ms"]),
    ("CALENDAR", Word::Calendar, &["max", "hour|day|week|month", "offset-minutes"]),
    ("CONCURRENCY", Word::Concurrency, &["limit", "lease-ms"]),
];

const UNITS: [(&str, Unit); 4] =
    [("hour", Unit::Hour), ("day", Unit::Day), ("week", Unit::Week), ("month", Unit::Month)];

const BAD_UNITS: Error = Error::text("ERR UNITS must be a whole number from 1; DRYRUN asks without taking any");

impl<'a> Call<'a> {
    pub(super) fn parse(args: &mut Args<'a>) -> Result<Call<'a>, Error> {
        let mut call = Call { request: None, only_asks: false, units: 1, rules: Vec::new() };
        let mut units = None;
        while !args.option("rules", 1) {
            if call.request.is_none() && args.option("id", 1) {
                call.request = Some(args.bytes()?);
            } else if units.is_none() && args.option("units", 1) {
                units = Some(args.int_or(BAD_UNITS)?);
            } else if !call.only_asks && args.flag("dryrun") {
                call.only_asks = true;
            } else {
                return Err(Error::Syntax);
            }
        }
        call.units = units.unwrap_or(1);
        if call.units < 1 {
            return Err(BAD_UNITS);
        }
        call.parse_rules(args)?;
        args.end()?;
        call.check_request()?;
        Ok(call)
    }

    fn parse_rules(&mut self, args: &mut Args<'a>) -> Result<(), Error> {
        let Some(count) = num::parse_i64(args.bytes()?).and_then(rule_count) else {
            return Err(Error::owned(format!("ERR RULES takes a number of rules from 1 to {LIMIT_RULES_MAX}")));
        };
        self.rules.reserve_exact(count);
        for number in 1..=count {
            let rule = Rule::parse(args, number, self.units)?;
            let is_same = |before: &Rule<'_>| before.hash == rule.hash && before.key == rule.key;
            if let Some(before) = self.rules.iter().position(is_same) {
                return Err(Error::owned(format!(
                    "ERR rules {} and {number} have the same key: give each rule a key of its own",
                    before + 1
                )));
            }
            self.rules.push(rule);
        }
        Ok(())
    }

    fn check_request(&self) -> Result<(), Error> {
        let places = self.rules.iter().position(|rule| matches!(rule.kind, Kind::Concurrency { .. }));
        let Some(request) = self.request else {
            return match places.filter(|_| !self.only_asks) {
                Some(at) => Err(Error::owned(format!(
                    "ERR rule {}: the places of CONCURRENCY are held under the ID of the call, which has none",
                    at + 1
                ))),
                None => Ok(()),
            };
        };
        if places.is_some() && (!(1..=HOLDER_MAX_BYTES).contains(&request.len()) || request == COUNTED) {
            return Err(Error::owned(format!(
                "ERR an ID that holds places has 1 to {HOLDER_MAX_BYTES} bytes, and is not that of what a counter had counted"
            )));
        }
        if let Some(at) = self.rules.iter().position(|rule| rule.key == request) {
            let number = at + 1;
            return Err(Error::owned(format!("ERR the ID is the key of rule {number}, too: give it a key of its own")));
        }
        let bytes: usize = self.rules.iter().map(|rule| rule.key.len()).sum();
        if bytes > LIMIT_REQUEST_MAX_BYTES {
            return Err(Error::owned(format!(
                "ERR with an ID the keys of all rules may have {LIMIT_REQUEST_MAX_BYTES} bytes together"
            )));
        }
        Ok(())
    }
}

impl<'a> Rule<'a> {
    /// Reads the rule of this number, counted from 1.
    fn parse(args: &mut Args<'a>, number: usize, units: i64) -> Result<Rule<'a>, Error> {
        let missing =
            || Error::owned(format!("ERR rule {number} is missing: each is a key, a kind and its parameters"));
        let key = args.bytes().map_err(|_| missing())?;
        let word = args.bytes().map_err(|_| missing())?;
        let Some(&(name, word, parameters)) = known(word) else {
            let word = excerpt(word, 32);
            return Err(Error::owned(format!(
                "ERR rule {number}: unknown kind '{word}'; there are GCRA, FIXED, SLIDING, EXACT, CALENDAR and CONCURRENCY"
            )));
        };
        if args.len() < parameters.len() {
            let parameters = parameters.join(" ");
            return Err(Error::owned(format!("ERR rule {number} is incomplete: {name} takes {parameters}")));
        }
        let kind = Parameters { args, number }.kind(word, units)?;
        Ok(Rule { key, kind, hash: hash_bytes(key) })
    }
}

/// The parameters of the rule of this number.
struct Parameters<'p, 'a> {
    args: &'p mut Args<'a>,
    number: usize,
}

impl Parameters<'_, '_> {
    fn kind(&mut self, word: Word, units: i64) -> Result<Kind, Error> {
        if let Word::Gcra = word {
            let rate = self.whole("rate", 1, i64::MAX)?;
            let (period_ms, burst) = (self.whole("period-ms", 1, i64::MAX)?, self.whole("burst", 0, i64::MAX)?);
            return Ok(Kind::Gcra(Rate::with_burst(burst, rate, period_ms).map_err(|bad| self.bad_rate(bad))?));
        }
        if let Word::Concurrency = word {
            let limit = self.whole("limit", 0, UNITS_MAX.cast_signed())?;
            // A place is given back by its request, which is kept as long.
            return Ok(Kind::Concurrency { limit, lease_ms: self.whole("lease-ms", 1, LIMIT_REQUEST_MAX_MS)? });
        }
        let most = if let Word::Exact = word { LIMIT_EXACT_MAX } else { i64::MAX };
        let max = self.whole("max", 0, most)?;
        if let Word::Calendar = word {
            let Some(unit) = self.args.one_of(&UNITS) else {
                let number = self.number;
                return Err(Error::owned(format!("ERR rule {number}: CALENDAR counts by hour, day, week or month")));
            };
            let offset_minutes = self.whole("offset-minutes", -OFFSET_MAX_MINUTES, OFFSET_MAX_MINUTES)?;
            return Ok(Kind::Calendar { max, unit, offset_minutes });
        }
        let window_ms = self.whole("window-ms", 1, LIMIT_WINDOW_MAX_MS)?;
        match word {
            Word::Sliding => Ok(Kind::Sliding { max, window_ms }),
            Word::Exact if units > LIMIT_EXACT_UNITS_MAX => Err(Error::owned(format!(
                "ERR rule {}: of EXACT, which keeps each unit, a call may take {LIMIT_EXACT_UNITS_MAX}",
                self.number
            ))),
            Word::Exact => Ok(Kind::Exact { max, window_ms }),
            _ => Ok(Kind::Fixed { max, window_ms }),
        }
    }

    fn whole(&mut self, name: &str, least: i64, most: i64) -> Result<i64, Error> {
        match num::parse_i64(self.args.bytes()?) {
            Some(value) if (least..=most).contains(&value) => Ok(value),
            _ => {
                let number = self.number;
                Err(Error::owned(format!("ERR rule {number}: {name} must be a whole number from {least} to {most}")))
            }
        }
    }

    fn bad_rate(&self, bad: BadRate) -> Error {
        let number = self.number;
        Error::owned(match bad {
            BadRate::Zero => format!("ERR rule {number}: the rate is above one unit a nanosecond"),
            BadRate::TooLong => format!("ERR rule {number}: the burst takes longer than 146 years to come back"),
        })
    }
}

/// The kind of this name, in any case.
fn known(word: &[u8]) -> Option<&'static (&'static str, Word, &'static [&'static str])> {
    WORDS.iter().find(|(name, ..)| word.eq_ignore_ascii_case(name.as_bytes()))
}

fn rule_count(count: i64) -> Option<usize> {
    usize::try_from(count).ok().filter(|count| (1..=LIMIT_RULES_MAX).contains(count))
}

/// Finds the keys of a call: the ID, and those of the rules. `None` where there is no call that [`Call::parse`] takes.
pub(super) fn find_keys(argv: Argv<'_>) -> Option<Vec<KeyArg>> {
    let mut keys = Vec::new();
    let key = |index| KeyArg { index, access: Access::Update };
    let mut at = 1;
    loop {
        let word = argv.get(at)?;
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        if is("rules") {
            break;
        }
        if is("id") {
            argv.get(at + 1)?;
            keys.push(key(at + 1));
        } else if !is("units") && !is("dryrun") {
            return None;
        }
        at += if is("dryrun") { 1 } else { 2 };
    }
    let count = num::parse_i64(argv.get(at + 1)?).and_then(rule_count)?;
    at += 2;
    for _ in 0..count {
        keys.push(key(at));
        let (.., parameters) = known(argv.get(at + 1)?)?;
        at += 2 + parameters.len();
    }
    (at == argv.len()).then_some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::request::OwnedArgv;
    use proptest::prelude::*;

    fn word() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec![
            "ID", "id", "DRYRUN", "UNITS", "RULES", "rules", "1", "2", "3", "0", "GCRA", "FIXED", "SLIDING", "EXACT",
            "CALENDAR", "day", "a", "b", "c",
        ])
    }

    fn rule() -> impl Strategy<Value = Vec<&'static str>> {
        let kind = prop::sample::select(vec![
            vec!["GCRA", "1", "1000", "2"],
            vec!["fixed", "1", "1000"],
            vec!["Sliding", "1", "1000"],
            vec!["EXACT", "1", "1000"],
            vec!["CALENDAR", "1", "week", "-60"],
            vec!["concurrency", "1", "1000"],
        ]);
        (word(), kind).prop_map(|(key, kind)| [&[key][..], &kind].concat())
    }

    proptest! {
        /// Who may use some keys only would get at others if a call were understood of which it is not known where its keys are.
        #[test]
        fn the_keys_of_what_is_understood_are_found(
            options in proptest::collection::vec(word(), 0..5), count in 1..4usize,
            rules in proptest::collection::vec(rule(), 1..4), more in proptest::collection::vec(word(), 0..2)
        ) {
            let count = count.to_string();
            let words = [&["LIMIT.TAKE"], &options[..], &["RULES", &count], &rules.concat(), &more].concat();
            let mut argv = OwnedArgv::default();
            words.iter().for_each(|word| argv.push(word.as_bytes()));
            let argv = argv.as_argv();
            if let Ok(call) = Call::parse(&mut Args::new(argv, 1)) {
                let named: Vec<&[u8]> = call.request.into_iter().chain(call.rules.iter().map(|rule| rule.key)).collect();
                let found = find_keys(argv).map(|keys| keys.iter().map(|key| argv[key.index].to_vec()).collect::<Vec<_>>());
                prop_assert_eq!(found, Some(named.iter().map(|key| key.to_vec()).collect()));
            }
        }
    }
}
