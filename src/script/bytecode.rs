//! Looks through a compiled chunk, and changes it, before it runs.
//!
//! 1. What the sandbox must know: whether the chunk assigns globals, and whether it holds 64-bit integer or complex literals
//!    (`42LL`, `1i`), which LuaJIT reads and Redis' Lua refuses.
//! 2. Also whether it only ever indexes KEYS and ARGV: then it can neither change nor keep their tables, and they serve the
//!    next script too.
//! 3. `redis.call` and `redis.pcall`, written so or with `server`, are loaded in one step ([`DIRECT`]) and not by way of the read-only table
//!    `redis`, whose metatable costs 200 instructions each time.
//! 4. Tail calls of global functions, `return redis.call(...)`, or of locals that hold one, become ordinary calls. Lua 5.1 keeps the caller's frame when
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
//!
//! Where the call takes all results of another one (`return redis.call(unpack(ARGV))`), that jump is one that closes upvalues, of which there
//! are none above the callee. Its arguments lie beyond the function's frame, and LuaJIT, when it calls a hook there or collects garbage in
//! one, looks for them only before a call, or before such a jump to one (`cur_topslot` in `lj_dispatch.c`).

/// Opcodes of the LuaJIT that is built in; [`SAMPLES`] proves them at start.
pub(super) mod op {
    pub(super) const MOV: u8 = 18;
    pub(super) const LEN: u8 = 21;
    pub(super) const UCLO: u8 = 50;
    pub(super) const GGET: u8 = 54;
    pub(super) const GSET: u8 = 55;
    pub(super) const TGETV: u8 = 56;
    pub(super) const TGETS: u8 = 57;
    pub(super) const TGETB: u8 = 58;
    pub(in super::super) const CALLM: u8 = 65;
    pub(in super::super) const CALL: u8 = 66;
    pub(super) const CALLMT: u8 = 67;
    pub(super) const CALLT: u8 = 68;
    pub(super) const RETM: u8 = 73;
    pub(super) const JMP: u8 = 88;
}

/// Chunks, and the opcodes they compile to, up to the last that matters; 0 stands for any.
pub(super) const SAMPLES: [(&[u8], &[u8]); 8] = [
    (b"x=1", &[0, op::GSET]),
    (b"local a=x local b=a", &[op::GGET, op::MOV]),
    (b"local a,b,c=#x,x[1],x[y]", &[op::GGET, op::LEN, op::GGET, op::TGETB, op::GGET, op::GGET, op::TGETV]),
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
    /// It might change the tables KEYS and ARGV, or keep them.
    pub may_keep_lists: bool,
    /// It was changed.
    pub rewritten: bool,
}

/// The names of the library whose functions are loaded in one step. They stand for the same table.
pub(super) const API: [&[u8]; 2] = [b"redis", b"server"];

/// These functions: name, and the global in which the sandbox holds the function as well.
pub(super) const DIRECT: [(&[u8], &[u8]); 2] = [(b"call", b"redis.call"), (b"pcall", b"redis.pcall")];

