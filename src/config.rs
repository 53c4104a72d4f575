//! Placeholder until the table lands.
use crate::engine::session::ClientType;
/// C
pub struct Config { /// a
 pub requirepass: Vec<u8>, /// a
 pub databases: u16, /// a
 pub proto_max_bulk_len: usize, /// a
 pub timeout: u32 }
/// L
pub struct OutputLimit { /// h
 pub hard_bytes: u64 }
impl Config { /// o
 pub fn output_limit(&self, _t: ClientType) -> OutputLimit { OutputLimit { hard_bytes: 0 } } }
