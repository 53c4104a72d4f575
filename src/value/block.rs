//! A few bytes that grow, in one allocation together with their header, referred to by one word. Small collections are
//! made of blocks.
//!
//! ```text
//! pointer -> | len u32 | count u16 | class u8 | kind u8 | bytes ... | spare |
//! ```
//!
//! `count` and `kind` belong to the owner: the number of elements in the bytes, and their form. An empty block that was
//! never written to points to one shared header and allocates nothing.
//!
//! # Sizes
//! The allocator hands out blocks of certain sizes: multiples of 16 up to 128 bytes, then four steps for each doubling.
//! A block therefore asks for the smallest of these sizes ([`CLASSES`]) that holds it. Its only slack is what the
//! allocator would add anyway, and new bytes fill that first. A block moves to a smaller size only when it is two sizes
//! too large, so that adding and removing in turn does not move it each time.
//!
//! # Embedded
//! A block that is only read can do without an allocation: its bytes lie a short distance behind the word itself, and
//! the word holds the header's fields. Such a block moves together with its bytes, and has to be [moved
//! out](Block::move_out) before it can be changed.
//!
//! ```text
//! word: | distance of the bytes u16 | len u16 | count u16 | kind u8 | 2 |
//! ```

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::fmt;
use std::num::NonZero;
use std::ptr::{self, NonNull};

use crate::value::limits::COMPACT_MAX_ENTRIES;

/// Bytes that grow. See the module's header.
#[repr(transparent)]
pub(crate) struct Block(
    /// Not an address if the block is embedded: see [`Embedded`].
    NonNull<Header>,
);

/// The word of an embedded block.
#[derive(Clone, Copy)]
struct Embedded(u64);

impl Embedded {
    /// The bit that distinguishes the word from an address. The lowest bit is left to
    /// [`OneWord`](super::one_word::OneWord).
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

/// The header in front of the bytes. Aligned to eight, so that a pointer to it has three spare bits.
#[repr(C, align(8))]
struct Header {
    len: u32,
    count: u16,
    /// Index of the block's size class, or [`UNALLOCATED`].
    class: u8,
    kind: u8,
}

const HEADER: usize = size_of::<Header>();

/// The class of the header that all empty blocks share. That header is never written to.
const UNALLOCATED: u8 = u8::MAX;
static EMPTY: Header = Header { len: 0, count: 0, class: UNALLOCATED, kind: 0 };

/// Classes up to 4 GiB.
const CLASSES: u8 = 8 + 4 * 25;

/// Bytes of a block of this class, including its header.
const fn size_of_class(class: u8) -> usize {
    match class as usize {
        class @ 0..8 => 16 * (class + 1),
        class => (4 + class % 4 + 1) << (class / 4 + 3),
    }
}

/// The smallest class that holds `size` bytes, which must not be 0.
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
    /// The most bytes that a block can hold.
    pub(crate) const MAX_BYTES: usize = size_of_class(CLASSES - 1) - HEADER - 1;

    /// An empty block of kind 0, without allocation.
    pub(crate) const fn new() -> Block {
        Block(NonNull::from_ref(&EMPTY))
    }

    /// An empty block of the given kind.
    pub(crate) fn of_kind(kind: u8) -> Block {
        let mut block = Block::allocate(0);
        block.header_mut().kind = kind;
        block
    }

    /// Whether `bytes` bytes and `count` elements fit into a block.
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

    /// The number of elements, as passed to [`set_count`](Self::set_count).
    #[inline]
    pub(crate) fn count(&self) -> usize {
        match self.embedded() {
            None => self.header().count.into(),
            Some(word) => word.count().into(),
        }
    }

    /// The kind that the block was [made](Self::of_kind) with.
    #[inline]
    pub(crate) fn kind(&self) -> u8 {
        match self.embedded() {
            None => self.header().kind,
            Some(word) => word.kind(),
        }
    }

