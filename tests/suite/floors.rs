//! Imports go strictly downward, as the table of floors in ARCHITECTURE.md says: the imports of a folder of `src` are
//! exactly the ones in its row, and each of them lies further down. Inside a folder files may know each other, but not
//! in circles, beyond the known ones below.
//!
//! The test looks at code as written: `use`, and paths that begin with `crate`, `super`, `self` or a child module.
//! Comments, strings and tests are ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// Circles of files that still exist, each by its folder and files. A circle that is gone or has become smaller must be
/// taken out here. A commit that adds one gives the reason: a value and the pre-images of undo and the parts of
/// snapshots need each other, but most other circles should be cut.
const KNOWN_CIRCLES: &[&str] = &["net: conn listener raw_poller serve sign_in socket_table"];

#[test]
fn imports_go_downward_as_the_architecture_says() {
    let imports = Imports::of(&sources());
    let floors = Floors::read(&read("ARCHITECTURE.md")).unwrap_or_else(|told| panic!("ARCHITECTURE.md: {told}"));
    let faults = floors.faults(&imports);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_circles_of_files_except_the_known_ones() {
    let circles = Imports::of(&sources()).circles();
    let known: BTreeSet<String> = KNOWN_CIRCLES.iter().map(|circle| circle.to_string()).collect();
    let list = |circles: Vec<&String>| circles.iter().fold(String::new(), |list, circle| list + "\n    " + circle);
    let (new, gone) = (list(circles.difference(&known).collect()), list(known.difference(&circles).collect()));
    assert!(new.is_empty() && gone.is_empty(), "unknown circles:{new}\nknown circles that are gone:{gone}");
}

#[test]
fn no_import_runs_up_between_the_subjects_of_the_engine() {
    let faults = subject_faults(&Imports::of(&sources()), "engine", &subjects(&read("ARCHITECTURE.md")));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The engine, the folders that it is built on, and the effects of CONFIG SET.
const NAME_NO_COMMAND: &[&str] = &[
    "engine/",
    "session/",
    "wait/",
    "meters/",
    "persist/",
    "programs/",
    "lint/",
    "acl/",
    "spec/",
    "command/config/act",
];

/// Words in these files that are names of commands or parameters but mean something else there: the file, the words
/// (all: `*`), and their meaning. Facts about a command belong in the command's entry, not in a comparison with its
/// name.
const OTHER_MEANINGS: &[(&str, &[&str], &str)] = &[
    ("engine/client/access.rs", &["user"], "the first word of a line in a file of users"),
    ("acl/file.rs", &["user"], "the first word of a line in a file of users"),
    ("acl/log.rs", &["auth", "command", "multi"], "reasons and contexts of ACL LOG"),
    ("acl/user.rs", &["reset"], "a rule of ACL SETUSER"),
    ("engine/observe/events.rs", &["*"], "names of events, which are often those of commands"),
    ("meters/latency.rs", &["command"], "an event of LATENCY"),
    ("lint/commands.rs", &["limit"], "an option of commands that return all they find"),
    ("lint/parse/lexer.rs", &["function"], "a word of Lua"),
    ("lint/parse/parser.rs", &["function"], "a word of Lua"),
    ("lint/walk.rs", &["type"], "a function of Lua"),
    ("persist/conformance.rs", &["sync"], "an operation of the simulated disk"),
    ("persist/rdb_export.rs", &["rdb-export", "save"], "a thread, and who is said to have made a file"),
    ("spec/mod.rs", &["cluster", "pubsub", "readonly", "set"], "groups and flags as COMMAND shows them"),
    ("spec/syntax.rs", &["limit", "timeout"], "names of arguments"),
    ("wait/wait_queues.rs", &["ticket"], "a kind of push"),
];

#[test]
fn the_engine_names_no_command_and_no_parameter() {
    let commands = tidegate::command::table();
    let all = commands.iter().flat_map(|entry| std::iter::once(entry).chain(&entry.sub));
    let mut names: BTreeSet<&str> = all.map(|entry| entry.full_name.as_str()).collect();
    names.extend(
        tidegate::config::PARAMETERS.iter().flat_map(|parameter| [Some(parameter.name), parameter.alias]).flatten(),
    );
    let faults = names_in(&sources(), &names, OTHER_MEANINGS);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Returns the strings in the engine, or in the effects of CONFIG SET, that hold one of these names without another
/// listed meaning, and the listed meanings that no longer occur.
fn names_in(sources: &Sources, names: &BTreeSet<&str>, others: &[(&str, &[&str], &str)]) -> Vec<String> {
    let is_looked_at = |file: &str| NAME_NO_COMMAND.iter().any(|folder| file.starts_with(folder));
    let (mut faults, mut met) = (Vec::new(), BTreeSet::new());
    for (file, text) in sources.iter().filter(|(file, _)| is_looked_at(file)) {
        for token in without_tests(&tokens_and_strings(text)) {
            let Some(word) = token.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { continue };
            if !names.contains(word) {
                continue;
            }
            let known = others.iter().filter(|(other, ..)| other == file);
            match known.flat_map(|(_, words, _)| *words).find(|known| [word, "*"].contains(known)) {
                Some(known) => drop(met.insert((file.clone(), *known))),
                None => {
                    faults.push(format!("src/{file} has the name {word:?}: let the entry of that say what is meant"))
                }
            }
        }
    }
    for (file, words, _) in others {
        let gone = words.iter().filter(|word| !met.contains(&(file.to_string(), **word)));
        faults.extend(gone.map(|word| format!("src/{file} has no {word:?} that must be excused")));
    }
    faults
}

/// The folders in the table of subjects, from the bottom up. Other words between its backticks begin with a capital
/// letter.
fn subjects(text: &str) -> Vec<String> {
    let rows = text.lines().skip_while(|line| !line.starts_with("| Subject |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| quoted(row).next().map(str::to_owned)).collect()
}

/// Returns the imports between the subject folders of a folder that run up. Files directly in it belong to no subject:
/// they and the subjects may import each other.
fn subject_faults(imports: &Imports, folder: &str, order: &[String]) -> Vec<String> {
    let place = |file: &File| order.iter().position(|name| Some(&**name) == file.subject());
    let mut faults = Vec::new();
    for (file, imported) in imports.0.iter().filter(|(file, _)| file.folder() == folder && file.subject().is_some()) {
        let Some(own) = place(file) else {
            faults.push(format!("ARCHITECTURE.md names no subject of src/{}", file.0));
            continue;
        };
        let others = imported.iter().filter(|other| other.folder() == folder && other.subject().is_some());
        for other in others.filter(|other| place(other).is_none_or(|place| place > own)) {
            faults.push(format!("src/{} must not import {}, which lies above it", file.0, other.name()));
        }
    }
    faults
}

/// The text of each file of `src`, by its path below `src`.
type Sources = BTreeMap<String, String>;

fn sources() -> Sources {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut sources, mut folders) = (Sources::new(), vec![root.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("a readable folder").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&root).expect("it lies in the folder").to_string_lossy().into_owned();
                sources.insert(name, std::fs::read_to_string(&path).expect("text"));
            }
        }
    }
    sources
}

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The table of floors: the allowed imports of each folder, or of each file beside the folders.
struct Floors(BTreeMap<String, Floor>);

struct Floor {
    /// The number of the floor, counted from the ground.
    number: u32,
    /// The position on its floor: of two entries on one floor the later may import the earlier.
    place: usize,
    imports: Allowed,
}

enum Allowed {
    Everything,
    These(BTreeSet<String>),
}

impl Floors {
    /// Reads the rows `| number | where | what | imports |`. Names are in backticks; a semicolon introduces the imports
    /// of a single name, where these are not the imports of all.
    fn read(text: &str) -> Result<Floors, String> {
        let mut floors = BTreeMap::new();
        let rows = text.lines().skip_while(|line| !line.starts_with("| Floor |")).skip(2);
        for row in rows.take_while(|line| line.starts_with('|')) {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [number, places, _, imports] = cells[..] else { return Err(format!("not a row of four: {row}")) };
            let number = number.parse().map_err(|_| format!("not a floor's number: {number}"))?;
            let mut parts = imports.split(';').map(str::trim);
            let of_all = parts.next().unwrap_or_default();
            let of_one: BTreeMap<&str, &str> =
                parts.filter_map(|part| part.strip_prefix('`')?.split_once("` ")).collect();
            for (place, name) in quoted(places).enumerate() {
                let imports = Allowed::read(of_one.get(name).unwrap_or(&of_all));
                floors.insert(name.to_owned(), Floor { number, place, imports });
            }
        }
        if floors.is_empty() { Err("there is no table of floors".to_owned()) } else { Ok(Floors(floors)) }
    }

    /// Contradictions between the imports and the table, or within the table.
    fn faults(&self, imports: &Imports) -> Vec<String> {
        let mut faults = Vec::new();
        let mut used = BTreeSet::new();
        for (from, to) in imports.between_folders() {
            match (self.0.get(from.folder()), self.0.get(to.folder())) {
                (Some(above), Some(below)) if above.imports.has(to.folder()) && above.may_import(below) => {
                    used.insert((from.folder(), to.folder()));
                }
                (Some(_), Some(_)) => faults.push(format!("src/{} must not import {}", from.0, to.folder())),
                (None, _) => faults.push(format!("ARCHITECTURE.md names no floor of src/{}", from.0)),
                (_, None) => faults.push(format!("ARCHITECTURE.md names no floor of src/{}", to.0)),
            }
        }
        for (name, floor) in &self.0 {
            let Allowed::These(listed) = &floor.imports else { continue };
            // A row of two names may list the first as an import of the second.
            for listed in listed.iter().filter(|listed| *listed != name && !used.contains(&(&**name, &***listed))) {
                faults
                    .push(format!("ARCHITECTURE.md says that {name} imports {listed}, which it does not, or must not"));
            }
        }
        faults
    }
}

impl Floor {
    fn may_import(&self, other: &Floor) -> bool {
        (other.number, other.place) < (self.number, self.place)
    }
}

impl Allowed {
    fn read(list: &str) -> Allowed {
        if list == "all" {
            return Allowed::Everything;
        }
        let names = list.split(',').filter_map(|name| name.split_whitespace().next());
        Allowed::These(names.filter(|name| *name != "none").map(str::to_owned).collect())
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Allowed::Everything => true,
            Allowed::These(names) => names.contains(name),
        }
    }
}

/// The words between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// A file of `src`, by its path below `src`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct File(String);

impl File {
    /// The file's folder directly below `src`; for a file beside the folders, its own name.
    fn folder(&self) -> &str {
        self.0.split('/').next().map_or("", |first| first.trim_end_matches(".rs"))
    }

    /// The subfolder that holds the file; `None` for a file directly in its folder.
    fn subject(&self) -> Option<&str> {
        self.0.split_once('/')?.1.split_once('/').map(|(subject, _)| subject)
    }

    /// The file's path inside its folder.
    fn name(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, name)| name).trim_end_matches(".rs")
    }
}

