//! The scripts and libraries that clients have brought: the cache with its Lua state, the script that runs now, and what is known of
//! calls that have ended. Lua itself is a floor below, in [`script`](crate::script).

pub(crate) mod running;
pub mod scripts;
pub(crate) mod slow;
pub(crate) mod stats;
pub(crate) mod trace;

use running::RunningScript;
use scripts::Scripts;
use trace::Trace;

/// Scripts, and the one that runs.
pub struct Programs {
    /// The script cache and the Lua state.
    pub scripts: Scripts,
    /// The script that runs now.
    pub running: Option<RunningScript>,
    /// Its calls so far, if it is traced.
    pub(crate) trace: Option<Box<Trace>>,
}
