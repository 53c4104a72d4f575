//! The repository is tidy: no line is too wide, no link is dead, and no text names a missing file.
//!
//! rustfmt wraps code but neither comments nor strings, and nothing at all wraps Markdown. Links and names of files die
//! quietly when a file moves. So these are tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Characters of a line of Rust, comments and strings included.
const RUST_MAX_WIDTH: usize = 120;

/// Characters of a line of prose in Markdown.
const PROSE_MAX_WIDTH: usize = 100;

/// Pages that a program writes. The program decides the width of their lines.
const GENERATED: &[&str] = &["docs/configuration.md", "docs/performance.md"];

#[test]
fn no_line_is_too_wide() {
    let faults = width_faults(&texts());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_link_between_pages_is_dead() {
    let faults = link_faults(&texts(), &paths());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_text_names_a_missing_file() {
    let faults = name_faults(&texts(), &Known::of(&paths(), &texts()));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The text of each Rust and Markdown file, by its path.
pub(crate) type Texts = BTreeMap<String, String>;

/// Returns the files of the repository, without folders of build results.
fn paths() -> BTreeSet<String> {
    const FOLDERS: [&str; 10] =
        [".ci", "benches", "console", "docs", "fuzz", "lua", "luajit", "packaging", "src", "tests"];
    const RESULTS: [&str; 5] = ["target", "node_modules", "__pycache__", "fuzz/corpus", "fuzz/artifacts"];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut open: Vec<_> = FOLDERS.iter().map(|folder| root.join(folder)).collect();
    let mut paths = BTreeSet::new();
    let mut add = |path: &Path| {
        let path = path.strip_prefix(root).expect("it lies in the repository");
        paths.insert(path.to_string_lossy().into_owned());
    };
    let entries =
        |folder: &Path| std::fs::read_dir(folder).expect("a readable folder").map(|entry| entry.expect("one").path());
    entries(root).filter(|path| path.is_file()).for_each(|path| add(&path));
    while let Some(folder) = open.pop() {
        for path in entries(&folder) {
            match path.is_dir() {
                true if RESULTS.iter().any(|name| path.ends_with(name)) => {}
                true => open.push(path),
                false => add(&path),
            }
        }
    }
    paths
}

pub(crate) fn texts() -> Texts {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let paths = paths().into_iter().filter(|path| path.ends_with(".rs") || path.ends_with(".md"));
    paths.map(|path| (path.clone(), std::fs::read_to_string(root.join(path)).expect("text"))).collect()
}

/// Returns the lines that are too wide.
fn width_faults(texts: &Texts) -> Vec<String> {
    let mut faults = Vec::new();
    for (path, text) in texts.iter().filter(|(path, _)| !GENERATED.contains(&&***path) && !is_chinese(path)) {
        let lines = if path.ends_with(".md") { prose(text) } else { text.lines().map(Some).collect() };
        let is_too_wide = if path.ends_with(".md") { is_wide_prose } else { is_wide_rust };
        for (number, line) in (1..).zip(lines) {
            if line.is_some_and(is_too_wide) {
                faults.push(format!("{path}:{number} is too wide: {}", line.unwrap_or_default().trim()));
            }
        }
    }
    faults
}

/// Returns whether a page is in Chinese, where a paragraph is one line: a break would be shown as a space between two
/// characters.
fn is_chinese(path: &str) -> bool {
    path.ends_with(".zh-CN.md") || path.contains("/zh/")
}

/// Returns whether a path equals that of a file, or lies in that folder.
fn is_in(path: &str, place: &str) -> bool {
    path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns whether a line is too wide and could be broken. A long word can't be, such as the bytes of a payload.
fn is_wide_rust(line: &str) -> bool {
    let indent = line.chars().take_while(|c| *c == ' ').count();
    line.chars().count() > RUST_MAX_WIDTH && line.chars().take(RUST_MAX_WIDTH + 1).skip(indent).any(|c| c == ' ')
}

/// Returns whether a line of Markdown is too wide. Rows of tables and headings stay on one line, links and code in one
/// piece.
fn is_wide_prose(line: &str) -> bool {
    let text = line.trim_start();
    if line.chars().count() <= PROSE_MAX_WIDTH || text.starts_with(['|', '#']) {
        return false;
    }
    let number = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let marker = [text, number]
        .into_iter()
        .find_map(|rest| ["- ", "* ", "> ", ". "].iter().find_map(|marker| rest.strip_prefix(marker)));
    let start = line.len() - marker.unwrap_or(text).len();
    let whole = without_links(&without_code(line));
    whole.chars().take(PROSE_MAX_WIDTH + 1).skip(start).any(|c| c == ' ')
}

/// Returns a page line by line, with `None` for each line of a fenced block.
pub(crate) fn prose(text: &str) -> Vec<Option<&str>> {
    let mut fence: Option<usize> = None;
    let line = |line| {
        let ticks = str::trim_start(line).chars().take_while(|c| *c == '`').count();
        match fence {
            Some(open) if ticks >= open => fence = None,
            Some(_) => {}
            None if ticks >= 3 => fence = Some(ticks),
            None => return Some(line),
        }
        None
    };
    text.lines().map(line).collect()
}

/// Replaces the text between backticks by as many dots.
fn without_code(text: &str) -> String {
    let pieces = text.split('`').enumerate();
    let dots = |piece: &str| piece.chars().map(|c| if c == '\n' { c } else { '.' }).collect();
    pieces.map(|(n, piece)| if n % 2 == 0 { piece.to_owned() } else { dots(piece) }).collect::<Vec<_>>().join(".")
}

/// Replaces each `[text](target)` by as many dots.
fn without_links(line: &str) -> String {
    let mut rest = line;
    let mut whole = String::new();
    while let Some(middle) = rest.find("](") {
        let start = rest[..middle].rfind('[').unwrap_or(middle);
        let end = rest[middle..].find(')').map_or(rest.len(), |len| middle + len + 1);
        whole.push_str(&rest[..start]);
        whole.extend(rest[start..end].chars().map(|_| '.'));
        rest = &rest[end..];
    }
    whole + rest
}

/// A link of a page to a file or a heading.
pub(crate) struct Link<'a> {
    line: usize,
    pub(crate) target: &'a str,
}

/// Returns the links of a page, except those to other sites.
pub(crate) fn links(text: &str) -> Vec<Link<'_>> {
    let shown: Vec<&str> = prose(text).into_iter().map(Option::unwrap_or_default).collect();
    let mut links = Vec::new();
    for (number, line) in (1..).zip(shown) {
        // Code is replaced by dots at the same places.
        let plain = without_code(line);
        for (middle, _) in plain.match_indices("](").filter(|_| plain.len() == line.len()) {
            let target = &line[middle + 2..];
            let target = &target[..target.find(')').unwrap_or(target.len())];
            if !target.contains("://") {
                links.push(Link { line: number, target });
            }
        }
    }
    links
}

/// Returns the anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for heading in prose(text).into_iter().flatten().filter(|line| line.starts_with('#')) {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let numbered = (1..).map(|n| format!("{anchor}-{n}"));
        let free = std::iter::once(anchor.clone()).chain(numbered).find(|name| !anchors.contains(name));
        anchors.extend(free);
    }
    anchors
}

