//! Looks through a compiled chunk, and changes it, before it runs.
//!
//! 1. What the sandbox must know: whether the chunk assigns globals, and whether it holds 64-bit integer or complex literals
//!    (`42LL`, `1i`), which LuaJIT reads and Redis' Lua refuses.
//! 2. Tail calls of global functions, `return redis.call(...)`, become ordinary calls. Lua 5.1 keeps the caller's frame when
//!    a C function is called so; LuaJIT replaces it, and an error of the function could not be located: Redis' error texts
//!    carry the script's line. Scripts cannot define globals, so these are never a script's own functions, whose tail calls
//!    stay what they are.
//!
//! The form is that of `string.dump`, LuaJIT's bytecode dump version 2 (`lj_bcdump.h`): a header of `ESC L J`, version,
//! flags and the chunk's name; then prototypes, each with its length: flags, parameters, frame size, upvalues (one byte
//! each), counts of collectable constants, numbers and instructions and the debug length (ULEB128), two line numbers,
//! then the instructions, upvalues of two bytes, the constants, and the debug data, which begins with the line of each
//! instruction. An instruction is four bytes: opcode, A, and C and B or both together as D.
//!
//! A tail call is replaced by a jump to new code behind the function's end, so that nothing moves:
//! a copy of the instruction that loads the callee (never reached; LuaJIT looks backwards for it to name the function in
//! messages), the call, and the return of its results.

/// Opcodes of the LuaJIT that is built in; [`SAMPLES`] proves them at start.
mod op {
    pub(super) const GGET: u8 = 54;
    pub(super) const GSET: u8 = 55;
    pub(super) const TGETS: u8 = 57;
    pub(super) const UCLO: u8 = 50;
    pub(super) const CALLM: u8 = 65;
    pub(super) const CALL: u8 = 66;
    pub(super) const CALLMT: u8 = 67;
    pub(super) const CALLT: u8 = 68;
    pub(super) const RETM: u8 = 73;
    pub(super) const JMP: u8 = 88;
}

/// Chunks, and the opcodes they compile to, up to the last that matters; 0 stands for any.
pub(super) const SAMPLES: [(&[u8], &[u8]); 6] = [
    (b"x=1", &[0, op::GSET]),
    (b"return x.y(1)", &[op::GGET, op::TGETS, 0, op::CALLT]),
    (b"return x(x())", &[op::GGET, op::GGET, op::CALL, op::CALLMT]),
    (b"x(x()) return 1,x()", &[op::GGET, op::GGET, op::CALL, op::CALLM, 0, op::GGET, op::CALL, op::RETM]),
    (b"do local a=x() y=function() return a end end", &[op::GGET, op::CALL, 0, op::GSET, op::UCLO]),
    (b"if x then x() else x() end", &[op::GGET, 0, op::JMP, op::GGET, op::CALL, op::JMP]),
];

/// What a compiled chunk does that the sandbox cares about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traits {
    /// Some function of it assigns a global variable.
    pub assigns_globals: bool,
    /// Some literal in it is a 64-bit integer or a complex number.
    pub has_cdata_literals: bool,
    /// It was changed.
    pub rewritten: bool,
}

const STRIPPED: u32 = 0x02;
const CONSTANT_CHILD: u32 = 0;
const CONSTANT_TABLE: u32 = 1;
const CONSTANT_COMPLEX: u32 = 4;
const CONSTANT_STRING: u32 = 5;
const JUMP_BIAS: usize = 0x8000;

/// Reads a dump and writes it, changed as described above, to `out`. `None` when it is not of the form described above.
pub(super) fn rewrite(dump: &[u8], out: &mut Vec<u8>) -> Option<Traits> {
    let mut traits = Traits::default();
    let mut reader = Reader { rest: dump };
    let flags = reader.read_header()?;
    out.clear();
    out.extend_from_slice(&dump[..dump.len() - reader.rest.len()]);
    loop {
        let len = reader.uleb()?;
        if len == 0 {
            out.push(0);
            return Some(traits);
        }
        let prototype = reader.take(len as usize)?;
        let start = out.len();
        rewrite_prototype(prototype, flags, out, &mut traits)?;
        let written = out.len() - start;
        put_uleb(out, written as u32);
        out[start..].rotate_right(uleb_len(written as u32));
    }
}

