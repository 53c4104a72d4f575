//! Memory for entries: places of a few sizes, in chunks.
//!
//! An entry takes as many bytes as its key and its value need. A *place* has room for one entry. There are [`CLASSES`]
//! sizes: multiples of 8 up to 256 bytes, then of 32. All places of a chunk have one size.
//!
//! ```text
//! slot: | chunk, 22 bits | index, 10 bits |      address = start of the chunk + index * size of its places
//! ```
//!
//! So the table of keys holds 4 bytes per entry, and a handler can return to an entry without a second lookup. Growth
//! adds a chunk and copies nothing, so there is no pause, whatever the number of keys. Only the first chunk of each
//! size starts with a few places and moves as it grows, which keeps a small database small. Hence an address is valid
//! until the arena is changed, and a slot until its place is freed.
//!
//! Free places of one size form a free list, the last freed first. A script's undo relies on that order. It walks its
//! notes backwards, and an entry that comes back gets its old slot (see [`undo`](super::undo)). Therefore chunks
//! without entries are only given back in [`Arena::release`], never inside a script. The free list is doubly linked, so
//! the places of one chunk can leave it without a walk through all others.
//!
//! A free place between taken ones stays allocated and waits for the next entry. It is no more in use than a free block
//! inside the allocator's pages, and likewise does not count as allocated ([`set_aside`]).
//!
//! The arena knows nothing of the content of a place except one bit of its eighth byte, which says whether the place is
//! free.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use crate::base::os::allocated::set_aside;
use crate::base::prefetch::prefetch;
use crate::keyspace::limits::ARENA_KEEP_BYTES;

/// Bytes of the largest place.
pub(super) const PLACE_MAX_BYTES: usize = 512;

/// The bit of a taken place's eighth byte that belongs to the arena. Writers of that byte must leave it 0.
pub(super) const FREE_BIT: u8 = 1 << 7;

/// The number of place sizes.
const CLASSES: usize = class_of(PLACE_MAX_BYTES) + 1;

/// The most places of a chunk, as a power of two.
const INDEX_BITS: u32 = 10;

/// Large chunks are multiples of this.
const SLICE_BYTES: usize = 64 * 1024;

/// Initial places of a chunk that grows.
const FIRST_PLACES: usize = 4;

/// The most chunks. The last number that a slot's bits allow is left out, since [`NONE`] would be a place of that
/// chunk. A chunk has at least 546 places, so no database of fewer than 2,290 million keys runs out of numbers.
const MAX_CHUNKS: usize = (1 << (u32::BITS - INDEX_BITS)) - 1;

/// The end of a list of free places, or no chunk.
const NONE: u32 = u32::MAX;

/// Bytes of a place of this class.
const fn size_of_class(class: usize) -> usize {
    match class {
        0..31 => 8 * (class + 2),
        _ => 32 * (class - 22),
    }
}

/// The smallest class of at least `bytes` bytes.
#[inline]
const fn class_of(bytes: usize) -> usize {
    match bytes {
        0..=16 => 0,
        17..=256 => bytes.div_ceil(8) - 2,
        _ => bytes.div_ceil(32) + 22,
    }
}

/// Bytes of the place that an entry of `bytes` bytes gets.
pub(super) const fn place_bytes(bytes: usize) -> usize {
    size_of_class(class_of(bytes))
}

/// Bytes of a chunk of this class: 1,024 places, or fewer if the allocator would round up or leave a gap. The allocator
/// cuts its pages into powers of two, up to 64 KiB, without a remainder; multiples of 64 KiB have pages of their own.
const fn chunk_bytes(class: usize) -> usize {
    let bytes = size_of_class(class) << INDEX_BITS;
    if bytes < SLICE_BYTES { 1 << bytes.ilog2() } else { bytes / SLICE_BYTES * SLICE_BYTES }
}

/// Places of a chunk of this class.
const fn places_of_class(class: usize) -> usize {
    chunk_bytes(class) / size_of_class(class)
}

const _: () = {
    let mut class = 0;
    while class < CLASSES {
        let size = size_of_class(class);
        assert!(size.is_multiple_of(8) && class_of(size) == class && class_of(size + 1) == class + 1);
        assert!(places_of_class(class) >= 546 && places_of_class(class) <= 1 << INDEX_BITS);
        class += 1;
    }
    assert!(size_of::<Vacancy>() <= size_of_class(0));
};

/// The location of an entry in its database. Valid until the entry is removed or moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub(super) u32);

