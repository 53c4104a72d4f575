//! The alerts and the dashboard of `packaging`: their metrics exist, and a test makes the cause of each alert and sees
//! its expression hold. [`Query`] evaluates as much of PromQL as these expressions need, at one scrape: all counters
//! began at zero, so an increase is a counter's value. How long a cause must last (`for`) is ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use crate::durable::limit_files;
use crate::group::{Group, PORT};
use crate::harness::{Raw, Value, encode, until};
use crate::metrics::{Labels, Metrics, metrics, start, start_in};
use crate::oracle::{SMALL_DISK, SmallDisk};
use crate::slow_disk;
use crate::tls::TlsServer;

/// The alerts of this file, by name.
fn alerts() -> BTreeMap<String, String> {
    let text = read("packaging/prometheus/alerts.yml");
    let mut alerts = BTreeMap::new();
    let mut lines = text.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("- alert: ") else { continue };
        let expression = lines.next().and_then(|line| line.strip_prefix("expr: ")).expect("an expression comes next");
        let mut expression = expression.replace(">-", "");
        while let Some(more) = lines.next_if(|line| !line.starts_with("for:") && !line.starts_with("labels:")) {
            expression = expression + " " + more;
        }
        assert!(alerts.insert(name.to_owned(), expression).is_none(), "{name} is there twice");
    }
    assert!(alerts.len() > 10, "{} alerts", alerts.len());
    alerts
}

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
        .unwrap_or_else(|why| panic!("{path}: {why}"))
}

// Queries.

/// A value of an expression: a number, or one for each of several combinations of labels.
#[derive(Clone, Debug)]
enum Found {
    Number(f64),
    Vector(Vec<(Labels, f64)>),
}

/// An expression, and what it is evaluated on.
struct Query<'a> {
    tokens: Vec<String>,
    next: usize,
    metrics: &'a Metrics,
    now_s: f64,
}

/// Words of an expression: names, numbers, texts in quotes, signs.
fn tokens(expression: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = expression.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let len = match first {
            '"' => 2 + rest[1..].find('"').expect("a text ends"),
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            _ if ["==", "=~", ">=", "<="].iter().any(|sign| rest.starts_with(sign)) => 2,
            _ => 1,
        };
        tokens.push(rest[..len].to_owned());
        rest = rest[len..].trim_start();
    }
    tokens
}

