//! Which files to import: one that is named, or those of a folder.
//!
//! A folder of Redis holds a `dump.rdb`, an `appendonly.aof` (up to Redis 6), or an `appendonlydir` (since Redis 7), whose
//! manifest names its files in order:
//!
//! ```text
//! file appendonly.aof.1.base.rdb seq 1 type b
//! file appendonly.aof.1.incr.aof seq 1 type i
//! ```
//!
//! `b` is the base, `i` what came after it, `h` is no longer needed. A folder with more than one of the three does not say which
//! of them is up to date: that depends on a configuration that is not there. Then somebody has to say so.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::error::ImportError;
use crate::rdb::file::FileError;

/// The names that Redis gives, unless it is configured otherwise.
const RDB: &str = "dump.rdb";
const AOF_DIR: &str = "appendonlydir";
const AOF: &str = "appendonly.aof";

/// Bytes of a manifest, which has a line of some 50 bytes for each file.
const MANIFEST_MAX_BYTES: u64 = 1024 * 1024;

/// Files in the order in which they are read: one at least.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Files {
    paths: Vec<PathBuf>,
    bytes: u64,
}

impl Files {
    /// What `path` is or holds.
    pub(super) fn at(path: &Path) -> Result<Files, ImportError> {
        let wrong = |what: &str| ImportError::Files { path: path.to_owned(), what: what.to_owned() };
        let kind = fs::metadata(path).map_err(|error| wrong(&error.to_string()))?;
        if !kind.is_dir() {
            let is_manifest = path.extension().is_some_and(|extension| extension == "manifest");
            return if is_manifest { Files::of_manifest(path) } else { Files::of(vec![path.to_owned()]) };
        }
        if let Some(manifest) = manifest_in(path)? {
            return Files::of_manifest(&manifest);
        }
        Files::of_server(path)?.ok_or_else(|| wrong("it holds no dump.rdb, no appendonlydir and no appendonly.aof"))
    }

    /// What the folder that a server of Redis runs in holds; `None` if it is none.
    pub(super) fn of_server(folder: &Path) -> Result<Option<Files>, ImportError> {
        let found: Vec<PathBuf> =
            [RDB, AOF_DIR, AOF].iter().map(|name| folder.join(name)).filter(|path| path.exists()).collect();
        match &found[..] {
            [] => Ok(None),
            [one] if one.ends_with(AOF_DIR) => match manifest_in(one)? {
                Some(manifest) => Files::of_manifest(&manifest).map(Some),
                None => {
                    let what = "it holds no manifest, which says what files there are".to_owned();
                    Err(ImportError::Files { path: one.clone(), what })
                }
            },
            [one] => Files::of(vec![one.clone()]).map(Some),
            more => {
                let names: Vec<String> = more.iter().map(|path| path.display().to_string()).collect();
                let what =
                    format!("it holds {}, and does not say which is up to date: name one of them", names.join(" and "));
                Err(ImportError::Files { path: folder.to_owned(), what })
            }
        }
    }

    /// Their paths, in order.
    pub(super) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// How many bytes they have together.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn of(paths: Vec<PathBuf>) -> Result<Files, ImportError> {
        let mut bytes = 0;
        for path in &paths {
            let missing = |error: std::io::Error| ImportError::Files { path: path.clone(), what: error.to_string() };
            bytes += fs::metadata(path).map_err(missing)?.len();
        }
        Ok(Files { paths, bytes })
    }

    fn of_manifest(manifest: &Path) -> Result<Files, ImportError> {
        let wrong = |what: String| ImportError::Files { path: manifest.to_owned(), what };
        let mut text = String::new();
        let file = fs::File::open(manifest).map_err(|error| wrong(error.to_string()))?;
        file.take(MANIFEST_MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?;
        if text.len() as u64 > MANIFEST_MAX_BYTES {
            return Err(wrong(format!("it has more than {MANIFEST_MAX_BYTES} bytes")));
        }
        let listed = listed(&text).map_err(|line| wrong(format!("line {line} is no line of a manifest")))?;
        if listed.is_empty() {
            return Err(wrong("it lists no file".to_owned()));
        }
        let folder = manifest.parent().unwrap_or(Path::new("."));
        Files::of(listed.into_iter().map(|name| folder.join(name)).collect())
    }
}

/// Whether a file begins as RDB does.
pub(super) fn is_rdb(path: &Path) -> Result<bool, ImportError> {
    let unreadable = |source| ImportError::File { path: path.to_owned(), source: FileError::Io { offset: 0, source } };
    let mut start = Vec::new();
    fs::File::open(path).and_then(|file| file.take(6).read_to_end(&mut start)).map_err(unreadable)?;
    Ok(start.starts_with(b"REDIS") || start.starts_with(b"VALKEY") || path.extension().is_some_and(|e| e == "rdb"))
}

