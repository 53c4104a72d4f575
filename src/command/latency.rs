//! LATENCY: the time that commands take, and events that delayed others.
//!
//! HISTOGRAM covers all calls. Its counts are derived from the stored ones, whose bins are quarters of powers of two in
//! ticks. The other subcommands show [events](crate::meters::latency) that took `latency-monitor-threshold` or
//! longer. The drawing of GRAPH and the advice of DOCTOR are our own.

use std::fmt::Write;

use super::help::help;
use crate::base::histogram::Histogram;
use crate::engine::{Command, Ctx, Done, Entry, Run};
use crate::meters::latency::{Event, Series};
use crate::meters::stats::Stats;
use crate::spec::args::Args;
use crate::spec::error::{Error, excerpt};
use crate::spec::{Flags, Group};

/// Columns of a graph, which is the number of samples drawn.
const GRAPH_COLUMNS: usize = 80;
/// Rows of a graph.
const GRAPH_ROWS: u64 = 4;

fn histogram(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    let table = ctx.server.table;
    let asked: Vec<&Entry> = match args.is_empty() {
        true => table.all().collect(),
        // The name of a container means its subcommands too.
        false => {
            let named = args.rest().iter().filter_map(|name| table.find_full_at_any_port(name));
            named.flat_map(|entry| std::iter::once(entry).chain(&entry.sub)).collect()
        }
    };
    let stats = &ctx.server.meters.stats;
    let found: Vec<(&Entry, &Histogram)> =
        asked.into_iter().filter_map(|entry| Some((entry, stats.latencies(entry.id)?))).collect();
    ctx.reply.map(found.len());
    for (entry, latencies) in found {
        ctx.reply.bulk(entry.full_name.as_bytes());
        ctx.reply.map(2);
        ctx.reply.bulk(b"calls");
        ctx.reply.integer(latencies.total() as i64);
        ctx.reply.bulk(b"histogram_usec");
        let steps = cumulative(latencies, &ctx.server.meters.stats);
        ctx.reply.map(steps.len());
        for (micros, calls) in steps {
            ctx.reply.integer(micros as i64);
            ctx.reply.integer(calls as i64);
        }
    }
    Ok(())
}

/// Returns cumulative counts by powers of two: each latency in us with the number of calls that took at most that long,
/// for the bins where the count grows. The first bin ends at 1,024 ns. As in Redis, a bin is named by the largest value
/// that a two-digit HdrHistogram cannot tell from its end.
fn cumulative(latencies: &Histogram, stats: &Stats) -> Vec<(u64, u64)> {
    let mut steps: Vec<(u64, u64)> = Vec::new();
    let (mut calls, mut limit_ns) = (0, 1_024);
    for (last_ticks, count) in latencies.buckets() {
        let last_ns = stats.nanos(last_ticks);
        calls += count;
        while last_ns > limit_ns && limit_ns < 1 << 62 {
            limit_ns *= 2;
        }
        let micros = (limit_ns + (limit_ns >> 7) - 1) / 1_000;
        match steps.last_mut() {
            Some(last) if last.0 == micros => last.1 = calls,
            _ => steps.push((micros, calls)),
        }
    }
    steps
}

/// Returns, for each of these bounds in ns, the number of calls that took at most that long.
pub(super) fn steps_of(latencies: &Histogram, stats: &Stats, bounds_ns: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut buckets = latencies.buckets().map(|(last_ticks, count)| (stats.nanos(last_ticks), count)).peekable();
    let mut calls = 0;
    let within = bounds_ns.map(|bound_ns| {
        while let Some((_, count)) = buckets.next_if(|(last_ns, _)| *last_ns <= bound_ns) {
            calls += count;
        }
        calls
    });
    within.collect()
}

fn history(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let found = ctx.server.meters.latency.named(args.bytes()?);
    ctx.reply.array(found.map_or(0, |(_, series)| series.samples().len()));
    for sample in found.into_iter().flat_map(|(_, series)| series.samples()) {
        ctx.reply.array(2);
        ctx.reply.integer(sample.at_s);
        ctx.reply.integer(sample.took_ms as i64);
    }
    Ok(())
}

