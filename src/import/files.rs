//! Selects the files to import: a named file, or those of a folder.
//!
//! A folder of Redis holds a `dump.rdb`, an `appendonly.aof` (up to Redis 6), or an `appendonlydir` (since Redis 7),
//! whose manifest names its files in order:
//!
//! ```text
//! file appendonly.aof.1.base.rdb seq 1 type b
//! file appendonly.aof.1.incr.aof seq 1 type i
//! ```
//!
//! `b` marks the base, `i` an increment after it, and `h` a file that is no longer needed. The first base can be the
//! `appendonly.aof` of a Redis that was later upgraded; the upgrade may not have moved it into the folder yet. A folder
//! that has both a snapshot and append-only files does not show which is up to date, because that depends on the
//! missing configuration. The user must then choose.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::error::ImportError;
use crate::rdb::file::FileError;
use crate::resp::request::{Argv, Span, split_line};

/// The file names that a Redis server uses.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// The snapshot.
    pub rdb: PathBuf,
    /// The folder of append-only files.
    pub aof_dir: PathBuf,
    /// Prefix of the append-only files; up to Redis 6, the name of the only one.
    pub aof: PathBuf,
}

impl Default for Names {
    /// Returns Redis' default names.
    fn default() -> Names {
        Names { rdb: "dump.rdb".into(), aof_dir: "appendonlydir".into(), aof: "appendonly.aof".into() }
    }
}

/// Maximum size of a manifest in bytes; each file takes a line of about 50 bytes.
const MANIFEST_MAX_BYTES: u64 = 1024 * 1024;

/// Maximum length of a manifest line in bytes, as in Redis.
const MANIFEST_LINE_MAX_BYTES: usize = 1024;

/// The suffix of a manifest's file name.
const MANIFEST: &str = "manifest";

/// The files in reading order; at least one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Files {
    paths: Vec<PathBuf>,
    bytes: u64,
}

impl Files {
    /// Finds the files at `path`: that file, or the data of that folder.
    pub(super) fn at(path: &Path) -> Result<Files, ImportError> {
        let kind = fs::metadata(path).map_err(|error| wrong(path, error))?;
        if !kind.is_dir() {
            let is_manifest = path.extension().is_some_and(|extension| extension == MANIFEST);
            return if is_manifest { Files::of_manifest(path) } else { Files::of(vec![path.to_owned()]) };
        }
        if let Some(manifest) = manifest_in(path)? {
            return Files::of_manifest(&manifest);
        }
        let names = Names::default();
        Files::of_server(path, &names)?.ok_or_else(|| {
            let Names { rdb, aof_dir, aof } = &names;
            let what = format!("it holds no {}, no {} and no {}", rdb.display(), aof_dir.display(), aof.display());
            wrong(path, what)
        })
    }

    /// Finds the data in a Redis server's working folder; `None` if there is none.
    pub(super) fn of_server(folder: &Path, names: &Names) -> Result<Option<Files>, ImportError> {
        let there = |name: &Path| Some(folder.join(name)).filter(|path| path.exists());
        let (rdb, aof_dir, aof) = (there(&names.rdb), there(&names.aof_dir), there(&names.aof));
        let mut manifest = None;
        if let Some(aof_dir) = &aof_dir {
            manifest = manifest_of(aof_dir, names)?;
            // Redis creates the folder before it writes anything into it.
            if manifest.is_none() && fs::read_dir(aof_dir).map_err(|error| wrong(aof_dir, error))?.next().is_some() {
                return Err(wrong(aof_dir, "it holds no manifest, the list of its files"));
            }
        }
        // A manifest is newer than the single file of Redis 6, which it may name.
        let log = manifest.or(aof);
        match (rdb, log) {
            (None, None) => Ok(None),
            (Some(rdb), None) => Files::of(vec![rdb]).map(Some),
            (None, Some(log)) if log.extension().is_some_and(|extension| extension == MANIFEST) => {
                Files::of_manifest(&log).map(Some)
            }
            (None, Some(log)) => Files::of(vec![log]).map(Some),
            (Some(rdb), Some(log)) => {
                let (rdb, log) = (rdb.display(), log.display());
                let what = format!("it holds {rdb} and {log}, and nothing says which is up to date: name one of them");
                Err(wrong(folder, what))
            }
        }
    }

