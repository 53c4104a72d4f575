//! Reading requests and writing replies, on one core, without a socket: `cargo bench --bench decode`.
//!
//! The numbers to hold: decoding a GET from a pipeline takes about 8 ns (a general RESP crate takes 50 to 120).

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use tidegate::resp::reply::{Form, Reply};
use tidegate::resp::request::{Argv, Decoder, RequestLimits};

const LIMITS: RequestLimits = RequestLimits { bulk_bytes: 512 << 20, unauthenticated: false };

fn decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode");
    let pipelines = [
        ("GET x16", "*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000042\r\n".repeat(16), 16),
        ("SET x16", "*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000042\r\n$3\r\nxxx\r\n".repeat(16), 16),
        ("inline GET x16", "GET key:000000000042\r\n".repeat(16), 16),
        ("MSET of 100 keys", mset(100), 1),
    ];
    for (name, pipeline, commands) in &pipelines {
        group.throughput(Throughput::Elements(*commands));
        let mut decoder = Decoder::new();
        group
            .bench_function(*name, |b| b.iter(|| assert_eq!(decode_all(&mut decoder, pipeline.as_bytes()), *commands)));
    }
    group.finish();
}

/// Decodes a whole read, as the engine does. Returns the number of commands.
fn decode_all(decoder: &mut Decoder, input: &[u8]) -> u64 {
    let (mut commands, mut spans) = (0, Vec::new());
    let input = black_box(input);
    loop {
        if decoder.decode_short(input, &LIMITS, &mut spans) {
            black_box(Argv::new(input, &spans).get(0));
            spans.clear();
        } else if decoder.decode(input, &LIMITS).expect("the input is well formed") {
            black_box(decoder.argv(input).get(0));
        } else {
            break;
        }
        commands += 1;
    }
    decoder.rebase();
    commands
}

fn mset(pairs: usize) -> String {
    let args: String = (0..pairs).map(|i| format!("$7\r\nkey:{i:03}\r\n$5\r\nvalue\r\n")).collect();
    format!("*{}\r\n$4\r\nMSET\r\n{args}", 1 + 2 * pairs)
}

fn encode(c: &mut Criterion) {
    let mut group = c.benchmark_group("encode");
    group.throughput(Throughput::Elements(16));
    let mut reply = Reply::new(Form::Resp2);
    let mut sixteen = |name: &str, write: fn(&mut Reply)| {
        group.bench_function(name, |b| {
            b.iter(|| {
                reply.truncate(0);
                (0..16).for_each(|_| write(&mut reply));
                black_box(reply.as_bytes().len())
            })
        });
    };
    sixteen("OK x16", |reply| reply.ok());
    sixteen("bulk x16", |reply| reply.bulk(black_box(b"value-of-the-key")));
    sixteen("integer x16", |reply| reply.integer(black_box(123_456)));
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    decode(&mut criterion);
    encode(&mut criterion);
    criterion.final_summary();
}
