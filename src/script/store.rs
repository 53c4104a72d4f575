//! The script cache: texts by their SHA-1, with the flags in their first lines.
//!
//! A first line `#!lua flags=no-writes,allow-stale` declares a script's behaviour. It is cut off before the script is
//! compiled, but its newline is kept, so that line numbers are right.
//!
//! Scripts from EVAL are kept while there is room for their texts (`script-cache-max-bytes`) and their number
//! ([`SCRIPT_EVAL_CACHE_MAX`]). The least recently used one goes first. The last one stays regardless of its size, so
//! that EVALSHA finds it. Scripts from SCRIPT LOAD stay until SCRIPT FLUSH, bundled ones forever.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use sha1::{Digest, Sha1};

use super::program::{Handle, Sha1Hex};
use crate::resp::request::{Decoder, OwnedArgv, RequestLimits};
use crate::script::limits::SCRIPT_EVAL_CACHE_MAX;

/// The name of a script: the SHA-1 of its text.
pub(crate) fn sha1_hex(body: &[u8]) -> Sha1Hex {
    hex(Sha1::digest(body).into())
}

/// Reads a script's name in any case. `None` if it is not 40 bytes long.
pub(crate) fn parse_sha1(text: &[u8]) -> Option<Sha1Hex> {
    let mut sha: Sha1Hex = text.try_into().ok()?;
    sha.make_ascii_lowercase();
    Some(sha)
}

pub(super) fn hex(digest: [u8; 20]) -> Sha1Hex {
    let mut text = [0; 40];
    for (pair, byte) in text.chunks_exact_mut(2).zip(digest) {
        pair[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
        pair[1] = b"0123456789abcdef"[usize::from(byte & 15)];
    }
    text
}

/// The flags that a script declares in its first line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptFlags {
    /// It has such a line. Without one, its permissions follow from each command it calls.
    pub declared: bool,
    /// `no-writes`: it must not write, and may run where writes are forbidden.
    pub no_writes: bool,
    /// `allow-oom`: it may run when the server is out of memory.
    pub allow_oom: bool,
    /// `allow-stale`: it may run on a replica that has lost its leader.
    pub allow_stale: bool,
    /// `no-cluster`: it must not run on a cluster.
    pub no_cluster: bool,
    /// `allow-cross-slot-keys`: its keys may lie in several slots of a cluster.
    pub allow_cross_slot_keys: bool,
}

impl ScriptFlags {
    /// The flags' names with their values, in the order of listings.
    pub fn named(&self) -> [(&'static str, bool); 5] {
        [
            ("no-writes", self.no_writes),
            ("allow-oom", self.allow_oom),
            ("allow-stale", self.allow_stale),
            ("no-cluster", self.no_cluster),
            ("allow-cross-slot-keys", self.allow_cross_slot_keys),
        ]
    }

    /// Sets the flag of this name, in any case. Returns false if there is none.
    pub(super) fn set_in_any_case(&mut self, name: &[u8]) -> bool {
        self.set(&name.to_ascii_lowercase())
    }

    /// Sets the flag of this name. Returns false if there is none.
    fn set(&mut self, name: &[u8]) -> bool {
        match name {
            b"no-writes" => self.no_writes = true,
            b"allow-oom" => self.allow_oom = true,
            b"allow-stale" => self.allow_stale = true,
            b"no-cluster" => self.no_cluster = true,
            b"allow-cross-slot-keys" => self.allow_cross_slot_keys = true,
            _ => return false,
        }
        true
    }
}

/// Why a first line was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ShebangError {
    /// No newline ends it.
    #[error("ERR Invalid script shebang")]
    Unfinished,
    /// Its quotes do not match.
    #[error("ERR Invalid engine in script shebang")]
    Quotes,
    /// It names another language.
    #[error("ERR Unexpected engine in script shebang: {0}")]
    Engine(String),
    /// An unknown option.
    #[error("ERR Unknown lua shebang option: {0}")]
    Option(String),
    /// An unknown flag.
    #[error("ERR Unexpected flag in script shebang: {0}")]
    Flag(String),
}

/// The origin of a script, which decides how long it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptOrigin {
    /// Part of the server: stays forever.
    Bundled,
    /// SCRIPT LOAD: stays until SCRIPT FLUSH.
    Loaded,
    /// EVAL: stays while there is room.
    Eval,
}

