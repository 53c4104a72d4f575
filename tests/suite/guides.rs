//! The README and the guides are there in English and Chinese. Each language is written for itself, but both have the
//! same sections, programs, tables and links, in the same order, so that a change of one that the other lacks is found.
//! The facts that the README and the guides repeat from other places are compared with those places.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::{Texts, beside, links, prose, texts};

/// The Chinese page for an English one, if it has to have one.
fn in_chinese(page: &str) -> Option<String> {
    match page.strip_prefix("docs/guides/") {
        Some(name) if !name.contains('/') => Some(format!("docs/guides/zh/{name}")),
        _ => (page == "README.md").then(|| "README.zh-CN.md".to_owned()),
    }
}

/// The English page for a Chinese one.
fn in_english(page: &str) -> String {
    page.replace("README.zh-CN.md", "README.md").replace("docs/guides/zh", "docs/guides")
}

#[test]
fn both_languages_say_the_same() {
    let texts = texts();
    let faults = language_faults(&texts);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let pairs = texts.keys().filter(|page| in_chinese(page).is_some()).count();
    assert!(pairs >= 8, "{pairs} pages in two languages");
}

#[test]
fn the_summary_lists_each_page_once() {
    let texts = texts();
    let summary = &texts["docs/SUMMARY.md"];
    let mut listed = BTreeMap::new();
    for link in links(summary) {
        *listed.entry(beside("docs/SUMMARY.md", link.target)).or_insert(0) += 1;
    }
    let twice: Vec<_> = listed.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    let listed: BTreeSet<String> = listed.into_keys().collect();
    let pages = texts.keys().filter(|page| page.starts_with("docs/") && *page != "docs/SUMMARY.md").cloned().collect();
    assert_eq!(listed, pages);
}

#[test]
fn figures_of_the_readme_are_those_that_were_measured() {
    let texts = texts();
    let measured: BTreeSet<&str> =
        texts["docs/performance.md"].split(|c: char| !c.is_ascii_digit() && c != '.').collect();
    for page in ["README.md", "README.zh-CN.md"] {
        let rows: Vec<&str> =
            texts[page].lines().filter(|line| line.ends_with("` |") && line.contains("bench")).collect();
        assert_eq!(rows.len(), 3, "{page} has three figures");
        for row in rows {
            let (figure, command) = row.trim_matches('|').split_once(" | ").expect("two columns");
            let command = command.trim().trim_matches('`');
            assert!(texts["docs/performance.md"].contains(command), "{page}: no section is measured by {command}");
            for number in numbers(figure).filter(|number| number.len() > 1) {
                assert!(measured.contains(number.as_str()), "{page}: {number} is not in docs/performance.md: {figure}");
            }
        }
    }
}

#[test]
fn the_readme_installs_as_the_page_says() {
    let texts = texts();
    let shown = &texts["docs/install.md"];
    for page in ["README.md", "README.zh-CN.md"] {
        let rows = texts[page].lines().filter(|line| line.starts_with('|'));
        let is_of_package =
            |code: &&str| code.contains("tidegate") && (code.contains("0.1.0") || code.contains("install "));
        let lines: Vec<&str> = rows.flat_map(code).filter(is_of_package).collect();
        assert!(lines.len() >= 5, "{page}: {lines:?}");
        for line in lines {
            assert!(shown.contains(line), "{page}: {line} is not in docs/install.md");
        }
    }
}

#[test]
fn versions_of_clients_are_those_that_run() {
    let lock = |path: &str| {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(path);
        std::fs::read_to_string(path).expect("a lock file")
    };
    let page = &texts()["docs/guides/works-with.md"];
    let mut checked = 0;
    for row in page.lines() {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, language, library, versions, _] = cells[..] else { continue };
        let locked: &dyn Fn(&str) -> bool = match language {
            "Python" => &|version| lock("python/requirements.txt").contains(&format!("=={version} ")),
            "Go" => &|version| lock("go/go.mod").contains(&format!(" v{version}\n")),
            "Java" if library.starts_with("Spring Boot") => &|version| lock("spring/run").contains(version),
            "Java" => &|version| lock("java/pom.xml").contains(&format!("<version>{version}")),
            "JavaScript" => &|version| lock("javascript/package.json").contains(&format!("\"{version}\"")),
            _ => continue,
        };
        for version in versions.split(", ") {
            assert!(locked(version), "tests/clients does not run {library} {version}");
            checked += 1;
        }
    }
    assert!(checked > 10, "{checked} versions");
}

