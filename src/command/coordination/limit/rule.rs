//! The syntax of LIMIT.TAKE: options, then rules. A rule is a key, a kind, as many parameters as the kind takes, and
//! options. So a call can be read from front to back without reading any key, which is how [`find_keys`] finds the
//! keys.
//!
//! A word behind the parameters is an option unless a kind follows it: then it is the key of the next rule.

use crate::base::hasher::hash_bytes;
use crate::base::num;
use crate::command::coordination::error::LimitError;
use crate::command::coordination::gate::COUNTED;
use crate::command::limits::{
    LIMIT_EXACT_MAX, LIMIT_EXACT_UNITS_MAX, LIMIT_REQUEST_MAX_BYTES, LIMIT_REQUEST_MAX_MS, LIMIT_RULES_MAX,
    LIMIT_WINDOW_MAX_MS,
};
use crate::command::string::Term;
use crate::keyspace::limits::HOLDER_MAX_BYTES;
use crate::resp::request::Argv;
use crate::spec::args::Args;
use crate::spec::error::{Error, excerpt};
use crate::spec::{Access, KeyArg};
use crate::value::gcra::{BadRate, Rate};
use crate::value::grants::UNITS_MAX;

/// The longest offset of a time zone, in either direction.
const OFFSET_MAX_MINUTES: i64 = 24 * 60 - 1;

/// A call.
pub(super) struct Call<'a> {
    /// The ID: the key of the call's record.
    pub request: Option<&'a [u8]>,
    /// How long to remember the ID at least.
    pub keep: Term<'a>,
    /// Whether the call is a DRYRUN.
    pub only_asks: bool,
    /// How many units the call takes under each rule that does not say otherwise.
    pub units: i64,
    /// At least one rule. All keys are different.
    pub rules: Vec<Rule<'a>>,
}

/// One limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule<'a> {
    /// The key of the limit.
    pub key: &'a [u8],
    /// The kind, with its parameters.
    pub kind: Kind,
    /// How many units the call takes.
    pub units: i64,
    /// How many units beyond the limit LIMIT.SETTLE may take.
    pub debt: i64,
    /// The hash of the key.
    pub hash: u64,
}

/// How a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A leaky bucket.
    Gcra(Rate),
    /// At most `max` units within a window that begins with its first unit.
    Fixed { max: i64, window_ms: i64 },
    /// At most `max` units within an hour, day, week or month of the calendar.
    Calendar { max: i64, unit: Unit, offset_minutes: i64 },
    /// About `max` units within any window, by estimate.
    Sliding { max: i64, window_ms: i64 },
    /// At most `max` units within any window.
    Exact { max: i64, window_ms: i64 },
    /// At most `limit` units at the same time, each held for a lease.
    Concurrency { limit: i64, lease_ms: i64 },
}

impl Kind {
    /// The name of the kind, as WHY shows it.
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

    /// Whether a call could give these parameters.
    pub(super) fn is_valid(self) -> bool {
        let is_window = |window_ms| (1..=LIMIT_WINDOW_MAX_MS).contains(&window_ms);
        match self {
            Kind::Gcra(_) => true,
            Kind::Fixed { max, window_ms } | Kind::Sliding { max, window_ms } => max >= 0 && is_window(window_ms),
            Kind::Exact { max, window_ms } => (0..=LIMIT_EXACT_MAX).contains(&max) && is_window(window_ms),
            Kind::Calendar { max, offset_minutes, .. } => {
                max >= 0 && (-OFFSET_MAX_MINUTES..=OFFSET_MAX_MINUTES).contains(&offset_minutes)
            }
            Kind::Concurrency { limit, lease_ms } => {
                (0..=UNITS_MAX.cast_signed()).contains(&limit) && (1..=LIMIT_REQUEST_MAX_MS).contains(&lease_ms)
            }
        }
    }