    /// Bytes allocated, including the header.
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
        // SAFETY: the first `len` bytes behind the header are written, and the pointer may reach them. The same is true
        // of an embedded block, whose word lies at its distance from the bytes.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// The bytes, for overwriting.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and the block is borrowed mutably for as long. No byte of the shared header is
        // borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.header().len as usize) }
    }

    /// Sets the number of elements that the bytes hold. A block that was never written to has none.
    #[inline]
    pub(crate) fn set_count(&mut self, count: usize) {
        debug_assert!(count <= COMPACT_MAX_ENTRIES, "the caller checks that the elements fit");
        if self.header().class != UNALLOCATED {
            self.header_mut().count = count as u16;
        }
    }

    /// Changes the kind.
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

    /// Replaces the `removed` bytes from `at` on by `parts`, one after another.
    ///
    /// # Panics
    /// If there are no such bytes, or if the result does not [fit](Self::fits).
    #[inline(always)]
    pub(crate) fn splice(&mut self, at: usize, removed: usize, parts: &[&[u8]]) {
        let added: usize = parts.iter().map(|part| part.len()).sum();
        let len = self.header().len as usize;
        assert!(at <= len && removed <= len - at, "the replaced bytes exist");
        if added == 0 && removed == 0 {
            return;
        }
        let new_len = len - removed + added;
        if added > removed {
            self.reserve(new_len);
        }
        // SAFETY: the block is allocated, since it had bytes or has just got room for some, and it has room for
        // `new_len`. The bytes behind the removed ones are moved within the block. The parts then fit into the gap and
        // do not lie in this block, since it is borrowed mutably. Afterwards all bytes up to `new_len` are written.
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

    /// Appends `parts`, which must not all be empty, as one more element.
    ///
    /// # Panics
    /// If the result does not [fit](Self::fits).
    #[inline]
    pub(crate) fn append(&mut self, parts: &[&[u8]]) {
        self.splice(self.header().len as usize, 0, parts);
        self.header_mut().count += 1;
    }

    /// Sets the length to `len` bytes, truncating the block or adding zeros.
    ///
    /// # Panics
    /// If the result does not [fit](Self::fits).
    #[inline]
    pub(crate) fn resize(&mut self, len: usize) {
        let old = self.len();
        if len > old {
            self.reserve(len);
            // SAFETY: there is room for `len` bytes, and those behind the first `old` are now written.
            unsafe { self.start().add(old).write_bytes(0, len - old) };
            self.header_mut().len = len as u32;
        } else if len < old {
            self.header_mut().len = len as u32;
            self.tighten();
        }
    }

    /// Truncates the block to `len` bytes, if it is longer, and keeps its room. For a block that is about to be dropped
    /// or to grow again.
    #[inline]
    pub(crate) fn cut(&mut self, len: usize) {
        if len < self.len() {
            self.header_mut().len = len as u32;
        }
    }

    /// Makes room for `bytes` bytes in all.
    ///
    /// # Panics
    /// If they do not [fit](Self::fits).
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
        assert!(bytes <= Block::MAX_BYTES, "the caller checks that the bytes fit");
        let class = class_of_size(HEADER + bytes);
        let layout = layout_of(class);
        // SAFETY: the block was allocated with the layout of its class; the new size is not 0, and rounding it up does
        // not overflow.
        let moved = unsafe { realloc(self.0.as_ptr().cast(), layout_of(self.header().class), layout.size()) };
        let Some(moved) = NonNull::new(moved.cast::<Header>()) else { handle_alloc_error(layout) };
        self.0 = moved;
        self.header_mut().class = class;
    }

    /// Moves to a smaller block if this one has become too large.
    #[inline]
    fn tighten(&mut self) {
        if class_of_size(HEADER + self.len()) + 1 < self.header().class {
            self.shrink();
        }
    }

    #[cold]
    #[inline(never)]
    fn shrink(&mut self) {
        *self = self.clone();
    }

    /// An empty block with room for `bytes` bytes.
    fn allocate(bytes: usize) -> Block {
        assert!(bytes <= Block::MAX_BYTES, "the caller checks that the bytes fit");
        let class = class_of_size(HEADER + bytes);
        let layout = layout_of(class);
        // SAFETY: the size is not 0.
        let block = unsafe { alloc(layout) };
        let Some(block) = NonNull::new(block.cast::<Header>()) else { handle_alloc_error(layout) };
        // SAFETY: the allocation is large enough for a header, is aligned for it, and belongs to nothing else.
        unsafe { block.write(Header { len: 0, count: 0, class, kind: 0 }) };
        Block(block)
    }

    /// Embeds the block: moves its bytes to `distance` bytes behind this word and frees its allocation. Returns `None`,
    /// and changes nothing, if the word cannot hold its length.
    ///
    /// # Safety
    /// There must be room for [`len`](Self::len) bytes at that place. The place and this word lie in one allocation,
    /// and a pointer to the whole allocation has been exposed. Until the block is [moved out](Self::move_out), the word
    /// must move only together with the bytes, must not be used to change or drop the block, and nothing may write to
    /// the bytes.
    pub(crate) unsafe fn embed(&mut self, distance: u16) -> Option<()> {
        let word = Embedded::new(self.kind(), self.count() as u16, u16::try_from(self.len()).ok()?, distance);
        let to = ptr::with_exposed_provenance_mut::<u8>(ptr::from_ref(self).addr() + usize::from(distance));
        // SAFETY: there is room for the bytes, and their new place behind this word does not overlap the old one.
        unsafe { to.copy_from_nonoverlapping(self.bytes().as_ptr(), self.len()) };
        let word = NonZero::new(word.0 as usize).expect("the tag is not 0");
        *self = Block(NonNull::without_provenance(word));
        Some(())
    }

    /// Gives an embedded block its own allocation.
    pub(crate) fn move_out(&mut self) {
        if self.embedded().is_some() {
            *self = self.clone();
        }
    }

    /// The fields in the word, if the block is embedded.
    #[inline]
    fn embedded(&self) -> Option<Embedded> {
        let word = self.0.addr().get() as u64;
        (word & Embedded::TAG != 0).then_some(Embedded(word))
    }

    #[inline]
    fn is_allocated(&self) -> bool {
        self.embedded().is_none() && self.header().class != UNALLOCATED
    }

    /// The number of bytes that there is room for.
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
        // SAFETY: the pointer leads to the shared header or to an allocation that begins with a header. Callers know
        // that the word is a pointer.
        unsafe { self.0.as_ref() }
    }

    /// The header of an allocated block.
    #[inline]
    fn header_mut(&mut self) -> &mut Header {
        debug_assert!(self.is_allocated(), "the shared header is never written to");
        // SAFETY: callers have checked that there is an allocation. It begins with a header and belongs to this block
        // alone.
        unsafe { self.0.as_mut() }
    }

    #[inline]
    fn start(&self) -> *mut u8 {
        // SAFETY: a header is followed at least by the end of its allocation.
        unsafe { self.0.as_ptr().cast::<u8>().add(HEADER) }
    }
}