/// Returns the differences between the two languages of each page.
fn language_faults(texts: &Texts) -> Vec<String> {
    let mut faults = Vec::new();
    for (page, english) in texts {
        let Some(other) = in_chinese(page) else { continue };
        let Some(chinese) = texts.get(&other) else {
            faults.push(format!("{page} has no {other}"));
            continue;
        };
        let mut compare = |what: &str, english: Vec<String>, chinese: Vec<String>| {
            if english != chinese {
                faults.push(format!("{other}: its {what} differ from those of {page}:\n{chinese:#?}\n{english:#?}"));
            }
        };
        compare("headings", headings(english), headings(chinese));
        compare("blocks", blocks(english), blocks(chinese));
        compare("tables", tables(english), tables(chinese));
        compare("links", targets(page, english), targets(&other, chinese));
    }
    let pages = texts.keys().filter(|page| page.starts_with("docs/guides/zh/"));
    let alone = pages.filter(|page| !texts.contains_key(&in_english(page)));
    faults.extend(alone.map(|page| format!("{page} has no page in English")));
    faults
}

/// The level of each heading.
fn headings(text: &str) -> Vec<String> {
    let level = |line: &str| line.chars().take_while(|c| *c == '#').collect::<String>();
    prose(text).into_iter().flatten().map(level).filter(|level| !level.is_empty()).collect()
}

/// The fenced blocks, with their languages.
fn blocks(text: &str) -> Vec<String> {
    let mut blocks: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        if is_fence && !is_open {
            blocks.push(String::new());
        }
        if let Some(block) = blocks.last_mut().filter(|_| is_open || is_fence) {
            block.extend([line, "\n"]);
        }
        is_open ^= is_fence;
    }
    blocks
}

/// The number of columns of each row of a table.
fn tables(text: &str) -> Vec<String> {
    let rows = prose(text).into_iter().flatten().filter(|line| line.starts_with('|'));
    rows.map(|row| format!("{} columns", row.replace("\\|", "").matches('|').count() - 1)).collect()
}

/// Where the links lead, sorted: another language may name two of them in another order. Headings that are there in two
/// languages have two anchors, so only the page counts.
fn targets(page: &str, text: &str) -> Vec<String> {
    let target = |target: &str| {
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let file = if file.is_empty() { page.to_owned() } else { beside(page, file) };
        let has_two = in_chinese(&in_english(&file)).is_some();
        // A picture may have been taken in each language.
        let file = file.replace("docs/images/zh", "docs/images");
        if has_two { in_english(&file) } else { format!("{file}#{anchor}") }
    };
    let mut targets: Vec<String> = links(text).iter().map(|link| target(link.target)).collect();
    targets.sort();
    targets
}

/// The numbers of a sentence, without the commas between their digits.
fn numbers(text: &str) -> impl Iterator<Item = String> {
    let plain: String = text.chars().filter(|c| *c != ',').collect();
    let words: Vec<String> =
        plain.split(|c: char| !c.is_ascii_digit() && c != '.').map(|word| word.trim_matches('.').to_owned()).collect();
    words.into_iter().filter(|word| !word.is_empty())
}

/// The words of a line in backticks.
fn code(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

/// The checks themselves, on invented pages.
mod made_up {
    use super::*;

    const ENGLISH: &str =
        "# A\n\nSee [b](b.md#two) and [c](../c.md#three).\n\n```sh\nls\n```\n\n## B\n\n| a | b |\n|---|---|\n";

    fn faults(english: &str, chinese: &str) -> usize {
        let page = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let texts = [
            page("docs/guides/a.md", english),
            page("docs/guides/zh/a.md", chinese),
            page("docs/guides/b.md", ""),
            page("docs/guides/zh/b.md", ""),
        ];
        language_faults(&texts.into()).len()
    }

    #[test]
    fn pages_that_say_the_same_have_no_faults() {
        let chinese = "# 甲\n\n见 [丙](../../c.md#three) 和 [乙](b.md#二)。\n\n```sh\nls\n```\n\n## 乙\n\n\
            | 甲 | 乙 |\n|---|---|\n";
        assert_eq!(faults(ENGLISH, chinese), 0);
    }

    #[test]
    fn a_change_in_one_language_is_found() {
        let same = ENGLISH.replace("../c.md", "../../c.md");
        assert_eq!(faults(ENGLISH, &same), 0);
        for (from, to) in [
            ("## B", "B"),
            ("## B", "### B"),
            ("ls\n", "ls -l\n"),
            ("```sh", "```text"),
            ("| a | b |\n", "| a | b | c |\n"),
            ("|---|---|\n", ""),
            ("b.md", "a.md"),
            ("#three", "#four"),
            (" and [c](../../c.md#three)", ""),
        ] {
            assert_eq!(faults(ENGLISH, &same.replacen(from, to, 1)), 1, "{from} has become {to}");
        }
    }

    #[test]
    fn a_page_in_one_language_is_found() {
        let page = |path: &str| Texts::from([(path.to_owned(), String::new())]);
        for path in ["README.md", "docs/guides/a.md", "docs/guides/zh/a.md"] {
            assert_eq!(language_faults(&page(path)).len(), 1, "{path}");
        }
        assert_eq!(language_faults(&page("docs/install.md")).len(), 0);
    }
}
