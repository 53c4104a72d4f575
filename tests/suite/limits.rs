//! LIMIT.TAKE, LIMIT.SETTLE and LIMIT.REFUND against naive models, one for each kind of rule, through random
//! [histories](crate::histories): the clock advances and is set back, calls are repeated, settled, refunded, rolled
//! back with their script, or only asked, and servers are killed. Further tests cover transactions, scripts, users,
//! restarts, CL.THROTTLE and GATE, and GCRA against a naive bucket. `transcripts` shows the form of replies and each
//! error.

use std::collections::BTreeMap;

use tidegate::keyspace::effect::{Cause, Effect};

use crate::differential::generate::Dice;
use crate::differential::script::Args;
use crate::harness::{Program, Raw, Server, Value, decode};
use crate::histories::{Log, run};
use crate::in_process::{Bench, START_MS, Told, script, words};

/// Keys shared by the rules of one kind.
const KEYS: usize = 2;

/// A rule as a model sees it.
struct Rule {
    key: String,
    words: String,
    max: i64,
    model: Model,
}

/// The content of a key, remembered naively. Each model except the bucket keeps every unit.
enum Model {
    /// Nanoseconds between two units, and the time at which the bucket is empty.
    Bucket { interval_ns: i64, empty_ns: i64 },
    /// The end of a window by its begin, the begin of the open window, and its units.
    Counter { ends: fn(i64) -> i64, open: Option<i64>, units: i64 },
    /// The begin of the last window, and the begin of the window of each unit.
    Sliding { window_ms: i64, began: Option<i64>, units: Vec<i64> },
    /// The time and the owner of each unit, and the time at which the key expires.
    Exact { window_ms: i64, until_ms: i64, units: Vec<(i64, usize)> },
    /// Holders, their places, and the ends of their leases.
    Places { lease_ms: i64, held: Vec<Place> },
}

#[derive(Clone)]
struct Place {
    id: String,
    units: i64,
    until_ms: i64,
    /// The call that took it.
    call: usize,
    /// Its fencing token, once a reply has shown it.
    token: Option<i64>,
}

/// The units that a request took of a rule.
#[derive(Clone, Copy)]
enum Trace {
    Bucket,
    Window(i64),
    Serial(usize),
}

struct Granted {
    at_ms: i64,
    /// The UNITS of the call as a whole.
    units: i64,
    until_ms: i64,
    rules: Vec<Charged>,
}

/// What a call takes of a rule.
#[derive(Clone, Copy)]
struct Wanted {
    number: usize,
    units: i64,
    debt: i64,
}

#[derive(Clone, Copy)]
struct Charged {
    wanted: Wanted,
    trace: Trace,
    /// The units used, and the change that they made.
    settled: Option<(i64, i64)>,
}

const HOUR_MS: i64 = 3_600_000;

impl Rule {
    fn some(number: usize, dice: &mut Dice) -> Rule {
        let max = dice.below(7) as i64;
        let window_ms = 1 + dice.below(3_000) as i64;
        let kind = number / KEYS;
        let (words, model) = match kind {
            0 => {
                let (rate, period_ms) = (1 + dice.below(9) as i64, 1 + dice.below(4_000) as i64);
                let interval_ns = period_ms * 1_000_000 / rate;
                (format!("GCRA {rate} {period_ms} {max}"), Model::Bucket { interval_ns, empty_ns: i64::MIN })
            }
            1 => {
                // The model's window has one length, so that its end is a plain function.
                let ends = |now_ms| now_ms + 700;
                (format!("FIXED {max} 700"), Model::Counter { ends, open: None, units: 0 })
            }
            2 => {
                // A time zone that is half an hour ahead.
                let ends = |now_ms: i64| (now_ms + HOUR_MS / 2).div_euclid(HOUR_MS) * HOUR_MS + HOUR_MS / 2;
                (format!("CALENDAR {max} hour 30"), Model::Counter { ends, open: None, units: 0 })
            }
            3 => (format!("SLIDING {max} {window_ms}"), Model::Sliding { window_ms, began: None, units: Vec::new() }),
            4 => {
                (format!("EXACT {max} {window_ms}"), Model::Exact { window_ms, until_ms: i64::MAX, units: Vec::new() })
            }
            _ => (format!("CONCURRENCY {max} {window_ms}"), Model::Places { lease_ms: window_ms, held: Vec::new() }),
        };
        Rule { key: format!("k{number}"), words, max, model }
    }

    /// Forgets lapsed data, as every access to the key does.
    fn expire(&mut self, now_ms: i64) {
        match &mut self.model {
            Model::Bucket { empty_ns, .. } if (*empty_ns + 999_999).div_euclid(1_000_000) <= now_ms => {
                *empty_ns = i64::MIN;
            }
            Model::Counter { open, units, .. } if open.is_some_and(|ends| ends <= now_ms) => {
                (*open, *units) = (None, 0)
            }
            Model::Sliding { window_ms, began, units }
                if began.is_some_and(|began| began + 2 * *window_ms <= now_ms) =>
            {
                *began = None;
                units.clear();
            }
            // Until then forgotten units stay, and count again if the clock steps back.
            Model::Exact { until_ms, units, .. } if *until_ms <= now_ms => units.clear(),
            Model::Places { held, .. } => held.retain(|place| place.until_ms > now_ms),
            _ => {}
        }
    }

    /// The begin of the current window.
    fn window(&self, now_ms: i64) -> i64 {
        match &self.model {
            Model::Sliding { window_ms, began: Some(began), .. } if *began + window_ms <= now_ms => began + window_ms,
            Model::Sliding { began, .. } => began.unwrap_or(now_ms),
            _ => 0,
        }
    }

    /// The number of free units.
    fn free(&self, now_ms: i64) -> i64 {
        let used = match &self.model {
            Model::Bucket { interval_ns, empty_ns } => {
                let level_ns = empty_ns.saturating_sub(now_ms * 1_000_000).max(0);
                return (self.max * interval_ns - level_ns).div_euclid(*interval_ns);
            }
            Model::Counter { units, .. } => *units,
            Model::Sliding { window_ms, units, .. } => {
                let window = self.window(now_ms);
                let count = |of: i64| units.iter().filter(|began| **began == of).count() as i64;
                let left_ms = (window + window_ms - now_ms).min(*window_ms);
                count(window) + (count(window - window_ms) * left_ms + window_ms - 1) / window_ms
            }
            Model::Exact { window_ms, units, .. } => {
                units.iter().filter(|(came_ms, _)| came_ms + window_ms > now_ms).count() as i64
            }
            Model::Places { held, .. } => held.iter().map(|place| place.units).sum(),
        };
        self.max - used
    }