/// The imports of each file.
struct Imports(BTreeMap<File, BTreeSet<File>>);

impl Imports {
    fn of(sources: &Sources) -> Imports {
        // Modules by their paths, found from the two roots, so that those of tests are left out.
        let mut modules: BTreeMap<Vec<String>, (File, Parsed)> = BTreeMap::new();
        let mut open = vec![(Vec::new(), "lib.rs".to_owned()), (vec!["main".to_owned()], "main.rs".to_owned())];
        while let Some((path, name)) = open.pop() {
            let Some(text) = sources.get(&name) else { continue };
            let parsed = Parsed::of(text);
            let folder = if path.is_empty() { String::new() } else { path.join("/") + "/" };
            for child in &parsed.children {
                let names = [format!("{folder}{child}.rs"), format!("{folder}{child}/mod.rs")];
                let name = names.into_iter().find(|name| sources.contains_key(name));
                open.extend(name.map(|name| ([&path[..], std::slice::from_ref(child)].concat(), name)));
            }
            modules.insert(path, (File(name), parsed));
        }
        let mut imports = BTreeMap::new();
        for (path, (file, parsed)) in &modules {
            let targets = parsed.paths.iter().filter_map(|import| {
                let absolute = absolute(path, &parsed.children, import)?;
                // The longest prefix that is a module; the rest names an item in it.
                let found = (1..=absolute.len()).rev().find_map(|len| modules.get(&absolute[..len]));
                found.map(|(target, _)| target).filter(|target| *target != file).cloned()
            });
            imports.insert(file.clone(), targets.collect());
        }
        Imports(imports)
    }