/// Memory for one entry. Valid until the arena is changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The start, a multiple of 8.
    pub(super) start: NonNull<u8>,
    /// The size in bytes.
    pub(super) size: usize,
}

/// The content of a free place.
#[repr(C, align(8))]
struct Vacancy {
    /// The next place in the list.
    next: u32,
    _unused: [u8; 3],
    mark: u8,
    /// The previous place.
    prev: u32,
}

struct Chunk {
    /// The start of the places; dangling while the chunk has no memory.
    start: NonNull<u8>,
    /// Bytes of a place.
    size: u16,
    /// How many places have ever been used. The places behind them were never written to.
    used: u16,
    /// How many places there is memory for.
    room: u16,
    /// How many places are taken.
    taken: u16,
    class: u8,
    /// Whether the chunk is in [`Arena::emptied`].
    is_listed: bool,
}

/// The places of one size.
#[derive(Clone, Copy)]
struct Class {
    first_free: u32,
    /// The chunk with places that have never been used.
    open: u32,
    /// How many chunks have memory.
    chunks: u32,
}

/// Places by size. See the module header.
pub(super) struct Arena {
    chunks: Vec<Chunk>,
    classes: [Class; CLASSES],
    len: usize,
    /// Chunks that were given back.
    vacant: Vec<u32>,
    /// Chunks that have lost their last entry and have not been looked at since.
    emptied: Vec<u32>,
    /// The one chunk without entries that is kept, so that a database of varying size does not allocate each time.
    spare: Option<u32>,
}

impl Default for Arena {
    fn default() -> Arena {
        let class = Class { first_free: NONE, open: NONE, chunks: 0 };
        Arena {
            chunks: Vec::new(),
            classes: [class; CLASSES],
            len: 0,
            vacant: Vec::new(),
            emptied: Vec::new(),
            spare: None,
        }
    }
}

impl Arena {
    /// The number of taken places.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The place of this slot, if it is taken.
    #[inline]
    pub(super) fn place(&self, slot: Slot) -> Option<Place> {
        let chunk = self.chunks.get(chunk_of(slot.0))?;
        let place = chunk.place(index_of(slot.0))?;
        // SAFETY: the eighth byte of a place that has been in use is written.
        let mark = unsafe { place.start.byte_add(std::mem::offset_of!(Vacancy, mark)).read() };
        (mark & FREE_BIT == 0).then_some(place)
    }

    /// Prefetches the place of this slot without looking at it.
    #[inline]
    pub(super) fn prefetch(&self, slot: Slot) {
        let Some(place) = self.chunks.get(chunk_of(slot.0)).and_then(|chunk| chunk.place(index_of(slot.0))) else {
            return;
        };
        // SAFETY: the bytes lie inside the chunk, and may be unwritten.
        let at = |byte: usize| unsafe { place.start.byte_add(byte).cast::<MaybeUninit<u8>>().as_ref() };
        prefetch(at(0));
        // A place may cover two lines.
        prefetch(at(place.size.min(64) - 1));
    }

    /// Takes a place of at least `bytes` bytes, which must be at most [`PLACE_MAX_BYTES`]. Only its eighth byte is
    /// written, with 0.
    ///
    /// # Panics
    /// If there are no more numbers; see [`MAX_CHUNKS`].
    #[inline]
    pub(super) fn allocate(&mut self, bytes: usize) -> (Slot, Place) {
        let class = class_of(bytes);
        let number = match self.classes[class].first_free {
            NONE => self.unused(class),
            number => {
                let next = self.vacancy(number).next;
                self.relink_head(class, next);
                number
            }
        };
        let chunk = &mut self.chunks[chunk_of(number)];
        chunk.taken += 1;
        self.len += 1;
        let place = chunk.place(index_of(number)).expect("it has just been taken");
        set_aside(-(place.size as isize));
        // SAFETY: the byte lies in the place, which nobody else uses.
        unsafe { place.start.byte_add(std::mem::offset_of!(Vacancy, mark)).write(0) };
        (Slot(number), place)
    }