/// Returns the links to missing files or headings.
fn link_faults(texts: &Texts, paths: &BTreeSet<String>) -> Vec<String> {
    let mut faults = Vec::new();
    for (page, text) in texts.iter().filter(|(page, _)| page.ends_with(".md")) {
        // The report's template is read as if it were at the path of the page that is made from it.
        let place = if page.starts_with("benches/report/") { "docs/performance.md" } else { page };
        for Link { line, target } in links(text) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { place.to_owned() } else { beside(place, file) };
            let exists = paths.contains(&file) || paths.iter().any(|path| is_in(path, &file));
            let has_anchor = || texts.get(&file).is_some_and(|text| anchors(text).contains(anchor));
            if !exists {
                faults.push(format!("{page}:{line} links to {file}, which is not there"));
            } else if !anchor.is_empty() && !has_anchor() {
                faults.push(format!("{page}:{line} links to #{anchor}, which is no heading of {file}"));
            }
        }
    }
    faults
}

/// Returns the path that a link of a page leads to.
pub(crate) fn beside(page: &str, link: &str) -> String {
    let mut path: Vec<&str> = page.split('/').collect();
    path.pop();
    for name in link.split('/').filter(|name| !name.is_empty()) {
        match name {
            ".." => drop(path.pop()),
            "." => {}
            name => path.push(name),
        }
    }
    path.join("/")
}

