//! The tables of `docs/production.md` that say what a lock, a key or a change takes are those of the bench `sizing`,
//! rounded. The bench keeps its figures beside the others.

use std::path::Path;

use serde_json::Value;

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
        .unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// The rows of all tables of the bench, as the page shows them.
fn rows() -> Vec<String> {
    let figures: Value = serde_json::from_str(&read("docs/performance/sizing.json")).expect("JSON");
    let list = |value: &Value| value.as_array().cloned().expect("a list");
    let median = |rounds: &Value| {
        let mut rounds: Vec<f64> = list(rounds).iter().filter_map(Value::as_f64).collect();
        rounds.sort_by(f64::total_cmp);
        rounds[rounds.len() / 2]
    };
    let row = |row: &Value| {
        // There is one server.
        let cells =
            list(&row["samples"]).iter().map(|servers| format!("{:.0}", median(&servers[0]))).collect::<Vec<_>>();
        format!("| {} | {} |\n", row["case"].as_str().expect("a name"), cells.join(" | "))
    };
    list(&figures["tables"]).iter().flat_map(|table| list(&table["rows"])).map(|found| row(&found)).collect()
}

#[test]
fn the_page_has_the_figures_of_the_bench() {
    let (page, rows) = (read("docs/production.md"), rows());
    assert!(rows.len() > 20, "{} rows", rows.len());
    for row in rows {
        assert!(page.contains(&row), "docs/production.md lacks {row}");
    }
}
