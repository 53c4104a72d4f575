//! Random histories of a stock beside its [model](super::model).
//!
//! The engine runs in this process, with a clock that is moved by hand. In a history orders reserve, are sold,
//! cancelled or abandoned; committing twice, and cancelling a sold order, is frequent. Some calls run in a script that
//! fails. After each step every reply, all amounts, the holds and the stream's entries must equal the model's, and so
//! must the state that the journal restores; see [`histories`](crate::histories).

use super::model::Model;
use crate::coordination::call;
use crate::differential::generate::Dice;
use crate::differential::script::split_line;
use crate::histories::{Log, run};
use crate::in_process::{Bench, Told, script};

/// Number of steps in a history.
const LENGTH: i64 = 150;
const SUBJECTS: [&str; 4] = ["ann", "bob", "cat", "dan"];

/// The stream's entries after this one, one per line. `last` becomes the id of the last one.
fn reports(bench: &mut Bench, key: &str, last: &mut String) -> Vec<String> {
    let mut lines = Vec::new();
    let from = if last.is_empty() { "-".to_owned() } else { format!("({last}") };
    let reply = call(bench, 0, &format!("XRANGE {key}:told {from} +"));
    let mut ids = reply.split(' ').filter(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('-'));
    if let Some(id) = ids.next_back() {
        *last = id.to_owned();
    }
    for entry in reply.split("event ").skip(1) {
        let words: Vec<&str> = entry.split(' ').collect();
        let after = |name| words.iter().position(|word| *word == name).map(|at| words[at + 1]);
        let subject = after("subject").filter(|subject| *subject != "token");
        let [order, units] = ["order", "units"].map(|name| after(name).unwrap_or_else(|| panic!("{entry}")));
        lines.push(format!("{} {order} {units} {}", words[0], subject.unwrap_or("")).trim_end().to_owned());
    }
    lines
}