fn latest(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let monitor = &ctx.server.meters.latency;
    ctx.reply.array(monitor.seen().count());
    for (event, series) in monitor.seen() {
        let last = series.samples().next_back();
        ctx.reply.array(4);
        ctx.reply.bulk(event.name().as_bytes());
        ctx.reply.integer(last.map_or(0, |sample| sample.at_s));
        ctx.reply.integer(last.map_or(0, |sample| sample.took_ms as i64));
        ctx.reply.integer(series.max_ms as i64);
    }
    Ok(())
}

fn reset(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    let wanted =
        |name: &str| args.is_empty() || args.rest().iter().any(|arg| arg.eq_ignore_ascii_case(name.as_bytes()));
    let forgotten = ctx.server.meters.latency.reset(wanted);
    ctx.reply.integer(forgotten as i64);
    Ok(())
}

fn graph(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let name = args.bytes()?;
    let Some((event, series)) = ctx.server.meters.latency.named(name) else {
        return Err(Error::owned(format!("ERR No samples available for event '{}'", excerpt(name, 128))));
    };
    let text = draw(event, series, ctx.server.time.clock.now_ms() / 1_000);
    ctx.reply.verbatim(b"txt", text.as_bytes());
    Ok(())
}

/// Draws the newest samples as bars, scaled from the shortest to the longest. The age of each sample is written
/// downward below its bar.
fn draw(event: Event, series: &Series, now_s: i64) -> String {
    let drawn = series.samples().skip(series.samples().len().saturating_sub(GRAPH_COLUMNS));
    let (ages, took): (Vec<String>, Vec<u64>) = drawn.map(|sample| (age(now_s - sample.at_s), sample.took_ms)).unzip();
    let (low, high) = (took.iter().copied().min().unwrap_or(0), took.iter().copied().max().unwrap_or(0));
    let name = event.name();
    let mut text = format!("{name} - high {high} ms, low {low} ms (all time high {} ms)\n", series.max_ms);
    text.extend(std::iter::repeat_n('-', GRAPH_COLUMNS));
    text.push('\n');
    for row in (0..GRAPH_ROWS).rev() {
        let bar = |took_ms: u64| if (took_ms - low) * GRAPH_ROWS > (high - low) * row || row == 0 { '#' } else { ' ' };
        text.push_str(took.iter().map(|took_ms| bar(*took_ms)).collect::<String>().trim_end());
        text.push('\n');
    }
    for row in 0..ages.iter().map(String::len).max().unwrap_or(0) {
        let line: String = ages.iter().map(|age| age.chars().nth(row).unwrap_or(' ')).collect();
        text.push('\n');
        text.push_str(line.trim_end());
    }
    text.push('\n');
    text
}

/// Formats seconds in the largest unit that fits at least once.
fn age(seconds: i64) -> String {
    const UNITS: [(i64, char); 3] = [(86_400, 'd'), (3_600, 'h'), (60, 'm')];
    let (size, unit) = UNITS.into_iter().find(|(size, _)| seconds >= *size).unwrap_or((1, 's'));
    format!("{}{unit}", seconds.max(0) / size)
}

fn doctor(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let text = diagnosis(ctx);
    ctx.reply.verbatim(b"txt", text.as_bytes());
    Ok(())
}

fn diagnosis(ctx: &Ctx<'_>) -> String {
    let (monitor, config) = (&ctx.server.meters.latency, &ctx.server.config);
    let threshold_ms = config.latency_monitor_threshold_ms;
    if monitor.seen().next().is_none() {
        return match threshold_ms {
            0 => "Latency is not monitored. CONFIG SET latency-monitor-threshold MILLISECONDS records every event \
                that takes \
                  at least that long.\n"
                .to_owned(),
            ms => format!("No event has taken {ms} ms or longer since monitoring began or LATENCY RESET was called.\n"),
        };
    }
    let mut text = String::from("Events that delayed other clients:\n\n");
    for (event, series) in monitor.seen() {
        let took: Vec<u64> = series.samples().map(|sample| sample.took_ms).collect();
        let mean_ms = took.iter().sum::<u64>() / took.len().max(1) as u64;
        // Writing to memory cannot fail.
        let _ = writeln!(
            text,
            "- {}: {} samples, {mean_ms} ms on average, at most {} ms.",
            event.name(),
            took.len(),
            series.max_ms
        );
    }
    text.push_str("\nAdvice:\n\n");
    let mut advices: Vec<&str> = monitor.seen().map(|(event, _)| advice(event)).collect();
    advices.dedup();
    if config.slowlog_log_slower_than_us < 0 || config.slowlog_max_len == 0 {
        advices.push("The slow log is off: slowlog-log-slower-than and slowlog-max-len turn it on.");
    } else if config.slowlog_log_slower_than_us as u64 / 1_000 > threshold_ms && threshold_ms > 0 {
        advices.push("The slow log records less than the monitor: lower slowlog-log-slower-than.");
    }
    advices.iter().for_each(|advice| text.extend(["- ", advice, "\n"]));
    text
}

