//! The stream of effects is the data. A second engine to which it is applied, unit by unit, holds the same keys,
//! scripts and libraries as the first, which received the calls.
//!
//! At the same time snapshots of the first engine are made between the calls, in slices that each copy a small
//! amount. When a snapshot is complete, a third engine to which it was applied also holds the same data, and
//! continues like the second.
//!
//! There are three worlds of random calls: every command that the table declares, on few small values of all types;
//! commands that change large values; and commands that wait, or wake waiters. Some calls run in transactions, in
//! functions, in scripts that succeed, and in scripts that fail. The clock is moved by hand. So keys and elements
//! expire, found by a call or reclaimed, and waits end. Scripts and libraries come and go, thresholds move.
//!
//! `SUITE_SEED` and `SUITE_ROUNDS` choose other sequences, as in [`differential`](crate::differential); a sequence that
//! differs is shrunk. (A random member of a large set depends on the process, too.)

use std::collections::VecDeque;
use std::fmt;

use tidegate::keyspace::effect::{Effect, EffectReader, EffectWriter};
use tidegate::keyspace::snapshot::Snapshot;
use tidegate::persist::snapshot_stream::SnapshotStream;

use crate::differential::declared::{self, Declared};
use crate::differential::functions;
use crate::differential::generate::{self, Dice, Time};
use crate::differential::script::{Args, show, split_line};
use crate::differential::search::{env_number, shrink};
use crate::in_process::{Bench, ENDS, START_MS, Told, Unit, effect_text, perhaps_once, script, words};
use crate::rollback;

/// Number of clients of the engine.
const CLIENTS: usize = 5;
/// Steps of a sequence after which the two engines are compared.
const STRIDE: usize = 16;

#[test]
fn replicas_of_small_values_of_all_types_are_equal() {
    let commands = declared::all_commands();
    search("small values", 60, |dice| small_world(&commands, dice));
}

#[test]
fn replicas_of_large_values_are_equal() {
    search("large values", 12, large_world);
}

#[test]
fn replicas_with_waiting_clients_are_equal() {
    search("waiting clients", 30, waiting_world);
}

/// The comparison shows each sort of change.
#[test]
fn a_missing_change_is_detected() {
    let (mut original, mut copy) = (Bench::new(1), Bench::new(0));
    original.keep_units();
    for line in [
        "SET s 1",
        "PEXPIRE s 1000",
        "MOVE s 1",
        "RPUSH l a b",
        "LMOVE l l LEFT RIGHT",
        "HSET h f v g v",
        "HPEXPIRE h 1000 FIELDS 1 f",
        "HSETEX h KEEPTTL FIELDS 1 f other",
        "SADD m a",
        "SPEXPIRE m 1000 MEMBERS 1 a",
        "ZADD z 1 a",
        "XADD x 1-1 f v",
        "XADD x 2-1 f v",
        "XDEL x 2-1",
        "XCFGSET x IDMP-MAXSIZE 5",
        "XADD x IDMP p i * f v",
        "XADD x IDMP p i * f v",
        "XGROUP CREATE x g 0",
        "XGROUP CREATECONSUMER x g c",
        "XREADGROUP GROUP g c STREAMS x >",
        "XCLAIM x g other 0 1-1",
        "XNACK x g SILENT IDS 1 1-1",
        "XACK x g 1-1",
        "SWAPDB 0 1",
        "EVAL \"return 1\" 0",
        "SCRIPT LOAD \"return 1\"",
        "FUNCTION LOAD \"#!lua name=a\\nredis.register_function('f', function() end)\"",
        "FUNCTION FLUSH",
        "FLUSHALL",
    ] {
        let reply = original.call(0, &split_line(line).expect("plain words"));
        assert!(!reply.starts_with(b"-"), "{line}: {}", reply.escape_ascii());
        assert!(compare(&mut original, &mut copy).is_err(), "{line}");
        for unit in original.take_units() {
            assert_eq!(copy.repeat(&unit), Ok(()), "{line}");
        }
        assert_eq!(compare(&mut original, &mut copy), Ok(()), "{line}");
    }
    // An absent item cannot be removed.
    original.call(0, &words(&["SET", "s", "1"]));
    original.call(0, &words(&["DEL", "s"]));
    let removed = original.take_units().pop().expect("the unit of DEL");
    assert!(copy.repeat(&removed).is_err());
}

