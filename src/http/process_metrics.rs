//! Metrics that the system knows: of the process, under the names of Prometheus' own clients, and of the disk.
//!
//! They are asked for on the thread of the scrape. To count many descriptors takes a while, and a disk that hangs may
//! not answer.

use std::path::Path;

use crate::base::os::descriptors::{limit_of_files, open_files};
use crate::base::os::disk_space::DiskSpace;
use crate::base::os::process::{cpu_time, memory_bytes};
use crate::meters::exposition::{Kind, single};

/// Writes the metrics of the process, and of the disk that holds `dir`.
pub(super) fn write(text: &mut String, dir: &Path) {
    let (cpu, help) = (cpu_time(), "CPU seconds of the process.");
    single(text, "process_cpu_seconds_total", Kind::Counter, help, (cpu.user_us + cpu.sys_us) as f64 / 1e6);
    let mut gauge = |metric: &str, help: &str, value: Option<u64>| {
        if let Some(value) = value {
            single(text, metric, Kind::Gauge, help, value);
        }
    };
    gauge("process_open_fds", "Open files and sockets.", open_files().map(|files| files as u64));
    gauge("process_max_fds", "Files and sockets that may be open.", limit_of_files());
    let memory = memory_bytes();
    gauge("process_virtual_memory_bytes", "Bytes of the address space.", memory.map(|(all, _)| all));
    gauge("process_resident_memory_bytes", "Resident bytes.", memory.map(|(_, resident)| resident));
    let space = DiskSpace::of(dir).ok();
    gauge("tidegate_disk_free_bytes", "Free bytes of the disk that holds `dir`.", space.map(|space| space.free));
    gauge("tidegate_disk_size_bytes", "Bytes of the disk that holds `dir`.", space.map(|space| space.total));
}