fn advice(event: Event) -> &'static str {
    match event {
        Event::Command | Event::FastCommand | Event::CommandUnblocking => {
            "SLOWLOG GET shows the slowest commands, and SCRIPT SLOW the slowest scripts with their calls. Commands on \
             large values or many keys take longest: SCAN, HSCAN and similar commands work in steps."
        }
        Event::ExpireCycle => "Many keys expire at once: spread their deadlines by adding some random seconds to each.",
        Event::LogWrite | Event::LogSyncAlways | Event::LogSync => {
            "The disk is slow, or other programs use it. INFO persistence shows how far the journal is behind. With \
             appendfsync \
             everysec no client waits for the disk, and a crash of the machine may lose one second of changes."
        }
    }
}

/// Fields that most subcommands of LATENCY share.
const SUB: Command = Command {
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE),
    group: Group::Server,
    since: "2.8.13",
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    ..Command::EMPTY
};

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "latency",
    arity: -2,
    group: Group::Server,
    since: "2.8.13",
    complexity: "Depends on subcommand.",
    summary: "A container for latency commands.",
    sub: &[
        Command {
            name: "doctor",
            arity: 2,
            summary: "Returns a report on the events that delayed others, with advice.",
            run: Run::Now(doctor),
            ..SUB
        },
        Command {
            name: "graph",
            arity: 3,
            summary: "Returns an ASCII graph of the samples of an event.",
            syntax: "event",
            run: Run::Now(graph),
            ..SUB
        },
        Command {
            name: "help",
            arity: 2,
            flags: Flags::LOADING.union(Flags::STALE),
            summary: "Lists the subcommands.",
            tips: &[],
            run: Run::Now(help),
            ..SUB
        },
        Command {
            name: "histogram",
            arity: -2,
            since: "7.0.0",
            complexity: "O(N) where N is the number of commands with latency information being retrieved.",
            summary: "Returns the latency distribution of commands.",
            syntax: "[command...]",
            run: Run::Now(histogram),
            ..SUB
        },
        Command {
            name: "history",
            arity: 3,
            summary: "Returns the samples of an event: Unix time in seconds, and milliseconds.",
            syntax: "event",
            run: Run::Now(history),
            ..SUB
        },
        Command {
            name: "latest",
            arity: 2,
            summary: "Returns the latest and the longest sample of each event.",
            run: Run::Now(latest),
            ..SUB
        },
        Command {
            name: "reset",
            arity: -2,
            summary: "Clears the samples of all events, or of the named ones.",
            syntax: "[event...]",
            tips: &["request_policy:all_nodes", "response_policy:agg_sum"],
            run: Run::Now(reset),
            ..SUB
        },
    ],
    run: Run::Container,
    ..Command::EMPTY
}];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_are_named_as_in_redis() {
        let stats = Stats::new(0);
        let mut latencies = Histogram::default();
        let ticks = |ns: u64| (0..64).map(|power| 1_u64 << power).find(|&ticks| stats.nanos(ticks) >= ns).unwrap_or(0);
        latencies.add(0);
        latencies.add(0);
        latencies.add(ticks(1_000_000));
        let steps = cumulative(&latencies, &stats);
        assert_eq!((steps[0], steps.len(), steps[1].1), ((1, 2), 2, 3));
        assert!([1_056, 2_113, 4_227].contains(&steps[1].0), "{steps:?}");
        for (power, micros) in [(10, 1), (11, 2), (14, 16), (15, 33), (16, 66), (17, 132)] {
            let limit_ns = 1_u64 << power;
            assert_eq!((limit_ns + (limit_ns >> 7) - 1) / 1_000, micros, "2^{power}");
        }
    }

    #[test]
    fn ages_are_shown_in_a_fitting_unit() {
        for (seconds, text) in [(-1, "0s"), (0, "0s"), (59, "59s"), (60, "1m"), (7_200, "2h"), (200_000, "2d")] {
            assert_eq!(age(seconds), text);
        }
    }
}
