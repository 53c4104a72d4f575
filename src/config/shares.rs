//! Amounts of memory that may be given as a share of another one.

use super::kind::{Args, Origin, Shape, only, parse_memory};
use super::refusal::Refusal;
use crate::base::num::parse_i64;

/// A number of bytes, or a share of `maxmemory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BytesOrShare {
    /// A number of bytes; 0 for no limit.
    Bytes(u64),
    /// A percentage.
    Percent(u8),
}

impl Default for BytesOrShare {
    fn default() -> Self {
        BytesOrShare::Bytes(0)
    }
}

impl BytesOrShare {
    /// Returns the bytes for this `maxmemory`; 0 for no limit.
    pub fn bytes(self, maxmemory: u64) -> u64 {
        match self {
            BytesOrShare::Bytes(bytes) => bytes,
            BytesOrShare::Percent(percent) => (u128::from(maxmemory) * u128::from(percent) / 100) as u64,
        }
    }
}

/// The kind of a [`BytesOrShare`].
pub(super) struct MemoryOrPercent;

impl MemoryOrPercent {
    pub(super) fn shape(&self) -> Shape {
        Shape::One("BYTES|N%")
    }

    pub(super) fn set(&self, field: &mut BytesOrShare, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let arg = only(args)?;
        *field = match arg.strip_suffix(b"%") {
            Some(percent) => {
                let percent = parse_i64(percent).filter(|percent| *percent >= 0).ok_or(Refusal::MemoryOrPercent)?;
                let percent = u8::try_from(percent).ok().filter(|percent| *percent <= 100);
                BytesOrShare::Percent(percent.ok_or(Refusal::Percent)?)
            }
            None => {
                let bytes = parse_memory(arg).filter(|bytes| *bytes <= i64::MAX as u64);
                BytesOrShare::Bytes(bytes.ok_or(Refusal::MemoryOrPercent)?)
            }
        };
        Ok(())
    }

    pub(super) fn get(&self, field: &BytesOrShare, out: &mut Vec<u8>) {
        let text = match field {
            BytesOrShare::Bytes(bytes) => bytes.to_string(),
            BytesOrShare::Percent(percent) => format!("{percent}%"),
        };
        out.extend_from_slice(text.as_bytes());
    }
}
