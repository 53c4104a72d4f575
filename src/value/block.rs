//! A few bytes that grow, in one allocation with their header, which one word points to: what small collections are made of.
//!
//! ```text
//! pointer -> | len u32 | count u16 | class u8 | kind u8 | bytes ... | spare |
//! ```
//!
//! `count` and `kind` belong to the owner: how many elements the bytes hold, and in which form. An empty block that was never
//! written to points to a header that all of them share, and allocates nothing.
//!
//! # Sizes
//! The allocator gives out blocks of certain sizes: multiples of 16 up to 128 bytes, then four steps for each doubling. So a
//! block asks for one of these ([`CLASSES`]), the smallest that holds it: there is no slack but what the allocator would add
//! anyway, and bytes that come fill it up first. It moves to a smaller one when it is two sizes too large, so that who adds and
//! removes in turn does not move it each time.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::fmt;
use std::ptr::{self, NonNull};

use crate::base::limits::COMPACT_MAX_ENTRIES;

/// Bytes that grow. See the module's header.
#[repr(transparent)]
pub(crate) struct Block(NonNull<Header>);

/// What stands in front of the bytes. Eight, so that a pointer to it has three bits to spare.
#[repr(C, align(8))]
struct Header {
    len: u32,
    count: u16,
    /// Index of its size, or [`UNALLOCATED`].
    class: u8,
    kind: u8,
}

const HEADER: usize = size_of::<Header>();

/// The class of the header that all empty blocks share. It is never written to.
const UNALLOCATED: u8 = u8::MAX;
static EMPTY: Header = Header { len: 0, count: 0, class: UNALLOCATED, kind: 0 };

/// Classes up to 4 GiB.
const CLASSES: u8 = 8 + 4 * 25;

/// Bytes of a block of this class, its header included.
const fn size_of_class(class: u8) -> usize {
    match class as usize {
        class @ 0..8 => 16 * (class + 1),
        class => (4 + class % 4 + 1) << (class / 4 + 3),
    }
}

/// The smallest class of so many bytes, which are not 0.
#[inline]
const fn class_of_size(size: usize) -> u8 {
    let last = size - 1;
    if last < 128 {
        return (last / 16) as u8;
    }
    let power = last.ilog2() as usize;
    (4 * power + (last >> (power - 2)) - 24) as u8
}

impl Block {
    /// Most bytes that one holds.
    pub(crate) const MAX_BYTES: usize = size_of_class(CLASSES - 1) - HEADER - 1;

    /// No bytes, of kind 0, without allocation.
    pub(crate) const fn new() -> Block {
        Block(NonNull::from_ref(&EMPTY))
    }

    /// No bytes, of this kind.
    pub(crate) fn of_kind(kind: u8) -> Block {
        let mut block = Block::allocate(0);
        block.header_mut().kind = kind;
        block
    }

    /// Whether so many bytes and elements fit.
    pub(crate) const fn fits(bytes: usize, count: usize) -> bool {
        bytes <= Block::MAX_BYTES && count <= COMPACT_MAX_ENTRIES
    }

