//! Libraries of functions by name, and the function meant by a call.
//!
//! A library is a program whose first line, `#!lua name=mylib`, gives its name. When it is loaded it registers
//! functions, which stay until it is deleted or replaced. Library names are case-sensitive, function names are not, and
//! a function belongs to only one library. The table knows nothing of Lua: it holds [`Handle`]s created by the state,
//! and returns removed libraries so that their owner can release the handles.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::ops::Bound;
use std::sync::Arc;

use hashbrown::HashTable;

use super::program::{Handle, Passing};
use super::store::{ScriptFlags, first_line_words};
use crate::base::fit::fit_table;

/// A function of a library.
#[derive(Debug)]
pub struct Function {
    /// Its name as registered: letters, digits, underscores.
    pub name: Box<str>,
    /// Its own description, if it has one.
    pub description: Option<Box<[u8]>>,
    /// Its flags. They are always declared, except those of bundled scripts.
    pub flags: ScriptFlags,
    /// The compiled program.
    pub handle: Handle,
    /// How it gets its keys and arguments.
    pub passing: Passing,
}

/// A loaded library.
#[derive(Debug)]
pub struct Library {
    /// Its name: letters, digits, underscores.
    pub name: Box<str>,
    /// The whole text, its first line included.
    pub code: Box<[u8]>,
    /// Its functions in the order of registration; at least one.
    pub functions: Vec<Arc<Function>>,
}

/// Why a library was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LibraryError {
    /// It has no first line that names it.
    #[error("ERR Missing library metadata")]
    NoHeader,
    /// The first line does not end, or its quotes do not match.
    #[error("ERR Invalid library metadata")]
    BadHeader,
    /// A word of that line is not `name=`.
    #[error("ERR Invalid metadata value given: {0}")]
    Option(String),
    /// More than one name.
    #[error("ERR Invalid metadata value, name argument was given multiple times")]
    TwoNames,
    /// No name.
    #[error("ERR Library name was not given")]
    NoName,
    /// A name with characters other than letters, digits and underscores.
    #[error("{BAD_NAME}")]
    BadName,
    /// Another language.
    #[error("ERR Engine '{0}' not found")]
    Engine(String),
    /// The name is in use, and the library must not be replaced.
    #[error("ERR Library '{0}' already exists")]
    Exists(String),
    /// It registers nothing.
    #[error("ERR No functions registered")]
    Empty,
    /// Another library has a function of this name.
    #[error("ERR Function {0} already exists")]
    FunctionExists(Box<str>),
}

/// The error for a bad name of a library or function.
pub(super) const BAD_NAME: &str = "ERR Library names can only contain letters, numbers, or underscores(_) and must be \
                                   at least one character long";

