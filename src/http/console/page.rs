//! The files of the page.
//!
//! They lie in `console/` and are a part of the program; a debug build reads them from there, so that a change shows
//! when the page is loaded again. Their addresses contain a digest of all of them. A browser keeps them for ever, and
//! asks anew only for the first page, which names the addresses.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use axum::response::{IntoResponse as _, Response};
use flate2::Compression;
use sha2::{Digest as _, Sha256};

use super::super::gzip::{self, PLAIN_MAX_BYTES};
use super::guard::{Refused, refusal};
use crate::base::hex::hex;

/// A file by its path in `console/`.
struct File {
    name: &'static str,
    bytes: &'static [u8],
}

macro_rules! files {
    ($($name:literal,)+) => {
        &[$(File {
            name: $name,
            bytes: include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/console/", $name)),
        },)+]
    };
}

/// The first page.
const INDEX: &str = "index.html";

/// All files.
const FILES: &[File] = files! {
    "index.html",
    "style.css",
    "icon.svg",
    "main.js",
    "html.js",
    "api.js",
    "live.js",
    "route.js",
    "lang.js",
    "format.js",
    "parts.js",
    "scan.js",
    "lang/en.js",
    "lang/zh.js",
    "screens/overview.js",
    "screens/locks.js",
    "screens/stocks.js",
    "screens/limits.js",
    "screens/queues.js",
    "screens/once.js",
    "screens/events.js",
    "screens/scripts.js",
    "screens/clients.js",
    "screens/hot.js",
    "screens/keys.js",
    "screens/memory.js",
    "screens/command.js",
    "vendor/preact.module.js",
    "vendor/htm.module.js",
    "vendor/signals-core.module.js",
    "vendor/LICENSES.txt",
};

/// In the first page, the place of the path to the other files.
const ASSETS: &str = "{assets}";

/// In the first page, the place of the names of all modules, which browsers then fetch at once.
const MODULES: &str = "<!-- modules -->";

/// See the file's header.
pub(super) struct Page {
    digest: OnceLock<String>,
    /// The compressed files, in the order of [`FILES`].
    compressed: Vec<OnceLock<Vec<u8>>>,
}

/// Returns a file as it is now in a debug build, else as it was built in.
fn content(file: &File) -> Cow<'static, [u8]> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/console/");
    match cfg!(debug_assertions).then(|| std::fs::read(path.to_owned() + file.name)) {
        Some(Ok(bytes)) => Cow::Owned(bytes),
        _ => Cow::Borrowed(file.bytes),
    }
}

fn digest_now() -> String {
    let mut digest = Sha256::new();
    for file in FILES {
        digest.update(file.name);
        digest.update(content(file));
    }
    hex(&digest.finalize()[..8])
}

fn kind_of(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

impl Page {
    pub(super) fn new() -> Page {
        Page { digest: OnceLock::new(), compressed: FILES.iter().map(|_| OnceLock::new()).collect() }
    }

    fn digest(&self) -> String {
        if cfg!(debug_assertions) { digest_now() } else { self.digest.get_or_init(digest_now).clone() }
    }

    /// The first page, with the addresses of the other files.
    fn index(&self) -> String {
        let assets = format!("assets/{}", self.digest());
        let modules = FILES.iter().filter(|file| file.name.ends_with(".js"));
        let modules = modules.map(|file| format!("<link rel=\"modulepreload\" href=\"{assets}/{}\">\n", file.name));
        let file = FILES.iter().find(|file| file.name == INDEX).map(content).unwrap_or_default();
        let text = String::from_utf8_lossy(&file).into_owned();
        text.replace(MODULES, &modules.collect::<String>()).replace(ASSETS, &assets)
    }

    /// A file, compressed as well as possible, which is done once.
    fn compressed(&self, at: usize) -> Cow<'_, [u8]> {
        let compress = || gzip::compress(&content(&FILES[at]), Compression::best()).unwrap_or_default();
        match cfg!(debug_assertions) {
            true => Cow::Owned(compress()),
            false => Cow::Borrowed(self.compressed[at].get_or_init(compress)),
        }
    }
}

/// `GET /`
pub(super) async fn index(State(page): State<Arc<Page>>) -> Response {
    let head = [(CONTENT_TYPE, kind_of(INDEX)), (CACHE_CONTROL, "no-cache")];
    (head, page.index()).into_response()
}

