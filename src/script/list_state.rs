//! The state of the tables that scripts share as KEYS and ARGV.

use crate::script::limits::SCRIPT_LIST_KNOWN_ELEMENTS;

/// The contents of a shared list, as far as they are known.
#[derive(Default)]
pub(super) struct ListState {
    /// Whether the global is the shared table.
    pub(super) is_shared: bool,
    /// Number of elements in the shared table.
    pub(super) len: usize,
    /// Its first elements. Repeated ones, such as a limit or the only gate of a program, need not be created again.
    pub(super) known: [Known; SCRIPT_LIST_KNOWN_ELEMENTS],
}

/// An element of a shared table, if it is short.
#[derive(Clone, Copy, Default)]
pub(super) struct Known {
    /// The length plus one; 0 if the element is not known.
    len_and_one: u8,
    bytes: [u8; 31],
}

impl Known {
    #[inline]
    pub(super) fn is(&self, bytes: &[u8]) -> bool {
        usize::from(self.len_and_one) == bytes.len() + 1 && self.bytes[..bytes.len()] == *bytes
    }

    #[inline]
    pub(super) fn note(&mut self, bytes: &[u8]) {
        self.len_and_one = 0;
        if let Some(room) = self.bytes.get_mut(..bytes.len()) {
            room.copy_from_slice(bytes);
            self.len_and_one = bytes.len() as u8 + 1;
        }
    }
}
