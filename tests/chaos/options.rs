//! The options of a run, from its arguments.

use std::time::Duration;

/// The usage text.
pub(crate) const USAGE: &str = "\
cargo test --test chaos -- [OPTION VALUE]...
  --seconds N        how long the chaos lasts (60)
  --seed N           what the clients choose (from the clock)
  --clients N        how many bad clients there are (8); 1 with --keepers 0 is wholly repeatable
  --only N           of these clients, only this one takes part; its choices are the same
  --actions N        things that each client does at most (no limit)
  --keepers N        well-behaved clients of each kind that check invariants (2); 0 for none
  --server PATH      the server (the one that cargo built)
  --server-args ARGS more flags for it, in one argument, split at blanks
  --hang-ms N        how long the server may use the processor without answering: some calls of FUNCTION LOAD in a row,
                     each of which may take half a second (2000; a debug build 10000)
  --at-hang COMMAND  what the shell runs when the server hangs, the server's number in $PID: 'gdb -p $PID -batch -ex bt'
  --rss-limit-mb N   resident memory that is a failure (2500)
  --without A,B      leaves out commands, Lua functions, parameters by name, and these: `large-values` (scripts that ask
                     for much memory), `memory-check` (the comparison of used_memory at the end)";

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub duration: Duration,
    pub seed: u64,
    pub clients: usize,
    pub only: Option<usize>,
    pub actions: u64,
    pub keepers: usize,
    pub server: String,
    pub server_args: Vec<String>,
    pub hang: Duration,
    pub at_hang: String,
    pub rss_limit_bytes: u64,
    pub without: Vec<String>,
}

impl Options {
    /// Reads the arguments; the error names the invalid one.
    pub(crate) fn read(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let is_debug = cfg!(debug_assertions);
        let mut options = Options {
            duration: Duration::from_secs(60),
            seed: clock.as_millis() as u64 % 1_000_000,
            clients: 8,
            only: None,
            actions: u64::MAX,
            keepers: 2,
            server: env!("CARGO_BIN_EXE_tidegate").to_owned(),
            server_args: Vec::new(),
            hang: Duration::ZERO,
            at_hang: String::new(),
            rss_limit_bytes: 2_500 << 20,
            without: Vec::new(),
        };
        let mut hang_ms = None;
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{name} needs a number, not {value:?}"));
            match name.as_str() {
                "--seconds" => options.duration = Duration::from_secs(number()?),
                "--seed" => options.seed = number()?,
                "--clients" => options.clients = number()? as usize,
                "--only" => options.only = Some(number()? as usize),
                "--actions" => options.actions = number()?,
                "--keepers" => options.keepers = number()? as usize,
                "--server" => options.server = value,
                "--server-args" => options.server_args = value.split_whitespace().map(str::to_owned).collect(),
                "--hang-ms" => hang_ms = Some(number()?),
                "--at-hang" => options.at_hang = value,
                "--rss-limit-mb" => options.rss_limit_bytes = number()? << 20,
                "--without" => options.without = value.split(',').map(str::to_owned).collect(),
                _ => return Err(format!("there is no {name}")),
            }
        }
        let is_own_server = options.server == env!("CARGO_BIN_EXE_tidegate");
        let default_ms = if is_debug && (is_own_server || options.server.contains("debug")) { 10_000 } else { 2_000 };
        options.hang = Duration::from_millis(hang_ms.unwrap_or(default_ms));
        Ok(options)
    }

    /// Returns the arguments that repeat the run.
    pub(crate) fn again(&self) -> String {
        let mut text = format!("--seed {} --seconds {} --clients {}", self.seed, self.duration.as_secs(), self.clients);
        if let Some(only) = self.only {
            text += &format!(" --only {only}");
        }
        if self.actions != u64::MAX {
            text += &format!(" --actions {}", self.actions);
        }
        text += &format!(" --keepers {} --server {}", self.keepers, self.server);
        if !self.server_args.is_empty() {
            text += &format!(" --server-args \"{}\"", self.server_args.join(" "));
        }
        if !self.without.is_empty() {
            text += &format!(" --without {}", self.without.join(","));
        }
        text
    }
}
