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
//!
//! # Embedded
//! A block that is only read may do without an allocation: its bytes lie a little behind the word itself, and the word says what the
//! header would. It moves together with its bytes, and whoever wants to change it [moves it out](Block::move_out) first.
//!
//! ```text
//! word: | distance of the bytes u16 | len u16 | count u16 | kind u8 | 2 |
//! ```

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::fmt;
use std::num::NonZero;
use std::ptr::{self, NonNull};

use crate::base::limits::COMPACT_MAX_ENTRIES;

/// Bytes that grow. See the module's header.
#[repr(transparent)]
pub(crate) struct Block(
    /// Of an embedded block no address: see [`Embedded`].
    NonNull<Header>,
);

/// The word of a block that is embedded.
#[derive(Clone, Copy)]
struct Embedded(u64);

impl Embedded {
    /// The bit of the word that tells it from an address; the lowest one is left to [`OneWord`](super::one_word::OneWord).
    const TAG: u64 = 2;

    fn new(kind: u8, count: u16, len: u16, distance: u16) -> Embedded {
        Embedded(
            Embedded::TAG
                | u64::from(kind) << 8
                | u64::from(count) << 16
                | u64::from(len) << 32
                | u64::from(distance) << 48,
        )
    }

    fn kind(self) -> u8 {
        (self.0 >> 8) as u8
    }

    fn count(self) -> u16 {
        (self.0 >> 16) as u16
    }

    fn len(self) -> u16 {
        (self.0 >> 32) as u16
    }

