//! Scripts and libraries loaded by clients: the cache with its Lua state, the running script, and statistics of
//! finished calls. Lua itself is one floor below, in [`script`](crate::script).

pub mod limits;
pub(crate) mod running;
pub mod scripts;
pub(crate) mod slow;
pub(crate) mod stats;
pub(crate) mod trace;

use running::RunningScript;
use scripts::Scripts;
use trace::Trace;

/// The scripts, the running script and the statistics.
pub struct Programs {
    /// The script cache and the Lua state.
    pub scripts: Scripts,
    /// The running script.
    pub running: Option<RunningScript>,
    /// The calls made so far by the running script, if it is traced.
    pub(crate) trace: Option<Box<Trace>>,
}