/// Names that a text may use.
struct Known {
    /// Each path of a file or folder, whole and with any number of its leading folders removed.
    paths: BTreeSet<String>,
    /// The folders of the repository, and those of `src`.
    roots: BTreeSet<String>,
    /// Functions, each by the folder of `src` that has it: `server::run`.
    functions: BTreeSet<String>,
}

impl Known {
    fn of(files: &BTreeSet<String>, texts: &Texts) -> Known {
        let (mut paths, mut roots) = (BTreeSet::new(), BTreeSet::new());
        for file in files {
            let names: Vec<&str> = file.split('/').collect();
            for end in 1..=names.len() {
                paths.extend((0..end).map(|start| names[start..end].join("/")));
            }
            roots.extend((names.len() > 1).then(|| names[0].to_owned()));
            roots.extend((names.len() > 2 && names[0] == "src").then(|| names[1].to_owned()));
        }
        let sources =
            texts.iter().filter_map(|(path, text)| Some((path.strip_prefix("src/")?.split_once('/')?.0, text)));
        let functions = sources.flat_map(|(folder, text)| {
            let names = text.split("fn ").skip(1).filter_map(|rest| rest.split(|c: char| !is_of_name(c)).next());
            names.map(move |name| format!("{folder}::{name}"))
        });
        Known { paths, roots, functions: functions.collect() }
    }

    /// Returns whether a word looks like the name of a source, a folder or a module that does not exist.
    fn is_gone(&self, word: &str) -> bool {
        let (is_path, is_module) = (word.contains('/'), word.contains("::"));
        let path = word.trim_end_matches('/').replace("::", "/");
        // A path that begins with `..` is the target of a link.
        let is_outward = path.starts_with('/') || path.starts_with("..");
        let is_name = !is_outward && path.chars().all(|c| is_of_name(c) || "./-".contains(c));
        let root = path.split('/').next().unwrap_or_default();
        let is_in_house = (is_path || is_module) && self.roots.contains(root);
        let names_items = is_module && path.contains(char::is_uppercase);
        if !is_name || names_items || !(is_in_house || path.ends_with(".rs")) {
            return false;
        }
        let candidates = [path.clone(), format!("{path}.rs")];
        !candidates.iter().any(|path| self.paths.contains(path)) && !self.functions.contains(word)
    }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns the words of a line that may name a file: those in backticks, and others that look like the path of a text.
fn names(line: &str) -> impl Iterator<Item = &str> {
    const ENDINGS: [&str; 4] = [".rs", ".md", ".lua", ".txt"];
    let plain = line.split(|c: char| c.is_whitespace() || "()[]|,;\"'".contains(c));
    let plain = plain.map(|word| word.trim_end_matches(['.', ':']));
    let files = plain.filter(|word| word.contains('/') && ENDINGS.iter().any(|ending| word.ends_with(ending)));
    line.split('`').skip(1).step_by(2).chain(files)
}

/// Returns the names of missing files in pages and comments.
fn name_faults(texts: &Texts, known: &Known) -> Vec<String> {
    let mut faults = Vec::new();
    for (path, text) in texts {
        let lines = match path.ends_with(".md") {
            true => prose(text),
            false => text.lines().map(|line| Some(line).filter(|line| line.trim_start().starts_with("//"))).collect(),
        };
        for (number, line) in (1..).zip(lines) {
            let gone = names(line.unwrap_or_default()).filter(|word| known.is_gone(word));
            faults.extend(gone.map(|word| format!("{path}:{number} names {word}, which is not there")));
        }
    }
    faults
}

/// The checks themselves, on invented files.
mod made_up {
    use super::*;

    fn made_up(files: &[(&str, &str)]) -> Texts {
        files.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect()
    }

    fn paths_of(texts: &Texts) -> BTreeSet<String> {
        texts.keys().cloned().collect()
    }

