//! HTTP: metrics and checks for machines, and the console for people.
//!
//! Each has a thread with a runtime of its own, past the engine's thread: a check must succeed, and the console must
//! say what is going on, while a script or a slow disk holds the engine; and no check waits for the console. What they
//! tell of the data comes from the engine, which is asked: by [`questions`] for metrics, and by ordinary connections
//! for the [`console`]. Both wait for a bounded time.
//!
//! [`serve`] accepts connections, and [`crowd`] bounds them; what takes long is done [`aside`]. [`probes`] is the site
//! of `metrics-port`, [`console`] that of `console-port`. axum and hyper are named in this folder only.

mod aside;
mod console;
mod crowd;
mod gzip;
mod limits;
pub(crate) mod ports;
mod probes;
mod process_metrics;
pub(crate) mod questions;
mod serve;
