//! Parameters that name files and folders.

use std::path::{Path, PathBuf};

use super::kind::{Args, Origin, Shape, only};
use super::refusal::Refusal;

/// The path of a file; empty means none.
pub(super) struct File;

impl File {
    pub(super) fn shape(&self) -> Shape {
        Shape::One("PATH")
    }

    pub(super) fn set(&self, field: &mut PathBuf, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        *field = path(only(args)?);
        Ok(())
    }

    pub(super) fn get(&self, field: &Path, out: &mut Vec<u8>) {
        use std::os::unix::ffi::OsStrExt as _;
        out.extend_from_slice(field.as_os_str().as_bytes());
    }
}

/// The name of a file or folder inside a folder that another parameter names.
pub(super) struct Name;

impl Name {
    pub(super) fn shape(&self) -> Shape {
        Shape::One("NAME")
    }

    pub(super) fn set(&self, field: &mut PathBuf, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let name = path(only(args)?);
        if name.file_name() != Some(name.as_os_str()) {
            return Err(Refusal::NotAName);
        }
        *field = name;
        Ok(())
    }

    pub(super) fn get(&self, field: &Path, out: &mut Vec<u8>) {
        File.get(field, out);
    }
}

/// A directory that exists, kept as an absolute path.
pub(super) struct Directory;

impl Directory {
    pub(super) fn shape(&self) -> Shape {
        Shape::One("PATH")
    }

    pub(super) fn set(&self, field: &mut PathBuf, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let refused = |error: std::io::Error| Refusal::Directory(system_text(&error));
        let directory = std::fs::canonicalize(path(only(args)?)).map_err(refused)?;
        std::fs::read_dir(&directory).map_err(refused)?;
        *field = directory;
        Ok(())
    }

    pub(super) fn get(&self, field: &Path, out: &mut Vec<u8>) {
        File.get(field, out);
    }
}

fn path(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

/// Returns the system's message, without the number that Rust adds.
pub(super) fn system_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