    /// The kind with a limit that is larger by `debt` units; `None` if no limit of this kind is that large.
    pub(super) fn extended(self, debt: i64) -> Option<Kind> {
        let extended = match self {
            _ if debt == 0 => self,
            Kind::Gcra(rate) => Kind::Gcra(rate.extended(debt).ok()?),
            Kind::Fixed { max, window_ms } => Kind::Fixed { max: max.checked_add(debt)?, window_ms },
            Kind::Sliding { max, window_ms } => Kind::Sliding { max: max.checked_add(debt)?, window_ms },
            Kind::Exact { max, window_ms } => Kind::Exact { max: max.checked_add(debt)?, window_ms },
            Kind::Calendar { max, unit, offset_minutes } => {
                Kind::Calendar { max: max.checked_add(debt)?, unit, offset_minutes }
            }
            // A place that nobody returns is lost with its lease, and a call uses no more places than it took.
            Kind::Concurrency { .. } => return None,
        };
        extended.is_valid().then_some(extended)
    }
}

/// A window of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Hour,
    Day,
    /// Begins on Monday.
    Week,
    Month,
}

/// The name of a kind.
#[derive(Clone, Copy, Debug)]
enum Word {
    Gcra,
    Fixed,
    Sliding,
    Exact,
    Calendar,
    Concurrency,
}

/// The names of the kinds, with their parameters in order.
const WORDS: [(&str, Word, &[&str]); 6] = [
    ("GCRA", Word::Gcra, &["rate", "period-ms", "burst"]),
    ("FIXED", Word::Fixed, &["max", "window-ms"]),
    ("SLIDING", Word::Sliding, &["max", "window-ms"]),
    ("EXACT", Word::Exact, &["max", "window-ms"]),
    ("CALENDAR", Word::Calendar, &["max", "hour|day|week|month", "offset-minutes"]),
    ("CONCURRENCY", Word::Concurrency, &["limit", "lease-ms"]),
];

/// The options of a rule, which have a value each.
const OPTIONS: [&str; 2] = ["UNITS", "DEBT"];

const UNITS: [(&str, Unit); 4] =
    [("hour", Unit::Hour), ("day", Unit::Day), ("week", Unit::Week), ("month", Unit::Month)];

impl<'a> Call<'a> {
    pub(super) fn parse(args: &mut Args<'a>) -> Result<Call<'a>, Error> {
        let mut call = Call { request: None, keep: Term::Unsaid, only_asks: false, units: 1, rules: Vec::new() };
        let mut units = None;
        while !args.option("rules", 1) {
            if call.request.is_none() && args.option("id", 1) {
                call.request = Some(args.bytes()?);
            } else if units.is_none() && args.option("units", 1) {
                units = Some(num::parse_i64(args.bytes()?).ok_or_else(|| Error::from(LimitError::Units))?);
            } else if !call.only_asks && args.flag("dryrun") {
                call.only_asks = true;
            } else if !call.keep.take_deadline(args)? {
                return Err(Error::Syntax);
            }
        }
        call.units = units.unwrap_or(1);
        if call.units < 1 {
            return Err(LimitError::Units.into());
        }
        call.parse_rules(args)?;
        args.end()?;
        call.check_request()?;
        Ok(call)
    }

    fn parse_rules(&mut self, args: &mut Args<'a>) -> Result<(), Error> {
        let count = num::parse_i64(args.bytes()?).and_then(rule_count);
        // Here and below `ok_or` would build an error for each good argument and drop it, which takes longer than
        // reading the argument.
        let count = count.ok_or_else(|| Error::from(LimitError::RuleCount))?;
        self.rules.reserve_exact(count);
        for number in 1..=count {
            let Ok(key) = args.bytes() else { return Err(LimitError::Missing { number }.into()) };
            let hash = hash_bytes(key);
            let same = self.rules.iter().position(|before| before.hash == hash && before.key == key);
            let kind = Kind::parse(args, number)?;
            if let Some(before) = same {
                return Err(LimitError::SameKey { first: before + 1, second: number }.into());
            }
            let rule = Rule { key, kind, units: self.units, debt: 0, hash };
            self.rules.push(rule.with_options(args, number)?);
        }
        Ok(())
    }

    fn check_request(&self) -> Result<(), Error> {
        let places = self.rules.iter().position(|rule| matches!(rule.kind, Kind::Concurrency { .. }));
        let Some(request) = self.request else {
            if self.keep != Term::Unsaid {
                return Err(LimitError::NothingToKeep.into());
            }
            if let Some(at) = self.rules.iter().position(|rule| rule.debt > 0).filter(|_| !self.only_asks) {
                return Err(LimitError::DebtWithoutId { number: at + 1 }.into());
            }
            return match places.filter(|_| !self.only_asks) {
                Some(at) => Err(LimitError::NoHolder { number: at + 1 }.into()),
                None => Ok(()),
            };
        };
        if places.is_some() && (!(1..=HOLDER_MAX_BYTES).contains(&request.len()) || request == COUNTED) {
            return Err(LimitError::HolderName.into());
        }
        if let Some(at) = self.rules.iter().position(|rule| rule.key == request) {
            return Err(LimitError::IdIsRule { number: at + 1 }.into());
        }
        let bytes: usize = self.rules.iter().map(|rule| rule.key.len()).sum();
        if bytes > LIMIT_REQUEST_MAX_BYTES {
            return Err(LimitError::KeysTooLong.into());
        }
        Ok(())
    }
}

impl Rule<'_> {
    /// Reads the options of the rule; rules are numbered from 1.
    #[inline]
    fn with_options(mut self, args: &mut Args<'_>, number: usize) -> Result<Self, Error> {
        if is_option(args.argv(), args.position()) {
            self.read_options(args, number)?;
        }
        if matches!(self.kind, Kind::Exact { .. }) && self.units > LIMIT_EXACT_UNITS_MAX {
            return Err(LimitError::ExactUnits { number }.into());
        }
        Ok(self)
    }