/// Whether a dump of one of [`SAMPLES`] holds the opcodes that it should.
pub(super) fn matches(dump: &[u8], opcodes: &[u8]) -> bool {
    let read = || {
        let mut reader = Reader { rest: dump };
        let flags = reader.read_header()?;
        // Inner functions come first; the chunk itself is the last before the terminating zero.
        let mut prototype = Reader { rest: &[] };
        loop {
            let len = reader.uleb()? as usize;
            if len == 0 {
                break;
            }
            prototype.rest = reader.take(len)?;
        }
        let head = prototype.read_head(flags)?;
        prototype.take(head.instructions.checked_mul(4)?)
    };
    read().is_some_and(|code| {
        code.len() / 4 >= opcodes.len()
            && code.chunks_exact(4).zip(opcodes).all(|(instruction, &opcode)| opcode == 0 || instruction[0] == opcode)
    })
}

/// A prototype's head.
struct Head {
    flags: [u8; 4],
    constants: usize,
    numbers: u32,
    instructions: usize,
    /// Bytes of debug data; 0 for a stripped chunk.
    debug: usize,
    first_line: u32,
    lines: u32,
}

fn rewrite_prototype(prototype: &[u8], flags: u32, out: &mut Vec<u8>, traits: &mut Traits) -> Option<()> {
    let mut reader = Reader { rest: prototype };
    let head = reader.read_head(flags)?;
    let code = reader.take(head.instructions.checked_mul(4)?)?;
    let after_code = reader.rest;
    traits.assigns_globals |= code.chunks_exact(4).any(|instruction| instruction[0] == op::GSET);
    traits.has_cdata_literals |= reader.read_constants(&head)?;

    let tail_calls = || {
        (0..head.instructions).filter_map(|at| {
            let callee = global_callee(code, at)?;
            // The copy of the callee's load comes first, then what is jumped to.
            Some((at, callee))
        })
    };
    let reachable = |n: usize| head.instructions + n * 3 < JUMP_BIAS;
    let n = tail_calls().count();
    let width = if head.lines < 256 { 1 } else { if head.lines < 65536 { 2 } else { 4 } };
    if n == 0 || !reachable(n) || head.debug < head.instructions * width {
        out.extend_from_slice(prototype);
        return Some(());
    }
    traits.rewritten = true;
    put_head(out, &head, n * 3, n * 3 * width, flags);
    let start = out.len();
    out.extend_from_slice(code);
    for (i, (at, callee)) in tail_calls().enumerate() {
        let target = head.instructions + i * 3 + 1;
        let call: [u8; 4] = code.get(at * 4..at * 4 + 4)?.try_into().ok()?;
        let distance = (JUMP_BIAS + target - (at + 1)) as u16;
        out[start + at * 4..][..4].copy_from_slice(&with_d(op::JMP, call[1], distance));
        out.extend_from_slice(&callee);
        let plain = if call[0] == op::CALLT { op::CALL } else { op::CALLM };
        out.extend_from_slice(&[plain, call[1], call[2], 0]);
        out.extend_from_slice(&with_d(op::RETM, call[1], 0));
    }
    let (constants, debug) = after_code.split_at_checked(after_code.len().checked_sub(head.debug)?)?;
    let (lines, names) = debug.split_at_checked(head.instructions * width)?;
    out.extend_from_slice(constants);
    out.extend_from_slice(lines);
    for (at, _) in tail_calls() {
        let line = lines.get(at * width..(at + 1) * width)?;
        (0..3).for_each(|_| out.extend_from_slice(line));
    }
    out.extend_from_slice(names);
    Some(())
}