    /// The place that this request holds, for a rule with places.
    fn place(&mut self, id: Option<&str>) -> Option<&mut Place> {
        let Model::Places { held, .. } = &mut self.model else { return None };
        held.iter_mut().find(|place| Some(place.id.as_str()) == id)
    }

    fn has_places(&self) -> bool {
        matches!(self.model, Model::Places { .. })
    }

    fn take(&mut self, now_ms: i64, wanted: i64, call: usize, id: Option<&str>) -> (Trace, i64) {
        let window = self.window(now_ms);
        match &mut self.model {
            Model::Bucket { interval_ns, empty_ns } => {
                *empty_ns = (*empty_ns).max(now_ms * 1_000_000) + *interval_ns * wanted;
                (Trace::Bucket, (*empty_ns + 999_999).div_euclid(1_000_000))
            }
            Model::Counter { ends, open, units } => {
                *units += wanted;
                let ends = *open.get_or_insert(ends(now_ms));
                (Trace::Window(ends), ends)
            }
            Model::Sliding { window_ms, began, units } => {
                *began = Some(window);
                units.retain(|began| *began == window || *began == window - *window_ms);
                units.extend((0..wanted).map(|_| window));
                (Trace::Window(window), window + 2 * *window_ms)
            }
            Model::Exact { window_ms, until_ms, units } => {
                let last_ms = units.iter().map(|(came_ms, _)| *came_ms).max().unwrap_or(now_ms).max(now_ms);
                *until_ms = last_ms + *window_ms;
                units.retain(|(came_ms, _)| came_ms + *window_ms > now_ms);
                units.extend((0..wanted).map(|_| (now_ms, call)));
                (Trace::Serial(call), *until_ms)
            }
            Model::Places { lease_ms, held } => {
                let until_ms = now_ms + *lease_ms;
                if let Some(own) = held.iter_mut().find(|place| Some(place.id.as_str()) == id) {
                    own.until_ms = own.until_ms.max(until_ms);
                    return (Trace::Serial(own.call), own.until_ms);
                }
                let id = id.expect("places are taken under an ID").to_owned();
                held.push(Place { id, units: wanted, until_ms, call, token: None });
                (Trace::Serial(call), until_ms)
            }
        }
    }

    /// Returns up to `unused` of the units taken at `at_ms`, and all places.
    fn give_back(&mut self, now_ms: i64, at_ms: i64, charged: Charged, unused: i64) -> i64 {
        match (&mut self.model, charged.trace) {
            (Model::Bucket { interval_ns, empty_ns }, _) if *empty_ns != i64::MIN => {
                let cost_ns = *interval_ns * charged.wanted.units;
                let left_ns = (cost_ns - (now_ms - at_ms).max(0) * 1_000_000).clamp(0, *interval_ns * unused);
                *empty_ns -= left_ns;
                if *empty_ns <= now_ms * 1_000_000 && left_ns > 0 {
                    *empty_ns = i64::MIN;
                }
                left_ns / *interval_ns
            }
            (Model::Counter { open, units, .. }, Trace::Window(ends)) if *open == Some(ends) => {
                let given = unused.min(*units);
                *units -= given;
                if *units == 0 {
                    *open = None;
                }
                given
            }
            (Model::Sliding { units, .. }, Trace::Window(window)) => {
                let before = units.len();
                let mut left = unused;
                units.retain(|began| {
                    let goes = *began == window && left > 0;
                    left -= i64::from(goes);
                    !goes
                });
                (before - units.len()) as i64
            }
            (Model::Exact { window_ms, units, .. }, Trace::Serial(call)) if at_ms + *window_ms > now_ms => {
                let before = units.len();
                let mut left = unused;
                units.retain(|(_, of)| {
                    let goes = *of == call && left > 0;
                    left -= i64::from(goes);
                    !goes
                });
                (before - units.len()) as i64
            }
            (Model::Places { held, .. }, Trace::Serial(call)) => {
                let at = held.iter().position(|place| place.call == call);
                at.map_or(0, |at| held.remove(at).units)
            }
            _ => 0,
        }
    }
}

/// An engine and the models of its keys.
struct World {
    bench: Bench,
    log: Log,
    rules: Vec<Rule>,
    granted: BTreeMap<String, Granted>,
    now_ms: i64,
    calls: usize,
    last_token: i64,
    is_called_in_vain: bool,
    /// How often a reply reported a place as lost, and how often a forgotten request held a place.
    lost: u64,
    /// Grants, refusals, repetitions, units given back; settlements that took units, that took less than was used, and
    /// that were repeated.
    seen: [u64; 7],
}

impl World {
    fn new(dice: &mut Dice) -> World {
        let mut bench = Bench::new(1);
        let log = Log::of(&mut bench, Told::Everything);
        let rules = (0..6 * KEYS).map(|number| Rule::some(number, dice)).collect();
        World {
            bench,
            log,
            rules,
            granted: BTreeMap::new(),
            now_ms: START_MS,
            calls: 0,
            last_token: 0,
            is_called_in_vain: false,
            lost: 0,
            seen: [0; 7],
        }
    }

    fn call(&mut self, line: &str) -> Value {
        let args: Args = words(&line.split(' ').collect::<Vec<_>>());
        if self.is_called_in_vain {
            // First in a script that is rolled back.
            self.bench.call(0, &script("fail", std::slice::from_ref(&args)));
            self.assert_recorded(false, line);
        }
        let reply = self.bench.call(0, &args);
        decode(&reply, false).expect("RESP").expect("a reply").0
    }

    fn step(&mut self, dice: &mut Dice) {
        match dice.below(8) {
            0 => self.move_clock(-(dice.below(2_000) as i64)),
            1 => self.move_clock(dice.below(3_000_000) as i64),
            2..=4 => self.move_clock(dice.below(900) as i64),
            _ => {}
        }
        self.is_called_in_vain = dice.once_in(6);
        match dice.below(10) {
            0 | 1 => self.refund(dice),
            2 | 3 => self.settle(dice),
            _ => self.take(dice),
        }
        if dice.once_in(20) {
            self.log.kill(&mut self.bench).expect("the log makes what the server held");
        }
    }

