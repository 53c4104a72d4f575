//! The results of a bench, declared once: one number for each case, quantity, server and round. The bench's printed
//! rows, its data file, and the report's tables, plots and ratios derive from these numbers.

#![allow(dead_code, reason = "the benches write what the report reads")]

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::peer::{Setup, load_average, machine, median};

/// The results of one run of a bench.
#[derive(Serialize, Deserialize)]
pub(crate) struct Figures {
    pub bench: String,
    /// The command that repeats the run.
    pub command: String,
    pub machine: String,
    /// Duration in seconds.
    pub seconds: f64,
    pub tables: Vec<Table>,
}

/// Cases measured in the same way.
#[derive(Serialize, Deserialize)]
pub(crate) struct Table {
    /// The name in the report.
    pub name: String,
    /// The meaning of the cases, as the head of their column.
    pub cases: String,
    /// Peers first, the server under test last.
    pub servers: Vec<String>,
    pub quantities: Vec<Quantity>,
    pub rows: Vec<Row>,
}

/// A measured quantity.
#[derive(Serialize, Deserialize, Clone)]
pub(crate) struct Quantity {
    /// The name with its unit, as in "p99 ms".
    pub name: String,
    /// Digits after the decimal point.
    pub digits: usize,
    pub better: Better,
}

/// Whether higher or lower numbers are better.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq)]
pub(crate) enum Better {
    Less,
    More,
    /// A circumstance, which is neither better nor worse.
    Neither,
}

/// One case.
#[derive(Serialize, Deserialize)]
pub(crate) struct Row {
    pub case: String,
    /// The position on an axis, if the table's cases are points of one.
    pub x: Option<f64>,
    /// Indexed by quantity, then server, then round.
    pub samples: Vec<Vec<Vec<f64>>>,
}

impl Quantity {
    pub(crate) fn less(name: &str, digits: usize) -> Quantity {
        Quantity { name: name.to_owned(), digits, better: Better::Less }
    }

    pub(crate) fn more(name: &str, digits: usize) -> Quantity {
        Quantity { name: name.to_owned(), digits, better: Better::More }
    }

    pub(crate) fn neither(name: &str, digits: usize) -> Quantity {
        Quantity { name: name.to_owned(), digits, better: Better::Neither }
    }

    /// The best of the values.
    fn best(&self, values: impl Iterator<Item = f64>) -> Option<f64> {
        match self.better {
            Better::Less => values.min_by(f64::total_cmp),
            Better::More => values.max_by(f64::total_cmp),
            Better::Neither => None,
        }
    }
}

impl Row {
    /// The median over a server's rounds.
    pub(crate) fn median(&self, quantity: usize, server: usize) -> f64 {
        median(self.samples[quantity][server].clone())
    }

    fn rounds(&self) -> usize {
        self.samples[0][0].len()
    }
}

impl Table {
    /// The ratio of our server to the better peer: the median of the rounds' ratios, because a shared machine may be
    /// half as fast from one minute to the next. `None` without a peer, or for a quantity that has no better side.
    pub(crate) fn ratio(&self, row: &Row, quantity: usize) -> Option<f64> {
        let (ours, peers) = row.samples[quantity].split_last()?;
        let ratio = |round: usize| {
            let best = self.quantities[quantity].best(peers.iter().map(|peer| peer[round]))?;
            (best > 0.0).then(|| ours[round] / best)
        };
        Some(median((0..row.rounds()).map(ratio).collect::<Option<Vec<f64>>>()?))
    }

    /// The median of the peer that is better in this case.
    pub(crate) fn better_peer(&self, row: &Row, quantity: usize) -> Option<f64> {
        let peers = (0..self.servers.len() - 1).map(|server| row.median(quantity, server));
        self.quantities[quantity].best(peers).filter(|best| *best > 0.0)
    }