    /// Each import of a file from another folder.
    fn between_folders(&self) -> impl Iterator<Item = (&File, &File)> {
        let all = self.0.iter().flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
        all.filter(|(from, to)| from.folder() != to.folder() && from.0 != "lib.rs")
    }

    /// Sets of files that all need each other, in the form of [`KNOWN_CIRCLES`].
    fn circles(&self) -> BTreeSet<String> {
        let reached: BTreeMap<&File, BTreeSet<&File>> = self.0.keys().map(|file| (file, self.reached(file))).collect();
        let circle = |file: &File| {
            let mut circle = String::new();
            for other in reached[file].iter().filter(|other| reached[*other].contains(file)) {
                let _ = write!(circle, " {}", other.name());
            }
            (!circle.is_empty()).then(|| format!("{}:{circle}", file.folder()))
        };
        self.0.keys().filter_map(circle).collect()
    }

    /// The files that a file imports, directly or indirectly.
    fn reached<'a>(&'a self, from: &'a File) -> BTreeSet<&'a File> {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(file) = open.pop() {
            open.extend(self.0[file].iter().filter(|next| reached.insert(*next)));
        }
        reached
    }
}

/// The absolute form of a module's path; `None` for a path of another crate or a local name.
fn absolute(module: &[String], children: &BTreeSet<String>, path: &[String]) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    let mut base = match first.as_str() {
        "crate" if module.first().is_some_and(|root| root == "main") => vec!["main".to_owned()],
        "crate" | "tidegate" => Vec::new(),
        "self" => module.to_vec(),
        "super" => module[..module.len() - 1].to_vec(),
        child if children.contains(child) => [module, &[child.to_owned()]].concat(),
        _ => return None,
    };
    for name in rest {
        match name.as_str() {
            "super" => drop(base.pop()),
            name => base.push(name.to_owned()),
        }
    }
    Some(base)
}