    fn move_clock(&mut self, by_ms: i64) {
        self.bench.set_clock(by_ms);
        self.now_ms += by_ms;
    }

    fn request(&mut self, id: &str) -> Option<&Granted> {
        if self.granted.get(id).is_some_and(|granted| granted.until_ms <= self.now_ms) {
            self.granted.remove(id);
        }
        self.granted.get(id)
    }

    fn take(&mut self, dice: &mut Dice) {
        let now_ms = self.now_ms;
        self.calls += 1;
        let id = dice.once_in(2).then(|| format!("id{}", dice.below(4)));
        let repeated = id.as_ref().and_then(|id| self.request(id));
        let is_repeated = repeated.is_some();
        // A repetition is the same call; anything else is an error, which the transcripts show.
        let (mut rules, units) = match repeated {
            Some(granted) => (granted.rules.iter().map(|charged| charged.wanted).collect::<Vec<_>>(), granted.units),
            None => self.some_rules(dice, id.is_some()),
        };
        let only_asks = dice.once_in(6);
        if id.is_none() && !only_asks {
            rules.retain(|wanted| !self.rules[wanted.number].has_places());
            if rules.is_empty() {
                return;
            }
        }
        let keep_ms = id.as_ref().filter(|_| dice.once_in(3)).map(|_| 1 + dice.below(4_000) as i64);
        let line = self.line(id.as_deref(), keep_ms, only_asks, units, &rules);
        rules.iter().for_each(|wanted| self.rules[wanted.number].expire(now_ms));
        let id_of_call = id.as_deref();
        let holds = |rule: &mut Rule| rule.place(id_of_call).map(|own| own.units);
        let holds_others =
            |wanted: &Wanted| holds(&mut self.rules[wanted.number]).is_some_and(|units| units != wanted.units);
        if !is_repeated && rules.iter().any(holds_others) {
            // A request that is forgotten while its place is held: the clock stepped back.
            let reply = self.call(&line);
            assert!(
                reply.bytes().is_some_and(|text| text.starts_with(b"ERR this ID already holds")),
                "{line}: {reply:?}"
            );
            self.lost += 1;
            return self.assert_recorded(false, &line);
        }
        let refuses: Vec<bool> = rules
            .iter()
            .map(|wanted| {
                let rule = &mut self.rules[wanted.number];
                let is_held = holds(rule).is_some();
                // A request keeps its granted units, except a place whose lease has ended.
                !is_held && if is_repeated { rule.has_places() } else { rule.free(now_ms) < wanted.units }
            })
            .collect();
        let grants = !refuses.contains(&true);
        let takes = grants && !only_asks && !is_repeated;
        self.lost += u64::from(is_repeated && !grants);
        if takes {
            let mut until_ms = now_ms + keep_ms.unwrap_or(1);
            let mut taken = Vec::new();
            for wanted in &rules {
                let rule = &mut self.rules[wanted.number];
                let (trace, counts_until_ms) = rule.take(now_ms, wanted.units, self.calls, id.as_deref());
                until_ms = until_ms.max(counts_until_ms);
                taken.push(Charged { wanted: *wanted, trace, settled: None });
            }
            if let Some(id) = &id {
                self.granted.insert(id.clone(), Granted { at_ms: now_ms, units, until_ms, rules: taken });
            }
        }
        let reply = self.call(&line);
        let is_refused = !grants;
        let fields = outcome(&reply, i64::from(!is_refused));
        assert_eq!(fields["repeated"], Value::Integer(is_repeated.into()), "{line}");
        let first = refuses.iter().position(|refuses| *refuses).filter(|_| is_refused);
        let first = first.map_or(Value::Null, |at| Value::bulk(&self.rules[rules[at].number].key));
        assert_eq!(fields["refused-by"], first, "{line}");
        let mut waits = Vec::new();
        for (at, standing) in elements(&fields["rules"]).iter().enumerate() {
            let standing = pairs(elements(standing));
            let wanted = rules[at];
            self.check_token(wanted.number, id.as_deref(), &standing, &line);
            let rule = &self.rules[wanted.number];
            assert_eq!(standing["key"], Value::bulk(&rule.key));
            assert_eq!(standing["limit"], Value::Integer(rule.max));
            let refuses = refuses[at] && is_refused;
            assert_eq!(standing["refuses"], Value::Integer(refuses.into()), "{line}: {}", rule.key);
            assert_eq!(standing["remaining"], Value::Integer(rule.free(now_ms).max(0)), "{line}: {}", rule.key);
            let wait_ms = number(&standing["retry-after-ms"]);
            let is_right = match (refuses, wait_ms) {
                (false, wait_ms) => wait_ms == 0,
                (true, -1) => wanted.units > rule.max || is_repeated,
                (true, wait_ms) => {
                    let grants_after = |ms: i64| rule.after(now_ms + ms).free(now_ms + ms) >= wanted.units;
                    wait_ms > 0 && grants_after(wait_ms) && !grants_after(wait_ms - 1)
                }
            };
            assert!(is_right, "{line}: {} is to wait {wait_ms} ms", rule.key);
            if refuses {
                waits.push(wait_ms);
            }
            let reset_ms = number(&standing["reset-after-ms"]);
            let is_whole = |ms: i64| rule.after(now_ms + ms).free(now_ms + ms) >= rule.max;
            assert!(
                is_whole(reset_ms) && (reset_ms == 0 || !is_whole(reset_ms - 1)),
                "{line}: {}: {reset_ms}",
                rule.key
            );
        }
        let longest = if waits.contains(&-1) { -1 } else { waits.into_iter().max().unwrap_or(0) };
        assert_eq!(fields["retry-after-ms"], Value::Integer(longest), "{line}");
        self.assert_recorded(takes, &line);
        self.seen[if is_repeated { 2 } else { usize::from(!grants) }] += 1;
    }