/// One script.
#[derive(Clone, Debug)]
pub struct Script {
    /// The whole text.
    pub body: Box<[u8]>,
    /// The flags in its first line.
    pub flags: ScriptFlags,
    /// The compiled program.
    pub program: Handle,
    /// Its origin.
    pub origin: ScriptOrigin,
    last_used: u64,
}

/// Reads the first line of a script. Returns its flags and the offset of the program.
pub(crate) fn parse_shebang(body: &[u8]) -> Result<(ScriptFlags, usize), ShebangError> {
    if !body.starts_with(b"#!") {
        return Ok((ScriptFlags::default(), 0));
    }
    let end = memchr::memchr(b'\n', body).ok_or(ShebangError::Unfinished)?;
    let mut flags = ScriptFlags { declared: true, ..ScriptFlags::default() };
    let words = first_line_words(&body[..=end]).ok_or(ShebangError::Quotes)?;
    let mut words = words.as_argv().iter();
    let engine = words.next().unwrap_or_default();
    if engine != b"#!lua" {
        return Err(ShebangError::Engine(lossy(engine)));
    }
    for word in words {
        let list = word.strip_prefix(b"flags=").ok_or_else(|| ShebangError::Option(lossy(word)))?;
        if list.is_empty() {
            continue;
        }
        for flag in list.split(|&byte| byte == b',') {
            if !flags.set(flag) {
                return Err(ShebangError::Flag(lossy(flag)));
            }
        }
    }
    Ok((flags, end))
}