impl Query<'_> {
    /// Whether an expression holds for anything.
    fn holds(expression: &str, metrics: &Metrics, now_s: f64) -> bool {
        let mut query = Query { tokens: tokens(expression), next: 0, metrics, now_s };
        let found = query.any();
        assert_eq!(query.next, query.tokens.len(), "{expression}: not understood");
        matches!(found, Found::Vector(found) if !found.is_empty())
    }

    fn peek(&self) -> &str {
        self.tokens.get(self.next).map_or("", |token| token)
    }

    fn take(&mut self) -> String {
        self.next += 1;
        self.tokens.get(self.next - 1).cloned().expect("the expression goes on")
    }

    fn take_if(&mut self, tokens: &[&str]) -> Option<String> {
        tokens.contains(&self.peek()).then(|| self.take())
    }

    fn expect(&mut self, token: &str) {
        assert_eq!(self.take(), token, "in {:?}", self.tokens);
    }

    /// Names in parentheses.
    fn names(&mut self) -> Vec<String> {
        self.expect("(");
        let mut names = Vec::new();
        while self.take_if(&[")"]).is_none() {
            names.push(self.take());
            self.take_if(&[","]);
        }
        names
    }

    fn any(&mut self) -> Found {
        let mut all = self.both();
        while self.take_if(&["or"]).is_some() {
            let more = self.both();
            let (Found::Vector(found), Found::Vector(more)) = (&mut all, more) else { panic!("or joins vectors") };
            found.extend(more);
        }
        all
    }

    fn both(&mut self) -> Found {
        let mut left = self.comparison();
        while self.take_if(&["and"]).is_some() {
            let right = self.comparison();
            let (Found::Vector(found), Found::Vector(right)) = (&mut left, right) else { panic!("and joins vectors") };
            found.retain(|(labels, _)| right.iter().any(|(other, _)| other == labels));
        }
        left
    }

    fn comparison(&mut self) -> Found {
        let left = self.sum();
        let Some(sign) = self.take_if(&["==", ">", "<"]) else { return left };
        let right = self.sum();
        let is_it = |left: f64, right: f64| match &*sign {
            "==" => left == right,
            ">" => left > right,
            _ => left < right,
        };
        let pairs = pair(left.clone(), right, &[], &|left, right| f64::from(u8::from(is_it(left, right))));
        let (Found::Vector(mut found), Found::Vector(pairs)) = (left, pairs) else { panic!("it compares a vector") };
        found.retain(|(labels, _)| pairs.iter().any(|(other, holds)| other == labels && *holds == 1.0));
        Found::Vector(found)
    }

    fn sum(&mut self) -> Found {
        let mut left = self.product();
        while let Some(sign) = self.take_if(&["+", "-"]) {
            let right = self.product();
            left = pair(left, right, &[], &|left, right| if sign == "+" { left + right } else { left - right });
        }
        left
    }

    fn product(&mut self) -> Found {
        let mut left = self.one();
        while let Some(sign) = self.take_if(&["*", "/"]) {
            let ignored = if self.take_if(&["ignoring"]).is_some() { self.names() } else { Vec::new() };
            let right = self.one();
            left = pair(left, right, &ignored, &|left, right| if sign == "*" { left * right } else { left / right });
        }
        left
    }

    fn one(&mut self) -> Found {
        let word = self.take();
        if let Ok(number) = word.parse() {
            return Found::Number(number);
        }
        match word.as_str() {
            "time" => {
                self.names();
                Found::Number(self.now_s)
            }
            "increase" => {
                self.expect("(");
                let found = self.any();
                self.expect(")");
                found
            }
            "sum" => {
                self.expect("by");
                let kept = self.names();
                self.expect("(");
                let Found::Vector(found) = self.any() else { panic!("it sums a vector") };
                self.expect(")");
                let mut sums = BTreeMap::<Labels, f64>::new();
                for (mut labels, value) in found {
                    labels.retain(|name, _| kept.contains(name));
                    *sums.entry(labels).or_default() += value;
                }
                Found::Vector(sums.into_iter().collect())
            }
            metric => self.selected(metric),
        }
    }

    /// The samples of a metric whose labels are these. A range behind them is ignored.
    fn selected(&mut self, metric: &str) -> Found {
        let mut found = self.metrics.samples.get(metric).cloned().unwrap_or_default();
        if self.take_if(&["{"]).is_some() {
            while self.take_if(&["}"]).is_none() {
                let (name, sign, text) = (self.take(), self.take(), self.take());
                let text = text.trim_matches('"');
                // The only pattern is a text that is contained.
                let is_it = |label: &String| match &*sign {
                    "=" => label == text,
                    _ => label.contains(text.trim_matches(['.', '*'])),
                };
                found.retain(|(labels, _)| labels.get(&name).is_some_and(is_it));
                self.take_if(&[","]);
            }
        }
        if self.take_if(&["["]).is_some() {
            self.take();
            self.expect("]");
        }
        Found::Vector(found)
    }
}

/// Combines the values of equal labels, or all with a number.
fn pair(left: Found, right: Found, ignored: &[String], value: &dyn Fn(f64, f64) -> f64) -> Found {
    use Found::{Number, Vector};
    match (left, right) {
        (Number(left), Number(right)) => Number(value(left, right)),
        (Number(left), Vector(right)) => {
            Vector(right.into_iter().map(|(labels, right)| (labels, value(left, right))).collect())
        }
        (Vector(left), Number(right)) => {
            Vector(left.into_iter().map(|(labels, left)| (labels, value(left, right))).collect())
        }
        (Vector(left), Vector(right)) => {
            let without = |mut labels: Labels| {
                labels.retain(|name, _| !ignored.contains(name));
                labels
            };
            let right: BTreeMap<Labels, f64> =
                right.into_iter().map(|(labels, value)| (without(labels), value)).collect();
            let left = left.into_iter().map(|(labels, value)| (without(labels), value));
            Vector(
                left.filter_map(|(labels, left)| Some((labels.clone(), value(left, *right.get(&labels)?)))).collect(),
            )
        }
    }
}

/// The metrics of a server as Prometheus has them: with `up`.
fn scraped(address: SocketAddr) -> Metrics {
    let is_up = TcpStream::connect(address).is_ok();
    let mut found = if is_up { metrics(address) } else { Metrics::default() };
    let labels = Labels::from([("job".to_owned(), "tidegate".to_owned())]);
    found.samples.insert("up".to_owned(), vec![(labels, f64::from(u8::from(is_up)))]);
    found
}

const NOW_S: f64 = 1_800_000_000.0;

/// The alerts that hold for these metrics.
fn firing(metrics: &Metrics) -> Vec<String> {
    let holds = |(_, expression): &(String, String)| Query::holds(expression, metrics, NOW_S);
    alerts().into_iter().filter(holds).map(|(name, _)| name).collect()
}

