//! The keyspace alone, on one core, without commands or a socket: `cargo bench --bench keyspace`.
//!
//! Each operation is measured with a thousand keys, which lie in the processor's cache, and with a million, which do
//! not. The difference is memory latency, which pipelines hide by [`warm`](Keyspace::warm). Keys are visited in an
//! order that no prefetcher guesses.

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use tidegate::base::rng::Rng;
use tidegate::config::Config;
use tidegate::keyspace::any_value::ValueRef;
use tidegate::keyspace::effect::Recording;
use tidegate::keyspace::{Keyspace, ValueLimits};

const SIZES: [usize; 2] = [1_000, 1_000_000];

/// How many keys one slice of active expiry removes here.
const EXPIRING: usize = 1_000;

/// Keys requested by one step of a scan.
const SCAN_COUNT: usize = 10;

const NOW_MS: i64 = 1_700_000_000_000;

fn empty() -> Keyspace {
    let mut ks = Keyspace::new(1, Rng::seeded(1));
    ks.set_limits(ValueLimits::from(&Config::default()));
    ks.begin_unit(NOW_MS, Recording::Nothing);
    ks
}

/// A keyspace of `size` keys, each with a counter.
fn filled(size: usize) -> Keyspace {
    let mut ks = empty();
    for i in 0..size {
        ks.put(0, key(i).as_bytes(), b"1000");
    }
    ks
}

fn key(i: usize) -> String {
    format!("key:{i:012}")
}

/// Names of existing keys in a scattered order.
struct Visits {
    keys: Vec<String>,
    next: usize,
}

impl Visits {
    fn of(size: usize) -> Visits {
        let mut rng = Rng::seeded(2);
        Visits { keys: (0..1 << 16).map(|_| key(rng.below(size as u64) as usize)).collect(), next: 0 }
    }

    fn next(&mut self) -> &[u8] {
        self.next = (self.next + 1) % self.keys.len();
        self.keys[self.next].as_bytes()
    }
}

fn single_keys(c: &mut Criterion) {
    let mut group = c.benchmark_group("keyspace");
    for size in SIZES {
        let (mut ks, mut visits) = (filled(size), Visits::of(size));
        group.bench_function(BenchmarkId::new("find", size), |b| b.iter(|| black_box(ks.find(0, visits.next()))));
        group.bench_function(BenchmarkId::new("find a missing key", size), |b| {
            b.iter(|| black_box(ks.find(0, black_box(b"no such key"))))
        });
        group.bench_function(BenchmarkId::new("incr", size), |b| {
            b.iter(|| {
                let key = visits.next();
                let slot = ks.find(0, key).expect("it visits keys that exist");
                let ValueRef::String(text) = ks.value(0, slot) else { panic!("all are strings") };
                let number = text.as_i64().expect("all are numbers");
                _ = ks.put_integer(0, key, Some(slot), number + 1);
            })
        });
        group.bench_function(BenchmarkId::new("put", size), |b| {
            b.iter(|| black_box(ks.put(0, visits.next(), black_box(b"value-of-the-key"))))
        });
        group.bench_function(BenchmarkId::new("put and remove", size), |b| {
            b.iter(|| {
                let slot = ks.put(0, black_box(b"a new key"), b"value-of-the-key");
                ks.remove(0, slot);
            })
        });
        let mut at_ms = NOW_MS + 1_000_000;
        group.bench_function(BenchmarkId::new("find and set the expiry", size), |b| {
            b.iter(|| {
                at_ms += 1;
                let slot = ks.find(0, visits.next()).expect("it visits keys that exist");
                _ = ks.expire_at(0, slot, at_ms);
            })
        });
    }
    group.finish();
}

fn expiry(c: &mut Criterion) {
    let mut group = c.benchmark_group("keyspace");
    group.throughput(Throughput::Elements(EXPIRING as u64));
    let due = || {
        let mut ks = empty();
        for i in 0..EXPIRING {
            let slot = ks.put(0, key(i).as_bytes(), b"value");
            _ = ks.expire_at(0, slot, NOW_MS + i as i64);
        }
        ks.begin_unit(NOW_MS + EXPIRING as i64, Recording::Nothing);
        ks
    };
    group.bench_function(format!("expire {EXPIRING} keys"), |b| {
        b.iter_batched_ref(
            due,
            |ks| {
                while ks.reclaim_expired(EXPIRING) {}
                assert!(ks.db(0).is_empty());
            },
            BatchSize::SmallInput,
        )
    });
    group.finish();
}

fn scan(c: &mut Criterion) {
    let mut group = c.benchmark_group("keyspace");
    for size in SIZES {
        let mut ks = filled(size);
        let mut cursor = 0;
        group.bench_function(BenchmarkId::new(format!("scan step of {SCAN_COUNT}"), size), |b| {
            b.iter(|| {
                cursor = ks.scan(0, cursor, SCAN_COUNT, |entry| {
                    black_box(entry.key());
                })
            })
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    single_keys(&mut criterion);
    expiry(&mut criterion);
    scan(&mut criterion);
    criterion.final_summary();
}