/// One history. Fails with the differences.
fn history(seed: u64, log: &mut Log, bench: &mut Bench) -> Result<(), String> {
    let dice = &mut Dice(seed);
    let key = format!("stock:{seed}");
    let mut trace: Vec<String> = Vec::new();
    let has_stream = dice.once_in(2);
    let total = 5 + dice.below(20) as u64;
    if has_stream {
        call(bench, 0, &format!("STOCK.SET {key} {total} STREAM {key}:told"));
    } else {
        call(bench, 0, &format!("STOCK.SET {key} {total}"));
    }
    let mut model = Model::new(bench.engine.ks.now_ms(), total, has_stream);
    let (mut lines, mut last) = (Vec::new(), String::new());
    for number in 0..LENGTH {
        // Few orders at a time, so that most come again; older ones do as well.
        let order = format!("o{}", number / 12 + dice.below(8) as i64 - if dice.once_in(9) { 5 } else { 0 });
        let units = 1 + order.len() as u64 % 2 + if dice.once_in(30) { 1 } else { 0 };
        let lease_ms = 1_000 * (1 + dice.below(12) as i64);
        if dice.once_in(40) {
            trace.push("the server is killed".to_owned());
            log.kill(bench).map_err(|told| format!("{}\n{told}", trace.join("\n")))?;
        }
        let before = model.clone();
        let token = bench.engine.ks.next_token().expect("there are tokens");
        let (line, wanted) = match dice.below(24) {
            0..8 => {
                let per = Some((*dice.pick(&SUBJECTS), 2 + dice.below(3) as u64)).filter(|_| !dice.once_in(3));
                let option = per.map_or(String::new(), |(subject, max)| format!(" PER {subject} {max}"));
                let line = format!("STOCK.RESERVE {key} {order} UNITS {units} PX {lease_ms}{option}");
                (line, model.reserve(&order, units, lease_ms, per, token))
            }
            8..14 => (format!("STOCK.COMMIT {key} {order}"), model.commit(&order)),
            14..18 => (format!("STOCK.CANCEL {key} {order}"), model.cancel(&order)),
            18 => {
                let (id, units) = (format!("r{}", dice.below(6)), 2 + u64::from(dice.once_in(9)));
                (format!("STOCK.ADD {key} {id} {units}"), model.add(&id, units))
            }
            19 => {
                let total = dice.below(60) as u64;
                let mut line = format!("STOCK.SET {key} {total}");
                match dice.below(4) {
                    0 => {
                        let (low, refill_ms) = (dice.below(6) as u64, 2_000);
                        model.low = Some((low, refill_ms));
                        line += &format!(" LOW {low} {refill_ms}");
                    }
                    1 => {
                        (model.low, model.refiller) = (None, None);
                        line += " NOLOW";
                    }
                    2 => {
                        model.period_ms = 4_000 * dice.below(3) as i64;
                        line += &format!(" PERIOD {}", model.period_ms);
                    }
                    _ => {}
                }
                (line, model.set(total))
            }
            20 if dice.once_in(3) => {
                // A clock that is set back prolongs leases, except those that have ended.
                bench.reclaim();
                let by_ms = dice.below(3) as i64 * 1_500 - 1_500;
                bench.set_clock(by_ms);
                model.now_ms += by_ms;
                model.end_leases();
                trace.push(format!("the clock is set by {by_ms} ms"));
                continue;
            }
            _ => {
                let ms = [300, 1_000, 2_500][dice.below(3)];
                bench.pass(ms);
                model.now_ms += ms;
                model.end_leases();
                if dice.once_in(2) {
                    bench.reclaim();
                }
                trace.push(format!("{ms} ms pass"));
                continue;
            }
        };
        trace.push(line.clone());
        let failed = |what: String, trace: &[String]| format!("{}\n{what}", trace.join("\n"));
        if dice.once_in(5) {
            trace.push("... in a script that fails".to_owned());
            let args = split_line(&line).expect("plain words");
            bench.call(0, &script(if dice.once_in(2) { "fail" } else { "command" }, &[args]));
            model = before;
        } else {
            let reply = call(bench, 0, &line);
            let fits = if wanted == "-ERR" { reply.starts_with("-ERR ") } else { reply == wanted };
            if !fits {
                return Err(failed(format!("wanted {wanted}\ngot    {reply}"), &trace));
            }
        }
        let info = call(bench, 0, &format!("STOCK.INFO {key} PER ann"));
        let wanted = format!(
            "1 available {} held {} sold {} total {} holds {} buyers {} ",
            model.available(),
            model.held(),
            model.sold,
            model.total,
            model.holds.len(),
            model.bought.len()
        );
        let ending = format!("subject-held {} subject-bought {}", model.held_for("ann"), model.bought_by("ann"));
        if !info.starts_with(&wanted) || !info.ends_with(&ending) {
            return Err(failed(format!("wanted {wanted}... {ending}\ngot    {info}"), &trace));
        }
        let holds = call(bench, 0, &format!("STOCK.HOLDS {key} 0"));
        let orders: Vec<&str> = holds.split("order ").skip(1).filter_map(|rest| rest.split(' ').next()).collect();
        if !orders.iter().eq(model.holds.iter().map(|hold| &hold.order)) {
            return Err(failed(format!("held by {:?}, but told {holds}", model.holds), &trace));
        }
        // Everything now and then; in between only new entries, and their number.
        if number % 20 == 0 || number + 1 == LENGTH {
            (lines, last) = (Vec::new(), String::new());
        }
        lines.extend(reports(bench, &key, &mut last));
        let len = call(bench, 0, &format!("XLEN {key}:told"));
        if lines != model.reports || len != lines.len().to_string() {
            return Err(failed(format!("the stream has {len}: {lines:?}\ninstead of {:?}", model.reports), &trace));
        }
        log.follow(bench).map_err(|told| failed(told, &trace))?;
    }
    Ok(())
}

#[test]
fn stocks_behave_like_the_model() {
    run("stocks", 100, ["kills"], |seed| {
        let mut bench = Bench::new(1);
        let mut log = Log::of(&mut bench, Told::Everything);
        history(seed, &mut log, &mut bench)?;
        Ok([log.kills])
    });
}