const STRIPPED: u32 = 0x02;
const CONSTANT_CHILD: u32 = 0;
const CONSTANT_TABLE: u32 = 1;
const CONSTANT_COMPLEX: u32 = 4;
const CONSTANT_STRING: u32 = 5;
const JUMP_BIAS: usize = 0x8000;
/// An instruction has 16 bits for the number of a constant.
const MAX_CONSTANTS: usize = 1 << 16;

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
    let code = Code(reader.take(head.instructions.checked_mul(4)?)?);
    let upvalues = reader.take(usize::from(head.flags[3]) * 2)?;
    let after_upvalues = reader.rest;
    let constants = reader.read_constants(&head)?;
    traits.has_cdata_literals |= constants.has_cdata;
    traits.assigns_globals |= code.iter().any(|instruction| instruction[0] == op::GSET);
    traits.may_keep_lists |= (0..head.instructions).any(|at| may_keep_list(code, at, &constants));

    let jumps = code.jumps();
    let loads: Vec<(usize, usize)> =
        (0..head.instructions).filter_map(|at| Some((at, direct_load(code, at, &constants, &jumps)?))).collect();
    let mut tail_calls = global_tail_calls(code, &jumps);
    let width = if head.lines < 256 { 1 } else { if head.lines < 65536 { 2 } else { 4 } };
    if head.instructions + tail_calls.len() * 3 >= JUMP_BIAS || head.debug < head.instructions * width {
        tail_calls.clear();
    }
    let direct: &[_] = if loads.is_empty() || head.constants + DIRECT.len() > MAX_CONSTANTS { &[] } else { &DIRECT };
    if direct.is_empty() && tail_calls.is_empty() {
        out.extend_from_slice(prototype);
        return Some(());
    }
    traits.rewritten = true;
    let more = tail_calls.len() * 3;
    put_head(out, &head, direct.len(), more, more * width, flags);
    let start = out.len();
    out.extend_from_slice(code.0);
    for &(at, function) in loads.iter().filter(|_| !direct.is_empty()) {
        let a = code.at(at)?[1];
        out[start + at * 4..][..4].copy_from_slice(&with_d(op::GGET, a, (head.constants + function) as u16));
        out[start + at * 4 + 4..][..4].copy_from_slice(&with_d(op::MOV, a, a.into()));
    }
    for (i, &(at, callee)) in tail_calls.iter().enumerate() {
        let target = head.instructions + i * 3 + 1;
        let call = code.at(at)?;
        let mut jump = |from: usize, opcode, a| {
            let distance = (JUMP_BIAS + target - (from + 1)) as u16;
            out[start + from * 4..][..4].copy_from_slice(&with_d(opcode, a, distance));
        };
        let plain = if call[0] == op::CALLT {
            jump(at, op::JMP, call[1]);
            op::CALL
        } else {
            jump(at, op::UCLO, call[1]);
            // From one such jump LuaJIT follows to a call, not to the next.
            for (from, closing) in jumps.all_to(at).filter_map(|from| Some((from, code.at(from)?))) {
                if closing[0] == op::UCLO {
                    jump(from, op::UCLO, closing[1]);
                }
            }
            op::CALLM
        };
        out.extend_from_slice(&callee);
        out.extend_from_slice(&[plain, call[1], call[2], 0]);
        out.extend_from_slice(&with_d(op::RETM, call[1], 0));
    }
    out.extend_from_slice(upvalues);
    // Constants are numbered from their end.
    for (_, global) in direct.iter().rev() {
        put_uleb(out, CONSTANT_STRING + global.len() as u32);
        out.extend_from_slice(global);
    }
    let (constants, debug) = after_upvalues.split_at_checked(after_upvalues.len().checked_sub(head.debug)?)?;
    let (lines, names) = debug.split_at_checked((head.instructions * width).min(debug.len()))?;
    out.extend_from_slice(constants);
    out.extend_from_slice(lines);
    for (at, _) in tail_calls {
        let line = lines.get(at * width..(at + 1) * width)?;
        (0..3).for_each(|_| out.extend_from_slice(line));
    }
    out.extend_from_slice(names);
    Some(())
}

/// Whether the instruction at `at` loads KEYS or ARGV and the next one does not replace it by an element or its length, or
/// loads something by which a script could come to them unseen.
fn may_keep_list(code: Code<'_>, at: usize, constants: &Constants<'_>) -> bool {
    let Some([op::GGET, a, ..]) = code.at(at) else { return false };
    match constants.name(code.d(at)) {
        b"KEYS" | b"ARGV" => match code.at(at + 1) {
            Some([op::TGETB | op::TGETS | op::TGETV, to, _, from]) => (to, from) != (a, a),
            Some([op::LEN, to, ..]) => to != a || code.d(at + 1) != usize::from(a),
            _ => true,
        },
        b"_G" | b"load" | b"loadstring" => true,
        _ => false,
    }
}

/// Which of the functions in [`DIRECT`] the instructions at `at` and behind it load.
fn direct_load(code: Code<'_>, at: usize, constants: &Constants<'_>, jumps: &Jumps) -> Option<usize> {
    let ([op::GGET, a, ..], [op::TGETS, to, name, from]) = (code.at(at)?, code.at(at + 1)?) else { return None };
    let (library, name) = (constants.name(code.d(at)), constants.name(name.into()));
    let function = DIRECT.iter().position(|direct| direct.0 == name).filter(|_| API.contains(&library))?;
    // `(x or redis).call` comes by a jump to the second instruction with something else, and so may `goto`.
    ((to, from) == (a, a) && jumps.to(at + 1).is_none()).then_some(function)
}

/// The tail calls whose callee is a global, or a field of one, or a local that was last set to such: where they stand, and
/// the instruction that loads the callee.
fn global_tail_calls(code: Code<'_>, jumps: &Jumps) -> Vec<(usize, Instruction)> {
    let mut found = Vec::new();
    let mut holds_global = [false; 256];
    for (at, instruction) in code.iter().enumerate() {
        found.extend(global_callee(code, at, jumps, &holds_global).map(|load| (at, load)));
        if instruction[0] != op::UCLO {
            holds_global[usize::from(instruction[1])] = is_global_load(code, at);
        }
    }
    found
}

