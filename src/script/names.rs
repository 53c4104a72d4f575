//! Names of commands that scripts call, looked up once.
//!
//! Lua keeps each string once, so the address of a string that stays alive tells which it is. A name that the engine knows is
//! kept alive in the registry and noted here by its address; the next `redis.call` with it needs neither hash nor comparison.

use super::lua::{REGISTRY, Stack};
use crate::base::limits::SCRIPT_NAMES_KEPT;

/// A command by the engine's own number for its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandId(pub u16);

/// Slots of the table, in which a name has one place.
const SLOTS: usize = 64;

/// Known names by the address of their text. 0 is no address.
pub(super) struct Names {
    slots: [(usize, CommandId); SLOTS],
    kept: usize,
}

impl Names {
    pub(super) const NONE: Names = Names { slots: [(0, CommandId(0)); SLOTS], kept: 0 };

    /// The command of the name whose text is at `address`.
    #[inline]
    pub(super) fn find(&self, address: usize) -> Option<CommandId> {
        let (known, command) = self.slots[place(address)];
        (known == address).then_some(command)
    }

    /// Notes the string at `index` of the stack as the name of a command. Names can be written in any case: past
    /// [`SCRIPT_NAMES_KEPT`] none is noted any more.
    #[cold]
    pub(super) fn note(&mut self, stack: Stack<'_>, index: i32, command: CommandId) {
        if self.kept >= SCRIPT_NAMES_KEPT {
            return;
        }
        stack.push_value(index);
        stack.push_boolean(true);
        stack.memory().granted(|| stack.raw_set(REGISTRY));
        self.kept += 1;
        let address = stack.bytes(index).as_ptr() as usize;
        self.slots[place(address)] = (address, command);
    }
}

#[inline]
fn place(address: usize) -> usize {
    // Strings stand at multiples of eight and are longer than that.
    (address >> 5) % SLOTS
}
