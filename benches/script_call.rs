//! One call of a script, on one core, without a socket: `cargo bench --bench script_call`.
//!
//! The engine is a stub that answers at once, so only the cost of Lua and of the path through it is measured. The
//! number to hold: a grant of the concurrency gate (three commands) below 700 ns.

use std::hint::black_box;

use criterion::Criterion;
use tidegate::resp::reply::{Form, Reply};
use tidegate::resp::request::{Argv, OwnedArgv};
use tidegate::script::{Host, Invocation, LogLevel, Passing, ServerVersion, Verdict, Vm};

/// A stub that answers GET with 7 and everything else with 8.
struct Instant;

impl Host for Instant {
    fn call(&mut self, argv: Argv<'_>, reply: &mut Reply) {
        match argv[0].first() {
            Some(b'g' | b'G') => reply.bulk(b"7"),
            _ => reply.integer(8),
        }
    }

    fn interrupted(&mut self) -> Verdict {
        Verdict::Continue
    }

    fn log(&mut self, _level: LogLevel, _message: &[u8]) {}

    fn set_resp(&mut self, _version: u8) {}
}

/// A gate as its users write it.
const GATE: &str = "local count = redis.call('get', KEYS[1]); \
    if not count or tonumber(count) < tonumber(ARGV[1]) then \
    count = redis.call('incr', KEYS[1]); redis.call('EXPIRE', KEYS[1], 300); end; return tonumber(count)";

/// A flash sale that queues the order.
const SECKILL: &str = "local stock, orders = 'seckill:stock:' .. ARGV[1], 'seckill:order:' .. ARGV[1]
    local n = tonumber(redis.call('get', stock))
    if n == nil or n <= 0 then return 1 end
    if redis.call('sismember', orders, ARGV[2]) == 1 then return 2 end
    redis.call('incrby', stock, -1)
    redis.call('sadd', orders, ARGV[2])
    redis.call('xadd', 'stream.orders', '*', 'userId', ARGV[2], 'voucherId', ARGV[1], 'id', ARGV[3])
    return 0";

const SCRIPTS: [(&str, &str); 5] = [
    ("empty", "return 1"),
    ("one call", "return redis.call('get', KEYS[1])"),
    ("gate", GATE),
    ("seckill", SECKILL),
    ("loop of 1000", "local n = 0 for i = 1, 1000 do n = n + i end return n"),
];

fn scripts(c: &mut Criterion) {
    let mut group = c.benchmark_group("script");
    let mut vm = Vm::new(ServerVersion { text: "7.0.15", number: 0x0007_000f }, 1).expect("a fresh state");
    let (mut keys, mut args) = (OwnedArgv::default(), OwnedArgv::default());
    keys.push(b"gate:printer");
    [b"60".as_slice(), b"1042", b"90071992547"].into_iter().for_each(|arg| args.push(arg));
    let mut reply = Reply::new(Form::Resp2);
    for (name, script) in SCRIPTS {
        let program = vm.compile(script.as_bytes()).expect("the script is well formed");
        group.bench_function(name, |b| {
            b.iter(|| {
                reply.truncate(0);
                let (keys, args) = (keys.as_argv(), args.as_argv());
                let invocation = Invocation { program, passing: Passing::Globals, name: b"", keys, args };
                vm.run(black_box(invocation), &mut Instant, &mut reply);
                black_box(reply.len())
            })
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    scripts(&mut criterion);
    criterion.final_summary();
}