    /// Gives a taken place back. Its content must not be used any more.
    #[inline]
    pub(super) fn free(&mut self, slot: Slot) {
        let Some(place) = self.place(slot) else { return };
        let number = slot.0;
        let chunk = &mut self.chunks[chunk_of(number)];
        chunk.taken -= 1;
        self.len -= 1;
        set_aside(place.size as isize);
        // A small chunk stays, so a lock that comes and goes does not cause a search for memory to give back.
        let becomes_empty = chunk.taken == 0 && !chunk.is_listed && chunk.bytes() > ARENA_KEEP_BYTES;
        let class = usize::from(chunk.class);
        let next = self.classes[class].first_free;
        // SAFETY: a place is large enough and aligned for this, and its content is no longer used.
        unsafe {
            place.start.cast::<Vacancy>().write(Vacancy { next, _unused: [0; 3], mark: FREE_BIT, prev: NONE });
        }
        self.set_prev(next, number);
        self.classes[class].first_free = number;
        if becomes_empty {
            self.list_emptied(number);
        }
    }

    #[cold]
    fn list_emptied(&mut self, number: u32) {
        self.chunks[chunk_of(number)].is_listed = true;
        self.emptied.push(chunk_of(number) as u32);
    }

    /// Whether [`release`](Self::release) has anything to do.
    #[inline]
    pub(super) fn has_emptied(&self) -> bool {
        !self.emptied.is_empty()
    }

    /// Gives back one chunk without taken places, except a spare one; all chunks, if no place is taken anywhere.
    /// Changes the order of the free places.
    #[cold]
    pub(super) fn release(&mut self) {
        if self.len == 0 {
            *self = Arena::default();
            return;
        }
        let Some(number) = self.emptied.pop() else { return };
        let chunk = &mut self.chunks[number as usize];
        chunk.is_listed = false;
        if chunk.taken > 0 {
            return;
        }
        let is_empty = |number: u32| self.chunks[number as usize].taken == 0;
        if self.spare.is_none_or(|spare| spare == number || !is_empty(spare)) {
            self.spare = Some(number);
            return;
        }
        self.drop_chunk(number);
    }

    /// The taken places, in slot order.
    pub(super) fn places(&self) -> impl Iterator<Item = (Slot, Place)> + '_ {
        let chunks = self.chunks.iter().enumerate().filter(|(_, chunk)| chunk.taken > 0);
        let slots = chunks.flat_map(|(number, chunk)| (0..chunk.used).map(move |index| slot_of(number, index.into())));
        slots.filter_map(|slot| self.place(slot).map(|place| (slot, place)))
    }

    /// Gives back the spare chunk as well, once [`release`](Self::release) has nothing to do.
    pub(super) fn release_spare(&mut self) {
        let is_empty = |number: &u32| self.chunks[*number as usize].taken == 0;
        if let Some(number) = self.spare.take().filter(is_empty) {
            self.drop_chunk(number);
        }
    }

    /// Bytes allocated for places that are not taken.
    pub(super) fn vacant_bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| usize::from(chunk.room - chunk.taken) * usize::from(chunk.size)).sum()
    }

    /// Bytes allocated for places, including free ones.
    pub(super) fn mem_bytes(&self) -> usize {
        self.chunks.iter().map(Chunk::bytes).sum()
    }

    /// The number of a place that was never used.
    fn unused(&mut self, class: usize) -> u32 {
        let open = self.classes[class].open;
        let open = match self.chunks.get(open as usize) {
            Some(chunk) if chunk.used < chunk.room => open as usize,
            _ => self.make_room(class),
        };
        let chunk = &mut self.chunks[open];
        let slot = slot_of(open, chunk.used.into());
        chunk.used += 1;
        slot.0
    }

    /// Makes room for new places, and returns the chunk with the room.
    #[cold]
    fn make_room(&mut self, class: usize) -> usize {
        let most = places_of_class(class);
        let open = self.classes[class].open as usize;
        if let Some(chunk) = self.chunks.get_mut(open)
            && usize::from(chunk.room) < most
        {
            chunk.grow(most.min(2 * usize::from(chunk.room)));
            return open;
        }
        let is_first = self.classes[class].chunks == 0;
        let chunk = Chunk::new(class, if is_first { FIRST_PLACES } else { most });
        let number = match self.vacant.pop() {
            Some(number) => {
                self.chunks[number as usize] = chunk;
                number as usize
            }
            None => {
                assert!(self.chunks.len() < MAX_CHUNKS, "a database has at most 2^22 chunks of keys");
                self.chunks.push(chunk);
                self.chunks.len() - 1
            }
        };
        self.classes[class].open = number as u32;
        self.classes[class].chunks += 1;
        number
    }

    /// Gives back a chunk without taken places.
    fn drop_chunk(&mut self, number: u32) {
        let class = usize::from(self.chunks[number as usize].class);
        let used = self.chunks[number as usize].used;
        let is_inside = |other: u32| other != NONE && chunk_of(other) == number as usize;
        for index in 0..u32::from(used) {
            let Vacancy { next, prev, .. } = *self.vacancy(slot_of(number as usize, index).0);
            // In a run of listed places of this chunk, only the two ends have neighbours outside of the chunk.
            if is_inside(prev) {
                continue;
            }
            let mut after = next;
            while is_inside(after) {
                after = self.vacancy(after).next;
            }
            if prev == NONE {
                self.relink_head(class, after);
            } else {
                self.vacancy(prev).next = after;
                self.set_prev(after, prev);
            }
        }
        self.chunks[number as usize].give_back();
        let class = &mut self.classes[class];
        class.chunks -= 1;
        if class.open == number {
            class.open = NONE;
        }
        self.vacant.push(number);
    }

    /// The list links in a free place.
    #[inline]
    fn vacancy(&mut self, number: u32) -> &mut Vacancy {
        let place = self.chunks[chunk_of(number)].place(index_of(number)).expect("a listed place has been in use");
        // SAFETY: only free places are listed, each holds a `Vacancy`, and the arena is borrowed for as long.
        unsafe { place.start.cast().as_mut() }
    }

    /// Puts this place at the front of the free list.
    #[inline]
    fn relink_head(&mut self, class: usize, first: u32) {
        self.classes[class].first_free = first;
        self.set_prev(first, NONE);
    }

    #[inline]
    fn set_prev(&mut self, number: u32, to: u32) {
        if number != NONE {
            self.vacancy(number).prev = to;
        }
    }
}