fn global_callee(code: Code<'_>, at: usize, jumps: &Jumps, holds_global: &[bool; 256]) -> Option<Instruction> {
    let call = code.at(at)?;
    if call[0] != op::CALLT && call[0] != op::CALLMT {
        return None;
    }
    // Where a function has made no closure yet, its returns are moved behind its end, and a jump stands in their place.
    let place = jumps.to(at).filter(|from| code.at(*from).is_some_and(|jump| jump[0] == op::UCLO)).unwrap_or(at);
    // The callee is loaded first, its arguments above it: the nearest instruction before the call that writes A. (The one
    // that closes upvalues, right before the call, has a zero there.)
    let writes_a = |i: &usize| code.at(*i).is_some_and(|before| before[1] == call[1] && before[0] != op::UCLO);
    let load_at = (0..place).rev().find(writes_a)?;
    let load = code.at(load_at)?;
    let is_global = if load[0] == op::MOV { holds_global[usize::from(load[2])] } else { is_global_load(code, load_at) };
    is_global.then_some(load)
}

/// Whether the instruction at `at` loads a global or a field of one.
fn is_global_load(code: Code<'_>, at: usize) -> bool {
    let is_global = |i: usize, slot: Option<u8>| {
        code.at(i).is_some_and(|load| load[0] == op::GGET && slot.is_none_or(|slot| load[1] == slot))
    };
    match code.at(at) {
        Some([op::TGETS, _, _, object]) => at.checked_sub(1).is_some_and(|before| is_global(before, Some(object))),
        _ => is_global(at, None),
    }
}

fn with_d(opcode: u8, a: u8, d: u16) -> Instruction {
    let [low, high] = d.to_le_bytes();
    [opcode, a, low, high]
}

fn put_head(
    out: &mut Vec<u8>,
    head: &Head,
    more_constants: usize,
    more_instructions: usize,
    more_debug: usize,
    flags: u32,
) {
    out.extend_from_slice(&head.flags);
    put_uleb(out, (head.constants + more_constants) as u32);
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

/// Opcode, A, and C and B or both together as D.
type Instruction = [u8; 4];

/// The instructions of a prototype.
#[derive(Clone, Copy)]
struct Code<'a>(&'a [u8]);

impl Code<'_> {
    fn at(self, i: usize) -> Option<Instruction> {
        self.0.get(i * 4..i * 4 + 4)?.try_into().ok()
    }

    /// D of the instruction at `i`, which there must be.
    fn d(self, i: usize) -> usize {
        usize::from(u16::from_le_bytes([self.0[i * 4 + 2], self.0[i * 4 + 3]]))
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.chunks_exact(4)
    }

    /// All jumps but those of loops, which lead to the begin of a statement.
    fn jumps(self) -> Jumps {
        let is_jump = |(_, instruction): &(usize, &[u8])| matches!(instruction[0], op::JMP | op::UCLO);
        let jumps = self.iter().enumerate().filter(is_jump);
        let mut jumps: Vec<_> = jumps.map(|(i, _)| ((i + 1 + self.d(i)).wrapping_sub(JUMP_BIAS), i)).collect();
        jumps.sort_unstable();
        Jumps(jumps)
    }
}

/// Where jumps lead and where they stand, sorted: a script may have many.
struct Jumps(Vec<(usize, usize)>);

impl Jumps {
    /// The first jump that leads to `target`.
    fn to(&self, target: usize) -> Option<usize> {
        self.all_to(target).next()
    }

    /// All jumps that lead to `target`.
    fn all_to(&self, target: usize) -> impl Iterator<Item = usize> {
        let first = self.0.partition_point(|(to, _)| *to < target);
        self.0[first..].iter().take_while(move |(to, _)| *to == target).map(|(_, from)| *from)
    }
}

/// The collectable constants of a prototype.
struct Constants<'a> {
    /// Strings in the order of the dump; empty for other kinds.
    names: Vec<&'a [u8]>,
    /// Some of them are 64-bit integers or complex numbers.
    has_cdata: bool,
}

impl Constants<'_> {
    /// The string that instructions know as `number`: they count from the end.
    fn name(&self, number: usize) -> &[u8] {
        self.names.len().checked_sub(number + 1).map_or(&[], |i| self.names[i])
    }
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

    /// Reads collectable constants.
    fn read_constants(&mut self, head: &Head) -> Option<Constants<'a>> {
        let mut constants = Constants { names: Vec::new(), has_cdata: false };
        for _ in 0..head.constants {
            let mut name = &[][..];
            match self.uleb()? {
                CONSTANT_CHILD => {}
                CONSTANT_TABLE => self.skip_table()?,
                string @ CONSTANT_STRING.. => name = self.take((string - CONSTANT_STRING) as usize)?,
                number => {
                    constants.has_cdata = true;
                    for _ in 0..if number == CONSTANT_COMPLEX { 4 } else { 2 } {
                        self.uleb()?;
                    }
                }
            }
            constants.names.push(name);
        }
        Some(constants)
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