/// The parts of a file's text that show which other files it needs.
struct Parsed {
    /// The modules that it declares in files of their own.
    children: BTreeSet<String>,
    /// All paths in it.
    paths: BTreeSet<Vec<String>>,
}

impl Parsed {
    fn of(text: &str) -> Parsed {
        let tokens = without_tests(&tokens(text));
        let (mut children, mut paths) = (BTreeSet::new(), BTreeSet::new());
        // Inside an inline module, `super` is the file's module.
        let (mut depth, mut inline) = (0, Vec::new());
        for (at, token) in tokens.iter().enumerate() {
            match token.as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                "mod" if tokens.get(at + 2).is_some_and(|next| next == ";") => {
                    children.insert(tokens[at + 1].clone());
                }
                "mod" if tokens.get(at + 2).is_some_and(|next| next == "{") => inline.push(depth),
                _ => {}
            }
            inline.retain(|outside| depth >= *outside);
            // `pub(in crate::engine)` restricts visibility; it imports nothing.
            let is_visibility = at >= 2 && tokens[at - 1] == "in" && tokens[at - 2] == "(";
            let begins =
                is_name(token) && !is_visibility && at.checked_sub(1).is_none_or(|before| tokens[before] != "::");
            if begins && tokens.get(at + 1).is_some_and(|next| next == "::") {
                let mut found = Vec::new();
                expand(&tokens[at..], &[], &mut found);
                let outward = if inline.is_empty() { 0 } else { 1 };
                paths.extend(found.into_iter().map(|path| {
                    let is_outward = outward == 1 && path[0] == "super";
                    if is_outward { [&["self".to_owned()], &path[1..]].concat() } else { path }
                }));
            }
        }
        Parsed { children, paths }
    }
}

/// Adds the paths that begin here: `a::{b, c::d}` is two. Returns the number of tokens read.
fn expand(tokens: &[String], before: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let mut path = before.to_vec();
    let mut at = 0;
    loop {
        match tokens.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    at += expand(&tokens[at..], &path, found).max(1);
                }
                return at + 1;
            }
            Some(name) if is_name(name) => {
                // `{self}` is the module itself.
                if name != "self" || path.is_empty() {
                    path.push(name.to_owned());
                }
                at += 1;
            }
            _ => break,
        }
        if tokens.get(at).is_none_or(|token| token != "::") {
            break;
        }
        at += 1;
    }
    if path.len() > before.len() || at > 0 {
        found.push(path);
    }
    at
}

fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Names, `::`, and every other character by itself; without comments and quoted text.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = tokens_and_strings(text);
    tokens.retain(|token| !token.starts_with('"'));
    tokens
}

/// Like [`tokens`], with the strings in double quotes, except for raw ones.
fn tokens_and_strings(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = match first {
            _ if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '"' => {
                let len = quoted_len(rest);
                tokens.push(rest[..len].to_owned());
                len
            }
            '\'' => char_len(rest),
            _ if rest.starts_with("::") => {
                tokens.push("::".to_owned());
                2
            }
            _ if first.is_alphanumeric() || first == '_' => {
                let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                match (&rest[..len], raw_len(&rest[len..])) {
                    ("r" | "br" | "cr", Some(raw)) => len + raw,
                    (name, _) => {
                        tokens.push(name.to_owned());
                        len
                    }
                }
            }
            _ if first.is_whitespace() => first.len_utf8(),
            _ => {
                tokens.push(first.to_string());
                first.len_utf8()
            }
        };
        rest = &rest[len..];
    }
    tokens
}