/// Puts snapshots into a sequence: they begin here and there, and are copied in slices, often or rarely, small or
/// large.
fn with_snapshots(steps: Vec<Step>, dice: &mut Dice) -> Vec<Step> {
    let begin_once_in = *dice.pick(&[10, 40, 160]);
    let slice_once_in = *dice.pick(&[1, 2, 6, 20]);
    let sizes = *dice.pick::<&[usize]>(&[&[1], &[1, 100, 1_000], &[1_000, 100_000]]);
    let mut woven = Vec::new();
    for step in steps {
        woven.push(step);
        if dice.once_in(begin_once_in) {
            woven.push(Step::Snapshot { part_min_bytes: *dice.pick(&[0, 0, 300, 100_000]) });
        }
        if dice.once_in(slice_once_in) {
            woven.push(Step::Slice { bytes: *dice.pick(sizes) });
        }
    }
    woven
}

/// Runs one sequence for each of several seeds.
fn search(name: &str, rounds: u64, mut sequence: impl FnMut(&mut Dice) -> Vec<Step>) {
    let first = env_number("SUITE_SEED").unwrap_or(1);
    let last = match env_number("SUITE_ROUNDS").unwrap_or(rounds) {
        0 => u64::MAX,
        rounds => first.saturating_add(rounds),
    };
    let (mut steps, mut units, mut snapshots, mut in_parts) = (0, 0, 0, 0);
    for seed in first..last {
        let dice = &mut Dice(seed);
        let sequence = sequence(dice);
        let sequence = with_snapshots(sequence, dice);
        steps += sequence.len();
        match run(&sequence, STRIDE) {
            Ok(ran) => {
                units += ran.units;
                snapshots += ran.snapshots;
                in_parts += ran.in_parts;
            }
            Err(_) => panic!("SUITE_SEED={seed} SUITE_ROUNDS=1 repeats this\n{}", report(&sequence)),
        }
    }
    eprintln!(
        "{name}: {steps} steps, {units} units that changed something, {snapshots} snapshots among them with {in_parts} \
        values in parts, seeds from {first}"
    );
    assert!(units > steps / 16, "of {steps} steps only {units} changed something");
    assert!(
        snapshots > steps / 2_000,
        "in {steps} steps only {snapshots} snapshots were completed while something changed"
    );
    assert!(in_parts > snapshots / 2, "of {snapshots} snapshots only {in_parts} values were copied in parts");
}

/// The shortest sequence that still differs, with its last unit and the first difference.
fn report(sequence: &[Step]) -> String {
    let least = shrink(sequence.to_vec(), |part| run(part, 1).is_err());
    let told = run(&least, 1).err().unwrap_or_else(|| "only in the whole sequence".to_owned());
    least.iter().fold(String::new(), |list, step| list + &step.to_string() + "\n") + &told
}

/// Counts of a run.
#[derive(Default)]
struct Ran {
    /// Units that changed something.
    units: usize,
    /// Snapshots that completed, and during which something changed.
    snapshots: usize,
    /// Values that these snapshots copied in parts.
    in_parts: usize,
}

/// A snapshot of the original, in progress or complete, and the engine to which it is applied.
pub(crate) struct Snapshotted {
    stream: Option<SnapshotStream>,
    copy: Bench,
    /// Units applied since it began.
    followed: usize,
    /// Values that it copied in parts.
    in_parts: usize,
}

impl Snapshotted {
    pub(crate) fn begin(original: &mut Bench, part_min_bytes: usize) -> Snapshotted {
        let keys = Snapshot::begin_with_parts(&original.engine.ks, part_min_bytes);
        let stream = SnapshotStream::of(keys);
        Snapshotted { stream: Some(stream), copy: Bench::new(0), followed: 0, in_parts: 0 }
    }

    /// Takes in the changes of a unit of the original.
    pub(crate) fn follow(&mut self, unit: &Unit) -> Result<(), String> {
        let Some(stream) = &mut self.stream else { return self.copy.repeat(unit) };
        self.followed += 1;
        let mut written = EffectWriter::default();
        stream.follow_unit(unit.as_bytes(), &mut written);
        self.take_in(&written)
    }

