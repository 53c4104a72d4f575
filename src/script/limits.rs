//! The bounds of scripts that are not configuration parameters, each with its reason.

use std::time::Duration;

/// Command names, in the spelling of scripts, whose lookup is cached.
pub const SCRIPT_NAMES_KEPT: usize = 512;

/// Interval at which it is checked whether a running script may go on; each time, other clients are served and may end
/// it. The first check comes when the clock has seen the same run twice, so after two intervals at the latest.
pub const SCRIPT_ALARM_TICK: Duration = Duration::from_millis(5);

/// Ticks without a script after which the clock of scripts slows down; the next script wakes it.
pub const SCRIPT_ALARM_IDLE_AFTER_TICKS: u32 = 50;

/// Interval of the slowed clock of scripts: the most time that a script gains if waking the clock fails.
pub const SCRIPT_ALARM_IDLE_TICK: Duration = Duration::from_millis(250);

/// VM instructions of a debugged script between two checks whether it may go on.
pub const DEBUG_HOOK_INSTRUCTIONS: i32 = 100_000;

/// Bytes that a C function of the script VM copies or changes between two looks at the clock: less than 1 ms.
pub const SCRIPT_CHUNK_BYTES: usize = 256 * 1024;

/// Bytes of a string that `string.upper` and similar functions change on the stack, without the scratch buffer.
pub const SCRIPT_SHORT_STRING_BYTES: usize = 128;

/// Nesting of a command's reply that a script reads. Commands nest far less; this bounds the C stack.
pub const SCRIPT_TAPE_MAX_DEPTH: usize = 128;

/// Bytes of a string that `string.rep` and similar functions may build: the most that a Redis value holds.
pub const SCRIPT_STRING_MAX_BYTES: usize = 512 * 1024 * 1024;

/// Bytes of C stack used since the start of a script beyond which C functions refuse to call back into Lua (a `gsub`
/// whose function calls `gsub`). Lua 5.1 allows 200 such calls; this is room for more, on the smallest usual stack of 2
/// MiB.
pub const SCRIPT_C_STACK_BYTES: usize = 256 * 1024;

/// Bytes of C stack for `cjson` and `cmsgpack` to follow nested data: room for 1,000 levels. AddressSanitizer makes
/// frames larger.
pub const SCRIPT_DATA_STACK_BYTES: usize = if cfg!(sanitizer) { 24 } else { 1 } * 1024 * 1024;

/// Size in bytes from which a block of Lua's memory is large. A script that has reached its memory limit is refused a
/// large block at once; a smaller one is still granted, and the script ends at that instruction. The size is far above
/// the need of any instruction that does not concatenate long strings or grow a large table (Lua's stack grows to 512
/// KiB).
pub const SCRIPT_LARGE_BLOCK_BYTES: usize = 1024 * 1024;

/// Bytes of garbage that scripts may leave before it is collected between them. Below that, collecting is left to Lua.
pub const SCRIPT_GARBAGE_KEEP_BYTES: usize = 1024 * 1024;

/// How long garbage is collected at a time, between other work.
pub const SCRIPT_TIDY_SLICE: Duration = Duration::from_micros(500);

/// Keys, and arguments, of a script up to which the tables KEYS and ARGV are kept for the next script.
pub const SCRIPT_LIST_KEEP_ELEMENTS: usize = 64;

/// The first elements of KEYS and ARGV, which are compared with those of the next script.
pub const SCRIPT_LIST_KNOWN_ELEMENTS: usize = 4;

/// Bytes of a string that `cjson` escapes at once; each byte may become six.
pub const SCRIPT_ESCAPE_CHUNK_BYTES: usize = 4 * 1024;

/// Steps of matching a pattern between two looks at the clock. A step looks at a byte or two, so this is far below 1
/// ms.
pub const SCRIPT_PATTERN_TICK_STEPS: usize = 1_000;

/// Bytes of a back reference that are compared as one step of matching, because comparing is that much faster.
pub const SCRIPT_PATTERN_STEP_BYTES: usize = 32;

/// Nesting of choices within one match of a pattern: bounds the C stack.
pub const SCRIPT_PATTERN_MAX_DEPTH: usize = 200;

/// Breakpoints that a script may have: as many as in Redis.
pub const DEBUG_BREAKPOINTS_MAX: usize = 64;

/// Bytes of a value that the debugger shows unless the client says otherwise (`maxlen`).
pub const DEBUG_LINE_DEFAULT_BYTES: usize = 256;

/// Least number of bytes of a value that a client may ask the debugger to show (`maxlen`).
pub const DEBUG_LINE_MIN_BYTES: usize = 60;

/// Bytes that the debugger shows from one stop to the next. A script's output beyond that is left out.
pub const DEBUG_SCREEN_MAX_BYTES: usize = 4 * 1024 * 1024;

/// Functions, from the innermost on, whose variables and callers the debugger shows.
pub const DEBUG_LEVELS_MAX: i32 = 100;

/// Nesting of tables that the debugger shows.
pub const DEBUG_VALUE_MAX_DEPTH: usize = 10;

/// Nesting of tables that `cmsgpack.pack` follows; deeper ones are packed as nil, as by the library of Redis.
pub const SCRIPT_MSGPACK_MAX_DEPTH: usize = 16;

/// Bytes of program text that `loadstring` compiles and that `load` gathers from a function's pieces. Compiling can't
/// be interrupted.
pub const SCRIPT_LOAD_MAX_BYTES: usize = 1024 * 1024;

/// Scripts from EVAL that are kept, however short: as many as in Redis since 7.4. This bounds their overhead; their
/// texts are bounded by `script-cache-max-bytes`.
pub const SCRIPT_EVAL_CACHE_MAX: usize = 500;