    #[test]
    fn wide_lines_that_can_be_broken_are_found() {
        let wide = "word ".repeat(30);
        let narrow = "word ".repeat(19);
        let long = "x".repeat(150);
        let found = |path: &str, text: &str| width_faults(&made_up(&[(path, text)])).len();

        assert_eq!(found("src/a.rs", &format!("{narrow}\n// {wide}\n    f(\"{wide}\");\n")), 2);
        assert_eq!(found("src/a.rs", &format!("        \"{long}\"\n{}", "é".repeat(100))), 0, "no place to break");
        assert_eq!(found("src/a.rs", &"a".repeat(119).to_owned()), 0);
        assert_eq!(found("src/a.rs", &format!("{} b", "a".repeat(119))), 1);

        assert_eq!(found("docs/a.md", &format!("{narrow}\n{wide}\n- {wide}\n")), 2);
        assert_eq!(found("docs/a.md", &format!("# {wide}\n| {wide} |\n  | {wide} |\n")), 0, "headings and tables");
        assert_eq!(found("docs/a.md", &format!("```text\n{wide}\n```\n{wide}\n")), 1, "blocks");
        assert_eq!(
            found("docs/a.md", &format!("- [{narrow}](https://{narrow})\n12. `{wide}`\n{long}\n")),
            0,
            "one piece"
        );
        assert_eq!(found("docs/a.md", &format!("a [{narrow}](https://{narrow})\n")), 1, "a break before the link");
        assert_eq!(found("docs/configuration.md", &wide), 0, "generated");
        assert_eq!(found("docs/guides/zh/a.md", &wide) + found("README.zh-CN.md", &wide), 0, "Chinese");
    }

    #[test]
    fn dead_links_are_found() {
        let target = "# The `first` page, here\n## Again\n```text\n# No heading\n```\n## Again\n";
        let faults = |text: &str| {
            let texts = made_up(&[("README.md", target), ("docs/deep/a.md", text), ("docs/b.md", "")]);
            link_faults(&texts, &paths_of(&texts))
        };
        for alive in [
            "[a](../b.md), [b](../../README.md#the-first-page-here) and [c](../../README.md#again-1)",
            "[a](../../docs), [`b`](a.md#own)\n# Own",
            "[a](https://example.org/gone.md) `[b](gone.md)`\n```text\n[c](gone.md)\n```",
        ] {
            assert_eq!(faults(alive), [""; 0], "{alive}");
        }
        assert_eq!(faults("\n[a\nb](b.md)"), ["docs/deep/a.md:3 links to docs/deep/b.md, which is not there"]);
        for dead in ["[a](../../README.md#no-heading)", "[a](../../README.md#again-2)", "[a](#own)"] {
            assert_eq!(faults(dead).len(), 1, "{dead}");
        }
    }

    #[test]
    fn names_of_missing_files_are_found() {
        let source = "pub fn run() {}";
        let faults = |path: &str, text: &str| {
            let texts = made_up(&[("src/top/mod.rs", source), ("src/top/a.rs", ""), ("docs/b.md", ""), (path, text)]);
            name_faults(&texts, &Known::of(&paths_of(&texts), &texts)).len()
        };
        for alive in ["src/top/a.rs", "top/a.rs", "a.rs", "top/a", "src/top/", "docs/b.md", "top::a", "top::run"] {
            assert_eq!(faults("c.md", &format!("See `{alive}`.")), 0, "{alive}");
        }
        for gone in ["src/top/b.rs", "top/b.rs", "b.rs", "top/b", "src/bottom/", "docs/a.md", "top::b", "op/a.rs"] {
            assert_eq!(faults("c.md", &format!("| x | `{gone}` |")), 1, "{gone}");
            assert_eq!(faults("src/c.rs", &format!("    /// See `{gone}`.")), 1, "{gone}");
            assert_eq!(faults("src/c.rs", &format!("let a = \"`{gone}`\";")), 0, "code");
            assert_eq!(faults("c.md", &format!("```text\n`{gone}`\n```\n")), 0, "a block");
        }
        assert_eq!(
            faults("src/c.rs", "//! docs/a.md says how, docs/b.md why (src/top/a.rs, src/top/b.rs)."),
            2,
            "plain"
        );
        assert_eq!(
            faults("c.md", "either/or, src/top and [a page](../src/b.rs), [b](https://example.org/src/b.rs)"),
            0,
            "other words"
        );
        for other in ["GET", "application/json", "top::Type", "/etc/a.rs/", "a b.rs", "redis.conf"] {
            assert_eq!(faults("c.md", &format!("`{other}`")), 0, "{other}");
        }
    }
}
