//! Programs and rights that some tests need of the machine: redis-server to compare with, redis-cli to type into, leave
//! to mount a small disk.
//!
//! `cargo test` passes on a machine without them: a test whose requirement is missing returns at once. The test harness
//! of Rust then reports it as "ok", for it has no word for "skipped", so the suite counts these tests itself. At its
//! end, behind the harness' own summary, it says how many ran and how many were skipped. Where `SUITE_REDIS` is set,
//! which names the redis-server to compare with, no comparison is skipped: a missing program fails its tests. So does a
//! missing browser where `SUITE_BROWSER` is set. CI sets both. Whether a disk may be mounted is up to the machine.
//!
//! Debian's redis-server is version 7.0. `SUITE_REDIS_8` names a server of version 8.0 to compare with as well; where
//! the two differ, 8.0 is right. `SUITE_VALKEY` names a valkey-server of version 9.1. Debian packages neither, so
//! without the variables their tests are skipped. `.ci/peers` builds both. `SUITE_AXE` names the `axe.min.js` of
//! axe-core, which `.ci/axe` fetches.

use std::io::Write;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};

/// Requirements of tests beside the server under test.
pub(crate) struct Tool {
    name: &'static str,
    probe: fn() -> bool,
    /// The problem when it is missing; `advice` says how to get it.
    lack: &'static str,
    advice: &'static str,
    /// The variable of the environment with which it must be present.
    demanded_by: Option<&'static str>,
    is_there: OnceLock<bool>,
    run: AtomicUsize,
    left_out: AtomicUsize,
}

/// The server to compare with.
pub(crate) static REDIS_SERVER: Tool = Tool::redis("redis-server", || answers_its_version("redis-server"));
/// The server to compare with in version 8.0.
pub(crate) static REDIS_SERVER_8: Tool = Tool::new(
    "Redis 8.0",
    None,
    || std::env::var_os("SUITE_REDIS_8").is_some(),
    "NOT NAMED",
    "SUITE_REDIS_8=/path/to/redis-server",
);
/// The server of Valkey 9.1.
pub(crate) static VALKEY_SERVER: Tool = Tool::new(
    "Valkey 9.1",
    None,
    || std::env::var_os("SUITE_VALKEY").is_some(),
    "NOT NAMED",
    "SUITE_VALKEY=/path/to/valkey-server",
);
/// The interactive client.
pub(crate) static REDIS_CLI: Tool = Tool::redis("redis-cli", || answers_its_version("redis-cli"));
/// redis-cli built with TLS.
pub(crate) static REDIS_CLI_TLS: Tool = Tool::new(
    "redis-cli --tls",
    None,
    || {
        let help = Command::new("redis-cli").arg("--help").output();
        help.is_ok_and(|help| [help.stdout, help.stderr].concat().windows(5).any(|word| word == b"--tls"))
    },
    "NOT THERE",
    "apt-get install redis-tools",
);
/// The tool that encrypts a TLS key.
pub(crate) static OPENSSL: Tool = Tool::new(
    "openssl",
    None,
    || Command::new("openssl").arg("version").output().is_ok_and(|done| done.status.success()),
    "NOT INSTALLED",
    "apt-get install openssl",
);
/// The driver of the browser that looks at the console.
pub(crate) static CHROMEDRIVER: Tool = Tool::new(
    "chromedriver",
    Some("SUITE_BROWSER"),
    || Command::new("chromedriver").arg("--version").output().is_ok_and(|done| done.status.success()),
    "NOT INSTALLED",
    "apt-get install chromium chromium-driver",
);
/// The program that finds barriers in pages.
pub(crate) static AXE: Tool =
    Tool::new("axe-core", None, || std::env::var_os("SUITE_AXE").is_some(), "NOT NAMED", "SUITE_AXE=$(.ci/axe)");
/// An address of this machine other than the loopback's.
pub(crate) static OTHER_ADDRESS: Tool =
    Tool::new("another address", None, || other_address().is_some(), "NOT THERE", "connect the machine to a network");