/// The instruction that loads the callee of the tail call at `at`, if there is one and its callee is a global, or a field of
/// one.
fn global_callee(code: &[u8], at: usize) -> Option<[u8; 4]> {
    let instruction = |i: usize| -> Option<[u8; 4]> { code.get(i * 4..i * 4 + 4)?.try_into().ok() };
    let call = instruction(at)?;
    if call[0] != op::CALLT && call[0] != op::CALLMT {
        return None;
    }
    // The callee is loaded first, its arguments above it: the nearest instruction before the call that writes A. (The one
    // that closes upvalues, right before the call, has a zero there.)
    let load_at = (0..at).rev().find(|&i| code[i * 4 + 1] == call[1] && code[i * 4] != op::UCLO)?;
    let load = instruction(load_at)?;
    match load[0] {
        op::GGET => Some(load),
        op::TGETS => {
            let object = instruction(load_at.checked_sub(1)?)?;
            (object[0] == op::GGET && object[1] == load[3]).then_some(load)
        }
        _ => None,
    }
}

fn with_d(opcode: u8, a: u8, d: u16) -> [u8; 4] {
    let [low, high] = d.to_le_bytes();
    [opcode, a, low, high]
}

fn put_head(out: &mut Vec<u8>, head: &Head, more_instructions: usize, more_debug: usize, flags: u32) {
    out.extend_from_slice(&head.flags);
    put_uleb(out, head.constants as u32);
    put_uleb(out, head.numbers);
    put_uleb(out, (head.instructions + more_instructions) as u32);
    if flags & STRIPPED == 0 {
        put_uleb(out, (head.debug + more_debug) as u32);
        put_uleb(out, head.first_line);
        put_uleb(out, head.lines);
    }
}

fn put_uleb(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn uleb_len(value: u32) -> usize {
    (32 - value.leading_zeros()).div_ceil(7).max(1) as usize
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(taken)
    }

    fn uleb(&mut self) -> Option<u32> {
        let mut value = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.take(1)?[0];
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// Reads the dump's header; answers its flags.
    fn read_header(&mut self) -> Option<u32> {
        if self.take(4)? != b"\x1bLJ\x02" {
            return None;
        }
        let flags = self.uleb()?;
        if flags & STRIPPED == 0 {
            let name = self.uleb()?;
            self.take(name as usize)?;
        }
        Some(flags)
    }

    fn read_head(&mut self, flags: u32) -> Option<Head> {
        let mut head = Head {
            flags: self.take(4)?.try_into().ok()?,
            constants: self.uleb()? as usize,
            numbers: self.uleb()?,
            instructions: self.uleb()? as usize,
            debug: 0,
            first_line: 0,
            lines: 0,
        };
        if flags & STRIPPED == 0 {
            head.debug = self.uleb()? as usize;
            if head.debug > 0 {
                head.first_line = self.uleb()?;
                head.lines = self.uleb()?;
            }
        }
        Some(head)
    }

    /// Reads upvalues and collectable constants; answers whether some are 64-bit integers or complex numbers.
    fn read_constants(&mut self, head: &Head) -> Option<bool> {
        let mut found = false;
        self.take(usize::from(head.flags[3]) * 2)?;
        for _ in 0..head.constants {
            match self.uleb()? {
                CONSTANT_CHILD => {}
                CONSTANT_TABLE => self.skip_table()?,
                string @ CONSTANT_STRING.. => {
                    self.take((string - CONSTANT_STRING) as usize)?;
                }
                number => {
                    found = true;
                    for _ in 0..if number == CONSTANT_COMPLEX { 4 } else { 2 } {
                        self.uleb()?;
                    }
                }
            }
        }
        Some(found)
    }

    fn skip_table(&mut self) -> Option<()> {
        let elements = self.uleb()? as usize;
        let fields = self.uleb()? as usize;
        for _ in 0..elements + fields * 2 {
            match self.uleb()? {
                0..=2 => {}
                3 => {
                    self.uleb()?;
                }
                4 => {
                    self.uleb()?;
                    self.uleb()?;
                }
                string => {
                    self.take((string - 5) as usize)?;
                }
            }
        }
        Some(())
    }
}