fn layout_of(class: u8) -> Layout {
    Layout::from_size_align(size_of_class(class), align_of::<Header>())
        .expect("every class is far below the end of the address space")
}

impl Default for Block {
    fn default() -> Block {
        Block::new()
    }
}

impl Clone for Block {
    /// A copy without spare room.
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
            // SAFETY: the block was allocated with the layout of its class.
            unsafe { dealloc(self.0.as_ptr().cast(), layout_of(self.header().class)) };
        }
    }
}

// SAFETY: a block owns its bytes as a vector does; the shared header is never written to.
unsafe impl Send for Block {}
// SAFETY: a shared block is only read, and the shared header is never written to.
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
    /// Views a block as this form. The caller knows that the block has this form.
    #[inline]
    fn of(block: &Block) -> &Self {
        // SAFETY: the type has the layout of a block.
        unsafe { &*ptr::from_ref(block).cast() }
    }

    /// Like [`of`](Self::of), for changing the block.
    #[inline]
    fn of_mut(block: &mut Block) -> &mut Self {
        // SAFETY: as in `of`.
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

    /// As long as blocks are small and numerous, the allocator gives each one exactly the size it asked for.
    #[cfg(not(any(miri, sanitizer)))]
    #[test]
    fn the_allocator_adds_nothing() {
        for class in 0..30 {
            let size = size_of_class(class);
            // SAFETY: the function only computes.
            assert_eq!(unsafe { libmimalloc_sys::mi_good_size(size) }, size);
        }
    }

    #[test]
    fn an_empty_block_allocates_nothing() {
        let mut block = Block::new();
        block.splice(0, 0, &[b""]);
        block.set_count(0);
        assert_eq!((block.len(), block.heap_bytes(), block.bytes_mut().len()), (0, 0, 0));
        assert_eq!(block.clone().heap_bytes(), 0);
        assert_eq!((Block::of_kind(3).kind(), Block::of_kind(3).heap_bytes()), (3, 16));
    }

    #[test]
    fn a_block_is_as_large_as_necessary() {
        let mut block = Block::new();
        for len in 1..1_000 {
            block.splice(len - 1, 0, &[b"x"]);
            assert_eq!(block.heap_bytes(), size_of_class(class_of_size(HEADER + len)));
        }
        for len in (1..1_000).rev() {
            block.splice(0, block.len() - len, &[]);
            assert!(block.heap_bytes() <= size_of_class(class_of_size(HEADER + len) + 1), "{len}");
        }
        // One byte more or less, again and again, does not move the block.
        block.splice(0, 1, &[&[7; 57]]);
        let place = block.bytes().as_ptr();
        for _ in 0..9 {
            block.splice(0, 1, &[]);
            block.splice(0, 0, &[b"x"]);
            assert_eq!(block.bytes().as_ptr(), place);
        }
    }

    #[test]
    fn an_embedded_block_can_be_moved_with_its_bytes() {
        /// A block's word, something else, and room for bytes.
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
        // SAFETY: the places are allocated, and each has room for the bytes at this distance from its word. The word
        // and the bytes are moved together; the old place is overwritten without being dropped.
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
