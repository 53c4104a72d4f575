//! From a file to its keys, one after another.

use std::borrow::Cow;
use std::io::Read;

use super::error::FileError;
use super::opcode::{self, FIRST_WITH_CHECKSUM};
use super::shape::{Copying, Stop};
use super::source::Source;
use crate::base::limits::{RDB_UNPACKED_MAX_BYTES, SCRATCH_KEEP_BYTES};
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
    /// The strings of the record in hand, as they stand in the file.
    key: Vec<u8>,
    value: Vec<u8>,
}

/// What stands in a file.
#[derive(Debug)]
pub enum Record<'a> {
    /// A note about the file.
    Aux {
        /// Such as `redis-ver`.
        name: Cow<'a, [u8]>,
        /// Such as `7.0.15`.
        text: Cow<'a, [u8]>,
    },
    /// How many keys a database has, as a hint.
    Keys {
        /// The number of the database.
        db: u64,
        /// Its keys.
        keys: u64,
    },
    /// The text of a library of functions.
    Library(Cow<'a, [u8]>),
    /// What a module keeps beside the keys: it was passed over.
    ModuleAux {
        /// The module's name for its type, such as `ReJSON-RL`.
        module: String,
    },
    /// A key.
    Key(KeyRecord<'a>),
    /// The end; the checksum fitted, if there is one.
    End,
}

/// A key and its value, as it stands in the file.
#[derive(Debug)]
pub struct KeyRecord<'a> {
    /// The number of its database.
    pub db: u64,
    /// Its name.
    pub key: Cow<'a, [u8]>,
    /// When it expires, Unix ms.
    pub expires_at_ms: Option<i64>,
    /// Seconds since it was used last, at the time when the file was made.
    pub idle_s: Option<u64>,
    /// Whose number `code` is.
    pub dialect: Dialect,
    /// The version of the file.
    pub version: u16,
    /// The number of the value's type.
    pub code: u8,
    /// What stands behind that number.
    pub value: &'a [u8],
    /// Where in the file it begins.
    pub offset: u64,
}

impl KeyRecord<'_> {
    /// Writes what DUMP would have answered to `out`, in place of what is there.
    pub fn payload(&self, out: &mut Vec<u8>) {
        out.clear();
        out.push(self.code);
        out.extend_from_slice(self.value);
        seal(out, self.version);
    }

    /// The string that its value is, if it is one that can be read.
    pub fn text(&self) -> Option<Cow<'_, [u8]>> {
        if types::known(self.dialect, self.code) != Some(types::STRING) {
            return None;
        }
        let mut input = Input::new(self.value, RDB_UNPACKED_MAX_BYTES);
        input.string().ok().filter(|_| input.is_empty())
    }

    /// Whether it is a collection without elements. Old versions wrote some; Redis passes over them when it loads a file, and
    /// RESTORE refuses them.
    pub fn is_empty(&self) -> bool {
        types::known(self.dialect, self.code).is_some_and(|code| is_empty(code, self.value))
    }
}

/// What is said about a key before it comes.
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
        let version = version.ok_or(FileError::Damaged { offset: 5, what: "the version is no number" })?;
        let dialect = Dialect::of_version(version).filter(|dialect| match dialect {
            Dialect::Redis => magic == "REDIS" && version > 0,
            Dialect::Valkey => magic == "VALKEY",
        });
        let dialect = dialect.ok_or(FileError::Version { magic, version })?;
        Ok(Reader { source, dialect, version, db: 0, key: Vec::new(), value: Vec::new() })
    }

    /// Bytes of the file that were read.
    pub fn offset(&self) -> u64 {
        self.source.offset()
    }

    /// What was read beyond the file's end, and the rest of the input.
    pub fn into_rest(self) -> (Vec<u8>, R) {
        self.source.into_rest()
    }

    /// What comes next. Nothing comes behind [`Record::End`].
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
                    let what = "what modules of newer versions of Redis keep of a key, which can't be read here";
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
                    let what = "a library of functions of a release candidate of Redis 7.0, which no release reads";
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
            // Zero: whoever wrote it was told to save the time.
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
                return Err(self.refused(code, offset, format!("a value of the module type {module}")));
            }
            None => return Err(self.refused(code, offset, "which is not known here".to_owned())),
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

    /// The key in hand, for an error.
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

    /// What is marked can be passed over by those who don't know the module.
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
                _ => return Err(FileError::Damaged { offset, what: "no mark of a module's data is like this" }),
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

    /// Appends something to what is held of the key.
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

/// Whether a value is a collection without elements.
fn is_empty(code: u8, value: &[u8]) -> bool {
    let behind = |bytes: usize| Input::new(value.get(bytes..).unwrap_or_default(), RDB_UNPACKED_MAX_BYTES);
    let counts_none = |mut input: Input<'_>| input.number() == Ok(0);
    // Packed collections are one string. What counts their elements stands at an offset of it.
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

/// Empties a buffer; one that became large is given back.
fn trim(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(SCRATCH_KEEP_BYTES);
}

/// The string that these bytes are.
fn string_of(bytes: &[u8], offset: u64) -> Result<Cow<'_, [u8]>, FileError> {
    let damaged = |_| FileError::Damaged { offset, what: "a string is badly packed" };
    Input::new(bytes, RDB_UNPACKED_MAX_BYTES).string().map_err(damaged)
}

/// The name of nine characters in a module's number, of which six bits each are one, above ten of a version.
fn module_name(id: u64) -> String {
    const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..9).map(|place| CHARACTERS[(id >> (58 - 6 * place) & 63) as usize] as char).collect()
}