/// The length of a string in double quotes.
fn quoted_len(text: &str) -> usize {
    let mut escaped = false;
    let end = text.char_indices().skip(1).find(|(_, c)| {
        let ends = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

/// The length of a raw string after its `r`; `None` if it is not one.
fn raw_len(text: &str) -> Option<usize> {
    let hashes = text.find(|c| c != '#')?;
    text[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", &text[..hashes]);
    let at = text[hashes + 1..].find(&end)?;
    Some(hashes + 1 + at + end.len())
}

/// The length of a character in quotes, or of the single tick that begins a lifetime.
fn char_len(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, escaped))) => {
            let behind = at + escaped.len_utf8();
            text[behind..].find('\'').map_or(1, |end| behind + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

/// The tokens without the items, fields and statements for tests only.
fn without_tests(tokens: &[String]) -> Vec<String> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        if tokens[at..].iter().take(MARK.len()).eq(MARK.iter()) {
            at += MARK.len();
            at += item_len(&tokens[at..]);
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

/// The number of tokens in the item at the start: up to its semicolon, comma or closing brace.
fn item_len(tokens: &[String]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" if depth == 0 => return at,
            "}" if depth == 1 => return at + 1,
            "}" | ")" | "]" => depth -= 1,
            ";" | "," if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// The check itself, on made-up sources.
mod made_up {
    use super::*;

    const FLOORS: &str = "\
| Floor | Where | What | Imports |
|---|---|---|---|
| 2 | `main`, `top` | both | all; `top` none |
| 1 | `left`, `right` | two | base (numbers); `right` left, base |
| 0 | `base` | ground | none |
";

    fn imports(files: &[(&str, &str)]) -> Imports {
        let lib = ("lib.rs", "pub mod base; pub mod left; mod right; mod top;");
        Imports::of(&[lib].iter().chain(files).map(|(name, text)| (name.to_string(), text.to_string())).collect())
    }

    fn faults(files: &[(&str, &str)]) -> Vec<String> {
        Floors::read(FLOORS).unwrap_or_else(|told| panic!("{told}")).faults(&imports(files))
    }

    const BASE: (&str, &str) = ("base/mod.rs", "pub mod num;");
    const NUM: (&str, &str) = ("base/num.rs", "pub const ONE: u8 = 1;");
    const LEFT: (&str, &str) = ("left.rs", "use crate::base::num::{self, ONE};");
    const RIGHT: (&str, &str) = ("right.rs", "fn f() { crate::left::g(super::base::num::ONE) }");

    #[test]
    fn downward_imports_are_allowed() {
        let main = ("main.rs", "use tidegate::{left, base::num}; fn main() { tidegate::right::f() }");
        assert_eq!(faults(&[BASE, NUM, LEFT, RIGHT, ("top.rs", ""), main]), [""; 0]);
    }

    #[test]
    fn all_other_imports_are_faults() {
        let of = |file: (&str, &str), instead: usize| {
            let mut files = [BASE, NUM, LEFT, RIGHT, ("top.rs", "")];
            files[instead] = file;
            faults(&files)
        };
        for upward in [
            "use crate::{left::Left};",
            "use super::super::left;",
            "fn f() { let a = 'x'; crate::left::f::<u8>() }",
            "mod inner { use crate::left::*; }",
            "macro_rules! m { () => { $crate::left::f() } }",
            "#[cfg(test)] fn f<T>(a: u8, b: u8) { g(); } #[cfg(test)] mod tests { } pub use crate::left as other;",
        ] {
            assert_eq!(of(("base/num.rs", upward), 1), ["src/base/num.rs must not import left"], "{upward}");
        }
        // Beside each other on a floor: only as the table says.
        assert_eq!(of(("left.rs", "use crate::{base::num, right};"), 2), ["src/left.rs must not import right"]);
        // Even downward imports are forbidden unless the table lists them, and each listed import must exist.
        assert_eq!(of(("top.rs", "use crate::base;"), 4), ["src/top.rs must not import base"]);
        assert_eq!(
            of(("right.rs", "use crate::base;"), 3),
            ["ARCHITECTURE.md says that right imports left, which it does not, or must not"]
        );
        let nowhere = [BASE, NUM, LEFT, RIGHT, ("main.rs", "mod attic; use attic::x;"), ("main/attic.rs", "")];
        assert_eq!(faults(&nowhere), [""; 0]);
        let attic = [("lib.rs", "mod base; mod attic;"), ("base/mod.rs", ""), ("attic.rs", "use super::base;")];
        let told = "ARCHITECTURE.md names no floor of src/attic.rs";
        assert!(faults(&attic).contains(&told.to_owned()));
    }

    #[test]
    fn subjects_are_checked_by_their_order() {
        const SUBJECTS: &str =
            "\n| Subject | What |\n|---|---|\n| `low` | of which `Name` tells |\n| `high` | the rest |\n\n| `c` |";
        assert_eq!(subjects(SUBJECTS), ["low", "high"]);
        let faults = |low: &str, more: &[(&str, &str)]| {
            let files = [
                ("left/mod.rs", "mod low; mod high; mod other; mod state; pub use high::B;"),
                ("left/low/mod.rs", low),
                ("left/high/mod.rs", "mod inner; use super::low; use super::state;"),
                ("left/high/inner.rs", "use crate::left::{low, high};"),
                ("left/state.rs", "use super::{low, high};"),
            ];
            subject_faults(&imports(&[&files, more].concat()), "left", &subjects(SUBJECTS))
        };
        assert_eq!(faults("use crate::base::num; use super::state;", &[]), [""; 0]);
        assert_eq!(
            faults("use super::high;", &[]),
            ["src/left/low/mod.rs must not import high/mod, which lies above it"]
        );
        assert_eq!(
            faults("", &[("left/other/mod.rs", "")]),
            ["ARCHITECTURE.md names no subject of src/left/other/mod.rs"]
        );
    }

    #[test]
    fn comments_strings_and_tests_hold_no_imports() {
        let quiet = r####"
            //! [`crate::left`]
            /* use crate::left; */
            const TEXT: &str = "\" use crate::left;";
            const RAW: &str = r#"" crate::left::f() "#;
            const QUOTE: char = '"'; const TICK: char = '\''; fn f<'a>(_: &'a str) { other::left::f() }
            struct S { #[cfg(test)] left: crate::left::Left, kept: u8 }
            #[cfg(test)]
            mod tests { use crate::left; fn t() { if true { crate::left::f() } } }
            #[cfg(test)]
            mod more;
        "####;
        let more = ("base/num/more.rs", "use crate::left;");
        assert_eq!(faults(&[BASE, ("base/num.rs", quiet), more, LEFT, RIGHT]), [""; 0]);
    }

    #[test]
    fn names_are_found_in_code_and_nowhere_else() {
        let code = r#"
            // "get"
            fn f(name: &str) -> bool { name == "get" || b"set" == name || name == "got" }
            #[cfg(test)]
            mod tests { const A: &str = "get"; }
        "#;
        let sources =
            [("engine/a.rs", code), ("net/b.rs", code)].map(|(file, text)| (file.to_owned(), text.to_owned()));
        let names = BTreeSet::from(["get", "set"]);
        let faults = |others: &[(&str, &[&str], &str)]| names_in(&Sources::from(sources.clone()), &names, others).len();
        assert_eq!(faults(&[]), 2);
        assert_eq!(faults(&[("engine/a.rs", &["set"], "")]), 1);
        assert_eq!(faults(&[("engine/a.rs", &["*"], "")]), 0);
        assert_eq!(faults(&[("engine/a.rs", &["*", "get"], ""), ("engine/c.rs", &["x"], "")]), 2);
    }

    #[test]
    fn circles_are_named_by_their_files() {
        let module = ("left/mod.rs", "mod a; mod b; mod c; pub use b::B; use c::C;");
        let circle = [
            ("left/a.rs", "use super::b::B;"),
            ("left/b.rs", "use super::c::{C, D};"),
            ("left/c.rs", "fn f() { super::a::g(b::no_module_of_mine()) }"),
        ];
        let files: Vec<_> = [module].iter().chain(&circle).copied().collect();
        assert_eq!(imports(&files).circles().into_iter().collect::<Vec<_>>(), ["left: a b c"]);
        let files = [module, circle[0], circle[1], ("left/c.rs", "")];
        assert_eq!(imports(&files).circles().len(), 0);
        let through_the_module = ("left/c.rs", "use super::B;");
        let files = [module, ("left/a.rs", ""), ("left/b.rs", ""), through_the_module];
        assert_eq!(imports(&files).circles().into_iter().collect::<Vec<_>>(), ["left: c mod"]);
    }
}