    /// Copies a slice. Returns whether the snapshot is complete with it; then the copy equals the original.
    pub(crate) fn slice(&mut self, original: &mut Bench, bytes: usize) -> Result<bool, String> {
        let Some(mut stream) = self.stream.take() else { return Ok(false) };
        let mut written = EffectWriter::default();
        let engine = &original.engine;
        let is_complete = stream.copy_slice(&engine.ks, &engine.server.programs.scripts, bytes, &mut written);
        self.take_in(&written)?;
        if is_complete {
            drop(stream);
            compare(original, &mut self.copy)?;
        } else {
            self.stream = Some(stream);
        }
        Ok(is_complete)
    }

    /// Applies effects of the snapshot to the engine.
    fn take_in(&mut self, written: &EffectWriter) -> Result<(), String> {
        let is_complete = |(_, effect): &(u16, Effect<'_>)| matches!(effect, Effect::Complete { .. });
        self.in_parts += EffectReader::new(written.as_bytes()).filter(is_complete).count();
        self.copy.take_in(written.as_bytes())
    }
}

/// Runs a sequence on a new engine and repeats its changes on another, and on one that a snapshot fills. Compares them
/// at regular intervals of steps, and at the end. Fails with the first difference.
fn run(sequence: &[Step], stride: usize) -> Result<Ran, String> {
    let (mut original, mut copy) = (Bench::new(CLIENTS), Bench::new(0));
    original.keep_units();
    let mut ran = Ran::default();
    let mut snapshot: Option<Snapshotted> = None;
    for (number, step) in sequence.iter().enumerate() {
        step.run(&mut original);
        let units = original.take_units();
        ran.units += units.len();
        let told = |what: String| format!("after {step}\n{}{what}", units.iter().map(effects).collect::<String>());
        let of_snapshot = |what: String| told(format!("the snapshot: {what}"));
        units.iter().try_for_each(|unit| copy.repeat(unit)).map_err(told)?;
        if let Some(snapshot) = &mut snapshot {
            units.iter().try_for_each(|unit| snapshot.follow(unit)).map_err(of_snapshot)?;
        }
        match (step, &mut snapshot) {
            (Step::Snapshot { part_min_bytes }, one) if one.as_ref().is_none_or(|one| one.stream.is_none()) => {
                *one = Some(Snapshotted::begin(&mut original, *part_min_bytes));
            }
            (Step::Slice { bytes }, Some(one)) => {
                let is_complete = one.slice(&mut original, *bytes).map_err(of_snapshot)?;
                if is_complete && one.followed > 0 {
                    ran.snapshots += 1;
                    ran.in_parts += one.in_parts;
                }
            }
            _ => {}
        }
        let is_last = number + 1 == sequence.len();
        if (number + 1) % stride == 0 || is_last {
            compare(&mut original, &mut copy).map_err(told)?;
            if let Some(one) = &mut snapshot {
                while is_last && one.stream.is_some() {
                    one.slice(&mut original, 10_000).map_err(of_snapshot)?;
                }
                if one.stream.is_none() {
                    compare(&mut original, &mut one.copy).map_err(of_snapshot)?;
                }
            }
        }
    }
    Ok(ran)
}

/// Fails with the first difference.
fn compare(original: &mut Bench, copy: &mut Bench) -> Result<(), String> {
    let now_ms = original.clock.now_ms();
    original.view_at(now_ms);
    copy.view_at(now_ms);
    if original.contents(Told::Seen) == copy.contents(Told::Seen) && original.programs() == copy.programs() {
        return Ok(());
    }
    let [ours, theirs] = [original, copy].map(|bench| {
        let keys = bench.state(Told::Seen);
        keys.lines().map(str::to_owned).chain(bench.programs()).collect::<Vec<_>>()
    });
    let at = (0..).find(|&at| ours.get(at) != theirs.get(at) || at == ours.len()).unwrap_or_default();
    let line = |lines: &[String]| lines.get(at).map_or("nothing".to_owned(), |line| line.clone());
    Err(format!("the original has:\n    {}\nthe copy has:\n    {}", line(&ours), line(&theirs)))
}

fn effects(unit: &Unit) -> String {
    unit.effects().fold("a unit:\n".to_owned(), |list, told| format!("{list}    {}\n", effect_text(told)))
}

/// One step of a sequence.
#[derive(Clone)]
enum Step {
    /// A client calls a command; another client does if this one waits.
    Call { client: usize, args: Args },
    /// Time passes.
    Pass { ms: i64 },
    /// Expired keys and elements are removed.
    Reclaim,
    /// A snapshot begins, unless one is in progress; values of more bytes are copied in parts.
    Snapshot { part_min_bytes: usize },
    /// This much of the snapshot in progress is copied.
    Slice { bytes: usize },
}

impl Step {
    fn run(&self, bench: &mut Bench) {
        match self {
            Step::Call { client, args } => {
                let ready = (0..CLIENTS).map(|i| (client + i) % CLIENTS).find(|&client| !bench.is_suspended(client));
                let client = ready.unwrap_or_else(|| {
                    bench.reconnect(*client);
                    *client
                });
                bench.call(client, args);
            }
            Step::Pass { ms } => bench.pass(*ms),
            Step::Reclaim => bench.reclaim(),
            Step::Snapshot { .. } | Step::Slice { .. } => {}
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Call { client, args } => write!(f, "[{client}] {}", show(args)),
            Step::Pass { ms } => write!(f, "!pass {ms}"),
            Step::Reclaim => write!(f, "!reclaim"),
            Step::Snapshot { part_min_bytes } => write!(f, "!snapshot {part_min_bytes}"),
            Step::Slice { bytes } => write!(f, "!slice {bytes}"),
        }
    }
}

/// Random calls of all commands on small values, mixed with the other kinds of steps.
fn small_world(commands: &[Declared], dice: &mut Dice) -> Vec<Step> {
    let calls = generate::sequence_in(Time::ByHand(START_MS), commands, dice);
    let mut calls: VecDeque<Args> = calls.into_iter().map(|call| perhaps_once(call, dice)).collect();
    let (mut steps, mut client) = (Vec::new(), 0);
    while !calls.is_empty() {
        if dice.once_in(4) {
            client = dice.below(CLIENTS);
        }
        match dice.below(48) {
            0..4 => steps.push(passing(dice)),
            4 => steps.push(Step::Reclaim),
            5 => steps.push(Step::Call { client, args: generate::thresholds(dice) }),
            6 | 7 => steps.push(Step::Call { client, args: functions::call(dice) }),
            8..11 => steps.push(Step::Call { client, args: other_call(dice) }),
            11..15 => {
                let some = calls.len().min(1 + dice.below(6));
                let inside: Vec<Args> = calls.drain(..some).collect();
                steps.push(Step::Call { client, args: a_script(&inside, dice) });
            }
            _ => {
                // A transaction belongs to one client.
                let opens = calls[0] == [b"MULTI"];
                let ends = |call: &Args| call == &[b"EXEC"] || call == &[b"DISCARD"];
                let len = if opens { calls.iter().position(ends).map_or(1, |at| at + 1) } else { 1 };
                for (at, call) in calls.drain(..len).enumerate() {
                    // Several scripts in one unit, some of which fail.
                    let is_inside = at > 0 && at + 1 < len;
                    let args = if is_inside && dice.once_in(4) { a_script(&[call], dice) } else { call };
                    steps.push(Step::Call { client, args });
                }
            }
        }
    }
    steps
}

/// Calls of the third world. `L`, `Z`, `X`: a key of that type; `K`: of any; `e`: an element; `n`: a small number; `T`,
/// `M`: for how long to wait, in seconds and in milliseconds; `c`: a consumer.
const QUEUES: &str = "BLPOP L L T|BRPOP L Z T|BLMOVE L L LEFT RIGHT T|BRPOPLPUSH L L T|BLMPOP T 2 L L LEFT COUNT n\
    |BZPOPMIN Z Z T|BZPOPMAX Z T|BZMPOP T 1 Z MIN COUNT n|XREAD BLOCK M STREAMS X $\
    |XREAD COUNT 1 BLOCK M STREAMS X X $ $\
    |XREADGROUP GROUP g c BLOCK M STREAMS X >|XREADGROUP GROUP g c COUNT 1 BLOCK M NOACK STREAMS X >\
    |XREADGROUP GROUP g c BLOCK M CLAIM 50 STREAMS X >|XAUTOCLAIM X g c 20 0|XGROUP CREATE X g $ MKSTREAM\
    |XGROUP DESTROY X g\
    |LPUSH L e|RPUSH L e e|LPUSH L e e e|RPOP L|LMOVE L L LEFT LEFT|SORT L ALPHA STORE L|ZADD Z n e|ZADD Z n e n e\
    |ZPOPMIN Z\
    |XADD X * f e|XADD X * f e|XADD X * f e|XTRIM X MAXLEN 1|XGROUP SETID X g 0|DEL K|SET K e|RENAME K K|COPY K K\
    |MOVE K 1|PEXPIRE K 20\
    |SWAPDB 0 1|SELECT 1|SELECT 0|CLIENT UNBLOCK n|CLIENT UNBLOCK n ERROR|WATCH K";

/// Clients wait in queues, others fill them.
fn waiting_world(dice: &mut Dice) -> Vec<Step> {
    let templates: Vec<&str> = QUEUES.split('|').collect();
    let call = |dice: &mut Dice| {
        let template = *dice.pick(&templates);
        let fill = |word: &str| match word {
            "L" | "Z" | "X" => format!("{}{}", word.to_lowercase(), dice.below(3)),
            "K" => format!("{}{}", dice.pick(&["l", "z", "x"]), dice.below(3)),
            "e" => format!("e{}", dice.below(4)),
            "n" => dice.below(2 * CLIENTS).to_string(),
            "T" => dice.pick(&["0", "0.02", "0.1", "1"]).to_string(),
            "M" => dice.pick(&["0", "20", "100", "1000"]).to_string(),
            "c" => format!("c{}", dice.below(2)),
            word => word.to_owned(),
        };
        let call = template.split(' ').map(fill).map(String::into_bytes).collect::<Args>();
        perhaps_once(call, dice)
    };
    let mut steps = Vec::new();
    while steps.len() < 300 {
        let client = dice.below(CLIENTS);
        let some = |dice: &mut Dice| (0..1 + dice.below(5)).map(|_| call(dice)).collect::<Vec<Args>>();
        match dice.below(16) {
            0..3 => steps.push(passing(dice)),
            3 => steps.push(Step::Reclaim),
            4 => {
                let inside = some(dice);
                steps.push(Step::Call { client, args: a_script(&inside, dice) });
            }
            5 => {
                let inside = some(dice);
                let all = [vec![words(&["MULTI"])], inside, vec![words(&["EXEC"])]].concat();
                steps.extend(all.into_iter().map(|args| Step::Call { client, args }));
            }
            _ => steps.push(Step::Call { client, args: call(dice) }),
        }
    }
    steps
}

/// More elements expire at once than a lookup removes.
fn many_expire(dice: &mut Dice) -> Vec<Step> {
    const MAKE: &str = "for i = 1, 400 do \
        redis.call('HSET', 'many', 'e' .. i, i) \
        redis.call('HPEXPIRE', 'many', 40 + i % 3, 'FIELDS', 1, 'e' .. i) \
    end";
    const CALLS: &str = "HGET many e5|HSET many e7 v|HDEL many e9 e10|HLEN many|HINCRBY many e3 1|HGETALL many\
        |COPY many m60 REPLACE\
        |HPERSIST many FIELDS 2 e250 e3|HSETEX many KEEPTTL FIELDS 1 e399 v|RENAME many h60|MOVE many 1|PERSIST many\
        |DEL many";
    let calls: Vec<&str> = CALLS.split('|').collect();
    let mut lines = vec![words(&["EVAL", MAKE, "0"])];
    lines.extend((0..8).map(|_| dice.pick(&calls).split(' ').map(|word| word.as_bytes().to_vec()).collect()));
    let calls = lines.into_iter().map(|args| Step::Call { client: 0, args });
    let mut steps: Vec<Step> = calls.collect();
    steps.insert(1 + dice.below(3), Step::Pass { ms: 41 });
    steps
}

/// A script that makes one key of another's bytes.
fn restore(from: &str, to: &str, dice: &mut Dice) -> Args {
    const SCRIPT: &str = "redis.call('RESTORE', KEYS[2], ARGV[1], redis.call('DUMP', KEYS[1]), 'REPLACE')";
    let ttl: &str = ["0", "0", "100", "5000"][dice.below(4)];
    words(&["EVAL", SCRIPT, "2", from, to, ttl])
}

/// Calls that change large values.
fn large_world(dice: &mut Dice) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut passed_ms = 0;
    for _ in 0..12 {
        steps.push(Step::Call { client: 0, args: words(&["EVAL", rollback::MAKE, "0"]) });
        for (name, values) in rollback::THRESHOLDS {
            steps.push(Step::Call { client: 0, args: words(&["CONFIG", "SET", name, values[dice.below(2)]]) });
        }
        let most_ms = if dice.once_in(10) { 2_000 } else { 60 };
        let ms = dice.below(most_ms) as i64;
        passed_ms += ms;
        steps.push(Step::Pass { ms });
        let calls: Vec<Args> =
            (0..1 + dice.below(60)).map(|_| rollback::large_call(dice, START_MS + passed_ms)).collect();
        if dice.once_in(4) {
            steps.extend(many_expire(dice));
        }
        if dice.once_in(3) {
            let key = |dice: &mut Dice| {
                format!("{}{}", dice.pick(&["s", "p", "l", "h", "m", "z", "x"]), dice.pick(&[7, 20, 60]))
            };
            let (from, to) = (key(dice), key(dice));
            steps.push(Step::Call { client: 0, args: restore(&from, &to, dice) });
        }
        match dice.below(4) {
            0 => steps.push(Step::Call { client: 0, args: a_script(&calls, dice) }),
            _ => steps.extend(calls.into_iter().map(|args| Step::Call { client: 0, args })),
        }
        if dice.once_in(3) {
            steps.push(Step::Reclaim);
        }
    }
    steps
}

