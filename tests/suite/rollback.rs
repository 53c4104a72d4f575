//! All or nothing: after a failed script the keyspace is as if it had never run.
//!
//! Random calls of every command that the table declares, over few keys of all types. Some run directly, so that there
//! is data to change; the others run inside a script that ends in an error. The engine runs in this process, so that
//! state invisible to clients is compared, too: counters, effects, the order and form of each value.
//!
//! The generator's sequences keep values small. So there is a second world: keys that hold few or many elements, which
//! long scripts change while deadlines run out and thresholds move.
//!
//! `SUITE_SEED` and `SUITE_ROUNDS` choose other scripts, and how many.

use crate::differential::generate::{self, Dice};
use crate::differential::script::{Args, show};
use crate::differential::search::env_number;
use crate::differential::{Version, declared};
use crate::in_process::{Bench, Told, perhaps_once, script, words};

/// An engine with a client, and another client that monitors, so that effects are recorded.
fn watched() -> Bench {
    let mut bench = Bench::new(2);
    bench.call(1, &words(&["WATCH", "some key"]));
    bench
}

/// The whole state, as text.
fn state(bench: &Bench) -> String {
    let ks = &bench.engine.ks;
    let (expired, expired_elements) = (ks.stats.expired, ks.stats.expired_elements);
    let changes = ks.changes_by_commands();
    format!("{changes} changes, expired: {expired}, {expired_elements}\n{}", bench.state(Told::Everything))
}

/// Bytes of all entries.
fn bytes(bench: &Bench) -> usize {
    let ks = &bench.engine.ks;
    (0..ks.databases()).flat_map(|db| ks.entries(db)).map(|entry| entry.mem_bytes(0)).sum()
}

#[test]
fn a_script_that_fails_leaves_nothing() {
    let rounds = env_number("SUITE_ROUNDS").unwrap_or(3_000);
    let first = env_number("SUITE_SEED").unwrap_or(1);
    let commands = declared::all_commands();
    let (mut failed, mut changed) = (0, 0);
    let mut seed = first;
    let mut bench = watched();
    while failed < rounds {
        let dice = &mut Dice(seed);
        let calls = generate::sequence(Version::Seven, &commands, dice);
        let calls: Vec<Args> = calls.into_iter().map(|call| perhaps_once(call, dice)).collect();
        bench.call(0, &words(&["FLUSHALL"]));
        let (thresholds, mut rest) = calls.split_first().expect("a sequence begins with thresholds");
        assert_eq!(bench.call(0, thresholds), b"+OK\r\n");
        while !rest.is_empty() && failed < rounds {
            let (now, later) = rest.split_at(rest.len().min(1 + dice.below(12)));
            rest = later;
            let (before, bytes_before) = (state(&bench), bytes(&bench));
            let reply = bench.call(0, &script(if dice.once_in(2) { "fail" } else { "command" }, now));
            assert!(reply.starts_with(b"-"), "it fails: {}", reply.escape_ascii());
            let after = state(&bench);
            assert_eq!(before, after, "seed {seed}: {}", shown(now));
            // A value that was changed in pieces may have kept spare capacity.
            let bytes = bytes(&bench);
            assert!(bytes <= bytes_before * 2 + 512, "seed {seed}: {bytes_before} then {bytes}: {}", shown(now));
            assert!(bench.engine.ks.effects().is_empty(), "seed {seed}: {}", shown(now));
            failed += 1;
            // The calls run again and succeed: the next round starts from their results.
            let reply = bench.call(0, &script("succeed", now));
            assert_eq!(reply, b"$4\r\ndone\r\n", "seed {seed}: {}", shown(now));
            changed += u64::from(state(&bench) != before);
        }
        seed += 1;
    }
    assert!(changed > rounds / 4, "many scripts change something: {changed} of {rounds}");
}

/// Thresholds that values pass in both directions while scripts run.
pub(crate) const THRESHOLDS: [(&str, [&str; 2]); 6] = [
    ("hash-max-listpack-entries", ["8", "40"]),
    ("set-max-listpack-entries", ["8", "40"]),
    ("set-max-intset-entries", ["8", "40"]),
    ("zset-max-listpack-entries", ["8", "40"]),
    ("list-max-listpack-size", ["8", "40"]),
    ("stream-node-max-entries", ["4", "40"]),
];