    /// Rules for a new call, and its UNITS. Only a call with an ID has debts.
    fn some_rules(&self, dice: &mut Dice, has_id: bool) -> (Vec<Wanted>, i64) {
        let units = 1 + dice.below(3) as i64;
        let mut numbers: Vec<usize> = (0..1 + dice.below(4)).map(|_| dice.below(6 * KEYS)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let wanted = |number: usize| {
            let units = if dice.once_in(4) { 1 + dice.below(3) as i64 } else { units };
            let debt = if has_id && !self.rules[number].has_places() { dice.below(4) as i64 } else { 0 };
            Wanted { number, units, debt }
        };
        (numbers.into_iter().map(wanted).collect(), units)
    }

    fn line(&self, id: Option<&str>, keep_ms: Option<i64>, only_asks: bool, units: i64, rules: &[Wanted]) -> String {
        let mut line = "LIMIT.TAKE".to_owned();
        id.iter().for_each(|id| line += &format!(" ID {id}"));
        keep_ms.iter().for_each(|keep_ms| line += &format!(" PX {keep_ms}"));
        line += if only_asks { " DRYRUN" } else { "" };
        line += &format!(" UNITS {units} RULES {}", rules.len());
        for wanted in rules {
            let rule = &self.rules[wanted.number];
            line += &format!(" {} {}", rule.key, rule.words);
            if wanted.units != units {
                line += &format!(" UNITS {}", wanted.units);
            }
            if wanted.debt != 0 {
                line += &format!(" DEBT {}", wanted.debt);
            }
        }
        line
    }

    /// The reply to a request with a place carries its token: always the same one, and each new one is larger.
    fn check_token(&mut self, rule: usize, id: Option<&str>, standing: &BTreeMap<String, Value>, line: &str) {
        let Some(told) = standing.get("token") else {
            return assert!(!self.rules[rule].has_places(), "{line}");
        };
        assert!(self.rules[rule].has_places(), "{line}");
        match self.rules[rule].place(id) {
            None => assert_eq!(*told, Value::Null, "{line}"),
            Some(place) => {
                let token = *place.token.get_or_insert(number(told));
                assert_eq!(*told, Value::Integer(token), "{line}");
                self.last_token = self.last_token.max(token);
            }
        }
    }

    /// A refused request has changed nothing except by expiry.
    fn assert_recorded(&mut self, takes: bool, line: &str) {
        let units = self.log.follow(&mut self.bench).unwrap_or_else(|told| panic!("{line}: {told}"));
        let is_of_others = |effect: &Effect<'_>| match effect {
            Effect::Del { cause, .. } | Effect::GrantEnd { cause, .. } => *cause == Cause::Expiry,
            // The text of a failed script stays known.
            Effect::ScriptPut { .. } => true,
            _ => false,
        };
        let changed = units.iter().flat_map(|(_, unit)| unit.effects()).any(|(_, effect)| !is_of_others(&effect));
        assert_eq!(changed, takes, "{line}");
    }

    fn refund(&mut self, dice: &mut Dice) {
        let now_ms = self.now_ms;
        let id = format!("id{}", dice.below(4));
        let granted = self.request(&id).is_some().then(|| self.granted.remove(&id)).flatten();
        let Some(granted) = granted else {
            let reply = self.call(&format!("LIMIT.REFUND {id} k0"));
            outcome(&reply, 0);
            return self.assert_recorded(false, "a refund of nothing");
        };
        let mut line = format!("LIMIT.REFUND {id}");
        let mut expected = Vec::new();
        for charged in &granted.rules {
            let (rule, units) = (&mut self.rules[charged.wanted.number], charged.wanted.units);
            line += &format!(" {}", rule.key);
            if charged.settled.is_some() {
                // Its units were used.
                expected.push(0);
                continue;
            }
            rule.expire(now_ms);
            expected.push(rule.give_back(now_ms, granted.at_ms, *charged, units));
        }
        let reply = self.call(&line);
        let fields = outcome(&reply, 1);
        assert_eq!(fields["units"], Value::Integer(granted.units));
        let refunded: Vec<i64> =
            elements(&fields["rules"]).iter().map(|rule| number(&pairs(elements(rule))["refunded"])).collect();
        assert_eq!(refunded, expected, "{line}");
        self.seen[3] += refunded.iter().sum::<i64>() as u64;
        self.assert_recorded(true, &line);
    }

    fn settle(&mut self, dice: &mut Dice) {
        let now_ms = self.now_ms;
        let known: Vec<&String> = self.granted.keys().collect();
        let id = match known.is_empty() || dice.once_in(4) {
            true => format!("id{}", dice.below(4)),
            false => known[dice.below(known.len())].clone(),
        };
        // Often as before, so that a settlement is repeated.
        let before = self.granted.get(&id).and_then(|granted| granted.rules.iter().find_map(|rule| rule.settled));
        let used = before.filter(|_| dice.once_in(2)).map_or(dice.below(12) as i64, |(used, _)| used);
        self.request(&id);
        let Some(mut granted) = self.granted.remove(&id) else {
            let reply = self.call(&format!("LIMIT.SETTLE {id} {used} k0"));
            outcome(&reply, 0);
            return self.assert_recorded(false, "a settlement of nothing");
        };
        let mut line = format!("LIMIT.SETTLE {id} {used}");
        let mut named: Vec<&mut Charged> = granted.rules.iter_mut().filter(|_| dice.below(3) > 0).collect();
        if named.is_empty() {
            self.granted.insert(id, granted);
            return;
        }
        named.iter().for_each(|charged| line += &format!(" {}", self.rules[charged.wanted.number].key));
        if let Some(at) = named.iter().position(|charged| charged.settled.is_some_and(|(before, _)| before != used)) {
            // The keys before it have been looked at.
            let unsettled = named[..at].iter().filter(|charged| charged.settled.is_none());
            unsettled.for_each(|charged| self.rules[charged.wanted.number].expire(now_ms));
            let reply = self.call(&line);
            assert!(reply.bytes().is_some_and(|text| text.starts_with(b"ERR rule ")), "{line}: {reply:?}");
            self.granted.insert(id, granted);
            return self.assert_recorded(false, &line);
        }
        let is_repeated = named.iter().all(|charged| charged.settled.is_some());
        self.calls += 1;
        for charged in named.iter_mut().filter(|charged| charged.settled.is_none()) {
            let (rule, wanted) = (&mut self.rules[charged.wanted.number], charged.wanted);
            rule.expire(now_ms);
            let more = used - wanted.units;
            let change = if rule.has_places() || more < 0 {
                -rule.give_back(now_ms, granted.at_ms, **charged, -more)
            } else {
                let taken = more.min(rule.free(now_ms) + wanted.debt).max(0);
                if taken > 0 {
                    rule.take(now_ms, taken, self.calls, None);
                }
                self.seen[4] += u64::from(taken > 0);
                self.seen[5] += u64::from(taken < more);
                taken
            };
            charged.settled = Some((used, change));
        }
        let expected: Vec<i64> = named.iter().filter_map(|charged| Some(charged.settled?.1)).collect();
        self.granted.insert(id, granted);
        let reply = self.call(&line);
        let fields = outcome(&reply, 1);
        assert_eq!(fields["units"], Value::Integer(used));
        assert_eq!(fields["repeated"], Value::Integer(is_repeated.into()), "{line}");
        let changes: Vec<i64> =
            elements(&fields["rules"]).iter().map(|rule| number(&pairs(elements(rule))["change"])).collect();
        assert_eq!(changes, expected, "{line}");
        self.seen[6] += u64::from(is_repeated);
        self.assert_recorded(!is_repeated, &line);
    }
}

