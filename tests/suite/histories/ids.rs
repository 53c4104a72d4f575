//! IDs beside a naive model, which remembers all IDs ever issued.
//!
//! Blocks are requested in both shapes, for several nodes and epochs, directly and from scripts, some of which fail.
//! The clock advances, and is set back by more than the time that passed; the server is killed. No ID repeats, and none
//! is smaller than an earlier one.

use super::{Log, run};
use crate::differential::generate::Dice;
use crate::differential::script::{Args, split_line};
use crate::harness::{Value, decode};
use crate::in_process::{Bench, Told, script, words};

/// Steps of a history.
const LENGTH: usize = 60;
/// Unix ms of the usual epoch, 2020-01-01.
const EPOCH_MS: i64 = 1_577_836_800_000;

/// The form of a key's IDs.
struct Shape {
    options: String,
    /// For IDs with a time in them: its epoch, and their node.
    snowflake: Option<(i64, Option<i64>)>,
}

impl Shape {
    fn some(dice: &mut Dice) -> Shape {
        if dice.once_in(4) {
            return Shape { options: " SHAPE counter".to_owned(), snowflake: None };
        }
        let epoch_ms = Some(1_600_000_000_000 + dice.below(1_000) as i64).filter(|_| dice.once_in(4));
        let node = Some(dice.below(1_024) as i64).filter(|_| dice.once_in(2));
        let epoch = epoch_ms.map_or(String::new(), |epoch_ms| format!(" EPOCH {epoch_ms}"));
        let options = epoch + &node.map_or(String::new(), |node| format!(" NODE {node}"));
        Shape { options, snowflake: Some((epoch_ms.unwrap_or(EPOCH_MS), node)) }
    }

    fn step(&self) -> i64 {
        if self.snowflake.is_some_and(|(_, node)| node.is_some()) { 1_024 } else { 1 }
    }

    /// The next IDs: the first valid number, and its successors.
    fn next(&self, given: &[i64], count: usize, now_ms: i64) -> Vec<i64> {
        let free = given.last().map_or(1, |last| last + 1);
        let Some((epoch_ms, node)) = self.snowflake else { return (free..).take(count).collect() };
        let since_ms = now_ms - epoch_ms;
        let fits = |id: &i64| node.is_none_or(|node| id % 1_024 == node);
        let first = (free.max(since_ms * (1 << 22))..).find(fits).expect("there is one soon");
        (first..).step_by(self.step() as usize).take(count).collect()
    }

    /// How far the time of the last ID is ahead of the clock.
    fn ahead_ms(&self, last: i64, now_ms: i64) -> i64 {
        self.snowflake.map_or(0, |(epoch_ms, _)| (last / (1 << 22) + epoch_ms - now_ms).max(0))
    }
}

fn number(value: &Value) -> i64 {
    match value {
        Value::Integer(number) => *number,
        text => {
            std::str::from_utf8(text.bytes().unwrap_or_default()).ok().and_then(|text| text.parse().ok()).unwrap_or(-1)
        }
    }
}

/// First and last ID, the step between two, and how far they are ahead of the clock.
fn read(reply: &[u8]) -> Result<[i64; 4], String> {
    let reply = decode(reply, false)?.ok_or("no whole reply")?.0;
    match &reply {
        Value::Array(fields) if fields.len() == 9 && fields[0] == Value::Integer(1) => {
            Ok([2, 4, 6, 8].map(|at| number(&fields[at])))
        }
        _ => Err(format!("{reply:?}")),
    }
}

#[test]
fn ids_behave_like_the_model() {
    run("IDs", 100, ["kills", "IDs ahead of the clock", "calls that were taken back"], |seed| {
        let (mut ahead, mut taken_back) = (0, 0);
        let dice = &mut Dice(seed);
        let mut bench = Bench::new(1);
        let mut log = Log::of(&mut bench, Told::Everything);
        let shapes: Vec<Shape> = (0..2).map(|_| Shape::some(dice)).collect();
        let mut given = [Vec::new(), Vec::new()];
        for _ in 0..LENGTH {
            match dice.below(12) {
                0 => bench.set_clock(-(dice.below(3_000) as i64)),
                1 => log.kill(&mut bench)?,
                2..6 => bench.pass(*dice.pick(&[1, 1, 40, 2_000])),
                _ => {
                    let at = dice.below(2);
                    let most = if dice.once_in(8) { 6_000 } else { 4 };
                    let count = 1 + dice.below(most);
                    let (shape, given) = (&shapes[at], &mut given[at]);
                    let line = format!("ID.NEXT ids:{at} COUNT {count}{}", shape.options);
                    let args = split_line(&line).expect("plain words");
                    if dice.once_in(6) {
                        // IDs issued to a failed script are issued again.
                        bench.call(0, &script("fail", &[args]));
                        taken_back += 1;
                    } else {
                        let from_script = || words(&["EVAL", "return redis.call(unpack(ARGV))", "0"]);
                        let args: Args = if dice.once_in(4) { [from_script(), args].concat() } else { args };
                        let now_ms = bench.clock.now_ms();
                        let wanted = shape.next(given, count, now_ms);
                        let (first, last) = (wanted[0], wanted[count - 1]);
                        let wanted_reply = [first, last, shape.step(), shape.ahead_ms(last, now_ms)];
                        let got = read(&bench.call(0, &args)).map_err(|told| format!("{line}: {told}"))?;
                        if got != wanted_reply {
                            return Err(format!("{line} at {now_ms}: wanted {wanted_reply:?}, got {got:?}"));
                        }
                        ahead += u64::from(got[3] > 0);
                        given.extend(wanted);
                    }
                }
            }
            log.follow(&mut bench)?;
        }
        match given.iter().find(|given| !given.is_sorted_by(|one, next| one < next)) {
            Some(given) => Err(format!("not in order: {given:?}")),
            None => Ok([log.kills, ahead, taken_back]),
        }
    });
}