    /// Returns the paths in order.
    pub(super) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Returns the total size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn of(paths: Vec<PathBuf>) -> Result<Files, ImportError> {
        let mut bytes = 0;
        for path in &paths {
            bytes += fs::metadata(path).map_err(|error| wrong(path, error))?.len();
        }
        Ok(Files { paths, bytes })
    }

    fn of_manifest(manifest: &Path) -> Result<Files, ImportError> {
        let mut text = Vec::new();
        let file = fs::File::open(manifest).map_err(|error| wrong(manifest, error))?;
        file.take(MANIFEST_MAX_BYTES + 1).read_to_end(&mut text).map_err(|error| wrong(manifest, error))?;
        if text.len() as u64 > MANIFEST_MAX_BYTES {
            return Err(wrong(manifest, format!("it has more than {MANIFEST_MAX_BYTES} bytes")));
        }
        let listed = listed(&text).map_err(|(line, fault)| match line {
            0 => wrong(manifest, fault),
            _ => wrong(manifest, format!("line {line}: {fault}")),
        })?;
        if listed.is_empty() {
            return Err(wrong(manifest, "it lists no file"));
        }
        let folder = manifest.parent().unwrap_or(Path::new("."));
        let mut paths: Vec<PathBuf> = listed.iter().map(|name| folder.join(name)).collect();
        // An interrupted upgrade has written the manifest but not yet moved the file.
        let before = folder.parent().map(|above| above.join(&listed[0]));
        if let Some(before) = before.filter(|before| !paths[0].exists() && before.is_file()) {
            paths[0] = before;
        }
        Files::of(paths)
    }
}

fn wrong(path: &Path, what: impl ToString) -> ImportError {
    ImportError::Files { path: path.to_owned(), what: what.to_string() }
}

/// Returns whether a file begins with the RDB signature.
pub(super) fn is_rdb(path: &Path) -> Result<bool, ImportError> {
    let unreadable = |source| ImportError::File { path: path.to_owned(), source: FileError::Io { offset: 0, source } };
    let mut start = Vec::new();
    fs::File::open(path).and_then(|file| file.take(6).read_to_end(&mut start)).map_err(unreadable)?;
    Ok(start.starts_with(b"REDIS") || start.starts_with(b"VALKEY") || path.extension().is_some_and(|e| e == "rdb"))
}

/// Returns the manifest that a Redis server writes in its append-only folder, or the only manifest there.
fn manifest_of(aof_dir: &Path, names: &Names) -> Result<Option<PathBuf>, ImportError> {
    let mut name = names.aof.clone().into_os_string();
    name.push(".");
    name.push(MANIFEST);
    let path = aof_dir.join(name);
    if path.exists() { Ok(Some(path)) } else { manifest_in(aof_dir) }
}

fn manifest_in(folder: &Path) -> Result<Option<PathBuf>, ImportError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| wrong(folder, error))? {
        let path = entry.map_err(|error| wrong(folder, error))?.path();
        if path.extension().is_some_and(|extension| extension == MANIFEST) {
            found.push(path);
        }
    }
    match found.len() {
        0 | 1 => Ok(found.pop()),
        _ => Err(wrong(folder, "it holds more than one manifest: name one of them")),
    }
}