/// `GET /assets/{digest}/{name}`
pub(super) async fn asset(
    State(page): State<Arc<Page>>,
    Path((digest, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let found = FILES.iter().position(|file| file.name == name && name != INDEX);
    let Some(at) = found.filter(|_| digest == page.digest()) else { return refusal(Refused::NotHere) };
    let head = [
        (CONTENT_TYPE, kind_of(&name)),
        (CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (VARY, "Accept-Encoding"),
    ];
    let file = content(&FILES[at]);
    if file.len() > PLAIN_MAX_BYTES && gzip::is_accepted(&headers) {
        return (head, [(CONTENT_ENCODING, "gzip")], page.compressed(at).into_owned()).into_response();
    }
    (head, file.into_owned()).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The files of `console/` that are not part of the page.
    const OTHERS: &[&str] = &["README.md"];

    #[test]
    fn every_file_is_listed() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("console");
        let (mut found, mut open) = (BTreeSet::new(), vec![root.clone()]);
        while let Some(folder) = open.pop() {
            for path in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
                if path.is_dir() {
                    open.push(path);
                } else {
                    let name = path.strip_prefix(&root).expect("it lies there").to_string_lossy().into_owned();
                    found.insert(name);
                }
            }
        }
        let listed = FILES.iter().map(|file| file.name).chain(OTHERS.iter().copied()).map(str::to_owned).collect();
        assert_eq!(found, listed);
    }

    #[test]
    fn the_first_page_names_the_addresses_of_all_modules() {
        let page = Page::new();
        let (index, digest) = (page.index(), page.digest());
        assert!(!index.contains(ASSETS) && !index.contains(MODULES), "{index}");
        for file in FILES.iter().filter(|file| file.name.ends_with(".js")) {
            assert!(index.contains(&format!("href=\"assets/{digest}/{}\"", file.name)), "{}: {index}", file.name);
        }
    }

    fn file(name: &str) -> String {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("console").join(name);
        std::fs::read_to_string(path).expect("text")
    }

    #[test]
    fn libraries_are_unchanged_and_their_licences_are_here() {
        let (readme, licences) = (file("README.md"), file("vendor/LICENSES.txt"));
        let mut known = BTreeSet::new();
        for row in readme.lines().filter(|line| line.contains(".module.js` |")) {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [name, package, licence, digest] = cells[..] else { panic!("not a row of four: {row}") };
            let name = format!("vendor/{}", name.trim_matches('`'));
            let found = hex(&Sha256::digest(file(&name)));
            assert_eq!(found, digest, "{name}");
            assert!(licences.contains(&format!("{package}\n")), "{package}");
            assert!(["MIT", "Apache-2.0"].contains(&licence), "{licence}");
            known.insert(name);
        }
        let vendored = FILES.iter().map(|file| file.name).filter(|name| name.starts_with("vendor/"));
        let vendored = vendored.filter(|name| name.ends_with(".js")).map(str::to_owned).collect();
        assert_eq!(known, vendored);
    }

    /// The texts of a language: a module that exports an object, which is JSON but for its last comma.
    fn texts(language: &str) -> serde_json::Map<String, serde_json::Value> {
        let module = file(&format!("lang/{language}.js"));
        let object = module.strip_prefix("export default ").and_then(|rest| rest.trim_end().strip_suffix(";"));
        let object = object.expect("it exports an object").replace(",\n}", "\n}");
        serde_json::from_str(&object).expect("texts by their names")
    }

    /// The words in braces of a text, which are replaced by values: `{n}`, or `{n|is|are}`.
    fn holes(text: &serde_json::Value) -> BTreeSet<String> {
        let holes = text.as_str().expect("a text").split('{').skip(1);
        holes.filter_map(|rest| rest.split(['|', '}']).next()).map(str::to_owned).collect()
    }

    #[test]
    fn both_languages_have_all_texts() {
        let (english, chinese) = (texts("en"), texts("zh"));
        assert_eq!(english.keys().collect::<Vec<_>>(), chinese.keys().collect::<Vec<_>>());
        for (name, text) in &english {
            assert_eq!(holes(text), holes(&chinese[name]), "{name}");
        }
        let of_page = |name: &&str| name.ends_with(".js") && !name.contains("vendor/") && !name.contains("lang/");
        let modules = FILES.iter().map(|file| file.name).filter(of_page);
        let modules: Vec<(&str, String)> = modules.map(|name| (name, file(name))).collect();
        for (module, code) in &modules {
            for name in asked_for(code) {
                // `t("type." + type)` asks for one of a group.
                let is_group = name.ends_with('.') && english.keys().any(|known| known.starts_with(&name));
                assert!(english.contains_key(&name) || is_group, "{module} asks for {name}");
            }
        }
        let is_named = |name: &str| modules.iter().any(|(_, code)| code.contains(&format!("\"{name}\"")));
        for name in english.keys() {
            let is_of_group = name.find('.').is_some_and(|dot| is_named(&name[..=dot]));
            assert!(is_named(name) || is_of_group, "no module asks for {name}");
        }
    }

    /// The names of texts in a module: `t("name"`.
    fn asked_for(module: &str) -> Vec<String> {
        let calls = module.match_indices("t(\"");
        let calls = calls.filter(|(at, _)| !module[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '.'));
        calls.filter_map(|(at, call)| Some(module[at + call.len()..].split_once('"')?.0.to_owned())).collect()
    }
}
