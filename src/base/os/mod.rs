//! The operating system: the process and its resources, memory, files and the log that people read.

pub(crate) mod allocated;
pub(crate) mod allocator;
pub mod descriptors;
pub(crate) mod disk_space;
#[cfg(target_os = "linux")]
pub(crate) mod huge_blocks;
pub mod huge_pages;
pub mod logging;
pub(crate) mod oom_score;
pub(crate) mod priority;
pub mod process;
pub mod process_title;
pub mod replace_file;
pub mod supervisor;