/// Returns the file names of a manifest in order, or the number of the invalid line and the reason. The texts are those
/// of Redis.
fn listed(manifest: &[u8]) -> Result<Vec<PathBuf>, (usize, &'static str)> {
    if manifest.is_empty() {
        return Err((0, "Found an empty AOF manifest"));
    }
    let (mut base, mut later, mut newest) = (None, Vec::new(), 0);
    for (index, line) in manifest.strip_suffix(b"\n").unwrap_or(manifest).split(|&byte| byte == b'\n').enumerate() {
        let refuse = |why| (index + 1, why);
        if line.len() > MANIFEST_LINE_MAX_BYTES {
            return Err(refuse("The AOF manifest file contains too long line"));
        }
        if line.starts_with(b"#") {
            continue;
        }
        let File { name, sequence, kind } = file(line).ok_or(refuse("Invalid AOF manifest file format"))?;
        // A manifest names only files in its own folder.
        if name.file_name() != Some(name.as_os_str()) {
            return Err(refuse("File can't be a path, just a filename"));
        }
        match kind {
            b'b' if base.is_some() => return Err(refuse("Found duplicate base file information")),
            b'b' => base = Some(name),
            b'i' if sequence <= newest => return Err(refuse("Found a non-monotonic sequence number")),
            b'i' => {
                newest = sequence;
                later.push(name);
            }
            b'h' => {}
            _ => return Err(refuse("Unknown AOF file type")),
        }
    }
    Ok(base.into_iter().chain(later).collect())
}

/// A line of a manifest.
struct File {
    name: PathBuf,
    sequence: u64,
    kind: u8,
}