fn until_firing(address: SocketAddr, alert: &str) {
    assert!(alerts().contains_key(alert), "there is no {alert}");
    until(|| firing(&scraped(address)).iter().any(|name| name == alert), alert);
}

#[test]
fn expressions_are_evaluated_as_prometheus_does() {
    let text = "# HELP a A.\n# TYPE a gauge\na{n=\"1\",le=\"2\"} 3\na{n=\"2\",le=\"2\"} 0\n\
                # HELP b B.\n# TYPE b gauge\nb{n=\"1\"} 4\nb{n=\"2\"} 0\n# HELP c C.\n# TYPE c gauge\nc 7\n";
    let metrics = Metrics::parse(text);
    for (expression, holds) in [
        ("a == 0", true),
        ("a{n=\"1\"} == 0", false),
        ("a{n=~\".*2.*\"} == 0", true),
        ("nosuch == 0", false),
        ("a / b > 0", false),
        ("a / ignoring (le) b > 0.7", true),
        ("a / ignoring (le) b > 0.8", false),
        ("1 - a / ignoring (le) b > 0.2 and b > 3", true),
        ("1 - a / ignoring (le) b > 0.2 and b < 3", false),
        ("c > 2 * 3 + 0.5", true),
        ("c > 2 + 2 * 3", false),
        ("c - time() < 0 - 14 * 86400", true),
        ("c > 8 or c > 6", true),
        ("sum by (le) (increase(a[5m])) > 2.5", true),
        ("sum by (n) (b) > 4", false),
    ] {
        assert_eq!(Query::holds(expression, &metrics, NOW_S), holds, "{expression}");
    }
}

// The files.

/// The metrics of redis_exporter's dashboard and of redis-mixin.
const OF_REDIS_EXPORTER: &[&str] = &[
    "redis_blocked_clients",
    "redis_commands_duration_seconds_total",
    "redis_commands_processed_total",
    "redis_commands_total",
    "redis_connected_clients",
    "redis_connected_slaves",
    "redis_db_keys",
    "redis_db_keys_expiring",
    "redis_evicted_keys_total",
    "redis_expired_keys_total",
    "redis_keyspace_hits_total",
    "redis_keyspace_misses_total",
    "redis_master_last_io_seconds_ago",
    "redis_memory_max_bytes",
    "redis_memory_used_bytes",
    "redis_memory_used_rss_bytes",
    "redis_net_input_bytes_total",
    "redis_net_output_bytes_total",
    "redis_total_system_memory_bytes",
    "redis_up",
    "redis_uptime_in_seconds",
];

#[test]
fn every_metric_of_the_alerts_and_of_the_dashboard_exists() {
    const OTHER_WORDS: &[&str] = &[
        "and",
        "by",
        "cmd",
        "end",
        "err",
        "family",
        "histogram_quantile",
        "ignoring",
        "increase",
        "instance",
        "job",
        "label_values",
        "le",
        "node",
        "or",
        "rate",
        "sum",
        "time",
        "up",
    ];
    let dir = tempfile::tempdir().expect("a folder");
    let (_server, address) = start(&["--appendonly", "yes", "--dir", dir.path().to_str().expect("plain text")]);
    let group = Group::with(&[], false);
    let (leader, _) = group.increment();
    let (node, follower) = (group.metrics(leader), group.metrics(leader % 3 + 1));
    let mut known = BTreeSet::new();
    for found in [metrics(address), node, follower] {
        for (name, kind) in &found.kinds {
            let ends = if kind == "histogram" { &["_bucket", "_sum", "_count"][..] } else { &[""] };
            known.extend(ends.iter().map(|end| format!("{name}{end}")));
        }
    }
    for name in OF_REDIS_EXPORTER {
        assert!(known.contains(*name), "there is no {name}");
    }
    let dashboard: serde_json::Value = serde_json::from_str(&read("packaging/grafana/tidegate.json")).expect("JSON");
    let mut expressions: Vec<String> = alerts().into_values().collect();
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    for panel in list(&dashboard["panels"]).iter().filter(|panel| panel["type"] != "row") {
        let title = &panel["title"];
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title} has no unit");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        let targets = list(&panel["targets"]);
        assert!(!targets.is_empty(), "{title} shows nothing");
        expressions.extend(targets.iter().map(|target| target["expr"].as_str().expect("a query").to_owned()));
    }
    for variable in list(&dashboard["templating"]["list"]).iter().filter(|variable| variable["type"] == "query") {
        expressions.push(variable["query"]["query"].as_str().expect("a query").to_owned());
    }
    assert!(expressions.len() > 40, "{}", expressions.len());
    for expression in expressions {
        let is_name = |token: &&String| token.starts_with(|c: char| c.is_ascii_lowercase());
        let ranges = |before: Option<&String>| before.is_some_and(|before| before == "[" || before == "$");
        let tokens = tokens(&expression);
        for (index, name) in tokens.iter().enumerate().filter(|(_, token)| is_name(token)) {
            let is_range = ranges(index.checked_sub(1).map(|before| &tokens[before]));
            assert!(is_range || OTHER_WORDS.contains(&&**name) || known.contains(name), "no {name}: {expression}");
        }
    }
}