/// A disk of a size that a test chooses.
pub(crate) static SMALL_DISK: Tool = Tool::new(
    "mount",
    None,
    || SmallDisk::mount("1m").is_some(),
    "NOT ALLOWED",
    "run them as root, where that may mount",
);

/// Returns an address of this machine other than the loopback's.
pub(crate) fn other_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // This chooses a route, and sends nothing.
    socket.connect("203.0.113.77:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
}

impl Tool {
    const fn new(
        name: &'static str,
        demanded_by: Option<&'static str>,
        probe: fn() -> bool,
        lack: &'static str,
        advice: &'static str,
    ) -> Tool {
        let (run, left_out) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Tool { name, probe, lack, advice, demanded_by, is_there: OnceLock::new(), run, left_out }
    }

    const fn redis(name: &'static str, probe: fn() -> bool) -> Tool {
        Tool::new(name, Some("SUITE_REDIS"), probe, "NOT INSTALLED", "apt-get install redis-server redis-tools")
    }

    /// Whether the calling test must be skipped because this program is missing. Each test that needs it asks once.
    pub(crate) fn is_missing(&self) -> bool {
        static REPORT: Once = Once::new();
        // SAFETY: a plain function that lives as long as the process, and that does not unwind.
        REPORT.call_once(|| assert_eq!(unsafe { libc::atexit(report) }, 0, "room for a function to call at exit"));
        let is_there = *self.is_there.get_or_init(|| self.is_demanded() || (self.probe)());
        if is_there { &self.run } else { &self.left_out }.fetch_add(1, Ordering::Relaxed);
        !is_there
    }

    /// Whether absence is a failure.
    fn is_demanded(&self) -> bool {
        self.demanded_by.is_some_and(|variable| std::env::var_os(variable).is_some())
    }

    fn summary(&self) -> Option<String> {
        let (name, run) = (self.name, self.run.load(Ordering::Relaxed));
        match self.left_out.load(Ordering::Relaxed) {
            0 if run == 0 => None,
            0 => Some(format!("{name}: all {run} tests that need it ran")),
            left_out => Some(format!(
                "{name}: {}, so {left_out} tests that need it were left out: they count as \"ok\" above, but have \
                 tested nothing. To run them: {}",
                self.lack, self.advice
            )),
        }
    }
}

fn answers_its_version(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A file system in memory with a fixed size.
pub(crate) struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Mounts one of `size`, in the notation of mount(8). `None` where that is not allowed.
    pub(crate) fn mount(size: &str) -> Option<SmallDisk> {
        let dir = tempfile::tempdir().expect("a temporary folder");
        mount(&["-t", "tmpfs", "-o", &format!("size={size}"), "tidegate-test"], dir.path()).then_some(SmallDisk(dir))
    }

    /// Makes it larger while it is in use.
    pub(crate) fn grow_to(&self, size: &str) {
        assert!(mount(&["-o", &format!("remount,size={size}")], self.0.path()), "a mounted disk grows");
    }

    /// Makes it read-only (`ro`), or writable again (`rw`).
    pub(crate) fn remount(&self, how: &str) {
        assert!(mount(&["-o", &format!("remount,{how}")], self.0.path()), "a disk that nobody uses is remounted");
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a server that is being killed may still have files open.
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

fn mount(args: &[&str], at: &Path) -> bool {
    let mut command = Command::new("mount");
    command.args(args).arg(at).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Called by the C library when the process exits, whether the tests pass or fail. Writes to standard error directly,
/// which the harness does not capture.
extern "C" fn report() {
    let tools = [
        &REDIS_SERVER,
        &REDIS_SERVER_8,
        &VALKEY_SERVER,
        &REDIS_CLI,
        &REDIS_CLI_TLS,
        &OPENSSL,
        &OTHER_ADDRESS,
        &CHROMEDRIVER,
        &AXE,
        &SMALL_DISK,
    ];
    for line in tools.into_iter().filter_map(Tool::summary) {
        // A closed standard error leaves nowhere to report to.
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}