    fn distance(self) -> u16 {
        (self.0 >> 48) as u16
    }
}

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
        match self.embedded() {
            None => self.header().len as usize,
            Some(word) => word.len().into(),
        }
    }

    /// What [`set_count`](Self::set_count) set.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        match self.embedded() {
            None => self.header().count.into(),
            Some(word) => word.count().into(),
        }
    }

    /// The kind of which it was [made](Self::of_kind).
    #[inline]
    pub(crate) fn kind(&self) -> u8 {
        match self.embedded() {
            None => self.header().kind,
            Some(word) => word.kind(),
        }
    }

    /// Bytes allocated, the header included.
    pub(crate) fn heap_bytes(&self) -> usize {
        if self.is_allocated() { size_of_class(self.header().class) } else { 0 }
    }

    /// The bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        let (start, len) = match self.embedded() {
            None => (self.start().cast_const(), self.header().len as usize),
            Some(word) => {
                let address = ptr::from_ref(self).addr() + usize::from(word.distance());
                (ptr::with_exposed_provenance(address), word.len().into())
            }
        };
        // SAFETY: the first `len` bytes behind the header are written, and the pointer may reach them. So are those of an embedded
        // block, whose word lies where its bytes are.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// The bytes, to overwrite.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the block is borrowed for as long. Of the shared header no byte is borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.header().len as usize) }
    }

    /// Says how many elements the bytes hold. A block that was never written to has none.
    #[inline]
    pub(crate) fn set_count(&mut self, count: usize) {
        debug_assert!(count <= COMPACT_MAX_ENTRIES, "who adds elements asks whether they fit");
        if self.header().class != UNALLOCATED {
            self.header_mut().count = count as u16;
        }
    }

    /// Gives it another kind.
    #[inline]
    pub(crate) fn set_kind(&mut self, kind: u8) {
        if self.header().kind == kind {
            return;
        }
        if self.header().class == UNALLOCATED {
            *self = Block::allocate(0);
        }
        self.header_mut().kind = kind;
    }

    /// Puts `parts`, one after another, in the place of the `removed` bytes from `at` on.
    ///
    /// # Panics
    /// Where there are no such bytes, or it does not [fit](Self::fits).
    #[inline]
    pub(crate) fn splice(&mut self, at: usize, removed: usize, parts: &[&[u8]]) {
        let added: usize = parts.iter().map(|part| part.len()).sum();
        let len = self.header().len as usize;
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

    /// Adds `parts`, which are not all empty, behind the last byte: one element more.
    ///
    /// # Panics
    /// Where it does not [fit](Self::fits).
    #[inline]
    pub(crate) fn append(&mut self, parts: &[&[u8]]) {
        self.splice(self.header().len as usize, 0, parts);
        self.header_mut().count += 1;
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

    /// Cuts it to `len` bytes, if it is longer, and keeps its room: for one that is about to go, or to grow again.
    #[inline]
    pub(crate) fn cut(&mut self, len: usize) {
        if len < self.len() {
            self.header_mut().len = len as u32;
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

    /// Embeds it: moves its bytes to where they lie `distance` bytes behind this word, and gives back what it had allocated. `None`,
    /// and it stays as it is, where the word can't say how long it is.
    ///
    /// # Safety
    /// There is room for its [`len`](Self::len), in the allocation that this word lies in and of which a pointer to the whole has been
    /// exposed. Until the block is [moved out](Self::move_out), the word is moved together with the bytes or not at all, is used for
    /// nothing that changes or drops it, and nobody writes to the bytes.
    pub(crate) unsafe fn embed(&mut self, distance: u16) -> Option<()> {
        let word = Embedded::new(self.kind(), self.count() as u16, u16::try_from(self.len()).ok()?, distance);
        let to = ptr::with_exposed_provenance_mut::<u8>(ptr::from_ref(self).addr() + usize::from(distance));
        // SAFETY: there is room for them, behind this word and thus not where they are.
        unsafe { to.copy_from_nonoverlapping(self.bytes().as_ptr(), self.len()) };
        let word = NonZero::new(word.0 as usize).expect("the tag is not 0");
        *self = Block(NonNull::without_provenance(word));
        Some(())
    }

    /// Makes it a block of its own, if it is embedded.
    pub(crate) fn move_out(&mut self) {
        if self.embedded().is_some() {
            *self = self.clone();
        }
    }

    /// What the word says, if it is embedded.
    #[inline]
    fn embedded(&self) -> Option<Embedded> {
        let word = self.0.addr().get() as u64;
        (word & Embedded::TAG != 0).then_some(Embedded(word))
    }

    #[inline]
    fn is_allocated(&self) -> bool {
        self.embedded().is_none() && self.header().class != UNALLOCATED
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
        debug_assert!(self.embedded().is_none(), "an embedded block has no header");
        // SAFETY: it points to the shared header, or to an allocation that begins with one. Who calls this knows that it is a pointer.
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
        if !self.is_allocated() && self.embedded().is_none() {
            return Block::new();
        }
        let mut copy = Block::allocate(self.len());
        copy.splice(0, 0, &[self.bytes()]);
        let header = copy.header_mut();
        (header.count, header.kind) = (self.count() as u16, self.kind());
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

    #[test]
    fn an_embedded_one_reads_the_same_wherever_it_is_moved_with_its_bytes() {
        /// A word, something else, and room for bytes.
        type Place = (Block, u64, [u8; 16]);
        let mut block = Block::of_kind(7);
        block.splice(0, 0, &[b"ten bytes!"]);
        block.set_count(3);
        let original = block.clone();
        let mut places =
            [Box::new((Block::new(), 1u64, [0u8; 16])), Box::new((Block::new(), 2, [0; 16]))].map(|place| {
                let place = Box::into_raw(place);
                place.expose_provenance();
                place
            });
        let distance = std::mem::offset_of!(Place, 2) - std::mem::offset_of!(Place, 0);
        // SAFETY: the places are allocated, and one has room for the bytes at this distance of its word. Where the word is moved, the
        // bytes are; what is left behind is overwritten, without being dropped.
        unsafe {
            (*places[0]).0 = block;
            assert_eq!((*places[0]).0.embed(distance as u16), Some(()));
            for _ in 0..3 {
                places[1].copy_from_nonoverlapping(places[0], 1);
                places[0].write((Block::new(), 0, [0; 16]));
                places.swap(0, 1);
                let embedded = &(*places[0]).0;
                assert_eq!((embedded.bytes(), embedded.len(), embedded.heap_bytes()), (original.bytes(), 10, 0));
                assert_eq!((embedded.kind(), embedded.count()), (7, 3));
                let copy = embedded.clone();
                assert_eq!((copy.bytes(), copy.heap_bytes()), (original.bytes(), original.heap_bytes()));
            }
            (*places[0]).0.move_out();
            (*places[0]).0.move_out();
            (*places[0]).0.splice(10, 0, &[b"!"]);
            assert_eq!((*places[0]).0.bytes(), b"ten bytes!!");
            let mut long = Block::new();
            long.resize(usize::from(u16::MAX) + 1);
            assert!(long.embed(8).is_none() && long.heap_bytes() > 0);
            places.into_iter().for_each(|place| drop(Box::from_raw(place)));
        }
    }

    proptest! {
        #[test]
        fn behaves_as_a_vector(
            kind in any::<u8>(),
            steps in proptest::collection::vec((any::<usize>(), any::<usize>(), 0..90usize, any::<u8>()), 0..60),
        ) {
            let mut block = if kind == 0 { Block::new() } else { Block::of_kind(kind) };
            let (mut model, mut kind) = (Vec::<u8>::new(), kind);
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
                kind = if byte & 4 == 0 { kind } else { !kind };
                block.set_kind(kind);
                if byte & 8 == 0 {
                    let (room, cut) = (block.heap_bytes(), at / 2);
                    block.cut(cut);
                    model.truncate(cut);
                    prop_assert_eq!(block.heap_bytes(), room);
                }
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