/// Each alert has a section, under its name, in the order of the file; and each section the same four parts.
#[test]
fn the_page_says_what_to_do_at_each_alert() {
    let (page, file) = (read("docs/production.md"), read("packaging/prometheus/alerts.yml"));
    let of_file: Vec<&str> = file.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let incidents = page.split_once("\n## Incidents\n").expect("the part about alerts").1;
    let sections: Vec<&str> = incidents.split("\n### ").skip(1).collect();
    let names: Vec<&str> = sections.iter().filter_map(|section| section.lines().next()).collect();
    assert_eq!(names, of_file, "the sections of docs/production.md are the alerts");
    for (name, section) in names.iter().zip(&sections) {
        let meaning = section[name.len()..].trim_start();
        assert!(meaning.starts_with(|c: char| c.is_ascii_uppercase()), "{name}: what does it mean?");
        let parts = ["\n- **Look**: ", "\n- **Do**: ", "\n- **Don't** "].map(|part| section.find(part));
        assert!(parts.is_sorted() && !parts.contains(&None), "{name}: {parts:?}");
        let link = format!("docs/production.md#{}\n", name.to_lowercase());
        assert_eq!(file.matches(&link).count(), 1, "{name} links to its section");
    }
}

#[test]
fn promtool_accepts_the_alerts() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/prometheus/alerts.yml");
    if let Ok(judged) = Command::new("promtool").args(["check", "rules"]).arg(file).output() {
        assert!(judged.status.success(), "{}", String::from_utf8_lossy(&[judged.stdout, judged.stderr].concat()));
    }
}

// The causes.

/// A server with a journal in a folder.
fn with_journal(dir: &Path, flags: &[&str]) -> Vec<String> {
    let journal = ["--appendonly", "yes", "--dir", dir.to_str().expect("plain text")];
    journal.iter().chain(flags).map(|flag| (*flag).to_owned()).collect()
}

#[test]
fn nothing_fires_while_all_is_well_and_a_dead_server_is_down() {
    let dir = tempfile::tempdir().expect("a folder");
    let flags = with_journal(dir.path(), &["--maxmemory", "1gb"]);
    let (server, address) = start(&flags.iter().map(String::as_str).collect::<Vec<_>>());
    server.raw().command(&["SET", "k", "v"]);
    let well = |alert: &String| !["TidegateDiskLow", "TidegateSyncsSlow"].contains(&alert.as_str());
    // The disk of the machine that runs this test may be full or slow.
    assert_eq!(firing(&scraped(address)).into_iter().filter(well).collect::<Vec<_>>(), [""; 0]);
    drop(server);
    assert_eq!(firing(&scraped(address)), ["TidegateDown"]);
}

#[test]
fn a_journal_that_fails_is_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let flags = with_journal(dir.path(), &[]);
    let (server, address) = start(&flags.iter().map(String::as_str).collect::<Vec<_>>());
    server.raw().command(&["SET", "k", "v"]);
    std::fs::remove_dir_all(dir.path().join("tidegate-data")).expect("it is ours");
    server.raw().send_command(&["SET", "k", "w"]);
    until_firing(address, "TidegateJournalFailed");
    until_firing(address, "TidegateNotReady");
}

#[test]
fn a_full_disk_is_told() {
    if SMALL_DISK.is_missing() {
        return;
    }
    let disk = SmallDisk::mount("8m").expect("it was mounted before");
    let flags = with_journal(disk.path(), &[]);
    let (server, address) = start(&flags.iter().map(String::as_str).collect::<Vec<_>>());
    let (mut raw, value) = (server.raw(), "x".repeat(10_000));
    let is_taken =
        |raw: &mut Raw, number: usize| raw.command(&["SET", &number.to_string(), &value]) == Value::status("OK");
    assert!((0..5_000).any(|number| !is_taken(&mut raw, number)), "the disk has no end");
    for alert in ["TidegateJournalFull", "TidegateNotReady", "TidegateDiskLow"] {
        until_firing(address, alert);
    }
}

