//! What C functions of ours take outside of Lua: memory, above all the scratch buffer in which text is built, and the C stack.

use super::interrupt::kill;
use super::lua::{Stack, ffi};

/// Sees to it that there is room for `bytes` that a C function is about to build, be it outside of Lua: collects garbage if
/// need be, and ends the script if that is of no use.
#[inline]
pub(super) fn make_room(stack: Stack<'_>, bytes: usize) {
    if stack.memory().would_pass_mark(bytes) {
        make_room_slowly(stack, bytes);
    }
}

#[cold]
fn make_room_slowly(stack: Stack<'_>, bytes: usize) {
    stack.memory().collect_for(bytes);
    if bytes > stack.memory().room() {
        refuse(stack);
    }
}

/// Ends the script because it is about to take more memory than it may.
#[cold]
pub(super) fn refuse(stack: Stack<'_>) -> ! {
    stack.memory().exhaust();
    kill(stack, stack.ctx())
}

/// Raises when the C stack has grown `limit` bytes below `Vm::run`: to be asked before C calls back into Lua, or itself.
#[inline]
pub(super) fn check_c_stack(stack: Stack<'_>, limit: usize) {
    let here = 0u8;
    // SAFETY: the context outlives the state.
    let base = unsafe { (*stack.ctx()).c_base };
    if base.wrapping_sub(&raw const here as usize) > limit {
        stack.push_bytes(b"C stack overflow");
        stack.raise_top();
    }
}

impl<'a> Stack<'a> {
    /// The VM's scratch buffer, emptied.
    #[inline(always)]
    pub(super) fn buffer(self) -> Buffer<'a> {
        let buffer = self.buffer_as_is();
        buffer.truncate(0);
        buffer
    }

    /// The VM's scratch buffer with what is in it.
    #[inline(always)]
    pub(super) fn buffer_as_is(self) -> Buffer<'a> {
        // SAFETY: the context outlives the state.
        Buffer { bytes: unsafe { &raw mut (*self.ctx()).buffer }, stack: self }
    }
}

/// The VM's scratch buffer: text is built here because nothing that must be freed may be alive when Lua raises.
#[derive(Clone, Copy)]
pub(super) struct Buffer<'a> {
    bytes: *mut Vec<u8>,
    stack: Stack<'a>,
}

// SAFETY of every block below: the buffer belongs to the VM's context, which outlives every C function, and one thread
// runs them; no reference into it is kept across a call that changes it.
#[allow(clippy::undocumented_unsafe_blocks, reason = "one reason for all, above")]
impl Buffer<'_> {
    #[inline(always)]
    pub(super) fn push(self, byte: u8) {
        self.reserve(1);
        unsafe { (*self.bytes).push(byte) }
    }

    #[inline(always)]
    pub(super) fn extend(self, bytes: &[u8]) {
        self.reserve(bytes.len());
        unsafe { (*self.bytes).extend_from_slice(bytes) }
    }

    /// Makes room for so many bytes more. Ends the script if that is more than it may have.
    #[inline(always)]
    pub(super) fn reserve(self, n: usize) {
        if unsafe { (*self.bytes).capacity() - (*self.bytes).len() } < n {
            self.grow(n);
        }
    }

    #[cold]
    fn grow(self, n: usize) {
        let (len, capacity) = unsafe { ((*self.bytes).len(), (*self.bytes).capacity()) };
        let least = len.saturating_add(n);
        // While the bytes are moved both blocks are there.
        make_room(self.stack, capacity.saturating_add(least));
        // What is built becomes a string, which needs as much again beside the buffer: half of the room is the most that is of
        // use. To grow by the least, time after time, would take quadratic time.
        let wanted = capacity.saturating_mul(2).min(self.stack.memory().room() / 2).max(least);
        unsafe { (*self.bytes).reserve_exact(wanted - len) }
    }

    #[inline(always)]
    pub(super) fn len(self) -> usize {
        unsafe { (*self.bytes).len() }
    }

    #[inline(always)]
    pub(super) fn truncate(self, len: usize) {
        unsafe { (*self.bytes).truncate(len) }
    }

    /// Lets `write` append to the buffer what there is room for. It must not raise.
    #[inline]
    pub(super) fn write(self, write: impl FnOnce(&mut Vec<u8>)) {
        unsafe { write(&mut *self.bytes) }
    }

    /// Pushes what was built as a string. May raise for lack of memory.
    pub(super) fn push_to(self, stack: Stack<'_>) {
        make_room(stack, unsafe { (*self.bytes).capacity() }.saturating_add(self.len()));
        unsafe { ffi::lua_pushlstring_(stack.raw(), (*self.bytes).as_ptr().cast(), (*self.bytes).len()) }
    }
}