    /// The whole table in Markdown.
    pub(crate) fn markdown(&self) -> String {
        let rows = self.rows.iter().map(|row| self.markdown_row(row));
        self.markdown_head() + &rows.collect::<String>()
    }

    /// Whether each server has a column per quantity, and each case one line, as for few quantities. With more, each
    /// server has a line of its own.
    fn is_wide(&self) -> bool {
        self.quantities.len() <= 3
    }

    fn markdown_head(&self) -> String {
        let mut heads = vec![self.cases.clone()];
        if self.is_wide() {
            for quantity in &self.quantities {
                heads.extend(self.servers.iter().map(|server| format!("{server}, {}", quantity.name)));
                heads.extend(self.has_ratio(quantity).then(|| "ratio".to_owned()));
            }
        } else {
            heads.push("server".to_owned());
            heads.extend(self.quantities.iter().map(|quantity| quantity.name.clone()));
        }
        let texts = if self.is_wide() { 1 } else { 2 };
        format!("| {} |\n|{}{}\n", heads.join(" | "), "---|".repeat(texts), "--:|".repeat(heads.len() - texts))
    }

    fn has_ratio(&self, quantity: &Quantity) -> bool {
        self.servers.len() > 1 && quantity.better != Better::Neither
    }

    fn markdown_row(&self, row: &Row) -> String {
        let value =
            |number: usize, server: usize| format!("{:.*}", self.quantities[number].digits, row.median(number, server));
        let ratio = |number: usize| self.ratio(row, number).map_or(String::new(), |ratio| format!("{ratio:.2}"));
        let mut lines = Vec::new();
        if self.is_wide() {
            let mut cells = vec![row.case.clone()];
            for (number, quantity) in self.quantities.iter().enumerate() {
                cells.extend((0..self.servers.len()).map(|server| value(number, server)));
                cells.extend(self.has_ratio(quantity).then(|| ratio(number)));
            }
            lines.push(cells);
        } else {
            for (server, name) in self.servers.iter().enumerate() {
                let case = if server == 0 { row.case.clone() } else { String::new() };
                lines.push([case, name.clone()].into_iter().collect());
                let values = (0..self.quantities.len()).map(|number| value(number, server));
                lines.last_mut().expect("just pushed").extend(values);
            }
            if self.servers.len() > 1 {
                let mut cells = vec![String::new(), "ratio".to_owned()];
                cells.extend((0..self.quantities.len()).map(ratio));
                lines.push(cells);
            }
        }
        lines.into_iter().map(|cells| format!("| {} |\n", cells.join(" | "))).collect()
    }
}

/// Output of a running bench: rows go to standard output as soon as they are complete, and to the data file.
pub(crate) struct Recorder {
    figures: Figures,
    servers: Vec<String>,
    rounds: usize,
    only: String,
    data: Option<PathBuf>,
    begin: Instant,
}

impl Recorder {
    /// Begins recording for the bench of this name.
    pub(crate) fn new(bench: &str, setup: &Setup) -> Recorder {
        let servers = setup.names();
        let arguments: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
        let figures = Figures {
            bench: bench.to_owned(),
            command: format!("cargo bench --bench {bench} -- {}", without_paths(&arguments).join(" ")),
            machine: format!("{}, load {} in the minute before", machine(), load_average()),
            seconds: 0.0,
            tables: Vec::new(),
        };
        println!("{}; {}", servers.join("; "), figures.machine);
        let (only, data) = (setup.only.clone(), setup.data.clone());
        Recorder { figures, servers, rounds: setup.rounds, only, data, begin: Instant::now() }
    }

    /// The name of the server under test.
    pub(crate) fn own_name(&self) -> String {
        self.servers.last().expect("there is always one server").clone()
    }

    /// Begins a table; its cases follow.
    pub(crate) fn table<const N: usize>(&mut self, name: &str, cases: &str, quantities: [Quantity; N]) {
        let servers = self.servers.clone();
        self.table_of(name, cases, servers, quantities);
    }

