//! Looks through a compiled chunk for what the sandbox must know: whether it assigns globals, and whether it holds 64-bit
//! integer or complex literals (`42LL`, `1i`), which LuaJIT reads and Redis' Lua refuses.
//!
//! The form is that of `string.dump`, LuaJIT's bytecode dump version 2 (`lj_bcdump.h`): a header of `ESC L J`, version,
//! flags and the chunk's name; then prototypes, each with its length: flags, parameters, frame size, upvalues (one byte
//! each), counts of collectable constants, numbers and instructions and the debug length (ULEB128), two line numbers,
//! then instructions of four bytes whose lowest byte is the opcode, upvalues of two bytes, and the constants.

/// What a compiled chunk does that the sandbox cares about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traits {
    /// Some function of it assigns a global variable.
    pub assigns_globals: bool,
    /// Some literal in it is a 64-bit integer or a complex number.
    pub has_cdata_literals: bool,
}

const STRIPPED: u32 = 0x02;
const CONSTANT_CHILD: u32 = 0;
const CONSTANT_TABLE: u32 = 1;
const CONSTANT_COMPLEX: u32 = 4;
const CONSTANT_STRING: u32 = 5;

/// Reads a dump, in which opcode `gset` assigns a global. `None` when it is not a dump as described above.
pub(super) fn scan(dump: &[u8], gset: u8) -> Option<Traits> {
    let mut traits = Traits::default();
    let mut reader = Reader { rest: dump };
    if reader.take(4)? != b"\x1bLJ\x02" {
        return None;
    }
    let flags = reader.uleb()?;
    if flags & STRIPPED == 0 {
        let name = reader.uleb()?;
        reader.take(name as usize)?;
    }
    loop {
        let len = reader.uleb()?;
        if len == 0 {
            return Some(traits);
        }
        let mut prototype = Reader { rest: reader.take(len as usize)? };
        prototype.scan_prototype(flags, gset, &mut traits)?;
    }
}

/// The opcode of the last but one instruction of a dumped chunk: compiled from `x = 1`, that is the global assignment.
pub(super) fn assignment_opcode(dump: &[u8]) -> Option<u8> {
    let mut reader = Reader { rest: dump };
    reader.take(4)?;
    let flags = reader.uleb()?;
    if flags & STRIPPED == 0 {
        let name = reader.uleb()?;
        reader.take(name as usize)?;
    }
    reader.uleb()?;
    let (_, instructions) = reader.read_head(flags)?;
    let code = reader.take(instructions * 4)?;
    code.len().checked_sub(8).map(|at| code[at])
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

    /// Reads a prototype's head; answers its counts of upvalues with collectable constants, and of instructions.
    fn read_head(&mut self, flags: u32) -> Option<((usize, usize), usize)> {
        let upvalues = usize::from(self.take(4)?[3]);
        let constants = self.uleb()? as usize;
        self.uleb()?;
        let instructions = self.uleb()? as usize;
        if flags & STRIPPED == 0 && self.uleb()? > 0 {
            self.uleb()?;
            self.uleb()?;
        }
        Some(((upvalues, constants), instructions))
    }

    fn scan_prototype(&mut self, flags: u32, gset: u8, traits: &mut Traits) -> Option<()> {
        let ((upvalues, constants), instructions) = self.read_head(flags)?;
        let code = self.take(instructions * 4)?;
        traits.assigns_globals |= code.chunks_exact(4).any(|instruction| instruction[0] == gset);
        self.take(upvalues * 2)?;
        for _ in 0..constants {
            match self.uleb()? {
                CONSTANT_CHILD => {}
                CONSTANT_TABLE => self.skip_table()?,
                string @ CONSTANT_STRING.. => {
                    self.take((string - CONSTANT_STRING) as usize)?;
                }
                number => {
                    traits.has_cdata_literals = true;
                    for _ in 0..if number == CONSTANT_COMPLEX { 4 } else { 2 } {
                        self.uleb()?;
                    }
                }
            }
        }
        Some(())
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