impl Rule {
    /// The rule at a later time.
    fn after(&self, at_ms: i64) -> Rule {
        let model = match &self.model {
            Model::Bucket { interval_ns, empty_ns } => Model::Bucket { interval_ns: *interval_ns, empty_ns: *empty_ns },
            Model::Counter { ends, open, units } => Model::Counter { ends: *ends, open: *open, units: *units },
            Model::Sliding { window_ms, began, units } => {
                Model::Sliding { window_ms: *window_ms, began: *began, units: units.clone() }
            }
            Model::Exact { window_ms, until_ms, units } => {
                Model::Exact { window_ms: *window_ms, until_ms: *until_ms, units: units.clone() }
            }
            Model::Places { lease_ms, held } => Model::Places { lease_ms: *lease_ms, held: held.clone() },
        };
        let mut rule = Rule { key: self.key.clone(), words: self.words.clone(), max: self.max, model };
        rule.expire(at_ms);
        rule
    }
}

/// The fields of a reply with this outcome, by name.
fn outcome(reply: &Value, expected: i64) -> BTreeMap<String, Value> {
    let [outcome, fields @ ..] = elements(reply) else { panic!("not an outcome: {reply:?}") };
    assert_eq!(*outcome, Value::Integer(expected), "{reply:?}");
    pairs(fields)
}

fn pairs(fields: &[Value]) -> BTreeMap<String, Value> {
    let name = |name: &Value| String::from_utf8_lossy(name.bytes().expect("a name")).into_owned();
    fields.chunks_exact(2).map(|pair| (name(&pair[0]), pair[1].clone())).collect()
}

fn elements(value: &Value) -> &[Value] {
    match value {
        Value::Array(elements) => elements,
        other => panic!("not an array: {other:?}"),
    }
}

fn number(value: &Value) -> i64 {
    match value {
        Value::Integer(number) => *number,
        other => panic!("not a number: {other:?}"),
    }
}

#[test]
fn limits_behave_like_the_model() {
    let rare = [
        "lost places",
        "kills",
        "grants",
        "refusals",
        "repetitions",
        "units that were given back",
        "settlements that took units",
        "settlements that took less than was used",
        "repeated settlements",
    ];
    run("limits", 150, rare, |seed| {
        let dice = &mut Dice(seed);
        let mut world = World::new(dice);
        for _ in 0..60 {
            world.step(dice);
        }
        let [grants, refusals, repetitions, given_back, more, less, repeated] = world.seen;
        // One in ten histories loses places, and one in three finds too little room or repeats a settlement.
        Ok([10 * world.lost, world.log.kills, grants, refusals, repetitions, given_back, more, 3 * less, 3 * repeated])
    });
}

/// Two keys: one is used by CL.THROTTLE alone, the other also by LIMIT.TAKE.
#[test]
fn a_gcra_rule_behaves_like_cl_throttle() {
    let mut dice = Dice(7);
    let mut bench = Bench::new(1);
    let call = |bench: &mut Bench, line: String| {
        let reply = bench.call(0, &words(&line.split(' ').collect::<Vec<_>>()));
        decode(&reply, false).expect("RESP").expect("a reply").0
    };
    let mut refused = 0;
    for _ in 0..3_000 {
        bench.set_clock(dice.below(2_500) as i64 - 700);
        let (max_burst, count, period_s, units) =
            (dice.below(9), 1 + dice.below(5), 1 + dice.below(4), 1 + dice.below(3));
        let throttle = |key: &str| format!("CL.THROTTLE {key} {max_burst} {count} {period_s} {units}");
        let expected = call(&mut bench, throttle("alone"));
        let (burst, period_ms) = (max_burst + 1, period_s * 1_000);
        if dice.once_in(2) {
            assert_eq!(call(&mut bench, throttle("shared")), expected);
        } else {
            let line = format!("LIMIT.TAKE UNITS {units} RULES 1 shared GCRA {count} {period_ms} {burst}");
            let reply = call(&mut bench, line);
            let is_refused = number(&elements(&expected)[0]);
            refused += is_refused;
            let fields = outcome(&reply, 1 - is_refused);
            let rule = pairs(elements(&elements(&fields["rules"])[0]));
            let seconds = |ms: i64| if ms < 0 { ms } else { (ms + 999) / 1_000 };
            let wait_ms = if is_refused == 1 { number(&rule["retry-after-ms"]) } else { -1 };
            let told = [
                is_refused,
                number(&rule["limit"]),
                number(&rule["remaining"]),
                seconds(wait_ms),
                seconds(number(&rule["reset-after-ms"])),
            ];
            assert_eq!(Value::Array(told.map(Value::Integer).to_vec()), expected);
        }
        assert_eq!(call(&mut bench, "GET shared".to_owned()), call(&mut bench, "GET alone".to_owned()));
        assert_eq!(call(&mut bench, "PTTL shared".to_owned()), call(&mut bench, "PTTL alone".to_owned()));
    }
    assert!(refused > 100, "only {refused} were refused");
}

