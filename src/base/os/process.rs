//! What a service does to its own process: into the background, a file with its number.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Goes on in a child process, in a session of its own and without a terminal, and ends the one that was called.
///
/// # Errors
/// The system's, in the process that was called.
///
/// To be called before there is a second thread: it would be missing in the child.
pub fn go_to_background() -> io::Result<()> {
    // SAFETY: there is one thread, as the caller has promised; the child goes on with a copy of all it knows.
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
        // SAFETY: both are descriptors; the old stream's is closed and replaced.
        if unsafe { libc::dup2(nowhere.as_raw_fd(), stream) } == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Lets whoever reads what is printed stop reading: the process ends at the next line, without a word, as others do in a pipe.
///
/// For a process that prints and ends, and has no sockets: it would end without a word where one of them is closed.
pub fn end_with_the_reader() {
    // SAFETY: the default action is no function of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Has the system end the process after so many seconds, unless it has ended before.
pub fn end_within(seconds: u32) {
    // SAFETY: takes no pointers. Nobody handles the signal, whose default action ends the process.
    unsafe { libc::alarm(seconds) };
}

/// What `getrusage` tells of this process, its children or this thread (`libc::RUSAGE_*`).
pub fn resource_usage(who: libc::c_int) -> Option<libc::rusage> {
    let mut usage = std::mem::MaybeUninit::uninit();
    // SAFETY: the call fills the struct that it is given; it is read only when the call says that it did.
    unsafe { (libc::getrusage(who, usage.as_mut_ptr()) == 0).then(|| usage.assume_init()) }
}

/// Time of the processor, of all threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In the program, us.
    pub user_us: u64,
    /// In the system, us.
    pub sys_us: u64,
}

impl CpuTime {
    /// What came since `earlier`.
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            user_us: self.user_us.saturating_sub(earlier.user_us),
            sys_us: self.sys_us.saturating_sub(earlier.sys_us),
        }
    }
}

/// What this process has taken so far; nothing where the system does not tell.
pub fn cpu_time() -> CpuTime {
    let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    resource_usage(libc::RUSAGE_SELF)
        .map_or(CpuTime::default(), |usage| CpuTime { user_us: micros(usage.ru_utime), sys_us: micros(usage.ru_stime) })
}

/// A file with the number of this process, which is removed at the end.
#[derive(Debug)]
pub struct PidFile(PathBuf);

impl PidFile {
    /// Writes it, in place of one that a process left that was killed.
    ///
    /// # Errors
    /// The system's; one of them is that there is a link at `path`, which would have this write to any file.
    pub fn write(path: &Path) -> io::Result<PidFile> {
        let mut file =
            OpenOptions::new().create(true).write(true).truncate(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
        let written = writeln!(file, "{}", std::process::id());
        if written.is_err() {
            // On a full disk, an empty one: worse than none for those who read it.
            let _ = std::fs::remove_file(path);
        }
        written.map(|()| PidFile(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Whoever has removed it before did what is wanted.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_lasts_as_long_as_its_owner() {
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