/// Returns the name if it is valid for libraries and functions.
pub(super) fn check_name(name: &[u8]) -> Option<&str> {
    let fits = !name.is_empty() && name.iter().all(|&byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if fits { std::str::from_utf8(name).ok() } else { None }
}

/// Reads the first line of a library. Returns its name and the offset of its program, which begins with that line's
/// newline.
pub(crate) fn parse_header(code: &[u8]) -> Result<(Box<str>, usize), LibraryError> {
    if !code.starts_with(b"#!") {
        return Err(LibraryError::NoHeader);
    }
    let end = memchr::memchr(b'\n', code).ok_or(LibraryError::BadHeader)?;
    let words = first_line_words(&code[..=end]).ok_or(LibraryError::BadHeader)?;
    let mut words = words.as_argv().iter();
    let engine = words.next().unwrap_or_default();
    let engine = engine.strip_prefix(b"#!").unwrap_or_default();
    let mut name = None;
    for word in words {
        match word.split_at_checked(5) {
            Some((option, value)) if option.eq_ignore_ascii_case(b"name=") => {
                if name.replace(value).is_some() {
                    return Err(LibraryError::TwoNames);
                }
            }
            _ => return Err(LibraryError::Option(lossy(word))),
        }
    }
    let name = check_name(name.ok_or(LibraryError::NoName)?).ok_or(LibraryError::BadName)?;
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(LibraryError::Engine(lossy(engine)));
    }
    Ok((name.into(), end))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// All libraries. See the module's header.
#[derive(Debug)]
pub struct Libraries {
    by_name: BTreeMap<Box<str>, Library>,
    functions: HashTable<Arc<Function>>,
    hasher: ahash::RandomState,
    /// Bytes of all texts.
    bytes: usize,
}

impl Libraries {
    /// Creates an empty table whose hash is seeded with `seed`.
    pub fn new(seed: u64) -> Libraries {
        Libraries::hashed_by(ahash::RandomState::with_seed(seed as usize))
    }

    /// Creates an empty table with this table's hash.
    pub fn like(&self) -> Libraries {
        Libraries::hashed_by(self.hasher.clone())
    }

    fn hashed_by(hasher: ahash::RandomState) -> Libraries {
        Libraries { by_name: BTreeMap::new(), functions: HashTable::new(), hasher, bytes: 0 }
    }

    /// Finds a function by its name in any case.
    #[inline]
    pub fn function(&self, name: &[u8]) -> Option<&Arc<Function>> {
        let hash = hash_nocase(&self.hasher, name);
        self.functions.find(hash, |function| function.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Whether there is a library of exactly this name.
    pub fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The libraries after this name, in the order of their names.
    pub fn after(&self, name: &str) -> impl Iterator<Item = &Library> {
        self.by_name.range::<str, _>((Bound::Excluded(name), Bound::Unbounded)).map(|(_, library)| library)
    }

    /// The libraries in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Library> {
        self.by_name.values()
    }

    /// Number of libraries.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there are no libraries.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Number of functions of all libraries.
    pub fn functions_len(&self) -> usize {
        self.functions.len()
    }

    /// Bytes of all texts.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a library. Returns the library of this name that it replaces. Fails, with nothing changed and the library
    /// returned, if it has no function, or a function that another library has.
    pub fn insert(&mut self, library: Library) -> Result<Option<Library>, (LibraryError, Library)> {
        if library.functions.is_empty() {
            return Err((LibraryError::Empty, library));
        }
        let replaced = self.by_name.get(&library.name);
        let is_free = |function: &Function| match self.function(function.name.as_bytes()) {
            None => true,
            Some(other) => replaced.is_some_and(|old| old.functions.iter().any(|own| Arc::ptr_eq(own, other))),
        };
        if let Some(taken) = library.functions.iter().find(|function| !is_free(function)) {
            return Err((LibraryError::FunctionExists(taken.name.clone()), library));
        }
        let name = library.name.clone();
        let replaced = self.remove(&name);
        self.bytes += library.code.len();
        for function in &library.functions {
            let hash = hash_nocase(&self.hasher, function.name.as_bytes());
            let hasher = &self.hasher;
            self.functions.insert_unique(hash, function.clone(), |other| hash_nocase(hasher, other.name.as_bytes()));
        }
        self.by_name.insert(name, library);
        Ok(replaced)
    }

    /// Adds libraries whose names are not in use. If one is refused, none is added, and all are returned.
    pub fn insert_all(&mut self, libraries: Vec<Library>) -> Result<(), (LibraryError, Vec<Library>)> {
        let mut added: Vec<Box<str>> = Vec::with_capacity(libraries.len());
        let mut rest = libraries.into_iter();
        while let Some(library) = rest.next() {
            let name = library.name.clone();
            if let Err((error, refused)) = self.insert(library) {
                let mut all: Vec<Library> = added.iter().filter_map(|name| self.remove(name)).collect();
                all.push(refused);
                all.extend(rest);
                return Err((error, all));
            }
            added.push(name);
        }
        Ok(())
    }

    /// Removes the library of exactly this name.
    pub fn remove(&mut self, name: &str) -> Option<Library> {
        let library = self.by_name.remove(name)?;
        self.bytes -= library.code.len();
        for function in &library.functions {
            let hash = hash_nocase(&self.hasher, function.name.as_bytes());
            if let Ok(entry) = self.functions.find_entry(hash, |other| Arc::ptr_eq(other, function)) {
                entry.remove();
            }
        }
        fit_table(&mut self.functions, |other| hash_nocase(&self.hasher, other.name.as_bytes()));
        Some(library)
    }

    /// Removes all libraries.
    pub fn take_all(&mut self) -> Vec<Library> {
        self.functions = HashTable::new();
        self.bytes = 0;
        std::mem::take(&mut self.by_name).into_values().collect()
    }
}

fn hash_nocase(hasher: &ahash::RandomState, name: &[u8]) -> u64 {
    let mut state = hasher.build_hasher();
    name.iter().for_each(|byte| state.write_u8(byte.to_ascii_lowercase()));
    state.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(name: &str, functions: &[&str]) -> Library {
        let function = |name: &&str| {
            let flags = ScriptFlags { declared: true, ..ScriptFlags::default() };
            let (name, handle, passing) = ((*name).into(), Handle::for_tests(0, 0), Passing::Arguments);
            Arc::new(Function { name, description: None, flags, handle, passing })
        };
        Library { name: name.into(), code: (*b"code").into(), functions: functions.iter().map(function).collect() }
    }

    #[test]
    fn headers_read_as_in_redis() {
        for (code, name) in [
            ("#!lua name=a\n", "a"),
            ("#!LUA NAME=a_1\r\n", "a_1"),
            ("#!lua \"name=q\"\n", "q"),
            ("#!lua name=\"q\"\n", "q"),
        ] {
            assert_eq!(parse_header(code.as_bytes()), Ok((name.into(), code.len() - 1)), "{code}");
        }
        for (code, error) in [
            ("return 1", "ERR Missing library metadata"),
            ("#!lua name=a", "ERR Invalid library metadata"),
            ("#!lua name=\"a\n", "ERR Invalid library metadata"),
            ("#!lua\n", "ERR Library name was not given"),
            ("#! lua\n", "ERR Invalid metadata value given: lua"),
            ("#!lua name=a name=b\n", "ERR Invalid metadata value, name argument was given multiple times"),
            ("#!lua flags=x\n", "ERR Invalid metadata value given: flags=x"),
            ("#! name=a\n", "ERR Engine '' not found"),
        ] {
            assert_eq!(
                parse_header(code.as_bytes()).map_err(|error| error.to_string()),
                Err(error.to_owned()),
                "{code}"
            );
        }
        assert_eq!(parse_header(b"#!lua name=a-b\n"), Err(LibraryError::BadName));
    }

    #[test]
    fn the_memory_of_deleted_functions_is_given_back() {
        let names: Vec<String> = (0..1_000).map(|number| format!("f{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut all = Libraries::new(1);
        for is_removed in [false, true] {
            assert!(all.insert(library("small", &["f"])).is_ok() && all.insert(library("large", &names)).is_ok());
            if is_removed {
                assert!(all.remove("large").is_some() && all.function(b"f").is_some());
            } else {
                all.take_all();
            }
            assert!(all.functions.capacity() < 100, "{}", all.functions.capacity());
        }
    }

    #[test]
    fn a_function_belongs_to_one_library() {
        let mut all = Libraries::new(1);
        assert!(all.insert(library("a", &["f", "g"])).unwrap().is_none());
        let (error, _) = all.insert(library("b", &["x", "F"])).unwrap_err();
        assert_eq!(error.to_string(), "ERR Function F already exists");
        assert_eq!(all.insert(library("b", &[])).unwrap_err().0, LibraryError::Empty);
        assert_eq!((all.len(), all.functions_len(), all.bytes()), (1, 2, 4));
        let replaced = all.insert(library("a", &["F"])).unwrap().unwrap();
        assert_eq!(replaced.functions.len(), 2);
        assert_eq!(&*all.function(b"f").unwrap().name, "F");
        assert!(all.function(b"g").is_none());
        let (error, all_back) = all.insert_all(vec![library("b", &["g"]), library("c", &["F"])]).unwrap_err();
        assert_eq!((error.to_string(), all_back.len()), ("ERR Function F already exists".to_owned(), 2));
        assert_eq!((all.len(), all.functions_len(), all.bytes()), (1, 1, 4));
        assert!(all.insert_all(vec![library("b", &["g"]), library("c", &["h"])]).is_ok());
        assert!(all.remove("A").is_none() && all.remove("a").is_some());
        assert_eq!(all.take_all().len(), 2);
        assert_eq!((all.len(), all.functions_len(), all.bytes()), (0, 0, 0));
    }
}