impl Drop for Arena {
    /// Gives the memory back. The content of places is not dropped, because the arena does not know it.
    fn drop(&mut self) {
        self.chunks.iter_mut().filter(|chunk| chunk.room > 0).for_each(Chunk::give_back);
    }
}

// SAFETY: the arena owns its chunks as vectors would. If places hold content that must stay on its thread, the owner
// may not send the arena.
unsafe impl Send for Arena {}

impl Chunk {
    /// A chunk with room for `room` places, none of which is taken.
    fn new(class: usize, room: usize) -> Chunk {
        let layout = layout(size_of_class(class), room);
        // SAFETY: the size is not 0.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        expose(start);
        set_aside(layout.size() as isize);
        let (size, room) = (size_of_class(class) as u16, room as u16);
        Chunk { start, size, used: 0, room, taken: 0, class: class as u8, is_listed: false }
    }

    /// Enlarges the chunk to room for `room` places in all.
    fn grow(&mut self, room: usize) {
        let (size, old) = (usize::from(self.size), self.bytes());
        let new = layout(size, room);
        // SAFETY: it was allocated with the layout of its room; the new size is not 0, and far below the maximum.
        let start = unsafe { realloc(self.start.as_ptr(), layout(size, self.room.into()), new.size()) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(new) };
        expose(start);
        set_aside((new.size() - old) as isize);
        (self.start, self.room) = (start, room as u16);
    }

    /// Gives the memory back. The chunk has no places afterwards; places that were taken still counted as in use.
    fn give_back(&mut self) {
        set_aside(-(((self.room - self.taken) as usize * usize::from(self.size)) as isize));
        // SAFETY: the memory was allocated with the layout of its room, and is not used afterwards, since the chunk has
        // no places.
        unsafe { dealloc(self.start.as_ptr(), layout(self.size.into(), self.room.into())) };
        (self.start, self.used, self.room, self.taken) = (NonNull::dangling(), 0, 0, 0);
    }

    /// The chunk's place of this number, if that place has been used.
    #[inline]
    fn place(&self, index: u32) -> Option<Place> {
        if index >= u32::from(self.used) {
            return None;
        }
        let size = usize::from(self.size);
        // SAFETY: `used` is at most `room`, so the place lies in the chunk.
        Some(Place { start: unsafe { self.start.byte_add(index as usize * size) }, size })
    }

    /// Bytes allocated.
    fn bytes(&self) -> usize {
        usize::from(self.room) * usize::from(self.size)
    }
}

/// Lets a place's content be reached from a reference to a part of it; see
/// [`Block::embed`](crate::value::block::Block::embed).
fn expose(start: NonNull<u8>) {
    _ = start.as_ptr().expose_provenance();
}