#[test]
fn slow_syncs_are_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut environment = slow_disk::environment(&dir.path().join("hangs"));
    environment.iter_mut().filter(|(name, _)| *name == "SLOW_DISK_US").for_each(|(_, us)| *us = "150000".to_owned());
    let flags = with_journal(dir.path(), &[]);
    let (server, address) = start_in(&environment, &flags.iter().map(String::as_str).collect::<Vec<_>>());
    server.raw().command(&["SET", "k", "v"]);
    until_firing(address, "TidegateSyncsSlow");
}

#[test]
fn too_little_memory_and_too_many_connections_are_told() {
    let (server, address) = start(&["--maxclients", "10"]);
    server.raw().command(&["CONFIG", "SET", "maxmemory", "100kb"]);
    until_firing(address, "TidegateMemoryHigh");
    let clients: Vec<Raw> = (0..10).map(|_| server.raw()).collect();
    until_firing(address, "TidegateConnectionsHigh");
    drop(clients);
}

#[test]
fn snapshots_that_fail_are_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, address) = start(&["--dir", dir.path().to_str().expect("plain text")]);
    let mut raw = server.raw();
    let noise = "local t = {} for i = 1, 3000 do t[i] = redis.sha1hex(i) end \
                 redis.call('SET', KEYS[1], table.concat(t))";
    raw.command(&["EVAL", noise, "1", "k"]);
    limit_files(server.pid(), 30_000);
    raw.command(&["BGSAVE"]);
    until_firing(address, "TidegateSnapshotsFail");
}

#[test]
fn a_certificate_that_expires_is_told() {
    const METRIC: &str = "tidegate_tls_certificate_expires_timestamp_seconds";
    let port = crate::harness::free_port();
    let _server = TlsServer::start(&["--metrics-port", &port.to_string()]);
    let found = metrics(SocketAddr::from(([127, 0, 0, 1], port)));
    let expires_s = found.value(METRIC, &[("parameter", "tls-cert-file")]).expect("it has a certificate");
    let expression = &alerts()["TidegateCertificateExpires"];
    let day_s = 86_400.0;
    assert!(Query::holds(expression, &found, expires_s - 13.0 * day_s));
    assert!(!Query::holds(expression, &found, expires_s - 15.0 * day_s));
}

#[test]
fn refusals_and_lapsed_leases_are_told() {
    let (server, address) = start(&[]);
    let refused = "redis.call('LOCK.ACQUIRE', 'lock', 'one', 'PX', 600000) \
                   for i = 1, 101 do redis.call('LOCK.ACQUIRE', 'lock', 'two', 'PX', 600000) end";
    server.raw().command(&["EVAL", refused, "0"]);
    until_firing(address, "TidegateRefusalsHigh");
    server.raw().command(&["GATE.ACQUIRE", "gate", "one", "LIMIT", "1", "PX", "1"]);
    until_firing(address, "TidegateLeasesLapse");
}

#[test]
fn dead_letters_are_told() {
    let (server, address) = start(&[]);
    let mut raw = server.raw();
    for line in [
        "XGROUP CREATE jobs workers 0 MKSTREAM",
        "XGROUP SETPOLICY jobs workers MAXDELIVERIES 1 DLQ dead IDLE 1",
        "XADD jobs 7-7 order 1",
        "XREADGROUP GROUP workers ann STREAMS jobs >",
    ] {
        raw.command(&line.split(' ').collect::<Vec<_>>());
    }
    until_firing(address, "TidegateDeadLetters");
}

#[test]
fn nodes_that_are_missing_lag_or_are_too_few_are_told() {
    let mut group = Group::with(&[], false);
    let (leader, _) = group.increment();
    let [one, other] = [1, 2].map(|step| (leader - 1 + step) % 3 + 1);
    let fires = |group: &Group, alert: &str| firing(&group.metrics(leader)).iter().any(|name| name == alert);
    until(|| !fires(&group, "TidegateNodeMissing"), "all are connected");
    assert!(!fires(&group, "TidegateFollowerLags") && !fires(&group, "TidegateGroupWithoutQuorum"));
    group.end(one, libc::SIGKILL);
    until(|| fires(&group, "TidegateNodeMissing"), "a node is missing");
    let mut raw = group.raw(leader, PORT);
    for number in 0..1_100 {
        raw.send(&encode(&["SET", "k", &number.to_string()]));
        assert_eq!(raw.reply().value, Value::status("OK"));
    }
    until(|| fires(&group, "TidegateFollowerLags"), "it lags");
    group.end(other, libc::SIGKILL);
    until(|| fires(&group, "TidegateGroupWithoutQuorum"), "there is no quorum");
}
