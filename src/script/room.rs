//! Resources that our C functions use outside of Lua: memory, above all the scratch buffer for text, and the C stack.

use super::interrupt::kill;
use super::lua::{Stack, ffi};

/// Makes room for `bytes` that a C function is about to build, in Lua or outside of it: collects garbage if necessary,
/// and ends the script if that is not enough.
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

/// Ends the script because it needs more memory than it may have.
#[cold]
pub(super) fn refuse(stack: Stack<'_>) -> ! {
    stack.memory().exhaust();
    kill(stack, stack.ctx())
}

/// Raises if the C stack has grown `limit` bytes below `Vm::run`. To be called before C calls back into Lua, or
/// recurses.
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

    /// The VM's scratch buffer with its contents.
    #[inline(always)]
    pub(super) fn buffer_as_is(self) -> Buffer<'a> {
        // SAFETY: the context outlives the state.
        Buffer { bytes: unsafe { &raw mut (*self.ctx()).buffer }, stack: self }
    }
}

/// The VM's scratch buffer. Text is built here, because no value that must be freed may be alive when Lua raises.
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

    /// Makes room for `n` more bytes. Ends the script if that is more than it may have.
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
        // While the bytes are moved, both blocks exist.
        make_room(self.stack, capacity.saturating_add(least));
        // The contents become a string, which needs as much again beside the buffer, so more than half of the room is
        // useless. Growing by the minimum each time would take quadratic time.
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

    /// Lets `write` append to the buffer, no more than there is room for. It must not raise.
    #[inline]
    pub(super) fn write(self, write: impl FnOnce(&mut Vec<u8>)) {
        unsafe { write(&mut *self.bytes) }
    }

    /// Pushes the contents as a string. May raise for lack of memory.
    pub(super) fn push_to(self, stack: Stack<'_>) {
        make_room(stack, unsafe { (*self.bytes).capacity() }.saturating_add(self.len()));
        unsafe { ffi::lua_pushlstring_(stack.raw(), (*self.bytes).as_ptr().cast(), (*self.bytes).len()) }
    }
}
