//! The space of a disk.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Bytes of the file system that holds a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskSpace {
    /// Bytes that are left for processes without privileges.
    pub(crate) free: u64,
    /// Bytes that such processes could have in all.
    pub(crate) total: u64,
}

impl DiskSpace {
    /// Asks the system, which may take long if the disk hangs.
    pub(crate) fn of(path: &Path) -> io::Result<DiskSpace> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let mut found = MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: the path ends with a zero, and the call fills the struct that it is given.
        if unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has succeeded.
        let found = unsafe { found.assume_init() };
        let reserved = found.f_bfree.saturating_sub(found.f_bavail);
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(DiskSpace { free: bytes(found.f_bavail), total: bytes(found.f_blocks.saturating_sub(reserved)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_of_a_folder_has_space() {
        let found = DiskSpace::of(&std::env::temp_dir()).expect("it is there");
        assert!(0 < found.free && found.free <= found.total, "{found:?}");
        assert!(DiskSpace::of(Path::new("/nosuch/folder")).is_err());
    }
}
