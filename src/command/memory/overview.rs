//! A reading of the server's memory at one moment, for INFO, MEMORY STATS and MEMORY DOCTOR.
//!
//! ```text
//! used        allocated and in use; `maxmemory` bounds it
//! active      used, plus the free places between keys
//! resident    active, plus pages that the allocator retains, and stacks
//! process     resident, plus the program itself
//! ```
//!
//! The server counts the first two, the system the others. The system counts a page once it is touched, so a step may
//! be negative: memory that was allocated and never written to takes no page.

use crate::base::os::allocated::allocated_bytes;
use crate::engine::{Ctx, ServerState};
use crate::meters::Meters;

/// All fields are bytes, except for the numbers of keys, clients and scripts. The measures are explained at the head of
/// the file.
pub(crate) struct Overview {
    /// Allocated and in use.
    pub(crate) used: u64,
    /// The maximum of `used` so far.
    pub(crate) peak: u64,
    /// `used` when the server had started.
    pub(crate) startup: u64,
    /// `used` with the free places between keys.
    pub(crate) active: u64,
    /// Resident memory without a file behind it.
    pub(crate) resident: u64,
    /// All resident memory.
    pub(crate) process: u64,
    /// Clients: their state, partial requests, queued commands and unread replies.
    pub(crate) clients: u64,
    /// The number of clients.
    pub(crate) client_count: u64,
    /// Changes that the journal has not taken yet.
    pub(crate) log: u64,
    /// Texts of scripts.
    pub(crate) scripts: u64,
    /// The number of scripts.
    pub(crate) script_count: u64,
    /// Texts of libraries.
    pub(crate) libraries: u64,
    /// Users and the entries of ACL LOG.
    pub(crate) acl: u64,
    /// Records of commands, scripts, keys and grants: SLOWLOG, COMMANDLOG, SCRIPT SLOW, HOTKEYS, LATENCY, EVENTS.
    pub(crate) history: u64,
    /// Memory of Lua; 0 while a script runs.
    pub(crate) lua: u64,
    /// The databases that hold keys. A command that shows these, or the number of keys, must
    /// [wait](crate::keyspace::Keyspace::see_everything) until all changes are safe.
    pub(crate) databases: Vec<Database>,
}

/// The memory of a database without its keys and values.
pub(crate) struct Database {
    /// Its number.
    pub(crate) number: u16,
    /// The number of keys.
    pub(crate) keys: u64,
    /// Bytes of the index from hash to entry.
    pub(crate) index: u64,
    /// Bytes of the index and of the metadata of entries.
    pub(crate) main: u64,
    /// Bytes of deadlines and timers.
    pub(crate) expires: u64,
}

impl Overview {
    /// Takes time in proportion to the number of clients and of table parts.
    pub(crate) fn new(ctx: &Ctx<'_>) -> Overview {
        let server = &ctx.server;
        let used = allocated_bytes();
        let (process, of_files) = resident_bytes();
        let sessions = || server.clients.sessions.iter().chain(std::iter::once(&*ctx.session));
        let databases = (0..ctx.ks.databases()).map(|number| (number, ctx.ks.db_unfenced(number)));
        let vacant: usize = databases.clone().map(|(_, db)| db.vacant_bytes()).sum();
        let databases = databases.filter(|(_, db)| !db.is_empty()).map(|(number, db)| {
            let index = db.index_bytes();
            Database {
                number,
                keys: db.len() as u64,
                index: index as u64,
                main: (index + db.header_bytes()) as u64,
                expires: db.expiry_bytes() as u64,
            }
        });
        Overview {
            used,
            peak: server.memory.peak_bytes.max(used),
            startup: server.memory.startup_bytes,
            active: used + vacant as u64,
            resident: process.saturating_sub(of_files),
            process,
            clients: sessions().map(|session| session.mem_bytes() as u64).sum(),
            client_count: sessions().count() as u64,
            log: server.persistence.buffer_bytes() as u64,
            scripts: server.programs.scripts.text_bytes() as u64,
            script_count: server.programs.scripts.cached_len() as u64,
            libraries: server.programs.scripts.libraries().bytes() as u64,
            acl: server.acl.mem_bytes() as u64,
            history: history_bytes(server) as u64,
            lua: server.programs.scripts.memory_bytes() as u64,
            databases: databases.collect(),
        }
    }

    /// Bytes of everything but keys and values.
    pub(crate) fn overhead(&self) -> u64 {
        let databases: u64 = self.databases.iter().map(|database| database.main + database.expires).sum();
        let beside = self.clients + self.log + self.scripts + self.libraries + self.acl + self.history + self.lua;
        (self.startup + beside + databases).min(self.used)
    }

    /// Bytes of keys and values.
    pub(crate) fn dataset(&self) -> u64 {
        self.used - self.overhead()
    }

    /// Keys and values as a percentage of the memory allocated since the start.
    pub(crate) fn dataset_percent(&self) -> f64 {
        percent(self.dataset(), self.used.saturating_sub(self.startup))
    }

    /// Memory in use as a percentage of the peak.
    pub(crate) fn peak_percent(&self) -> f64 {
        percent(self.used, self.peak)
    }

    /// The number of keys.
    pub(crate) fn keys(&self) -> u64 {
        self.databases.iter().map(|database| database.keys).sum()
    }

    /// The growth by free places between keys.
    pub(crate) fn fragmentation(&self) -> Growth {
        Growth { from: self.used, to: self.active }
    }

    /// The growth by pages that the allocator retains.
    pub(crate) fn retention(&self) -> Growth {
        Growth { from: self.active, to: self.resident }
    }

    /// The growth by the mapped program.
    pub(crate) fn program(&self) -> Growth {
        Growth { from: self.resident, to: self.process }
    }

    /// The growth from memory in use to the whole process.
    pub(crate) fn total(&self) -> Growth {
        Growth { from: self.used, to: self.process }
    }
}

fn history_bytes(server: &ServerState) -> usize {
    let Meters { command_log, hotkeys, latency, stats } = &server.meters;
    let hotkeys = hotkeys.as_ref().map_or(0, |hotkeys| hotkeys.mem_bytes());
    let of_commands = command_log.mem_bytes() + stats.scripts.slow.mem_bytes() + latency.mem_bytes();
    server.audience.history.mem_bytes() + of_commands + hotkeys
}

/// A step from one measure of memory to a wider one.
#[derive(Clone, Copy)]
pub(crate) struct Growth {
    from: u64,
    to: u64,
}

impl Growth {
    /// The wider measure as a multiple of the narrower.
    pub(crate) fn ratio(self) -> f64 {
        self.to as f64 / self.from.max(1) as f64
    }

    /// The bytes that the step adds.
    pub(crate) fn bytes(self) -> i64 {
        self.to as i64 - self.from as i64
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

/// Returns the resident bytes of the process, and those of them that are backed by a file, such as the program. Both
/// are 0 where the system does not report them.
fn resident_bytes() -> (u64, u64) {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    // SAFETY: the call only reads a constant of the system.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(0) as u64;
    let mut fields = statm.split_whitespace().skip(1).map(|pages| pages.parse().unwrap_or(0) * page_bytes);
    (fields.next().unwrap_or(0), fields.next().unwrap_or(0))
}
