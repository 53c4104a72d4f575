//! From a file to its keys, one after another.

use std::borrow::Cow;
use std::io::Read;

use super::error::FileError;
use super::opcode::{self, FIRST_WITH_CHECKSUM};
use super::shape::{Copying, Stop};
use super::source::Source;
use crate::base::limits::SCRATCH_KEEP_BYTES;
use crate::rdb::limits::RDB_UNPACKED_MAX_BYTES;
use crate::rdb::types::{self, *};
use crate::rdb::value::NODE_PACKED;
use crate::rdb::wire::Input;
use crate::rdb::{listpack, seal, ziplist};

/// Reads a file. See [`file`](super).
pub struct Reader<R> {
    source: Source<R>,
    dialect: Dialect,
    version: u16,
    db: u64,
    /// The strings of the current record, as they are in the file.
    key: Vec<u8>,
    value: Vec<u8>,
}

/// One item of a file.
#[derive(Debug)]
pub enum Record<'a> {
    /// A note about the file.
    Aux {
        /// Such as `redis-ver`.
        name: Cow<'a, [u8]>,
        /// Such as `7.0.15`.
        text: Cow<'a, [u8]>,
    },
    /// The number of keys in a database, as a hint.
    Keys {
        /// The number of the database.
        db: u64,
        /// The number of keys.
        keys: u64,
    },
    /// The text of a library of functions.
    Library(Cow<'a, [u8]>),
    /// Data of a module outside the keys, which was skipped.
    ModuleAux {
        /// The module's name for its type, such as `ReJSON-RL`.
        module: String,
    },
    /// A key.
    Key(KeyRecord<'a>),
    /// The end of the file. The checksum, if there is one, was right.
    End,
}

/// A key and its value, as they are in the file.
#[derive(Debug)]
pub struct KeyRecord<'a> {
    /// The number of its database.
    pub db: u64,
    /// Its name.
    pub key: Cow<'a, [u8]>,
    /// The time when it expires, Unix ms.
    pub expires_at_ms: Option<i64>,
    /// Seconds since its last use, as of when the file was made.
    pub idle_s: Option<u64>,
    /// The dialect of `code`.
    pub dialect: Dialect,
    /// The version of the file.
    pub version: u16,
    /// The code of the value's type.
    pub code: u8,
    /// The bytes behind the code.
    pub value: &'a [u8],
    /// The position in the file at which it begins.
    pub offset: u64,
}

impl KeyRecord<'_> {
    /// Replaces the contents of `out` by the payload that DUMP would have returned.
    pub fn payload(&self, out: &mut Vec<u8>) {
        out.clear();
        out.push(self.code);
        out.extend_from_slice(self.value);
        seal(out, self.version);
    }

    /// The value as a string, if it is a readable string.
    pub fn text(&self) -> Option<Cow<'_, [u8]>> {
        if types::known(self.dialect, self.code) != Some(types::STRING) {
            return None;
        }
        let mut input = Input::new(self.value, RDB_UNPACKED_MAX_BYTES);
        input.string().ok().filter(|_| input.is_empty())
    }

    /// Whether the value is an empty collection. Old versions wrote some; Redis skips them when it loads a file, and
    /// RESTORE refuses them.
    pub fn is_empty(&self) -> bool {
        types::known(self.dialect, self.code).is_some_and(|code| is_empty(code, self.value))
    }
}

/// Attributes of a key that precede it.
#[derive(Default)]
struct About {
    expires_at_ms: Option<i64>,
    idle_s: Option<u64>,
}

