//! Instructions that one operation takes, counted by callgrind: `.ci/instructions` runs this, nobody else needs to.
//!
//! Time varies with the machine, the number of instructions hardly does; so a change that makes the hot path longer shows
//! in CI, where times are worthless. Each case runs in a process of its own under callgrind, once with N operations and
//! once with 2N: the difference, divided by N, is free of what setting up costs.
//!
//! `instructions CASE COUNT` runs a case; without arguments the names are listed.

use std::hint::black_box;

use tidegate::resp::request::{Decoder, RequestLimits};

/// A named workload: sets up, then runs its operation so many times.
type Case = (&'static str, fn(count: u64));

const CASES: &[Case] = &[("calibration", calibration), ("decode GET", decode_get), ("decode SET", decode_set)];

fn main() {
    // `cargo bench` itself passes --bench: then there is nothing to count, and the list does no harm.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let [name, count] = args.as_slice() else {
        CASES.iter().for_each(|(name, _)| println!("{name}"));
        return;
    };
    let (_, run) = CASES.iter().find(|(case, _)| case == name).unwrap_or_else(|| panic!("no case is called {name}"));
    run(count.parse().expect("the number of operations"));
}

/// Formatting a number: code of the standard library alone. It moves only when the toolchain does, and then says that a
/// shift of the other cases may have the same reason.
fn calibration(count: u64) {
    for i in 0..count {
        black_box(black_box(i % 1000 + 1000).to_string());
    }
}

fn decode_get(count: u64) {
    decode("*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000042\r\n", count);
}

fn decode_set(count: u64) {
    decode("*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000042\r\n$3\r\nxxx\r\n", count);
}

/// One operation is one request of a pipeline of 16, as a connection sees it.
fn decode(request: &str, count: u64) {
    const LIMITS: RequestLimits = RequestLimits { bulk_bytes: 512 << 20, unauthenticated: false };
    let pipeline = request.repeat(16);
    let mut decoder = Decoder::new();
    for _ in 0..count / 16 {
        while decoder.decode(black_box(pipeline.as_bytes()), &LIMITS).expect("the input is well formed") {
            black_box(decoder.argv(pipeline.as_bytes()).get(0));
        }
        decoder.rebase();
    }
}