/// Calls that recreate missing keys of each type: few elements, some and many, under a key each.
pub(crate) const MAKE: &str = "for _, size in ipairs({7, 20, 60}) do \
    local function missing(kind) return redis.call('EXISTS', kind .. size) == 0 end \
    local function fill(kind, call) if missing(kind) then for i = 1, size do call(kind .. size, i) end end end \
    fill('s', function(key, i) redis.call('SETRANGE', key, i * 9, 'content' .. i) end) \
    fill('l', function(key, i) redis.call('RPUSH', key, 'e' .. i % 20) end) \
    fill('h', function(key, i) redis.call('HSET', key, 'e' .. i, i) end) \
    fill('m', function(key, i) redis.call('SADD', key, 'e' .. i) end) \
    fill('p', function(key, i) redis.call('PFADD', key, i) end) \
    fill('z', function(key, i) redis.call('ZADD', key, i % 20, 'e' .. i) end) \
    local x = 'x' .. size \
    if missing('x') then \
        for i = 1, 3 do redis.call('XGROUP', 'CREATE', x, 'g' .. i, 0, 'MKSTREAM') end \
        redis.call('XCFGSET', x, 'IDMP-DURATION', 1, 'IDMP-MAXSIZE', 50) \
        for i = 1, size do redis.call('XADD', x, i .. '-1', 'f', i) end \
        for i = 1, 9 do redis.call('XADD', x, 'IDMP', 'p' .. i % 3, i, '*', 'f', i) end \
        for i = 1, 9 do redis.call('XREADGROUP', 'GROUP', 'g' .. i % 3 + 1, 'c' .. math.ceil(i / 3), \
            'COUNT', i, 'STREAMS', x, '>') end \
        for i = 2, size, 5 do redis.call('XDEL', x, i .. '-1') end \
    end \
end";

/// Calls of the second world. `S`, `P`, `L`, `H`, `M`, `Z`, `X`: a key of that type; `K`: of any; `e`: an element; `n`,
/// `N`: a small and a larger number; `i`: an id; `g`, `c`: a group, a consumer; `t`: a time that comes soon or later;
/// `v`: some text.
const CALLS: &str = "SET S v|APPEND S v|SETRANGE S n v|SETBIT S n 1|INCR S|GETDEL S|SET S n KEEPTTL|GETEX S PXAT t\
    |BITOP NOT S S\
    |PFADD P e|PFADD P v e|PFMERGE P P|LPUSH L e|RPUSH L e e|LPOP L|RPOP L n|LSET L n e|LSET L 5000 e\
    |LINSERT L AFTER e v|LREM L n e|LREM L -n e|LTRIM L n -1|LTRIM L 0 N\
    |LMOVE L L LEFT RIGHT|LMOVE L L RIGHT RIGHT|LMOVE L L RIGHT LEFT|LMOVE L L LEFT LEFT|SORT L ALPHA STORE L\
    |HSET H e v|HSET H e n e v|HDEL H e|HINCRBY H e n|HINCRBYFLOAT H e 0.5|HPEXPIREAT H t FIELDS 3 e e e\
    |HPERSIST H FIELDS 1 e|HGETDEL H FIELDS 1 e\
    |HGETEX H PXAT t FIELDS 1 e|HSETEX H KEEPTTL FIELDS 2 e v e v|HSETEX H PXAT t FIELDS 1 e v\
    |SADD M e|SADD M e e n n e e n n e e|SADD M n|SREM M e|SPOP M|SPOP M N|SMOVE M M e|SUNIONSTORE M M M\
    |SDIFFSTORE M M M|SPEXPIREAT M t MEMBERS 3 e e e\
    |SPERSIST M MEMBERS 1 e\
    |ZADD Z n e|ZADD Z n e n v|ZREM Z e|ZINCRBY Z n e|ZPOPMIN Z n|ZPOPMAX Z|ZREMRANGEBYRANK Z n n\
    |ZREMRANGEBYSCORE Z n n\
    |ZUNIONSTORE Z 2 Z Z|ZRANGESTORE Z Z 0 n\
    |XADD X * f v|XADD X IDMP p1 v * f v|XADD X IDMPAUTO p2 * f v|XADD X MAXLEN N * f v|XDEL X i|XDEL X i i\
    |XTRIM X MAXLEN N\
    |XTRIM X MINID i|XSETID X 9999999999999-n|XCFGSET X IDMP-MAXSIZE n|XGROUP CREATE X g 0|XGROUP CREATE X v 0\
    |XGROUP DESTROY X g\
    |XGROUP SETID X g i|XGROUP CREATECONSUMER X g v|XGROUP DELCONSUMER X g c|XREADGROUP GROUP g c COUNT N STREAMS X >\
    |XREADGROUP GROUP g v COUNT n NOACK STREAMS X >|XACK X g i|XCLAIM X g c 0 i|XAUTOCLAIM X g c 0 i\
    |XNACK X g SILENT IDS 3 i i i\
    |XDELEX X ACKED IDS 1 i|XACKDEL X g DELREF IDS 1 i\
    |DEL K|RENAME K K|COPY K K REPLACE|MOVE K 1|PEXPIREAT K t|PERSIST K|SWAPDB 0 1|FLUSHDB|SELECT 1|SELECT 0|TYPE K\
    |EXISTS K";