    /// Number of bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.header().len as usize
    }

    /// What [`set_count`](Self::set_count) set.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        usize::from(self.header().count)
    }

    /// The kind of which it was [made](Self::of_kind).
    #[inline]
    pub(crate) fn kind(&self) -> u8 {
        self.header().kind
    }

    /// Bytes allocated, the header included.
    pub(crate) fn heap_bytes(&self) -> usize {
        if self.is_allocated() { size_of_class(self.header().class) } else { 0 }
    }

    /// The bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the first `len` bytes behind the header are written, and the pointer may reach them.
        unsafe { std::slice::from_raw_parts(self.start(), self.len()) }
    }

    /// The bytes, to overwrite.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the block is borrowed for as long. Of the shared header no byte is borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len()) }
    }

    /// Says how many elements the bytes hold. A block that was never written to has none.
    #[inline]
    pub(crate) fn set_count(&mut self, count: usize) {
        debug_assert!(count <= COMPACT_MAX_ENTRIES, "who adds elements asks whether they fit");
        if self.is_allocated() {
            self.header_mut().count = count as u16;
        }
    }

    /// Puts `parts`, one after another, in the place of the `removed` bytes from `at` on.
    ///
    /// # Panics
    /// Where there are no such bytes, or it does not [fit](Self::fits).
    #[inline]
    pub(crate) fn splice(&mut self, at: usize, removed: usize, parts: &[&[u8]]) {
        let added: usize = parts.iter().map(|part| part.len()).sum();
        let len = self.len();
        assert!(at <= len && removed <= len - at, "the bytes that are replaced are there");
        if added == 0 && removed == 0 {
            return;
        }
        let new_len = len - removed + added;
        if added > removed {
            self.reserve(new_len);
        }
        // SAFETY: it is allocated, since it had bytes or has room for some now, and has room for `new_len`. The bytes behind the
        // removed ones are moved inside of it; behind them there is room for the parts, which are not in this block, since it is
        // borrowed mutably. Then all bytes up to `new_len` are written.
        unsafe {
            let place = self.start().add(at);
            if added != removed {
                ptr::copy(place.add(removed), place.add(added), len - at - removed);
            }
            let mut to = place;
            for part in parts {
                ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
                to = to.add(part.len());
            }
        }
        self.header_mut().len = new_len as u32;
        if added < removed {
            self.tighten();
        }
    }

    /// Makes it `len` bytes long: cuts it, or adds zeroes.
    ///
    /// # Panics
    /// Where it does not [fit](Self::fits).
    #[inline]
    pub(crate) fn resize(&mut self, len: usize) {
        let old = self.len();
        if len > old {
            self.reserve(len);
            // SAFETY: there is room for `len` bytes; those behind the first `old` become written.
            unsafe { self.start().add(old).write_bytes(0, len - old) };
            self.header_mut().len = len as u32;
        } else if len < old {
            self.header_mut().len = len as u32;
            self.tighten();
        }
    }

    /// Makes room for so many bytes in all.
    ///
    /// # Panics
    /// Where it does not [fit](Self::fits).
    #[inline]
    fn reserve(&mut self, bytes: usize) {
        if bytes > self.capacity() {
            self.grow(bytes);
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, bytes: usize) {
        if !self.is_allocated() {
            *self = Block::allocate(bytes);
            return;
        }
        assert!(bytes <= Block::MAX_BYTES, "who adds bytes asks whether they fit");
        let class = class_of_size(HEADER + bytes);
        let layout = layout_of(class);
        // SAFETY: it was allocated with the layout of its class; the new size is not 0, and rounding it up does not overflow.
        let moved = unsafe { realloc(self.0.as_ptr().cast(), layout_of(self.header().class), layout.size()) };
        let Some(moved) = NonNull::new(moved.cast::<Header>()) else { handle_alloc_error(layout) };
        self.0 = moved;
        self.header_mut().class = class;
    }

    /// Moves to a block of its size, if this one has become too large.
    fn tighten(&mut self) {
        if class_of_size(HEADER + self.len()) + 1 < self.header().class {
            *self = self.clone();
        }
    }

    /// An empty block with room for so many bytes.
    fn allocate(bytes: usize) -> Block {
        assert!(bytes <= Block::MAX_BYTES, "who adds bytes asks whether they fit");
        let class = class_of_size(HEADER + bytes);
        let layout = layout_of(class);
        // SAFETY: the size is not 0.
        let block = unsafe { alloc(layout) };
        let Some(block) = NonNull::new(block.cast::<Header>()) else { handle_alloc_error(layout) };
        // SAFETY: it is large enough for a header, aligned for it, and nobody else has it.
        unsafe { block.write(Header { len: 0, count: 0, class, kind: 0 }) };
        Block(block)
    }

    #[inline]
    fn is_allocated(&self) -> bool {
        self.header().class != UNALLOCATED
    }

    /// Bytes for which there is room.
    #[inline]
    fn capacity(&self) -> usize {
        match self.header().class {
            UNALLOCATED => 0,
            class => size_of_class(class) - HEADER,
        }
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: it points to the shared header, or to an allocation that begins with one.
        unsafe { self.0.as_ref() }
    }

    /// The header of a block that is allocated.
    #[inline]
    fn header_mut(&mut self) -> &mut Header {
        debug_assert!(self.is_allocated(), "the shared header is never written to");
        // SAFETY: it is an allocation that begins with a header, of this block alone. Who calls this has made sure of it.
        unsafe { self.0.as_mut() }
    }

    #[inline]
    fn start(&self) -> *mut u8 {
        // SAFETY: behind a header there is at least the end of its allocation.
        unsafe { self.0.as_ptr().cast::<u8>().add(HEADER) }
    }
}

fn layout_of(class: u8) -> Layout {
    Layout::from_size_align(size_of_class(class), align_of::<Header>())
        .expect("no class is near the address space's end")
}

impl Default for Block {
    fn default() -> Block {
        Block::new()
    }
}

impl Clone for Block {
    /// A copy without more room than it needs.
    fn clone(&self) -> Block {
        if !self.is_allocated() {
            return Block::new();
        }
        let mut copy = Block::allocate(self.len());
        copy.splice(0, 0, &[self.bytes()]);
        let (count, kind) = (self.header().count, self.header().kind);
        let header = copy.header_mut();
        (header.count, header.kind) = (count, kind);
        copy
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.is_allocated() {
            // SAFETY: it was allocated with the layout of its class.
            unsafe { dealloc(self.0.as_ptr().cast(), layout_of(self.header().class)) };
        }
    }
}