/// The words of a first line, with quotes as in inline commands. `None` if the quotes do not match.
pub(super) fn first_line_words(line: &[u8]) -> Option<OwnedArgv> {
    let mut decoder = Decoder::new();
    let limits = RequestLimits { bulk_bytes: line.len(), unauthenticated: false };
    let complete = decoder.decode(line, &limits).ok()?;
    complete.then(|| OwnedArgv::from_argv(decoder.argv(line)))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// All scripts by name.
#[derive(Debug)]
pub struct Store {
    scripts: HashMap<Sha1Hex, Script, ahash::RandomState>,
    /// The names of scripts from clients, ordered, so that they can be walked in slices.
    brought: BTreeSet<Sha1Hex>,
    /// Number of scripts from EVAL.
    evals: usize,
    /// Bytes of the texts of scripts from EVAL.
    eval_bytes: usize,
    /// Bytes of all texts.
    bytes: usize,
    clock: u64,
}

impl Store {
    /// Creates an empty cache whose hash is seeded with `seed`.
    pub fn new(seed: u64) -> Store {
        let hasher = ahash::RandomState::with_seed(seed as usize);
        let brought = BTreeSet::new();
        Store { scripts: HashMap::with_hasher(hasher), brought, evals: 0, eval_bytes: 0, bytes: 0, clock: 0 }
    }

    /// Finds a script.
    #[inline]
    pub fn find(&self, sha: &Sha1Hex) -> Option<&Script> {
        self.scripts.get(sha)
    }

    /// As [`find`](Self::find), with a reference to the stored name.
    pub fn find_with_name(&self, sha: &Sha1Hex) -> Option<(&Sha1Hex, &Script)> {
        self.scripts.get_key_value(sha)
    }

    /// Finds a script that is about to run, and notes its use.
    #[inline]
    pub fn use_script(&mut self, sha: &Sha1Hex) -> Option<&Script> {
        let script = self.scripts.get_mut(sha)?;
        self.clock += 1;
        script.last_used = self.clock;
        Some(script)
    }

    /// Notes that a script arrived again. The longer-lived origin counts from now on. Returns whether the origin has
    /// changed; `None` if there is no such script.
    pub fn renew(&mut self, sha: &Sha1Hex, origin: ScriptOrigin) -> Option<bool> {
        let known = self.scripts.get_mut(sha)?;
        self.clock += 1;
        known.last_used = self.clock;
        let lives_longer = known.origin == ScriptOrigin::Eval && origin != ScriptOrigin::Eval;
        if lives_longer {
            known.origin = origin;
            self.evals -= 1;
            self.eval_bytes -= known.body.len();
        }
        Some(lives_longer)
    }

    /// Adds a new script, even if there is no room.
    pub fn insert(&mut self, sha: Sha1Hex, body: &[u8], flags: ScriptFlags, program: Handle, origin: ScriptOrigin) {
        self.clock += 1;
        if origin == ScriptOrigin::Eval {
            self.evals += 1;
            self.eval_bytes += body.len();
        }
        if origin != ScriptOrigin::Bundled {
            self.brought.insert(sha);
        }
        self.bytes += body.len();
        self.scripts.insert(sha, Script { body: body.into(), flags, program, origin, last_used: self.clock });
    }

    /// Removes the least recently used script from EVAL if there are too many of them, or if their texts exceed
    /// `max_bytes`.
    pub fn evict(&mut self, max_bytes: usize) -> Option<(Sha1Hex, Script)> {
        let is_over = self.evals > SCRIPT_EVAL_CACHE_MAX || self.eval_bytes > max_bytes;
        if !is_over || self.evals == 1 {
            return None;
        }
        let evals = self.scripts.iter().filter(|(_, script)| script.origin == ScriptOrigin::Eval);
        let (&oldest, _) = evals.min_by_key(|(_, script)| script.last_used)?;
        Some((oldest, self.remove(&oldest)?))
    }

    /// Removes a script that came from EVAL.
    pub fn remove(&mut self, sha: &Sha1Hex) -> Option<Script> {
        if self.scripts.get(sha)?.origin != ScriptOrigin::Eval {
            return None;
        }
        let script = self.scripts.remove(sha)?;
        self.brought.remove(sha);
        self.evals -= 1;
        self.eval_bytes -= script.body.len();
        self.bytes -= script.body.len();
        Some(script)
    }

    /// SCRIPT FLUSH: removes and returns all scripts except the bundled ones.
    pub fn flush(&mut self) -> Vec<Script> {
        let gone =
            self.scripts.extract_if(|_, script| script.origin != ScriptOrigin::Bundled).map(|(_, script)| script);
        let gone: Vec<Script> = gone.collect();
        self.scripts.shrink_to_fit();
        self.brought.clear();
        (self.evals, self.eval_bytes) = (0, 0);
        self.bytes -= gone.iter().map(|script| script.body.len()).sum::<usize>();
        gone
    }

    /// All scripts with their names, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&Sha1Hex, &Script)> {
        self.scripts.iter()
    }

    /// Scripts from clients, ordered by name, from this name on.
    pub fn brought_from(&self, sha: &Sha1Hex) -> impl Iterator<Item = (&Sha1Hex, &Script)> {
        self.brought.range(*sha..).filter_map(|sha| self.find_with_name(sha))
    }

    /// Number of scripts.
    pub fn len(&self) -> usize {
        self.scripts.len()
    }

    /// Number of scripts from clients.
    pub fn cached_len(&self) -> usize {
        self.brought.len()
    }

    /// Whether there are no scripts.
    pub fn is_empty(&self) -> bool {
        self.scripts.is_empty()
    }

    /// Bytes of all texts.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &str) -> Result<(ScriptFlags, String), String> {
        match parse_shebang(body.as_bytes()) {
            Ok((flags, start)) => Ok((flags, body[start..].to_owned())),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn first_lines_read_as_in_redis() {
        let none = ScriptFlags::default();
        let declared = ScriptFlags { declared: true, ..none };
        let no_writes = ScriptFlags { no_writes: true, ..declared };
        let all = ScriptFlags {
            allow_oom: true,
            allow_stale: true,
            no_cluster: true,
            allow_cross_slot_keys: true,
            ..no_writes
        };
        let good = [
            ("return 1", none, "return 1"),
            ("#!lua\nreturn 1", declared, "\nreturn 1"),
            ("#!lua\r\nreturn 1", declared, "\nreturn 1"),
            ("#!lua flags=\nreturn 1", declared, "\nreturn 1"),
            ("#!lua  flags=no-writes \nreturn 1", no_writes, "\nreturn 1"),
            ("#!lua\tflags=no-writes\n", no_writes, "\n"),
            ("#!lua 'flags=no-writes'\nreturn 1", no_writes, "\nreturn 1"),
            ("#!lua flags=no-writes,allow-stale,allow-oom,no-cluster,allow-cross-slot-keys\n", all, "\n"),
        ];
        for (body, flags, code) in good {
            assert_eq!(parse(body), Ok((flags, code.to_owned())), "{body}");
        }
        let bad = [
            ("#!lua", "ERR Invalid script shebang"),
            ("#!\nreturn 1", "ERR Unexpected engine in script shebang: #!"),
            ("#! lua\nreturn 1", "ERR Unexpected engine in script shebang: #!"),
            ("#!luax\nreturn 1", "ERR Unexpected engine in script shebang: #!luax"),
            ("#!lua flags=bad\nreturn 1", "ERR Unexpected flag in script shebang: bad"),
            ("#!lua flags=no-writes,\nreturn 1", "ERR Unexpected flag in script shebang: "),
            ("#!lua flags=NO-WRITES\nreturn 1", "ERR Unexpected flag in script shebang: NO-WRITES"),
            ("#!lua name=x\nreturn 1", "ERR Unknown lua shebang option: name=x"),
            ("#!lua \"flags=no-writes\nreturn 1", "ERR Invalid engine in script shebang"),
        ];
        for (body, error) in bad {
            assert_eq!(parse(body), Err(error.to_owned()), "{body}");
        }
    }

    #[test]
    fn names_are_read_in_either_case() {
        let sha = sha1_hex(b"return 1");
        assert_eq!(&sha, b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        assert_eq!(parse_sha1(&sha.to_ascii_uppercase()), Some(sha));
        assert_eq!(parse_sha1(b"e0"), None);
    }

    fn put(store: &mut Store, body: &str, origin: ScriptOrigin) -> Sha1Hex {
        let sha = sha1_hex(body.as_bytes());
        if store.renew(&sha, origin).is_none() {
            store.insert(sha, body.as_bytes(), ScriptFlags::default(), Handle::for_tests(0, 0), origin);
        }
        sha
    }

    /// The texts evicted to make room.
    fn evicted(store: &mut Store, max_bytes: usize) -> Vec<String> {
        let texts = std::iter::from_fn(|| store.evict(max_bytes));
        texts.map(|(_, script)| String::from_utf8_lossy(&script.body).into_owned()).collect()
    }

    #[test]
    fn scripts_stay_as_long_as_their_origin_says() {
        let mut store = Store::new(1);
        let bundled = put(&mut store, "return 'bundled'", ScriptOrigin::Bundled);
        let loaded = put(&mut store, "return 'loaded'", ScriptOrigin::Eval);
        assert_eq!(store.renew(&loaded, ScriptOrigin::Eval), Some(false));
        assert_eq!(store.renew(&loaded, ScriptOrigin::Loaded), Some(true));
        assert_eq!(store.renew(&loaded, ScriptOrigin::Loaded), Some(false));
        let first = put(&mut store, "return 0", ScriptOrigin::Eval);
        let second = put(&mut store, "return 1", ScriptOrigin::Eval);
        for i in 2..SCRIPT_EVAL_CACHE_MAX {
            put(&mut store, &format!("return {i}"), ScriptOrigin::Eval);
        }
        assert!(store.use_script(&first).is_some());
        assert!(store.evict(usize::MAX).is_none(), "as many as there may be");
        put(&mut store, "return 'more'", ScriptOrigin::Eval);
        assert_eq!(evicted(&mut store, usize::MAX), ["return 1"]);
        assert!(store.find(&second).is_none());
        assert_eq!(store.len(), SCRIPT_EVAL_CACHE_MAX + 2);
        assert_eq!(store.flush().len(), SCRIPT_EVAL_CACHE_MAX + 1);
        assert!(store.find(&bundled).is_some() && store.find(&loaded).is_none());
        assert_eq!((store.len(), store.cached_len(), store.bytes()), (1, 0, "return 'bundled'".len()));
    }

    #[test]
    fn texts_from_eval_have_a_limit_on_their_bytes() {
        let mut store = Store::new(1);
        put(&mut store, "return 'bundled'", ScriptOrigin::Bundled);
        put(&mut store, "return 'loaded'", ScriptOrigin::Loaded);
        for body in ["a = 1", "b = 2", "c = 3"] {
            put(&mut store, body, ScriptOrigin::Eval);
        }
        assert_eq!(evicted(&mut store, 15), [""; 0]);
        assert!(store.use_script(&sha1_hex(b"a = 1")).is_some());
        assert_eq!(evicted(&mut store, 14), ["b = 2"]);
        put(&mut store, "d = 'one that is longer than all'", ScriptOrigin::Eval);
        assert_eq!(evicted(&mut store, 14), ["c = 3", "a = 1"], "the newest text stays");
        put(&mut store, "e = 5", ScriptOrigin::Eval);
        assert_eq!(evicted(&mut store, 14), ["d = 'one that is longer than all'"]);
        assert_eq!(store.renew(&sha1_hex(b"e = 5"), ScriptOrigin::Loaded), Some(true));
        put(&mut store, "f = 6", ScriptOrigin::Eval);
        assert_eq!(evicted(&mut store, 5), [""; 0], "loaded scripts do not count");
        assert_eq!((store.len(), store.cached_len()), (4, 3));
    }
}
