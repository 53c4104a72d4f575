//! Where the server's memory is, read at one moment: what INFO, MEMORY STATS and MEMORY DOCTOR tell of.
//!
//! ```text
//! used        what the server holds and uses; `maxmemory` bounds it
//! active      used, and the places between keys that wait for new ones
//! resident    active, and what the allocator keeps; stacks
//! process     resident, and the program itself
//! ```
//!
//! The first two are counted by the server, the others by the system, which counts pages once they are touched. So a step may
//! be less than nothing: what was allocated and never written to takes no page.

use crate::base::os::allocated::allocated_bytes;
use crate::engine::meters::Meters;
use crate::engine::{Ctx, ServerState};

/// See the file's header. All are bytes, but for numbers of keys and clients.
pub(crate) struct Overview {
    /// What is allocated and in use.
    pub(crate) used: u64,
    /// The most that this has been.
    pub(crate) peak: u64,
    /// What it was when the server was made.
    pub(crate) startup: u64,
    /// With the free places between keys.
    pub(crate) active: u64,
    /// What the system has given for that: memory without a file behind it.
    pub(crate) resident: u64,
    /// What it has given in all.
    pub(crate) process: u64,
    /// What is held for clients: their state, what they have sent in part, what they have queued and what they have not read.
    pub(crate) clients: u64,
    /// How many clients there are.
    pub(crate) client_count: u64,
    /// Changes that the log has not taken yet.
    pub(crate) log: u64,
    /// Texts of scripts.
    pub(crate) scripts: u64,
    /// How many scripts there are.
    pub(crate) script_count: u64,
    /// Texts of libraries.
    pub(crate) libraries: u64,
    /// Users, and what was refused to them.
    pub(crate) acl: u64,
    /// What the server remembers of commands, scripts, keys and grants: SLOWLOG, COMMANDLOG, SCRIPT SLOW, HOTKEYS, EVENTS.
    pub(crate) history: u64,
    /// What Lua holds; 0 while a script runs.
    pub(crate) lua: u64,
    /// The databases that hold keys. Who shows which these are, or how many keys, has to [wait](crate::keyspace::Keyspace::see_everything)
    /// until they are safe.
    pub(crate) databases: Vec<Database>,
}

/// What one database takes beside its keys and values.
pub(crate) struct Database {
    /// Its number.
    pub(crate) number: u16,
    /// How many keys it holds.
    pub(crate) keys: u64,
    /// Bytes of the index from hash to entry.
    pub(crate) index: u64,
    /// Bytes of the index, and of what each entry says of itself.
    pub(crate) main: u64,
    /// Bytes of deadlines and timers.
    pub(crate) expires: u64,
}

impl Overview {
    /// Takes time in proportion to the clients, and to the parts that each database's tables have.
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

    /// Bytes of all that is not a key or a value.
    pub(crate) fn overhead(&self) -> u64 {
        let databases: u64 = self.databases.iter().map(|database| database.main + database.expires).sum();
        let beside = self.clients + self.log + self.scripts + self.libraries + self.acl + self.history + self.lua;
        (self.startup + beside + databases).min(self.used)
    }

    /// Bytes of keys and values.
    pub(crate) fn dataset(&self) -> u64 {
        self.used - self.overhead()
    }

    /// Keys and values as a share of what came after the start, in percent.
    pub(crate) fn dataset_percent(&self) -> f64 {
        percent(self.dataset(), self.used.saturating_sub(self.startup))
    }

    /// What is in use as a share of the most that ever was, in percent.
    pub(crate) fn peak_percent(&self) -> f64 {
        percent(self.used, self.peak)
    }

    /// How many keys there are.
    pub(crate) fn keys(&self) -> u64 {
        self.databases.iter().map(|database| database.keys).sum()
    }

    /// What free places between keys add.
    pub(crate) fn fragmentation(&self) -> Growth {
        Growth { from: self.used, to: self.active }
    }

    /// What the allocator's pages add.
    pub(crate) fn retention(&self) -> Growth {
        Growth { from: self.active, to: self.resident }
    }

    /// What the program adds.
    pub(crate) fn program(&self) -> Growth {
        Growth { from: self.resident, to: self.process }
    }

    /// All of it.
    pub(crate) fn total(&self) -> Growth {
        Growth { from: self.used, to: self.process }
    }
}

fn history_bytes(server: &ServerState) -> usize {
    let Meters { command_log, hotkeys, stats, .. } = &server.meters;
    let hotkeys = hotkeys.as_ref().map_or(0, |hotkeys| hotkeys.mem_bytes());
    server.audience.history.mem_bytes() + command_log.mem_bytes() + stats.scripts.slow.mem_bytes() + hotkeys
}

/// From one measure of memory to a wider one.
#[derive(Clone, Copy)]
pub(crate) struct Growth {
    from: u64,
    to: u64,
}

impl Growth {
    /// The wider one as a multiple of the other.
    pub(crate) fn ratio(self) -> f64 {
        self.to as f64 / self.from.max(1) as f64
    }

    /// Bytes that it adds.
    pub(crate) fn bytes(self) -> i64 {
        self.to as i64 - self.from as i64
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

/// Resident bytes of the process, and those among them that are a file's, such as the program. 0 where the system does not say.
fn resident_bytes() -> (u64, u64) {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    // SAFETY: the call only asks for a constant of the system.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(0) as u64;
    let mut fields = statm.split_whitespace().skip(1).map(|pages| pages.parse().unwrap_or(0) * page_bytes);
    (fields.next().unwrap_or(0), fields.next().unwrap_or(0))
}