    /// As [`table`](Self::table), for other servers than those of the setup.
    pub(crate) fn table_of<const N: usize>(
        &mut self,
        name: &str,
        cases: &str,
        servers: Vec<String>,
        quantities: [Quantity; N],
    ) {
        let (name, cases, quantities) = (name.to_owned(), cases.to_owned(), quantities.to_vec());
        let table = Table { name, cases, servers, quantities, rows: Vec::new() };
        self.figures.tables.push(table);
    }

    /// Whether the user wants this case of the latest table to be measured.
    pub(crate) fn wants(&self, case: &str) -> bool {
        case.contains(&self.only) || self.figures.tables.last().is_some_and(|table| table.name.contains(&self.only))
    }

    /// Measures a case of the latest table on every server in every round: `measure` gets the server's number and
    /// returns one value for each quantity. The first server changes from round to round, so that a machine that heats
    /// up favours none.
    pub(crate) fn case<const N: usize>(
        &mut self,
        case: &str,
        x: Option<f64>,
        mut measure: impl FnMut(usize) -> [f64; N],
    ) {
        self.cases(vec![(case.to_owned(), x)], |server| vec![measure(server)]);
    }

    /// As [`case`](Self::case), for cases that are measured together, one after the other.
    pub(crate) fn cases<const N: usize>(
        &mut self,
        cases: Vec<(String, Option<f64>)>,
        mut measure: impl FnMut(usize) -> Vec<[f64; N]>,
    ) {
        if !cases.iter().any(|(case, _)| self.wants(case)) {
            return;
        }
        let table = self.figures.tables.last_mut().expect("a table was begun");
        let servers = table.servers.len();
        let row = |(case, x)| Row { case, x, samples: vec![vec![Vec::new(); servers]; N] };
        let mut rows: Vec<Row> = cases.into_iter().map(row).collect();
        for round in 0..self.rounds {
            for turn in 0..servers {
                let server = (round + turn) % servers;
                for (row, values) in rows.iter_mut().zip(measure(server)) {
                    row.samples.iter_mut().zip(values).for_each(|(samples, value)| samples[server].push(value));
                }
            }
        }
        if table.rows.is_empty() {
            print!("\n{}", table.markdown_head());
        }
        for row in rows {
            print!("{}", table.markdown_row(&row));
            table.rows.push(row);
        }
        self.keep();
    }

    /// Prints how long the bench took.
    pub(crate) fn finish(self) {
        println!("\n{} took {:.0} s", self.figures.bench, self.begin.elapsed().as_secs_f64());
    }

    /// Writes the data file, if one is wanted: after each case, so that an interrupted run keeps its results.
    fn keep(&mut self) {
        let Some(folder) = &self.data else { return };
        self.figures.seconds = self.begin.elapsed().as_secs_f64();
        self.figures.write(folder);
    }
}

impl Figures {
    /// The path of a bench's figures in a folder.
    fn path(folder: &Path, bench: &str) -> PathBuf {
        folder.join(bench).with_extension("json")
    }

    fn write(&self, folder: &Path) {
        std::fs::create_dir_all(folder).expect("a folder for the data");
        let text = serde_json::to_string(self).expect("numbers and strings");
        std::fs::write(Self::path(folder, &self.bench), text + "\n").expect("space for the data");
    }

    /// Reads a bench's figures from this folder; `None` if there are none.
    pub(crate) fn read(folder: &Path, bench: &str) -> Option<Figures> {
        let text = std::fs::read_to_string(Self::path(folder, bench)).ok()?;
        Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("the figures of {bench}: {error}")))
    }
}

/// Arguments as a reader would repeat them: without the folder of the data, and launch commands without their folders.
fn without_paths(arguments: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word == "--data" {
            words.next();
            continue;
        }
        let names = word.split(',').map(|path| path.rsplit('/').next().unwrap_or(path));
        kept.push(names.collect::<Vec<_>>().join(","));
    }
    kept
}
