//! The performance report: `cargo bench --bench report`.
//!
//! Runs the benches that compare servers, each of which leaves a data file, and renders `docs/performance.md` from
//! these files. The prose comes from `performance.md` beside this file, which names tables, plots and the list of goals
//! but contains no figures. So one bench can be run again alone, and the document rendered again from the existing data
//! (`--render`).

#[path = "../figures/mod.rs"]
mod figures;
#[path = "../peer/mod.rs"]
mod peer;
#[path = "../requests/mod.rs"]
mod requests;

mod document;
mod goals;
mod plot;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;

use document::Document;
use figures::Figures;

/// Compares Tidegate with its peers and writes the performance report.
///
/// Minutes in full, with two peers, in 5 rounds, on two quiet cores:
///
///   side_by_side   15      durable        3
///   latency        55      large_values  10
///   memory         65      start         10
///   saving         10      hot_path       2 (needs perf)
///   clients         5      eviction      40
///   coordination    2      io_threads     3 (needs 8 cores or more)
///   group_cost      3      group_failover 8
///   group_keys     20    console        3
///
/// `--scale 0.01 --rounds 1` shows in 10 that everything works. Memory: some
/// 6 GiB. Logs and snapshots go to the folder for temporary files (TMPDIR),
/// which should be on a disk and have room for 6 GiB.
#[derive(Parser)]
#[command(verbatim_doc_comment)]
struct Options {
    /// The benches to run, in this order.
    #[arg(long, value_delimiter = ',', default_values = SECTIONS)]
    sections: Vec<String>,
    /// Runs no bench: renders the document again from the data of earlier runs.
    #[arg(long)]
    render: bool,
    /// Folder of data and plots; the document lies beside it, under the same name with `.md`.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/performance"))]
    out: PathBuf,
    /// Launch commands of the peers; if not given, redis-server and valkey-server where they are in PATH.
    #[arg(long)]
    peer: Option<String>,
    /// Rounds of each bench.
    #[arg(long)]
    rounds: Option<String>,
    /// Share of the full sizes and times.
    #[arg(long)]
    scale: Option<String>,
    /// Cargo passes this to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

/// All benches that leave data.
const SECTIONS: [&str; 16] = [
    "side_by_side",
    "io_threads",
    "coordination",
    "hot_path",
    "latency",
    "clients",
    "memory",
    "eviction",
    "saving",
    "durable",
    "large_values",
    "start",
    "console",
    "group_cost",
    "group_failover",
    "group_keys",
];

fn main() -> ExitCode {
    let options = Options::parse();
    match options.measure().and_then(|()| write(&options.out)) {
        Ok(path) => {
            println!("{}", path.display());
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

impl Options {
    /// Runs the benches. All are built first, since a compiler running beside them would distort the results.
    fn measure(&self) -> Result<(), String> {
        if self.render {
            return Ok(());
        }
        if let Some(unknown) = self.sections.iter().find(|name| !SECTIONS.contains(&name.as_str())) {
            return Err(format!("no section is called {unknown}; there are {}", SECTIONS.join(", ")));
        }
        let names = self.sections.iter().flat_map(|name| ["--bench", name]);
        cargo_bench(names.chain(["--no-run"]))?;
        for name in &self.sections {
            let mut arguments =
                vec!["--bench", name, "--", "--data", self.out.to_str().ok_or("a folder not in UTF-8")?];
            let given = [("--peer", &self.peer), ("--rounds", &self.rounds), ("--scale", &self.scale)];
            arguments.extend(given.iter().filter_map(|(flag, value)| Some([*flag, value.as_deref()?])).flatten());
            cargo_bench(arguments)?;
        }
        Ok(())
    }
}

fn cargo_bench<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.arg("bench").args(arguments);
    let status = command.status().map_err(|error| format!("cannot run cargo: {error}"))?;
    status.success().then_some(()).ok_or_else(|| format!("{command:?} failed"))
}

/// Renders the data files. Returns the document's path.
fn write(out: &Path) -> Result<PathBuf, String> {
    let runs: Vec<Figures> = SECTIONS.iter().filter_map(|name| Figures::read(out, name)).collect();
    let document = Document::render(include_str!("performance.md"), &runs, &folder_name(out)?)?;
    let keep = |path: PathBuf, text: &str| match std::fs::write(&path, text) {
        Ok(()) => Ok(path),
        Err(error) => Err(format!("cannot write {}: {error}", path.display())),
    };
    for (name, plot) in &document.plots {
        keep(out.join(name), plot)?;
    }
    keep(out.with_extension("md"), &document.text)
}

/// The document's name for the folder beside it.
fn folder_name(out: &Path) -> Result<String, String> {
    let name = out.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned).ok_or_else(|| format!("{} names no folder", out.display()))
}
