//! The system's log, which adds time and process by itself.

use std::ffi::CString;

use tracing::Level;

/// The settings for the system's log.
#[derive(Clone, Debug)]
pub struct Syslog {
    /// The name before each line.
    pub name: String,
    /// The facility, such as `libc::LOG_LOCAL0`.
    pub facility: libc::c_int,
}

impl Syslog {
    /// Opens the system's log for the whole process.
    pub(super) fn open(&self) {
        // The name in a configuration file may contain zeros, which a C string can't.
        let name = CString::new(self.name.replace('\0', "")).unwrap_or_default();
        // SAFETY: the name is never freed, as the C library keeps the pointer.
        unsafe { libc::openlog(name.into_raw(), libc::LOG_PID | libc::LOG_NDELAY | libc::LOG_NOWAIT, self.facility) };
    }
}

/// Writes a line to the log that was opened. Lines contain no zeros.
pub(super) fn write(level: Level, line: &[u8]) {
    let line = CString::new(line.trim_ascii_end()).unwrap_or_default();
    // SAFETY: both are strings that end in a zero, and the format has one place for one of them.
    unsafe { libc::syslog(priority(level), c"%s".as_ptr(), line.as_ptr()) };
}

fn priority(level: Level) -> libc::c_int {
    match level {
        Level::ERROR => libc::LOG_ERR,
        Level::WARN => libc::LOG_WARNING,
        Level::INFO => libc::LOG_NOTICE,
        Level::DEBUG => libc::LOG_INFO,
        Level::TRACE => libc::LOG_DEBUG,
    }
}