    #[inline(never)]
    fn read_options(&mut self, args: &mut Args<'_>, number: usize) -> Result<(), Error> {
        let (mut units, mut debt) = (None, None);
        while is_option(args.argv(), args.position()) {
            if units.is_none() && args.option("units", 1) {
                units = Some(Parameters { args, number }.whole("UNITS", 1, i64::MAX)?);
            } else if debt.is_none() && args.option("debt", 1) {
                debt = Some(Parameters { args, number }.whole("DEBT", 0, i64::MAX)?);
            } else {
                return Err(Error::Syntax);
            }
        }
        self.units = units.unwrap_or(self.units);
        self.debt = debt.unwrap_or(0);
        if self.kind.extended(self.debt).is_none() {
            return Err(LimitError::Debt { number, kind: self.kind.name() }.into());
        }
        Ok(())
    }
}

impl Kind {
    /// Reads the kind of a rule, with its parameters; rules are numbered from 1.
    fn parse(args: &mut Args<'_>, number: usize) -> Result<Kind, Error> {
        let Ok(word) = args.bytes() else { return Err(LimitError::Missing { number }.into()) };
        let Some(&(kind, word, parameters)) = known(word) else {
            return Err(LimitError::UnknownKind { number, word: excerpt(word, 32) }.into());
        };
        if args.len() < parameters.len() {
            let parameters = parameters.join(" ");
            return Err(LimitError::Incomplete { number, kind, parameters }.into());
        }
        Parameters { args, number }.kind(word)
    }
}

/// The parameters of a rule.
struct Parameters<'p, 'a> {
    args: &'p mut Args<'a>,
    number: usize,
}

