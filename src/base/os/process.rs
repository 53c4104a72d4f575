//! The process as a service: moving to the background, and a file with the process ID.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Continues in a child process, in a session of its own and without a terminal, and ends the calling process.
///
/// # Errors
/// The system's, in the calling process.
///
/// This must be called while there is only one thread: the others would be missing in the child.
pub fn go_to_background() -> io::Result<()> {
    // SAFETY: there is only one thread, as the caller has promised; the child continues with a copy of everything.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {}
        // SAFETY: takes no pointers. Nothing is flushed or destroyed twice, since no destructor runs here.
        _ => unsafe { libc::_exit(0) },
    }
    // SAFETY: takes no pointers. It can't fail, as a fresh child leads no group.
    unsafe { libc::setsid() };
    let nowhere = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    for stream in [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        // SAFETY: both are descriptors; the old stream's descriptor is closed and replaced.
        if unsafe { libc::dup2(nowhere.as_raw_fd(), stream) } == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Ends the process quietly at the next line printed after its reader has gone, as usual for a program in a pipe.
///
/// For a process that prints and ends, and has no sockets: a closed socket would end it quietly, too.
pub fn end_with_the_reader() {
    // SAFETY: the default action is no function of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Makes the system end the process after this many seconds, unless it has ended before.
pub fn end_within(seconds: u32) {
    // SAFETY: takes no pointers. The signal has no handler, and its default action ends the process.
    unsafe { libc::alarm(seconds) };
}

/// Returns `getrusage` of this process, its children or this thread (`libc::RUSAGE_*`).
pub fn resource_usage(who: libc::c_int) -> Option<libc::rusage> {
    let mut usage = std::mem::MaybeUninit::uninit();
    // SAFETY: the call fills the struct that it is given; the struct is read only if the call has succeeded.
    unsafe { (libc::getrusage(who, usage.as_mut_ptr()) == 0).then(|| usage.assume_init()) }
}

/// Processor time of all threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In user mode, in us.
    pub user_us: u64,
    /// In system mode, in us.
    pub sys_us: u64,
}

impl CpuTime {
    /// Returns the time spent since `earlier`.
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            user_us: self.user_us.saturating_sub(earlier.user_us),
            sys_us: self.sys_us.saturating_sub(earlier.sys_us),
        }
    }
}

/// Returns the time that this process has taken so far; zero if the system does not tell.
pub fn cpu_time() -> CpuTime {
    let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    resource_usage(libc::RUSAGE_SELF)
        .map_or(CpuTime::default(), |usage| CpuTime { user_us: micros(usage.ru_utime), sys_us: micros(usage.ru_stime) })
}

/// Returns the bytes of the address space and the resident bytes, as far as the system tells.
pub(crate) fn memory_bytes() -> Option<(u64, u64)> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = pages.split(' ').map(|pages| pages.parse::<u64>().ok());
    // SAFETY: the call only asks for a constant of the system.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(0).cast_unsigned();
    Some((pages.next()?? * page_bytes, pages.next()?? * page_bytes))
}

/// A file with the process ID, which is removed at the end.
#[derive(Debug)]
pub struct PidFile(PathBuf);

impl PidFile {
    /// Writes the file, replacing that of a process that was killed.
    ///
    /// # Errors
    /// The system's, also if `path` is a link, through which this could write to any file.
    pub fn write(path: &Path) -> io::Result<PidFile> {
        let mut file =
            OpenOptions::new().create(true).write(true).truncate(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
        let written = writeln!(file, "{}", std::process::id());
        if written.is_err() {
            // A full disk leaves an empty file, which is worse for its readers than none.
            let _ = std::fs::remove_file(path);
        }
        written.map(|()| PidFile(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // If the file is already gone, nothing remains to be done.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pidfile_is_removed_with_its_owner() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("pid");
        std::fs::write(&path, "1\n").expect("written");
        let file = PidFile::write(&path).expect("the folder is there");
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), format!("{}\n", std::process::id()));
        drop(file);
        assert!(!path.exists());
        assert!(PidFile::write(&dir.path().join("none/pid")).is_err());
    }
}
