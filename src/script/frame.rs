//! Which kind of function LuaJIT is in when it asks for memory.
//!
//! What the allocator refuses, LuaJIT raises as an error, from wherever it asked. To do so it writes the message on top of
//! the Lua stack, and it knows that top in two kinds of functions only: in those written in Lua, whose frames have a fixed
//! size, and in C functions, which keep it up to date. Its *fast functions*, written in assembler, do not. A message written
//! there lands in a live frame: the process dies, or worse, goes on.
//!
//! So the allocator must know where it was called from, and it is handed nothing but its own data. [`Layout`] finds the rest
//! where LuaJIT keeps it (`lj_obj.h`, 64-bit references): the thread that runs, its frame, the frame's function. Nothing of it
//! is taken for granted. The layout is learned from functions whose kind is known, and where that fails there is none.

use std::ffi::c_int;

use super::lua::{Stack, ffi, native};

/// What asked for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// An instruction of a function written in Lua.
    Lua,
    /// A C function.
    C,
    /// A function in assembler, or one of an unknown kind: nothing may be raised here.
    Assembler,
}

/// Where LuaJIT keeps what runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Bytes from the start of LuaJIT's `global_State` to the reference to the running thread.
    running: usize,
    /// The opcode that the code of each C function begins with.
    c_opcode: u8,
}

/// The head of `lua_State`.
#[repr(C)]
struct Thread {
    collected: [u64; 2],
    globals: *const u8,
    gray: u64,
    base: *const u64,
}

/// The head of `GCfunc`. A thread's has its `kind` at the same place, there that of a C function.
#[repr(C)]
struct Function {
    next: u64,
    marks: [u8; 2],
    kind: u8,
    upvalues: u8,
    environment: u64,
    gray: u64,
    code: *const u8,
}

/// `kind` of functions written in Lua.
const LUA: u8 = 0;
/// `kind` of C functions that did not come with LuaJIT.
const C: u8 = 1;

/// The bits of a reference in a stack slot; above them stands the kind of the value.
const REFERENCE: u64 = (1 << 47) - 1;

/// Bytes of `global_State` in which the running thread is looked for. It is larger than that.
const SEARCHED_BYTES: usize = 640;

impl Layout {
    /// The layout of the LuaJIT that is built in, or nothing if that keeps these things otherwise. May raise.
    pub(super) fn learn(stack: Stack<'_>) -> Option<Layout> {
        let top = stack.top();
        let mut places = Places::default();
        // Several words refer to the running thread; one does so whichever runs.
        places.narrow(stack);
        let have_run = (0..3).all(|_| places.narrow_to_new_thread(stack));
        let running = places.only().filter(|_| have_run)?;
        stack.push_function(stack.ctx(), nothing);
        let c_opcode = opcode(function_at(stack, -1)?);
        let layout = Layout { running, c_opcode };
        // `function() end`, this file's `nothing`, and library functions of LuaJIT's, in C and in assembler.
        // SAFETY: constant chunks are loaded and called.
        unsafe {
            for (source, expected) in [
                (c"", Caller::Lua),
                (c"return table.concat", Caller::C),
                (c"return string.format", Caller::C),
                (c"return string.upper", Caller::Assembler),
                (c"return tostring", Caller::Assembler),
            ] {
                if ffi::luaL_loadbuffer(stack.raw(), source.as_ptr(), source.count_bytes(), c"=".as_ptr())
                    != ffi::LUA_OK
                {
                    return None;
                }
                if !source.is_empty() {
                    stack.call(0, 1);
                }
                if layout.kind_of(function_at(stack, -1)?) != expected {
                    return None;
                }
            }
        }
        stack.set_top(top);
        Some(layout)
    }

    /// What runs on the state to which `state` belongs.
    ///
    /// # Safety
    /// The state must be live, and the layout learned from it.
    pub(super) unsafe fn caller(self, state: *mut ffi::lua_State) -> Caller {
        // SAFETY: the caller's promise; LuaJIT writes the base of the running frame before it calls what may raise.
        unsafe {
            let globals = (*state.cast::<Thread>()).globals;
            let running = *globals.add(self.running).cast::<*const Thread>();
            self.kind_of((*(*running).base.sub(2) & REFERENCE) as *const Function)
        }
    }

    fn kind_of(self, function: *const Function) -> Caller {
        // SAFETY: the function is one of LuaJIT's, which is live.
        match unsafe { (*function).kind } {
            LUA => Caller::Lua,
            C => Caller::C,
            _ if opcode(function) == self.c_opcode => Caller::C,
            _ => Caller::Assembler,
        }
    }
}

/// The first opcode of a function.
fn opcode(function: *const Function) -> u8 {
    // SAFETY: the function is one of LuaJIT's, which is live; each has code.
    unsafe { *(*function).code }
}

/// The function at `i`.
fn function_at(stack: Stack<'_>, i: c_int) -> Option<*const Function> {
    let function = stack.pointer(i).cast::<Function>();
    (!function.is_null() && function.is_aligned()).then_some(function)
}

/// The words of `global_State` that refer to the running thread, as far as is known.
struct Places([bool; SEARCHED_BYTES / 8]);

impl Default for Places {
    fn default() -> Places {
        Places([true; SEARCHED_BYTES / 8])
    }
}

impl Places {
    /// Leaves those that refer to a new thread while that runs. Answers whether it did.
    fn narrow_to_new_thread(&mut self, stack: Stack<'_>) -> bool {
        // SAFETY: the thread stays on the stack while it runs a function with one argument, which is alive as long.
        unsafe {
            let thread = ffi::lua_newthread(stack.raw());
            let of_thread = Stack::new(thread);
            of_thread.push_function(stack.ctx(), look);
            of_thread.push_light((&raw mut *self).cast());
            let status = ffi::lua_pcall(thread, 1, 0, 0);
            stack.pop(1);
            status == ffi::LUA_OK
        }
    }

    /// Leaves those that refer to the thread of this stack, which runs.
    fn narrow(&mut self, stack: Stack<'_>) {
        // SAFETY: the state is live, and what is searched lies within its `global_State`.
        let words = unsafe {
            std::slice::from_raw_parts((*stack.raw().cast::<Thread>()).globals.cast::<u64>(), SEARCHED_BYTES / 8)
        };
        for (place, word) in self.0.iter_mut().zip(words) {
            *place &= *word == stack.raw() as u64;
        }
    }

    /// The offset in bytes of the only one that is left.
    fn only(&self) -> Option<usize> {
        let mut left = (0..self.0.len()).filter(|i| self.0[*i]);
        left.next().filter(|_| left.next().is_none()).map(|i| i * 8)
    }
}

native! {
    /// A C function whose kind is known.
    fn nothing(_stack: Stack) -> c_int {
        0
    }

    /// Narrows the `Places` at a light userdata (1) to those that refer to this thread.
    fn look(stack: Stack) -> c_int {
        // SAFETY: `Places::narrow` passes itself.
        unsafe { (*ffi::lua_touserdata(stack.raw(), 1).cast::<Places>()).narrow(stack) };
        0
    }
}