/// GCRA against a leaky bucket: its level in microseconds of leaking, its capacity, and the requested units. One key is
/// used by GCRA alone; at another CL.THROTTLE and LIMIT.TAKE take turns with it, at the same rate.
#[test]
fn gcra_behaves_like_a_leaky_bucket() {
    let mut dice = Dice(8);
    let mut bench = Bench::new(1);
    let call = |bench: &mut Bench, line: String| {
        let reply = bench.call(0, &words(&line.split(' ').collect::<Vec<_>>()));
        decode(&reply, false).expect("RESP").expect("a reply").0
    };
    let (mut now_us, mut empty_us) = (i128::from(START_MS) * 1_000, 0i128);
    let mut seen = [0; 4];
    for _ in 0..4_000 {
        let by_ms = dice.below(2_500) as i64 - 700;
        bench.set_clock(by_ms);
        now_us += i128::from(by_ms) * 1_000;
        if (empty_us + 999).div_euclid(1_000) * 1_000 <= now_us {
            empty_us = 0;
        }
        let (burst, count, tokens) = (dice.below(9) as i128, 1 + dice.below(7) as i128, 1 + dice.below(4) as i128);
        let is_whole = dice.once_in(2);
        let period_ms = if is_whole { 1_000 * (1 + dice.below(4)) } else { 1 + dice.below(4_000) } as i128;
        let interval_us = ((2 * period_ms * 1_000 + count) / (2 * count)).max(1);
        let capacity_us = interval_us * (burst + 1);
        let level_us = (empty_us - now_us).max(0);
        let is_limited = level_us + tokens * interval_us > capacity_us;
        let missing_us = level_us + tokens * interval_us - capacity_us;
        let level_us = if is_limited { level_us } else { level_us + tokens * interval_us };
        if !is_limited {
            empty_us = now_us + level_us;
        }
        let seconds = |us: i128| (us + 999_999) / 1_000_000;
        let can_ever = tokens <= burst + 1;
        let expected = [
            i128::from(is_limited),
            burst + 1,
            (capacity_us - level_us).max(0) / interval_us,
            if is_limited && can_ever { seconds(missing_us) } else { -1 },
            seconds(level_us),
        ];
        let expected = Value::Array(expected.map(|number| Value::Integer(number as i64)).to_vec());
        let period = format!("{}.{:03}", period_ms / 1_000, period_ms % 1_000);
        let line = |key: &str| format!("GCRA {key} {burst} {count} {period} TOKENS {tokens}");
        let alone = line("alone");
        assert_eq!(call(&mut bench, alone.clone()), expected, "{alone}");
        let is_exact = period_ms * 1_000 % count == 0;
        match dice.below(3) {
            0 if is_exact && is_whole => {
                let line = format!("CL.THROTTLE shared {burst} {count} {} {tokens}", period_ms / 1_000);
                assert_eq!(call(&mut bench, line), expected);
                seen[2] += 1;
            }
            1 if is_exact => {
                let line = format!("LIMIT.TAKE UNITS {tokens} RULES 1 shared GCRA {count} {period_ms} {}", burst + 1);
                outcome(&call(&mut bench, line), i64::from(!is_limited));
                seen[3] += 1;
            }
            _ => assert_eq!(call(&mut bench, line("shared")), expected, "{alone}"),
        }
        seen[usize::from(is_limited)] += 1;
        let tat = if empty_us == 0 { Value::Null } else { Value::bulk(&(empty_us * 1_000).to_string()) };
        for key in ["alone", "shared"] {
            assert_eq!(call(&mut bench, format!("GET {key}")), tat, "{alone}");
        }
        assert_eq!(call(&mut bench, "PTTL shared".to_owned()), call(&mut bench, "PTTL alone".to_owned()));
    }
    assert!(seen.iter().all(|count| *count > 300), "each outcome must happen often: {seen:?}");
}

/// A CONCURRENCY rule and GATE share one gate: its own limit, its holders, and its waiters.
#[test]
fn concurrency_rules_share_places_with_gate() {
    let mut bench = Bench::new(2);
    let call = |bench: &mut Bench, line: &str| {
        let reply = bench.call(0, &words(&line.split(' ').collect::<Vec<_>>()));
        decode(&reply, false).expect("RESP").expect("a reply").0
    };
    let rule = |reply: &Value, granted: i64| {
        let fields = outcome(reply, granted);
        pairs(elements(&elements(&fields["rules"])[0]))
    };
    let token = |reply: &Value| number(&rule(reply, 1)["token"]);
    let take = |id: &str, limit: i64| format!("LIMIT.TAKE ID {id} RULES 1 g CONCURRENCY {limit} 1000");
    let first = token(&call(&mut bench, &take("a", 2)));
    let told = format!("{:?}", call(&mut bench, "GATE.HOLDERS g 0"));
    assert!(told.contains(&format!("\"holder\", \"a\", \"token\", {first}, \"units\", 1")), "{told}");
    // The holder is known to GATE, too, and its token to GUARD.
    assert_eq!(call(&mut bench, &format!("GUARD g {first} INCR calls")), Value::Integer(1));
    outcome(&call(&mut bench, "GATE.RENEW g a PX 5000"), 1);
    outcome(&call(&mut bench, "GATE.ACQUIRE g b LIMIT 2 PX 3000"), 1);
    let full = rule(&call(&mut bench, &take("c", 2)), 0);
    assert_eq!((number(&full["retry-after-ms"]), number(&full["reset-after-ms"])), (3_000, 5_000));
    // A waiter comes first, even if there is a place for the new request.
    bench.call(1, &words(&["GATE.ACQUIRE", "g", "w", "LIMIT", "3", "UNITS", "2", "PX", "9000", "BLOCK", "0"]));
    let queue = rule(&call(&mut bench, &take("c", 3)), 0);
    assert_eq!((number(&queue["remaining"]), number(&queue["retry-after-ms"])), (1, 3_000));
    // A request's refund goes to the waiters; a second refund finds nothing, and takes nothing from others.
    let fields = outcome(&call(&mut bench, "LIMIT.REFUND a g"), 1);
    assert_eq!(number(&pairs(elements(&elements(&fields["rules"])[0]))["refunded"]), 1);
    assert!(bench.heard(1).starts_with(b"*9\r\n:1"));
    outcome(&call(&mut bench, "LIMIT.REFUND a g"), 0);
    // The gate's own limit applies to rules as well, and a closed gate grants nothing.
    call(&mut bench, "GATE.LIMIT g 4");
    assert_eq!(number(&rule(&call(&mut bench, &take("c", 1)), 1)["limit"]), 4);
    call(&mut bench, "GATE.LIMIT g 0");
    assert_eq!(number(&rule(&call(&mut bench, &take("d", 9)), 0)["retry-after-ms"]), -1);
    // After a release by name and a new acquisition under another call, the request gives back its own place only.
    call(&mut bench, "GATE.LIMIT g 9");
    outcome(&call(&mut bench, "GATE.RELEASE g c"), 1);
    outcome(&call(&mut bench, "GATE.ACQUIRE g c PX 1000"), 1);
    let fields = outcome(&call(&mut bench, "LIMIT.REFUND c g"), 1);
    assert_eq!(number(&pairs(elements(&elements(&fields["rules"])[0]))["refunded"]), 0);
    // A request granted under a name that already holds a place gets that place.
    let again = rule(&call(&mut bench, &take("c", 1)), 1);
    assert_eq!((number(&again["remaining"]), number(&again["limit"])), (5, 9));
    let fields = outcome(&call(&mut bench, "LIMIT.REFUND c g"), 1);
    assert_eq!(number(&pairs(elements(&elements(&fields["rules"])[0]))["refunded"]), 1);
}

