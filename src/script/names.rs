//! Names of commands called by scripts, looked up once.
//!
//! Lua stores equal strings once, so the address of a living string identifies it. A name known to the engine is kept
//! alive in the registry and noted here by its address. The next `redis.call` with it needs neither a hash nor a
//! comparison.

use super::host::CommandId;
use super::lua::{REGISTRY, Stack};
use super::memory::Memory;
use crate::script::limits::SCRIPT_NAMES_KEPT;

/// Slots of the table. At most half of them are in use, so that a search soon finds an empty one.
const SLOTS: usize = 2 * SCRIPT_NAMES_KEPT;

/// Known names by the address of their text, in a table with linear probing: collisions depend on the addresses of the
/// names, and must not make a name unknown. 0 is not an address.
pub(super) struct Names {
    slots: [(usize, CommandId); SLOTS],
    kept: usize,
}

impl Names {
    pub(super) const NONE: Names = Names { slots: [(0, CommandId(0)); SLOTS], kept: 0 };

    /// The command whose name has its text at `address`.
    #[inline]
    pub(super) fn find(&self, address: usize) -> Option<CommandId> {
        let mut slot = place(address);
        loop {
            let (known, command) = self.slots[slot];
            if known == address {
                return Some(command);
            }
            if known == 0 {
                return None;
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    /// Notes the string at `index` of the stack, which is not known yet, as the name of a command. Names can be written
    /// in many mixtures of case: beyond [`SCRIPT_NAMES_KEPT`] no more are noted.
    #[cold]
    pub(super) fn note(&mut self, stack: Stack<'_>, memory: &Memory, index: i32, command: CommandId) {
        if self.kept >= SCRIPT_NAMES_KEPT {
            return;
        }
        stack.push_value(index);
        stack.push_boolean(true);
        memory.granted(|| stack.raw_set(REGISTRY));
        self.kept += 1;
        self.insert(stack.bytes(index).as_ptr() as usize, command);
    }

    fn insert(&mut self, address: usize, command: CommandId) {
        let mut slot = place(address);
        while self.slots[slot].0 != 0 {
            slot = (slot + 1) % SLOTS;
        }
        self.slots[slot] = (address, command);
    }
}

#[inline]
fn place(address: usize) -> usize {
    // Strings lie at multiples of eight bytes and take more than eight.
    (address >> 5) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_colliding_hashes_are_all_found() {
        let mut names = Names::NONE;
        // From the last slot on, so that the search wraps around.
        let address = |number: usize| ((SLOTS - 1) << 5) + number * (SLOTS << 5);
        for number in 1..=10 {
            assert_eq!(names.find(address(number)), None);
            names.insert(address(number), CommandId(number as u16));
        }
        for number in 1..=10 {
            assert_eq!(names.find(address(number)), Some(CommandId(number as u16)));
        }
        assert_eq!(names.find(address(11)), None);
    }
}