fn manifest_in(folder: &Path) -> Result<Option<PathBuf>, ImportError> {
    let wrong = |error: std::io::Error| ImportError::Files { path: folder.to_owned(), what: error.to_string() };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        if path.extension().is_some_and(|extension| extension == "manifest") {
            found.push(path);
        }
    }
    match found.len() {
        0 | 1 => Ok(found.pop()),
        _ => {
            let what = "it holds more than one manifest: name one of them".to_owned();
            Err(ImportError::Files { path: folder.to_owned(), what })
        }
    }
}

/// The names of a manifest's files in order; else the number of the line that can't be.
fn listed(manifest: &str) -> Result<Vec<String>, usize> {
    let (mut base, mut later) = (None, Vec::new());
    for (index, line) in manifest.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let number = index + 1;
        // Pairs of a name and a value; names that are not known belong to later versions and change nothing here.
        let words: Vec<&str> = line.split(' ').collect();
        let value = |name: &str| words.chunks(2).find(|pair| pair[0] == name).and_then(|pair| pair.get(1).copied());
        let (name, kind) = value("file").zip(value("type")).ok_or(number)?;
        let order: u64 = value("seq").and_then(|number| number.parse().ok()).ok_or(number)?;
        // A manifest names files beside itself.
        if name.is_empty() || name.contains(['/', '"', '\\']) {
            return Err(number);
        }
        match kind {
            "b" if base.is_none() => base = Some(name.to_owned()),
            "i" => later.push((order, name.to_owned())),
            "h" => {}
            _ => return Err(number),
        }
    }
    later.sort();
    Ok(base.into_iter().chain(later.into_iter().map(|(_, name)| name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_lists_base_first_and_the_rest_in_order() {
        let text = "file a.2.incr.aof seq 2 type i\nfile a.1.base.rdb seq 1 type b\nfile a.1.incr.aof seq 1 type i startoffset 7\n\
                    # note\nfile a.0.base.rdb seq 0 type h\n";
        assert_eq!(listed(text).unwrap(), ["a.1.base.rdb", "a.1.incr.aof", "a.2.incr.aof"]);
        assert_eq!(listed("file a seq 1 type b\nfile b seq 2 type b"), Err(2));
        for bad in ["file ../a seq 1 type b", "file a seq x type b", "file a type b", "nonsense", "file a seq 1 type z"]
        {
            assert_eq!(listed(bad), Err(1), "{bad}");
        }
        assert_eq!(listed(""), Ok(Vec::new()));
    }

    #[test]
    fn what_looks_like_no_data_is_not_taken_for_none() {
        let folder = tempfile::tempdir().unwrap();
        let aof = folder.path().join(AOF_DIR);
        fs::create_dir(&aof).unwrap();
        let refused = |path: &Path| Files::of_server(path).unwrap_err().to_string();
        assert!(refused(folder.path()).contains("no manifest"));
        let manifest = aof.join("appendonly.aof.manifest");
        for (text, what) in [
            (String::new(), "it lists no file"),
            ("# nothing\n".to_owned(), "it lists no file"),
            ("#\n".repeat(MANIFEST_MAX_BYTES as usize / 2 + 1), "more than"),
        ] {
            fs::write(&manifest, text).unwrap();
            assert!(refused(folder.path()).contains(what), "{what}");
        }
        // A manifest of something else, beside the data of Redis or without it.
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join("app.manifest"), "not of Redis").unwrap();
        assert_eq!(Files::of_server(other.path()).unwrap(), None);
        fs::write(other.path().join(RDB), "REDIS").unwrap();
        assert_eq!(Files::of_server(other.path()).unwrap().unwrap().paths(), [other.path().join(RDB)]);
    }

    #[test]
    fn a_folder_with_two_kinds_is_not_guessed_at() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        assert_eq!(Files::of_server(path).unwrap(), None);
        fs::write(path.join(RDB), "REDIS").unwrap();
        assert_eq!(Files::at(path).unwrap().paths(), [path.join(RDB)]);
        fs::create_dir(path.join(AOF_DIR)).unwrap();
        fs::write(path.join(AOF_DIR).join("appendonly.aof.manifest"), "file x.aof seq 1 type i\n").unwrap();
        let error = Files::at(path).unwrap_err().to_string();
        assert!(error.contains("dump.rdb and ") && error.contains("name one of them"), "{error}");
        assert!(Files::at(&path.join(AOF_DIR)).unwrap_err().to_string().contains("x.aof"), "it is not there");
        fs::write(path.join(AOF_DIR).join("x.aof"), "").unwrap();
        assert_eq!(Files::at(&path.join(AOF_DIR)).unwrap().paths(), [path.join(AOF_DIR).join("x.aof")]);
    }
}