/// Rules of all kinds count in a transaction and in a script as anywhere, and a failed script has taken nothing.
#[test]
fn a_failed_script_gives_its_units_back() {
    let mut bench = Bench::new(1);
    let take = "LIMIT.TAKE ID r RULES 6 a GCRA 1 1000 2 b FIXED 2 1000 c CALENDAR 2 day 0 \
                d SLIDING 2 1000 e EXACT 2 1000 f CONCURRENCY 2 1000";
    let call = |bench: &mut Bench, words_of: &[&str]| {
        let reply = bench.call(0, &words(words_of));
        decode(&reply, false).expect("RESP").expect("a reply").0
    };
    let line: Vec<&str> = take.split(' ').collect();
    for first in [false, true] {
        if first {
            outcome(&call(&mut bench, &line), 1);
            bench.set_clock(1_100);
            call(&mut bench, &["DEL", "r"]);
        }
        let before = bench.state(Told::Everything);
        let script = "local r = redis.call(unpack(ARGV)) assert(r[1] == 1) \
            redis.call('LIMIT.REFUND', 'r', 'a', 'b', 'c', 'd', 'e', 'f') redis.call(unpack(ARGV)) error('it fails')";
        let failed = [&["EVAL", script, "0"][..], &line].concat();
        assert!(matches!(call(&mut bench, &failed), Value::Error(_)));
        assert_eq!(bench.state(Told::Everything), before);
    }
}

/// Each charged or refunded key counts as one change, however much is written there.
#[test]
fn each_key_counts_as_one_change() {
    let mut bench = Bench::new(1);
    let rules = "RULES 4 a GCRA 1 1000 9 b FIXED 9 1000 d SLIDING 9 1000 e EXACT 9 1000";
    let places = "RULES 2 p CONCURRENCY 5 1000 q CONCURRENCY 9 2000";
    for (line, changes) in [
        (format!("LIMIT.TAKE ID r UNITS 5 {rules}"), 5),
        (format!("LIMIT.TAKE ID r UNITS 5 {rules}"), 0),
        (format!("LIMIT.TAKE UNITS 5 {rules}"), 0),
        (format!("LIMIT.TAKE UNITS 4 DRYRUN {rules}"), 0),
        (format!("LIMIT.TAKE UNITS 4 {rules}"), 4),
        ("LIMIT.REFUND r a b d e".to_owned(), 5),
        ("LIMIT.REFUND r a b d e".to_owned(), 0),
        (format!("LIMIT.TAKE ID s UNITS 5 {places}"), 3),
        (format!("LIMIT.TAKE ID t UNITS 5 {places}"), 0),
        ("LIMIT.REFUND s p q".to_owned(), 3),
        ("LIMIT.REFUND s p q".to_owned(), 0),
        ("LIMIT.TAKE ID u UNITS 4 RULES 2 a GCRA 1 1000 9 e EXACT 9 1000 UNITS 1".to_owned(), 3),
        ("LIMIT.SETTLE u 4 a e".to_owned(), 2),
        ("LIMIT.SETTLE u 4 a e".to_owned(), 0),
        ("LIMIT.SETTLE s 4 p q".to_owned(), 0),
        ("ID.NEXT id COUNT 100".to_owned(), 1),
    ] {
        let before = bench.engine.ks.changes_by_commands();
        bench.call(0, &words(&line.split(' ').collect::<Vec<_>>()));
        assert_eq!(bench.engine.ks.changes_by_commands() - before, changes, "{line}");
    }
}

#[test]
fn kept_requests_and_units_expire() {
    let mut bench = Bench::new(1);
    let call = |bench: &mut Bench, line: &str| {
        let reply = bench.call(0, &words(&line.split(' ').collect::<Vec<_>>()));
        decode(&reply, false).expect("RESP").expect("a reply").0
    };
    // A request is forgotten after a day, though the month still counts it.
    outcome(&call(&mut bench, "LIMIT.TAKE ID r RULES 1 c CALENDAR 9 month 0"), 1);
    assert_eq!(call(&mut bench, "PTTL r"), Value::Integer(24 * HOUR_MS));
    assert!(number(&call(&mut bench, "PTTL c")) > 24 * HOUR_MS);
    // Names of the units of one millisecond run out; the next millisecond has new ones.
    call(&mut bench, &format!("ZADD e {START_MS} {START_MS}-99999998"));
    outcome(&call(&mut bench, "LIMIT.TAKE RULES 1 e EXACT 9 1000"), 1);
    let full = "ERR too many units in this millisecond: delete the key of the EXACT rule";
    assert_eq!(call(&mut bench, "LIMIT.TAKE RULES 2 f FIXED 9 1000 e EXACT 9 1000"), Value::error(full));
    assert_eq!(call(&mut bench, "EXISTS f"), Value::Integer(0), "the rule before it is not charged");
    bench.set_clock(1);
    outcome(&call(&mut bench, "LIMIT.TAKE RULES 1 e EXACT 9 1000"), 1);
    assert_eq!(call(&mut bench, "ZCARD e"), Value::Integer(3));
}

fn line(raw: &mut Raw, line: &str) -> Value {
    raw.command(&line.split(' ').collect::<Vec<_>>())
}