/// One call of [`CALLS`].
pub(crate) fn large_call(dice: &mut Dice, now_ms: i64) -> Args {
    let calls: Vec<&str> = CALLS.split('|').collect();
    // Databases are swapped or emptied rarely, since that undoes much of the others' work.
    let template = loop {
        let call = *dice.pick(&calls);
        if !["SWAPDB", "FLUSHDB", "SELECT"].contains(&call.split(' ').next().unwrap_or_default()) || dice.once_in(8) {
            break call;
        }
    };
    let fill = |word: &str| {
        let size = dice.pick(&[7, 20, 60]);
        match word {
            "S" | "P" | "L" | "H" | "M" | "Z" | "X" => format!("{}{size}", word.to_lowercase()),
            "K" => format!("{}{size}", dice.pick(&["s", "p", "l", "h", "m", "z", "x", "other"])),
            "e" => format!("e{}", dice.below(64)),
            "n" => dice.below(12).to_string(),
            "N" => dice.below(90).to_string(),
            "-n" => format!("-{}", dice.below(12)),
            "9999999999999-n" => format!("9999999999999-{}", dice.below(12)),
            "i" => format!("{}-1", dice.below(64)),
            "g" => format!("g{}", 1 + dice.below(3)),
            "c" => format!("c{}", 1 + dice.below(3)),
            "t" => (now_ms + if dice.once_in(2) { 20 + dice.below(20) as i64 } else { 1_000_000 }).to_string(),
            "v" => "v".repeat(*dice.pick(&[1, 2, 7, 19, 19, 40, 300])),
            word => word.to_owned(),
        }
    };
    template.split(' ').map(fill).map(String::into_bytes).collect()
}

#[test]
fn a_long_script_that_fails_leaves_large_values_unchanged() {
    let rounds = env_number("SUITE_ROUNDS").map_or(500, |rounds| rounds / 6);
    let first = env_number("SUITE_SEED").unwrap_or(1);
    let mut bench = watched();
    for seed in first..first + rounds {
        let dice = &mut Dice(seed);
        if dice.once_in(20) {
            bench.call(0, &words(&["FLUSHALL"]));
        }
        assert_eq!(bench.call(0, &words(&["EVAL", MAKE, "0"])), b"$-1\r\n", "seed {seed}");
        for (name, values) in THRESHOLDS {
            bench.call(0, &words(&["CONFIG", "SET", name, values[dice.below(2)]]));
        }
        // The script is the first to find the keys that have expired by now.
        let most_ms = if dice.once_in(10) { 2_000 } else { 60 };
        bench.clock.advance_ms(dice.below(most_ms) as i64);
        bench.call(0, &words(&["TIME"]));
        let now_ms = bench.clock.now_ms();
        let calls: Vec<Args> = (0..1 + dice.below(200)).map(|_| large_call(dice, now_ms)).collect();
        let before = state(&bench);
        let reply = bench.call(0, &script("fail", &calls));
        assert!(reply.starts_with(b"-") && !reply.starts_with(b"-ERR Script"), "{}", reply.escape_ascii());
        let after = state(&bench);
        if before != after {
            let differs = before.lines().zip(after.lines()).find(|(before, after)| before != after);
            panic!("seed {seed}: {differs:#?}: {}", shown(&calls));
        }
        assert!(bench.engine.ks.effects().is_empty() && bench.engine.ks.undo_bytes() == 0, "seed {seed}");
        // The next round starts from the results of a few of them.
        assert_eq!(bench.call(0, &script("succeed", &calls[..calls.len().min(12)])), b"$4\r\ndone\r\n", "seed {seed}");
    }
}

fn shown(calls: &[Args]) -> String {
    calls.iter().map(show).collect::<Vec<_>>().join("\n")
}