impl<R: Read> Reader<R> {
    /// Reads the magic and the version.
    pub fn new(input: R) -> Result<Reader<R>, FileError> {
        let mut source = Source::new(input);
        let mut start = source.array::<9>().map_err(|error| match error {
            FileError::CutOff { offset } if offset > 0 => FileError::CutOff { offset },
            FileError::CutOff { .. } => FileError::NotRdb { start: Vec::new() },
            error => error,
        })?;
        let (magic, digits) = if start.starts_with(b"REDIS") {
            ("REDIS", &mut start[5..])
        } else if start.starts_with(b"VALKEY") {
            ("VALKEY", &mut start[6..])
        } else {
            return Err(FileError::NotRdb { start: start.to_vec() });
        };
        let version = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u16>().ok());
        let version = version.ok_or(FileError::Damaged { offset: 5, what: "the version is not a number" })?;
        let dialect = Dialect::of_version(version).filter(|dialect| match dialect {
            Dialect::Redis => magic == "REDIS" && version > 0,
            Dialect::Valkey => magic == "VALKEY",
        });
        let dialect = dialect.ok_or(FileError::Version { magic, version })?;
        Ok(Reader { source, dialect, version, db: 0, key: Vec::new(), value: Vec::new() })
    }

    /// Bytes of the file read so far.
    pub fn offset(&self) -> u64 {
        self.source.offset()
    }

    /// The bytes read beyond the end of the file, and the rest of the input.
    pub fn into_rest(self) -> (Vec<u8>, R) {
        self.source.into_rest()
    }

    /// The next item. Nothing follows [`Record::End`].
    pub fn next_record(&mut self) -> Result<Record<'_>, FileError> {
        let mut about = About::default();
        let mut offset = self.source.offset();
        loop {
            match self.source.byte()? {
                opcode::END => return self.end(),
                opcode::SELECT_DB => {
                    self.db = self.number()?;
                    offset = self.source.offset();
                }
                opcode::RESIZE_DB => {
                    let keys = self.number()?;
                    self.number()?;
                    return Ok(Record::Keys { db: self.db, keys });
                }
                opcode::KEY_META if self.dialect == Dialect::Redis => {
                    let what = "module metadata of a key, as newer versions of Redis write it";
                    return Err(FileError::Foreign { offset, what });
                }
                opcode::SLOT_INFO => self.skip_numbers(3)?,
                opcode::SLOT_IMPORT if self.dialect == Dialect::Valkey => {
                    trim(&mut self.key);
                    self.copying_key(|copying| copying.string())?;
                    let ranges = self.number()?;
                    (0..ranges).try_for_each(|_| self.skip_numbers(2))?;
                }
                opcode::AUX => return self.aux(),
                opcode::LIBRARY => return self.library(),
                opcode::LIBRARY_PREVIEW => {
                    let what = "a function library of a release candidate of Redis 7.0, which no release can read";
                    return Err(FileError::Damaged { offset, what });
                }
                opcode::MODULE_AUX => return self.module_aux(),
                opcode::EXPIRES_AT_MS => about.expires_at_ms = Some(i64::from_le_bytes(self.source.array()?)),
                opcode::EXPIRES_AT_S => {
                    about.expires_at_ms = Some(i64::from(i32::from_le_bytes(self.source.array()?)) * 1000);
                }
                opcode::IDLE => about.idle_s = Some(self.number()?),
                opcode::FREQ => drop(self.source.byte()?),
                code => return self.key(code, about, offset),
            }
        }
    }

    fn end(&mut self) -> Result<Record<'_>, FileError> {
        let (sum, offset) = (self.source.checksum(), self.source.offset());
        if self.version >= FIRST_WITH_CHECKSUM {
            let written = u64::from_le_bytes(self.source.array()?);
            // Zero: the writer was configured not to compute it.
            if written != 0 && written != sum {
                return Err(FileError::Checksum { offset });
            }
        }
        Ok(Record::End)
    }

    fn key(&mut self, code: u8, about: About, offset: u64) -> Result<Record<'_>, FileError> {
        trim(&mut self.key);
        self.copying_key(|copying| copying.string())?;
        trim(&mut self.value);
        match types::known(self.dialect, code) {
            Some(MODULE_2 | MODULE_PREVIEW) => {
                let module = module_name(self.number()?);
                return Err(self.refused(code, offset, format!("the module type {module}")));
            }
            None => return Err(self.refused(code, offset, "which is not supported".to_owned())),
            Some(known) => {
                let mut copying = Copying { source: &mut self.source, out: &mut self.value };
                match copying.value(known) {
                    Ok(()) => {}
                    Err(Stop::File(error)) => return Err(error),
                    Err(Stop::TooLong) => return Err(FileError::TooLong { key: self.readable_key(), offset }),
                }
            }
        }
        Ok(Record::Key(KeyRecord {
            db: self.db,
            key: string_of(&self.key, offset)?,
            expires_at_ms: about.expires_at_ms,
            idle_s: about.idle_s,
            dialect: self.dialect,
            version: self.version,
            code,
            value: &self.value,
            offset,
        }))
    }

    fn refused(&self, code: u8, offset: u64, what: String) -> FileError {
        FileError::Type { key: self.readable_key(), code, offset, what }
    }

    /// The current key, for an error.
    fn readable_key(&self) -> Vec<u8> {
        string_of(&self.key, 0).map_or_else(|_| Vec::new(), Cow::into_owned)
    }

    fn aux(&mut self) -> Result<Record<'_>, FileError> {
        let offset = self.source.offset();
        trim(&mut self.key);
        self.copying_key(|copying| copying.string())?;
        let text_at = self.key.len();
        self.copying_key(|copying| copying.string())?;
        let (name, text) = self.key.split_at(text_at);
        Ok(Record::Aux { name: string_of(name, offset)?, text: string_of(text, offset)? })
    }

    fn library(&mut self) -> Result<Record<'_>, FileError> {
        let offset = self.source.offset();
        trim(&mut self.key);
        self.copying_key(|copying| copying.string())?;
        Ok(Record::Library(string_of(&self.key, offset)?))
    }

    /// Data with marks can be skipped without knowing the module.
    fn module_aux(&mut self) -> Result<Record<'_>, FileError> {
        let module = module_name(self.number()?);
        self.skip_numbers(2)?;
        loop {
            let offset = self.source.offset();
            match self.number()? {
                opcode::MARKED_END => return Ok(Record::ModuleAux { module }),
                opcode::MARKED_SIGNED | opcode::MARKED_UNSIGNED => self.skip_numbers(1)?,
                opcode::MARKED_FLOAT => drop(self.source.array::<4>()?),
                opcode::MARKED_DOUBLE => drop(self.source.array::<8>()?),
                opcode::MARKED_STRING => {
                    trim(&mut self.key);
                    self.copying_key(|copying| copying.string())?;
                }
                _ => return Err(FileError::Damaged { offset, what: "an unknown mark in a module's data" }),
            }
        }
    }

    fn number(&mut self) -> Result<u64, FileError> {
        self.value.clear();
        let mut copying = Copying { source: &mut self.source, out: &mut self.value };
        copying.number().map_err(|stop| self.name_error(stop))
    }

    fn skip_numbers(&mut self, count: usize) -> Result<(), FileError> {
        (0..count).try_for_each(|_| self.number().map(drop))
    }

    /// Appends to the bytes of the current key.
    fn copying_key<T>(&mut self, copy: impl FnOnce(&mut Copying<'_, R>) -> Result<T, Stop>) -> Result<T, FileError> {
        let mut copying = Copying { source: &mut self.source, out: &mut self.key };
        copy(&mut copying).map_err(|stop| self.name_error(stop))
    }

    fn name_error(&self, stop: Stop) -> FileError {
        match stop {
            Stop::File(error) => error,
            Stop::TooLong => FileError::Damaged { offset: self.offset(), what: "a name or text is too long" },
        }
    }
}