// SAFETY: it owns its bytes as a vector does; the shared header is never written to.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of kind {} in {:?}", self.count(), self.kind(), self.bytes())
    }
}

/// A form of elements in a [`Block`].
///
/// # Safety
/// The type is a `#[repr(transparent)]` struct of one `Block`.
pub(crate) unsafe trait InBlock: Sized {
    /// Reads a block as one of this form; the owner knows that it is.
    #[inline]
    fn of(block: &Block) -> &Self {
        // SAFETY: the type is laid out as a block.
        unsafe { &*ptr::from_ref(block).cast() }
    }

    /// As [`of`](Self::of), to change it.
    #[inline]
    fn of_mut(block: &mut Block) -> &mut Self {
        // SAFETY: as above.
        unsafe { &mut *ptr::from_mut(block).cast() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn classes_are_the_sizes_of_the_allocator() {
        assert_eq!(
            (0..14).map(size_of_class).collect::<Vec<_>>(),
            [16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384]
        );
        let sizes: Vec<usize> = (0..CLASSES).map(size_of_class).collect();
        for (class, size) in sizes.iter().enumerate() {
            assert_eq!(usize::from(class_of_size(*size)), class);
            assert!(class + 1 == sizes.len() || usize::from(class_of_size(size + 1)) == class + 1);
        }
        assert!(Block::MAX_BYTES < u32::MAX as usize && class_of_size(HEADER + Block::MAX_BYTES) < CLASSES);
    }

    /// Where blocks are small and many, none is larger than it asked for.
    #[cfg(not(any(miri, sanitizer)))]
    #[test]
    fn the_allocator_adds_nothing() {
        for class in 0..30 {
            let size = size_of_class(class);
            // SAFETY: it only computes.
            assert_eq!(unsafe { libmimalloc_sys::mi_good_size(size) }, size);
        }
    }

    #[test]
    fn an_empty_one_allocates_nothing() {
        let mut block = Block::new();
        block.splice(0, 0, &[b""]);
        block.set_count(0);
        assert_eq!((block.len(), block.heap_bytes(), block.bytes_mut().len()), (0, 0, 0));
        assert_eq!(block.clone().heap_bytes(), 0);
        assert_eq!((Block::of_kind(3).kind(), Block::of_kind(3).heap_bytes()), (3, 16));
    }

    #[test]
    fn it_is_as_large_as_it_must_be() {
        let mut block = Block::new();
        for len in 1..1_000 {
            block.splice(len - 1, 0, &[b"x"]);
            assert_eq!(block.heap_bytes(), size_of_class(class_of_size(HEADER + len)));
        }
        for len in (1..1_000).rev() {
            block.splice(0, block.len() - len, &[]);
            assert!(block.heap_bytes() <= size_of_class(class_of_size(HEADER + len) + 1), "{len}");
        }
        // One byte more or less, again and again, moves nothing.
        block.splice(0, 1, &[&[7; 57]]);
        let place = block.bytes().as_ptr();
        for _ in 0..9 {
            block.splice(0, 1, &[]);
            block.splice(0, 0, &[b"x"]);
            assert_eq!(block.bytes().as_ptr(), place);
        }
    }

    proptest! {
        #[test]
        fn behaves_as_a_vector(
            kind in any::<u8>(),
            steps in proptest::collection::vec((any::<usize>(), any::<usize>(), 0..90usize, any::<u8>()), 0..60),
        ) {
            let mut block = if kind == 0 { Block::new() } else { Block::of_kind(kind) };
            let mut model: Vec<u8> = Vec::new();
            for (number, (at, removed, added, byte)) in steps.into_iter().enumerate() {
                let at = at % (model.len() + 1);
                let removed = removed % (model.len() - at + 1);
                block.resize(model.len() + removed);
                model.resize(model.len() + removed, 0);
                let (one, other) = (vec![byte; added], [!byte; 3]);
                block.splice(at, removed, &[&one, &other]);
                model.splice(at..at + removed, one.into_iter().chain(other));
                let len = if byte & 2 == 0 { model.len() } else { at };
                block.resize(len);
                model.resize(len, 0);
                block.set_count(number);
                if let Some(first) = block.bytes_mut().first_mut() {
                    *first = 1;
                    model[0] = 1;
                }
                let copy = block.clone();
                if byte & 1 == 0 {
                    block = copy;
                }
                prop_assert_eq!((block.bytes(), block.len()), (&model[..], model.len()));
                prop_assert_eq!((block.count(), block.kind()), (number, kind));
            }
        }
    }
}