#[test]
fn limits_and_ids_survive_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let flags = ["--dir", dir.path().to_str().expect("plain text"), "--appendonly", "yes"];
    let take = "LIMIT.TAKE ID r UNITS 2 RULES 6 a GCRA 1 600000 3 b FIXED 3 600000 c CALENDAR 9 month 0 \
                d SLIDING 3 600000 e EXACT 3 600000 f CONCURRENCY 3 600000";
    let mut ids = Vec::new();
    let first = |reply: &Value| -> i64 {
        let fields = outcome(reply, 1);
        let text = String::from_utf8(fields["first"].bytes().expect("text").to_vec()).expect("digits");
        text.parse().expect("a number")
    };
    for round in 0..3 {
        let mut server = Server::start(Program::Tidegate, &flags);
        let mut raw = server.raw();
        let fields = outcome(&line(&mut raw, take), 1);
        assert_eq!(fields["repeated"], Value::Integer(i64::from(round > 0)));
        let refused = take.replace("ID r", "ID other");
        let fields = outcome(&line(&mut raw, &refused), 0);
        let refuses = |rule: &Value| number(&pairs(elements(rule))["refuses"]);
        let rules: Vec<i64> = elements(&fields["rules"]).iter().map(refuses).collect();
        assert_eq!(rules, [1, 1, 0, 1, 1, 1]);
        ids.push(first(&line(&mut raw, "ID.NEXT id COUNT 1000000")));
        ids.push(first(&line(&mut raw, "ID.NEXT id")));
        raw.send_command(&["SHUTDOWN"]);
        assert!(server.ends_well());
    }
    assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
    let server = Server::start(Program::Tidegate, &flags);
    let fields = outcome(&line(&mut server.raw(), "LIMIT.REFUND r a b c d e f"), 1);
    let refunded = |rule: &Value| number(&pairs(elements(rule))["refunded"]);
    let rules: Vec<i64> = elements(&fields["rules"]).iter().map(refunded).collect();
    assert_eq!(rules[1..], [2, 2, 2, 2, 2]);
    assert!((1..=2).contains(&rules[0]), "a little of it has leaked: {rules:?}");
}

#[test]
fn a_user_needs_rights_to_each_key() {
    let server = Server::start(Program::Tidegate, &[]);
    let (mut admin, mut raw) = (server.raw(), server.raw());
    assert_eq!(line(&mut admin, "ACL SETUSER u on nopass ~own:* +@coordination +get"), Value::ok());
    assert_eq!(line(&mut raw, "AUTH u x"), Value::ok());
    let granted = |reply: &Value| matches!(reply, Value::Array(_));
    assert!(granted(&line(&mut raw, "LIMIT.TAKE ID own:r RULES 2 own:a FIXED 1 1000 own:b EXACT 1 1000")));
    assert!(granted(&line(&mut raw, "LIMIT.SETTLE own:r 0 own:a")));
    assert!(granted(&line(&mut raw, "LIMIT.REFUND own:r own:a own:b")));
    assert!(granted(&line(&mut raw, "ID.NEXT own:id")));
    for refused in [
        "LIMIT.TAKE ID other RULES 1 own:a FIXED 1 1000",
        "LIMIT.TAKE RULES 2 own:a FIXED 1 1000 other EXACT 1 1000",
        "LIMIT.TAKE UNITS 1 DRYRUN RULES 1 other GCRA 1 1000 1",
        "LIMIT.REFUND own:r own:a other",
        "LIMIT.REFUND other own:a",
        "LIMIT.SETTLE own:r 2 own:a other",
        "LIMIT.SETTLE other 2 own:a",
        "LIMIT.TAKE ID own:r PX 1000 RULES 2 own:a FIXED 1 1000 UNITS 2 DEBT 3 other EXACT 1 1000",
        "ID.NEXT other",
        "SET own:a 1",
    ] {
        let reply = line(&mut raw, refused);
        assert!(reply.bytes().is_some_and(|text| text.starts_with(b"NOPERM")), "{refused}: {reply:?}");
    }
    // An unreadable call has no keys to check, and is refused as unreadable.
    let broken = line(&mut raw, "LIMIT.TAKE RULES 2 own:a FIXED 1 1000 other");
    assert!(matches!(broken, Value::Error(_)), "{broken:?}");
    assert_eq!(line(&mut admin, "KEYS *"), Value::Array(vec![Value::bulk("own:id")]));
}

#[test]
fn a_call_takes_a_bounded_number_of_exact_units() {
    let (_server, mut raw) = Server::with_client(Program::Tidegate);
    let rules: String = (0..32).map(|number| format!(" k{number} EXACT 65536 60000")).collect();
    for _ in 0..3 {
        outcome(&line(&mut raw, &format!("LIMIT.TAKE UNITS 1000 RULES 32{rules}")), 1);
    }
    assert_eq!(line(&mut raw, "ZCARD k31"), Value::Integer(3_000));
    for (refused, told) in [
        (
            format!("LIMIT.TAKE UNITS 1001 RULES 32{rules}"),
            "ERR rule 1: a call may take at most 1000 units of an EXACT",
        ),
        (
            format!("LIMIT.TAKE RULES 33{rules} k32 FIXED 1 1"),
            "ERR RULES must be followed by the number of rules, from 1 to 32",
        ),
        (format!("LIMIT.TAKE ID r RULES 1 {} FIXED 1 1", "k".repeat(65_537)), "ERR with an ID"),
        ("LIMIT.TAKE RULES 1 k EXACT 65537 1".to_owned(), "ERR rule 1: max"),
        ("LIMIT.TAKE RULES 1 k FIXED 1 315360000001".to_owned(), "ERR rule 1: window-ms"),
        ("ID.NEXT k COUNT 1000001".to_owned(), "ERR COUNT"),
    ] {
        let reply = line(&mut raw, &refused);
        assert!(reply.bytes().is_some_and(|text| text.starts_with(told.as_bytes())), "{told}: {reply:?}");
    }
    // Made-up names of units do not disturb the others.
    line(&mut raw, "ZADD k 9000000000000 9000000000000-99999999 5 zzz");
    outcome(&line(&mut raw, "LIMIT.TAKE RULES 1 k EXACT 9 60000"), 1);
    // The past unit is forgotten, the future one counts.
    assert_eq!(line(&mut raw, "ZCARD k"), Value::Integer(2));
}