/// A script of these calls, which succeeds or fails, and is sometimes traced.
fn a_script(calls: &[Args], dice: &mut Dice) -> Args {
    let call = script(ENDS[dice.below(ENDS.len())], calls);
    let trace: &[&str] = match dice.below(12) {
        0 => &["SCRIPT", "TRACE"],
        1 => &["SCRIPT", "TRACE", "COMMIT"],
        _ => return call,
    };
    [&words(trace)[..], &call[1..]].concat()
}

fn passing(dice: &mut Dice) -> Step {
    Step::Pass { ms: *dice.pick(&[1, 1, 5, 20, 60, 500, 1_000, 3_000, 20_000]) }
}

/// A call that [`generate`] never makes: of scripts and of databases, or with values as bytes.
fn other_call(dice: &mut Dice) -> Args {
    const CALLS: [&str; 21] = [
        "FLUSHALL",
        "FLUSHDB ASYNC",
        "SWAPDB 0 1",
        "SELECT n",
        "EVAL \"return n\" 0",
        "EVAL \"return n\" 0",
        "EVAL \"redis.call('SET', 'kn', n) return nonsense()\" 0",
        "EVAL \"syntax error n\" 0",
        "SCRIPT LOAD \"return n\"",
        "SCRIPT LOAD \"#!lua flags=no-writes\\nreturn n\"",
        "SCRIPT FLUSH",
        "CONFIG SET script-cache-max-bytes n",
        "CONFIG SET script-cache-max-bytes 1000",
        "CONFIG SET script-rollback yes",
        "CONFIG SET script-rollback no",
        "COPY kn kN DB 1 REPLACE",
        "COPY kn kN DB 1 REPLACE",
        "FUNCTION LOAD REPLACE \"#!lua name=t\\nredis.register_function('both', function() \
            redis.call('SET', 'kn', n) redis.call('RPUSH', 'kN', 1) end)\"",
        "FCALL both 0",
        "SCRIPT TRACE both 0",
        "SCRIPT TRACE COMMIT both 0",
    ];
    if dice.once_in(4) {
        let (from, to) = (dice.below(8), dice.below(8));
        return restore(&format!("k{from}"), &format!("k{to}"), dice);
    }
    let digit = |dice: &mut Dice| char::from(b"01234567"[dice.below(8)]);
    let (small, large) = (digit(dice).to_string(), digit(dice).to_string());
    let fill = |line: &str| {
        let mut filled = String::new();
        for (at, c) in line.char_indices() {
            // Not the n of a word.
            let is_alone = !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric() && c != 'k')
                && !line[at + 1..].starts_with(|c: char| c.is_ascii_alphanumeric());
            match c {
                'n' if is_alone && !line[..at].ends_with('\\') => filled.push_str(&small),
                'N' if is_alone => filled.push_str(&large),
                c => filled.push(c),
            }
        }
        filled
    };
    split_line(&fill(CALLS[dice.below(CALLS.len())])).expect("plain words")
}