impl Parameters<'_, '_> {
    fn kind(&mut self, word: Word) -> Result<Kind, Error> {
        if let Word::Gcra = word {
            let rate = self.whole("rate", 1, i64::MAX)?;
            let (period_ms, burst) = (self.whole("period-ms", 1, i64::MAX)?, self.whole("burst", 0, i64::MAX)?);
            return Ok(Kind::Gcra(Rate::with_burst(burst, rate, period_ms).map_err(|bad| self.bad_rate(bad))?));
        }
        if let Word::Concurrency = word {
            let limit = self.whole("limit", 0, UNITS_MAX.cast_signed())?;
            // LIMIT.REFUND needs the record of the request, which is kept no longer than this.
            return Ok(Kind::Concurrency { limit, lease_ms: self.whole("lease-ms", 1, LIMIT_REQUEST_MAX_MS)? });
        }
        let most = if let Word::Exact = word { LIMIT_EXACT_MAX } else { i64::MAX };
        let max = self.whole("max", 0, most)?;
        if let Word::Calendar = word {
            let unit = self.args.one_of(&UNITS);
            let unit = unit.ok_or_else(|| Error::from(LimitError::CalendarUnit { number: self.number }))?;
            let offset_minutes = self.whole("offset-minutes", -OFFSET_MAX_MINUTES, OFFSET_MAX_MINUTES)?;
            return Ok(Kind::Calendar { max, unit, offset_minutes });
        }
        let window_ms = self.whole("window-ms", 1, LIMIT_WINDOW_MAX_MS)?;
        match word {
            Word::Sliding => Ok(Kind::Sliding { max, window_ms }),
            Word::Exact => Ok(Kind::Exact { max, window_ms }),
            _ => Ok(Kind::Fixed { max, window_ms }),
        }
    }

    fn whole(&mut self, name: &'static str, least: i64, most: i64) -> Result<i64, Error> {
        let value = num::parse_i64(self.args.bytes()?).filter(|value| (least..=most).contains(value));
        value.ok_or_else(|| LimitError::Parameter { number: self.number, name, least, most }.into())
    }

    fn bad_rate(&self, bad: BadRate) -> LimitError {
        let number = self.number;
        match bad {
            BadRate::Zero => LimitError::RateTooHigh { number },
            BadRate::TooLong => LimitError::BurstTooLong { number },
        }
    }
}

/// The kind with a name, in upper or lower case.
fn known(word: &[u8]) -> Option<&'static (&'static str, Word, &'static [&'static str])> {
    WORDS.iter().find(|(name, ..)| word.eq_ignore_ascii_case(name.as_bytes()))
}

/// Whether an option of a rule stands at `at`.
fn is_option(argv: Argv<'_>, at: usize) -> bool {
    let is_word = |word: &[u8]| OPTIONS.iter().any(|option| word.eq_ignore_ascii_case(option.as_bytes()));
    argv.get(at).is_some_and(is_word) && argv.get(at + 1).is_none_or(|next| known(next).is_none())
}

fn rule_count(count: i64) -> Option<usize> {
    usize::try_from(count).ok().filter(|count| (1..=LIMIT_RULES_MAX).contains(count))
}

/// Finds the keys of a call: the ID and the keys of the rules. `None` for a call that [`Call::parse`] refuses.
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
        } else if !is("units") && !is("dryrun") && !Term::Unsaid.take_deadline(&mut Args::new(argv, at)).ok()? {
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
        while is_option(argv, at) {
            at += 2;
        }
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
            "CALENDAR", "day", "a", "b", "c", "PX", "exat", "DEBT", "units",
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
        let options =
            prop::sample::select(vec![vec![], vec!["UNITS", "2"], vec!["debt", "1"], vec!["DEBT", "2", "UNITS", "3"]]);
        (word(), kind, options).prop_map(|(key, kind, options)| [&[key][..], &kind, &options].concat())
    }

    proptest! {
        /// Access control depends on this: a call that runs although its keys were not found would reach keys that its
        /// user may not use.
        #[test]
        fn the_keys_of_every_valid_call_are_found(
            options in proptest::collection::vec(word(), 0..5), count in 1..4usize,
            rules in proptest::collection::vec(rule(), 1..4), more in proptest::collection::vec(word(), 0..2)
        ) {
            let count = count.to_string();
            let words = [&["LIMIT.TAKE"], &options[..], &["RULES", &count], &rules.concat(), &more].concat();
            let mut argv = OwnedArgv::default();
            words.iter().for_each(|word| argv.push(word.as_bytes()));
            let argv = argv.as_argv();
            if let Ok(call) = Call::parse(&mut Args::new(argv, 1)) {
                let named = call.request.into_iter().chain(call.rules.iter().map(|rule| rule.key));
                let found = find_keys(argv).expect("the call is understood");
                let found: Vec<&[u8]> = found.iter().map(|key| &argv[key.index]).collect();
                prop_assert_eq!(found, named.collect::<Vec<_>>());
            }
        }
    }
}