fn layout(size: usize, places: usize) -> Layout {
    Layout::from_size_align(size * places, align_of::<Vacancy>()).expect("a chunk has at most 512 KiB")
}

#[inline]
fn chunk_of(number: u32) -> usize {
    (number >> INDEX_BITS) as usize
}

#[inline]
fn index_of(number: u32) -> u32 {
    number & ((1 << INDEX_BITS) - 1)
}

#[inline]
fn slot_of(chunk: usize, index: u32) -> Slot {
    Slot((chunk as u32) << INDEX_BITS | index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// Writes a test's content into a place: its first word.
    fn mark(place: Place, number: u32) {
        // SAFETY: a place has at least 16 bytes.
        unsafe { place.start.cast::<u32>().write(number) };
    }

    fn marked(arena: &Arena, slot: Slot) -> Option<u32> {
        // SAFETY: every place in these tests is marked.
        arena.place(slot).map(|place| unsafe { place.start.cast::<u32>().read() })
    }

    fn allocate(arena: &mut Arena, bytes: usize, number: u32) -> Slot {
        let (slot, place) = arena.allocate(bytes);
        assert!(place.size >= bytes && place.start.addr().get().is_multiple_of(8));
        mark(place, number);
        slot
    }

    fn release_all(arena: &mut Arena) {
        while arena.has_emptied() {
            arena.release();
        }
    }

    /// Checks that the lists hold each free place once, in its class, with links both ways, and that counts agree.
    fn check(arena: &mut Arena) {
        let taken: usize = arena.chunks.iter().map(|chunk| usize::from(chunk.taken)).sum();
        let used: usize = arena.chunks.iter().map(|chunk| usize::from(chunk.used)).sum();
        assert_eq!((taken, arena.places().count()), (arena.len(), arena.len()));
        let mut listed = 0;
        for class in 0..CLASSES {
            let (mut at, mut before) = (arena.classes[class].first_free, NONE);
            while at != NONE {
                assert!(arena.place(Slot(at)).is_none(), "a place that is taken");
                assert_eq!(usize::from(arena.chunks[chunk_of(at)].class), class);
                assert_eq!(arena.vacancy(at).prev, before);
                (before, at) = (at, arena.vacancy(at).next);
                listed += 1;
                assert!(listed <= used - taken);
            }
            let has_memory = |chunk: &&Chunk| usize::from(chunk.class) == class && chunk.room > 0;
            assert_eq!(arena.chunks.iter().filter(has_memory).count(), arena.classes[class].chunks as usize);
        }
        assert_eq!(listed, used - taken);
    }

    #[test]
    fn a_place_exceeds_the_request_by_few_bytes() {
        for bytes in 1..=PLACE_MAX_BYTES {
            let size = size_of_class(class_of(bytes));
            let least = bytes.max(16);
            assert!((least..least + if bytes <= 256 { 8 } else { 32 }).contains(&size), "{bytes}: {size}");
        }
        assert_eq!((CLASSES, size_of_class(0), size_of_class(CLASSES - 1)), (39, 16, PLACE_MAX_BYTES));
    }

    #[test]
    fn a_chunk_has_a_size_of_the_allocator() {
        for class in 0..CLASSES {
            let (bytes, used) = (chunk_bytes(class), size_of_class(class) * places_of_class(class));
            #[cfg(not(any(miri, sanitizer)))]
            // SAFETY: it only computes.
            assert_eq!(unsafe { libmimalloc_sys::mi_good_size(used) }, bytes);
            assert!(bytes - used < size_of_class(class));
            assert!((bytes.is_power_of_two() || bytes.is_multiple_of(SLICE_BYTES)) && bytes <= 8 * SLICE_BYTES);
        }
    }

    #[test]
    fn places_are_reused_and_stay_put() {
        let mut arena = Arena::default();
        let slots: Vec<Slot> = (0..3000).map(|i| allocate(&mut arena, 64, i)).collect();
        for slot in slots.iter().step_by(2) {
            arena.free(*slot);
            assert!(arena.place(*slot).is_none());
        }
        assert_eq!(arena.len(), 1500);
        assert!(slots.iter().skip(1).step_by(2).all(|slot| marked(&arena, *slot) == Some(slot.0)));
        let again: Vec<Slot> = (0..1500).map(|i| allocate(&mut arena, 57, i)).collect();
        assert!(again.iter().all(|slot| slot.0 < 3000));
        assert!(arena.place(Slot(3000)).is_none() && arena.place(Slot(NONE)).is_none());
        check(&mut arena);
    }

    #[test]
    fn places_are_reused_in_reverse_order_whatever_happens_to_other_sizes() {
        const PLACES: u32 = if cfg!(miri) { 300 } else { 5_000 };
        let mut arena = Arena::default();
        let slots: Vec<Slot> = (0..PLACES).map(|i| allocate(&mut arena, 24, i)).collect();
        let others: Vec<Slot> = (0..PLACES).map(|i| allocate(&mut arena, 200, i)).collect();
        for (slot, other) in slots.iter().zip(&others) {
            arena.free(*slot);
            arena.free(*other);
        }
        assert!(slots.iter().rev().all(|slot| allocate(&mut arena, 24, 0) == *slot));
        assert!(others.iter().rev().all(|slot| allocate(&mut arena, 200, 0) == *slot));
    }

    #[test]
    fn an_arena_that_was_large_gives_its_memory_back() {
        const PLACES: usize = if cfg!(miri) { 4_000 } else { 20_000 };
        let mut arena = Arena::default();
        let slots: Vec<Slot> = (0..PLACES).map(|i| allocate(&mut arena, 64, i as u32)).collect();
        let chunk_bytes = 64 << INDEX_BITS;
        for (i, slot) in slots.iter().enumerate().filter(|(i, _)| i % (PLACES / 2) != 0) {
            arena.free(*slot);
            release_all(&mut arena);
            assert!(i < PLACES / 10 * 9 || arena.mem_bytes() <= 6 * chunk_bytes);
        }
        // Two chunks hold an entry, and one is spare.
        assert_eq!((arena.len(), arena.mem_bytes()), (2, 3 * chunk_bytes));
        check(&mut arena);
        // Another size reuses the numbers of the chunks that were given back.
        let chunks = arena.chunks.len();
        let others: Vec<Slot> = (0..PLACES / 10).map(|i| allocate(&mut arena, 100, i as u32)).collect();
        assert!(
            arena.chunks.len() == chunks && others.iter().all(|slot| arena.place(*slot).is_some_and(|p| p.size == 104))
        );
        others.iter().chain([&slots[0], &slots[PLACES / 2]]).for_each(|slot| arena.free(*slot));
        release_all(&mut arena);
        assert_eq!((arena.mem_bytes(), arena.len()), (0, 0));
        // A few places are kept, so a single lock that comes and goes allocates nothing.
        let slot = allocate(&mut arena, 72, 0);
        arena.free(slot);
        release_all(&mut arena);
        assert!(arena.mem_bytes() > 0 && allocate(&mut arena, 72, 0) == slot);
    }

    #[test]
    fn a_small_arena_takes_little() {
        let mut arena = Arena::default();
        (0..10).for_each(|i| _ = allocate(&mut arena, 40, i));
        assert_eq!(arena.mem_bytes(), 16 * 40);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 30 }))]
        #[test]
        fn follows_a_map(
            steps in proptest::collection::vec(
                (any::<u32>(), 0..4u8, 1..1500usize),
                1..if cfg!(miri) { 15 } else { 40 },
            ),
        ) {
            let mut arena = Arena::default();
            let mut model: HashMap<Slot, u32> = HashMap::new();
            let mut next = 0;
            for (seed, step, count) in steps {
                let count = if cfg!(miri) { count / 60 } else { count };
                match step {
                    0 => for i in 0..count as u32 {
                        next += 1;
                        let bytes = 16 + (seed.wrapping_mul(i) >> 8) as usize % [60, 497][seed as usize % 2];
                        let slot = allocate(&mut arena, bytes, next);
                        prop_assert_eq!(model.insert(slot, next), None);
                    },
                    1 => {
                        let mut slots: Vec<Slot> = model.keys().copied().collect();
                        slots.sort_by_key(|slot| slot.0.wrapping_mul(seed | 1));
                        for slot in slots.into_iter().take(count) {
                            arena.free(slot);
                            model.remove(&slot);
                        }
                    }
                    2 => release_all(&mut arena),
                    _ => {
                        release_all(&mut arena);
                        arena.release_spare();
                        prop_assert_eq!(arena.spare, None);
                    }
                }
                prop_assert_eq!(arena.len(), model.len());
                prop_assert!(model.iter().all(|(slot, number)| marked(&arena, *slot) == Some(*number)));
                check(&mut arena);
            }
        }
    }
}