/// Whether a value is an empty collection.
fn is_empty(code: u8, value: &[u8]) -> bool {
    let behind = |bytes: usize| Input::new(value.get(bytes..).unwrap_or_default(), RDB_UNPACKED_MAX_BYTES);
    let counts_none = |mut input: Input<'_>| input.number() == Ok(0);
    // A packed collection is one string. The count of its elements is at an offset in it.
    let packed_none = |mut input: Input<'_>, at: usize, len: usize| {
        let packed = input.string().unwrap_or_default();
        packed.get(at..at + len).is_some_and(|count| count.iter().all(|byte| *byte == 0))
    };
    match code {
        LIST | SET | SET_METADATA | ZSET | HASH | ZSET_2 | VALKEY_HASH_2 | HASH_METADATA_PREVIEW => {
            counts_none(behind(0))
        }
        HASH_METADATA => counts_none(behind(8)),
        LIST_QUICKLIST | LIST_QUICKLIST_2 => {
            let mut nodes = behind(0);
            let count = nodes.number().unwrap_or(u64::MAX);
            (0..count).all(|_| {
                let is_packed = code == LIST_QUICKLIST || nodes.number() == Ok(NODE_PACKED);
                let node = nodes.string();
                is_packed && node.is_ok_and(|node| [&ziplist::EMPTY[..], &listpack::EMPTY].contains(&&*node))
            })
        }
        SET_INTSET => packed_none(behind(0), 4, 4),
        LIST_ZIPLIST | ZSET_ZIPLIST | HASH_ZIPLIST => packed_none(behind(0), 8, 2),
        HASH_LISTPACK | ZSET_LISTPACK | SET_LISTPACK | HASH_LISTPACK_EX_PREVIEW => packed_none(behind(0), 4, 2),
        HASH_LISTPACK_EX => packed_none(behind(8), 4, 2),
        HASH_ZIPMAP => packed_none(behind(0), 0, 1),
        _ => false,
    }
}

/// Empties a buffer. Frees the memory of a large one.
fn trim(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(SCRATCH_KEEP_BYTES);
}

/// The string encoded in these bytes.
fn string_of(bytes: &[u8], offset: u64) -> Result<Cow<'_, [u8]>, FileError> {
    let damaged = |_| FileError::Damaged { offset, what: "a string is badly packed" };
    Input::new(bytes, RDB_UNPACKED_MAX_BYTES).string().map_err(damaged)
}

/// The name of nine characters in a module's number: six bits for each, above ten bits for a version.
fn module_name(id: u64) -> String {
    const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..9).map(|place| CHARACTERS[(id >> (58 - 6 * place) & 63) as usize] as char).collect()
}