/// Parses a line of word-value pairs. Unknown words belong to later versions and have no effect here.
fn file(line: &[u8]) -> Option<File> {
    let (mut bytes, mut spans) = (Vec::new(), Vec::<Span>::new());
    split_line(line, &mut bytes, &mut spans)?;
    let words: Vec<&[u8]> = Argv::new(&bytes, &spans).iter().collect();
    let (pairs, []) = words.as_chunks::<2>() else { return None };
    let value = |word: &[u8]| pairs.iter().find(|[it, _]| it.eq_ignore_ascii_case(word)).map(|[_, value]| *value);
    Some(File {
        name: PathBuf::from(OsStr::from_bytes(value(b"file")?)),
        sequence: std::str::from_utf8(value(b"seq")?).ok()?.parse().ok()?,
        kind: *value(b"type")?.first()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RDB: &str = "dump.rdb";
    const AOF_DIR: &str = "appendonlydir";

    fn of_server(folder: &Path) -> Result<Option<Files>, ImportError> {
        Files::of_server(folder, &Names::default())
    }

    #[test]
    fn a_manifest_lists_base_first_and_the_rest_in_order() {
        let text = b"file a.1.incr.aof seq 1 type i startoffset 7\nfile a.1.base.rdb seq 1 type b new word\n# note\n\
                     FILE \"a b\\\".aof\" seq 3 type i\nfile a.0.base.rdb seq 0 type h\n";
        assert_eq!(listed(text).unwrap(), ["a.1.base.rdb", "a.1.incr.aof", "a b\".aof"].map(PathBuf::from));
        for (manifest, line, fault) in [
            ("", 0, "Found an empty AOF manifest"),
            ("file a seq 1 type b\nfile b seq 2 type b", 2, "Found duplicate base file information"),
            ("file a seq 1 type i\nfile b seq 1 type i\n", 2, "Found a non-monotonic sequence number"),
            ("file ../a seq 1 type b", 1, "File can't be a path, just a filename"),
            ("file a seq 1 type z", 1, "Unknown AOF file type"),
            ("file a seq x type b", 1, "Invalid AOF manifest file format"),
            ("file a type b", 1, "Invalid AOF manifest file format"),
            ("file a seq 1 type b more", 1, "Invalid AOF manifest file format"),
            ("file \"a seq 1 type b", 1, "Invalid AOF manifest file format"),
            ("file a seq 1 type b\n\nfile b seq 1 type i\n", 2, "Invalid AOF manifest file format"),
            ("nonsense", 1, "Invalid AOF manifest file format"),
        ] {
            assert_eq!(listed(manifest.as_bytes()), Err((line, fault)), "{manifest}");
        }
        let long = format!("file {} seq 1 type b\n", "a".repeat(MANIFEST_LINE_MAX_BYTES));
        assert_eq!(listed(long.as_bytes()), Err((1, "The AOF manifest file contains too long line")));
    }

    #[test]
    fn incomplete_data_is_not_taken_for_an_empty_folder() {
        let folder = tempfile::tempdir().unwrap();
        let aof = folder.path().join(AOF_DIR);
        fs::create_dir(&aof).unwrap();
        let refused = |path: &Path| of_server(path).unwrap_err().to_string();
        assert_eq!(of_server(folder.path()).unwrap(), None, "Redis has made the folder, and not begun to write");
        fs::write(aof.join("appendonly.aof.1.incr.aof"), "").unwrap();
        assert!(refused(folder.path()).contains("no manifest"));
        let manifest = aof.join("appendonly.aof.manifest");
        for (text, what) in [
            (String::new(), "Found an empty AOF manifest"),
            ("# nothing\n".to_owned(), "it lists no file"),
            ("#\n".repeat(MANIFEST_MAX_BYTES as usize / 2 + 1), "more than"),
        ] {
            fs::write(&manifest, text).unwrap();
            assert!(refused(folder.path()).contains(what), "{what}");
        }
        // An unrelated manifest, beside Redis data or without any.
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join("app.manifest"), "not of Redis").unwrap();
        assert_eq!(of_server(other.path()).unwrap(), None);
        fs::write(other.path().join(RDB), "REDIS").unwrap();
        assert_eq!(of_server(other.path()).unwrap().unwrap().paths(), [other.path().join(RDB)]);
    }

    #[test]
    fn a_folder_with_two_kinds_of_data_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        assert_eq!(of_server(path).unwrap(), None);
        fs::write(path.join(RDB), "REDIS").unwrap();
        assert_eq!(Files::at(path).unwrap().paths(), [path.join(RDB)]);
        fs::create_dir(path.join(AOF_DIR)).unwrap();
        fs::write(path.join(AOF_DIR).join("appendonly.aof.manifest"), "file x.aof seq 1 type i\n").unwrap();
        let error = Files::at(path).unwrap_err().to_string();
        assert!(error.contains("dump.rdb and ") && error.contains("name one of them"), "{error}");
        assert!(
            Files::at(&path.join(AOF_DIR)).unwrap_err().to_string().contains("x.aof"),
            "the file that the manifest names is missing"
        );
        fs::write(path.join(AOF_DIR).join("x.aof"), "").unwrap();
        assert_eq!(Files::at(&path.join(AOF_DIR)).unwrap().paths(), [path.join(AOF_DIR).join("x.aof")]);
    }

    #[test]
    fn names_are_as_configured_and_a_manifest_is_younger_than_the_one_file_of_redis_6() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let names = Names { rdb: "other.rdb".into(), aof_dir: "log".into(), aof: "a b".into() };
        let paths = || Files::of_server(path, &names).unwrap().map(|files| files.paths);
        fs::write(path.join(RDB), "REDIS").unwrap();
        assert_eq!(paths(), None);
        fs::write(path.join("other.rdb"), "REDIS").unwrap();
        assert_eq!(paths(), Some(vec![path.join("other.rdb")]));
        fs::remove_file(path.join("other.rdb")).unwrap();
        fs::write(path.join("a b"), "").unwrap();
        assert_eq!(paths(), Some(vec![path.join("a b")]));
        let log = path.join("log");
        fs::create_dir(&log).unwrap();
        fs::write(log.join("a b.manifest"), "file \"a b\" seq 1 type b\nfile 1 seq 1 type i\n").unwrap();
        fs::write(log.join("1"), "").unwrap();
        assert_eq!(paths(), Some(vec![path.join("a b"), log.join("1")]), "the state after an interrupted upgrade");
        fs::rename(path.join("a b"), log.join("a b")).unwrap();
        fs::write(path.join("a b"), "something else").unwrap();
        assert_eq!(paths(), Some(vec![log.join("a b"), log.join("1")]));
    }
}
