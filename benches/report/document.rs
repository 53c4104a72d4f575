//! The document: a template, and the text for its placeholders. Each placeholder stands alone on a line:
//!
//! | Placeholder | Replaced by |
//! |---|---|
//! | `{{run BENCH}}` | the servers, the machine and the command of a bench |
//! | `{{table NAME}}` | a table |
//! | `{{plot NAME: QUANTITY}}` | a plot of one quantity of a table |
//! | `{{goals}}` | the goals, and which of them hold |
//! | `{{instructions}}` | the stored counts of instructions |
//! | `{{log_cost}}` | the instructions that the journal adds |

use crate::figures::{Figures, Table};
use crate::{goals, plot};

/// The document and its plots.
pub(crate) struct Document {
    pub text: String,
    /// Names of files and their contents.
    pub plots: Vec<(String, String)>,
}

/// Replaces the results that no data file has.
const NOT_MEASURED: &str = "*Not measured yet.*\n";

/// Instructions per operation: the stored numbers with which `.ci/instructions` compares new ones.
const INSTRUCTIONS: &str = include_str!("../instructions.txt");

impl Document {
    /// Fills the template in. Plots are referred to as files of `folder`. Fails at an unknown placeholder, and at a
    /// table that the template does not show.
    pub(crate) fn render(template: &str, runs: &[Figures], folder: &str) -> Result<Document, String> {
        let tables: Vec<&Table> =
            runs.iter().flat_map(|run| &run.tables).filter(|table| !table.rows.is_empty()).collect();
        if let Some(table) = tables.iter().find(|table| !template.contains(&format!("{{{{table {}}}}}", table.name))) {
            return Err(format!("the template does not show the table {}", table.name));
        }
        let mut document = Document { text: String::new(), plots: Vec::new() };
        for line in template.lines() {
            let Some(placeholder) = line.strip_prefix("{{").and_then(|line| line.strip_suffix("}}")) else {
                document.text += line;
                document.text.push('\n');
                continue;
            };
            let (what, rest) = placeholder.split_once(' ').unwrap_or((placeholder, ""));
            let filled = match what {
                "run" => runs.iter().find(|run| run.bench == rest).map(describe),
                "table" => find(&tables, rest).map(Table::markdown),
                "plot" => document.plot(rest, &tables, folder)?,
                "goals" => Some(goals::markdown(&tables)),
                "instructions" => Some(instructions()),
                "log_cost" => Some(log_cost()),
                _ => return Err(format!("the template has the placeholder {placeholder}, which means nothing")),
            };
            document.text += filled.as_deref().unwrap_or(NOT_MEASURED);
        }
        Ok(document)
    }

    /// Draws the plot for `NAME: QUANTITY`. Returns the line that shows it; `None` where the table was not measured.
    fn plot(&mut self, what: &str, tables: &[&Table], folder: &str) -> Result<Option<String>, String> {
        let (name, quantity) = what.split_once(": ").ok_or_else(|| format!("a plot of {what} lacks its quantity"))?;
        let Some(table) = find(tables, name) else { return Ok(None) };
        let number = table.quantities.iter().position(|known| known.name == quantity);
        let number = number.ok_or_else(|| format!("the table {name} has no {quantity}"))?;
        let words = quantity.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let file = format!("{name}-{}.svg", words.collect::<Vec<_>>().join("-").to_lowercase());
        self.plots.push((file.clone(), plot::draw(table, number)?));
        Ok(Some(format!("![{name}: {quantity}]({folder}/{file})\n")))
    }
}

fn find<'a>(tables: &[&'a Table], name: &str) -> Option<&'a Table> {
    tables.iter().copied().find(|table| table.name == name)
}

fn describe(run: &Figures) -> String {
    let servers = run.tables.first().map(|table| table.servers.join(", ")).unwrap_or_default();
    format!("    {}\n\n{servers}; {}; {:.0} s.\n", run.command.trim_end(), run.machine, run.seconds)
}

fn instructions() -> String {
    let rows = counted().map(|(operation, count)| format!("| {operation} | {count} |\n"));
    rows.fold("| operation | instructions |\n|---|--:|\n".to_owned(), |text, row| text + &row)
}

/// The extra instructions of an operation that the journal records, beyond those of the same operation whose reply is
/// only sent.
fn log_cost() -> String {
    let count = |operation: &str| counted().find(|(name, _)| *name == operation).map(|(_, count)| count as f64);
    let row = |(name, sent): (&str, u64)| {
        let operation = name.strip_suffix(", sent")?;
        let added = ["logged", "handed over"].map(|how| {
            let logged = count(&format!("{operation}, {how}"));
            logged.map_or(String::new(), |logged| format!("{:+.0}%", (logged / sent as f64 - 1.0) * 100.0))
        });
        Some(format!("| {operation} | {sent} | {} |\n", added.join(" | ")))
    };
    let head = "| operation | without a journal | the engine's thread writes | the journal's thread writes |\n\
         |---|--:|--:|--:|\n";
    counted().filter_map(row).fold(head.to_owned(), |text, row| text + &row)
}

/// The stored counts: operations and their instructions.
fn counted() -> impl Iterator<Item = (&'static str, u64)> {
    // The calibration concerns only the comparison with new counts.
    let lines = INSTRUCTIONS.lines().filter(|line| !line.starts_with('#') && !line.starts_with("calibration"));
    lines.filter_map(|line| line.split_once('\t')).filter_map(|(name, count)| Some((name, count.parse().ok()?)))
}
