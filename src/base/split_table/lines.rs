//! Memory for the lines of segments.
//!
//! In a large table, all segments not yet split in the current round have about the same size, and so have all others.
//! As the table grows, they outgrow one size of block after the other at nearly the same time. An allocator can't use
//! the freed blocks for larger ones, and returns them only page by page, when all blocks of a page are free: beside an
//! index of 87 MB, there were another 26 MB of such blocks. Therefore a table of many segments has a [`Pool`] of its
//! own, in which the blocks of one size lie one behind the other without a hole. When a block is given back, the last
//! one of its size moves to its place, and the caller learns whose it is.
//!
//! A table of few segments has each of them in a block from the allocator.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::line::Line;
use crate::base::os::allocated::set_aside;

/// Bytes of the pool's chunks, each with blocks of one size. Together with the line lost to alignment, a chunk is a
/// block that the allocator places without waste. Larger chunks would often lie free and could not be returned, because
/// the allocator's pages hold several.
const CHUNK_BYTES: usize = 64 * 1024 - size_of::<Line>();

/// Number of chunks in use for which one empty chunk is kept, for the next blocks of any size. As a table grows, blocks
/// of one size give way to larger ones.
const SPARE_SHARE: usize = 32;

/// Lines of a chunk.
const CHUNK_LINES: usize = CHUNK_BYTES / size_of::<Line>();

/// Fewest blocks of a chunk, as a power of two; also the number of block sizes for each doubling. With more sizes a
/// segment has less spare room, but is resized more often, and more chunks are only partly filled. With twice as many,
/// an index of 10 million entries takes 4 % less memory, and filling it takes 40 % longer.
const FEWEST_BLOCKS_BITS: u32 = 3;
const SIZES_BITS: u32 = 2;

/// Largest number of lines of a block in the pool. With good hashes, no segment of a table has more.
pub(super) const POOLED_LINES_MAX: usize = CHUNK_LINES >> FEWEST_BLOCKS_BITS;

/// Number in place of a block's index for lines that lie in a block from the allocator.
const OWN: u32 = u32::MAX;

/// Returns the number of lines in the smallest block of the pool with at least `needed` lines. Sizes follow from the
/// number of blocks in a chunk, so that a block divides a chunk nearly without waste.
pub(super) fn pooled_lines(needed: usize) -> usize {
    let per_chunk = CHUNK_LINES / needed;
    let step = 1 << (per_chunk.ilog2() - SIZES_BITS);
    CHUNK_LINES / (per_chunk / step * step)
}

/// The lines of one segment. Lines from a [`Pool`] must be given back to it, and must not outlive it.
#[derive(Debug)]
pub(super) struct Lines {
    start: NonNull<Line>,
    count: u32,
    /// The number of the block in the pool, or [`OWN`].
    block: u32,
}

// SAFETY: no other owner uses these lines.
unsafe impl Send for Lines {}
// SAFETY: only a holder of `&mut self` can change the lines.
unsafe impl Sync for Lines {}

impl Lines {
    /// No lines, without allocation.
    pub(super) const NONE: Lines = Lines { start: NonNull::dangling(), count: 0, block: OWN };

    /// Makes empty lines in a block from the allocator.
    pub(super) fn own(count: usize) -> Lines {
        Lines::from(vec![Line::EMPTY; count].into_boxed_slice())
    }
}

impl From<Box<[Line]>> for Lines {
    fn from(lines: Box<[Line]>) -> Lines {
        let count = u32::try_from(lines.len()).expect("a segment has less than 2^32 numbers");
        let start = NonNull::from(Box::leak(lines)).cast();
        Lines { start, count, block: OWN }
    }
}

impl Deref for Lines {
    type Target = [Line];

    #[inline]
    fn deref(&self) -> &[Line] {
        // SAFETY: there are `count` lines, all written, and no other owner changes them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count as usize) }
    }
}

impl DerefMut for Lines {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Line] {
        // SAFETY: as above, and no other owner uses them.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.count as usize) }
    }
}

/// A copy lies in a block from the allocator.
impl Clone for Lines {
    fn clone(&self) -> Lines {
        Lines::from(Box::<[Line]>::from(&**self))
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        if self.block == OWN {
            // SAFETY: the lines were made from such a box, and are no longer in use.
            drop(unsafe { Box::from_raw(&raw mut **self) });
        }
    }
}

/// Reports that the lines of segment `owner`, which began at `from`, have moved.
pub(super) struct Moved {
    pub owner: usize,
    pub from: *const Line,
    pub lines: Lines,
}

/// See the module's header.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// One class for each number of lines in a block.
    classes: Vec<Class>,
    /// Chunks without blocks.
    spare: Vec<ChunkMemory>,
    /// Number of chunks with blocks.
    used: usize,
}

impl Pool {
    /// Whether no lines of the pool are in use.
    pub(super) fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// Returns empty lines for segment `owner`.
    pub(super) fn take(&mut self, count: usize, owner: usize) -> Lines {
        if count == 0 || count > POOLED_LINES_MAX {
            return Lines::own(count);
        }
        let at = self.classes.iter().position(|class| class.lines == count).unwrap_or_else(|| {
            self.classes.push(Class { lines: count, chunks: Vec::new() });
            self.classes.len() - 1
        });
        let class = &mut self.classes[at];
        if class.is_full() {
            let memory = self.spare.pop().unwrap_or_else(ChunkMemory::new);
            class.chunks.push(Chunk { memory, owners: Vec::with_capacity(class.per_chunk()) });
            self.used += 1;
        }
        debug_assert!(owner < u32::MAX as usize);
        class.push(owner as u32)
    }

    /// Takes lines back. The caller must record the result before it does anything else with the table.
    #[must_use = "a segment's lines may have moved"]
    pub(super) fn give_back(&mut self, lines: Lines) -> Option<Moved> {
        if lines.block == OWN {
            return None;
        }
        let at = self.classes.iter().position(|class| class.lines == lines.len()).expect("they came from here");
        let class = &mut self.classes[at];
        let moved = class.remove(lines.block as usize);
        if let Some(chunk) = class.chunks.pop_if(|chunk| chunk.owners.is_empty()) {
            self.used -= 1;
            self.spare.push(chunk.memory);
            self.spare.truncate(self.used.div_ceil(SPARE_SHARE));
        }
        if class.chunks.is_empty() {
            self.classes.swap_remove(at);
        }
        moved
    }

    /// Returns the number of allocated bytes, without lines and without bytes that are set aside.
    pub(super) fn mem_bytes(&self) -> usize {
        let chunks = self.classes.iter().map(|class| class.chunks.capacity() * size_of::<Chunk>());
        let owners = self.classes.iter().flat_map(|class| &class.chunks).map(|chunk| chunk.owners.capacity());
        let spare = self.spare.capacity() * size_of::<ChunkMemory>();
        let classes = self.classes.capacity() * size_of::<Class>();
        classes + chunks.sum::<usize>() + owners.sum::<usize>() * size_of::<u32>() + spare
    }

    /// Returns the number of blocks in use.
    #[cfg(test)]
    pub(super) fn blocks(&self) -> usize {
        self.classes.iter().map(Class::blocks).sum()
    }

    /// Returns the segment recorded as the owner of these lines; `None` if they are not from a pool.
    #[cfg(test)]
    pub(super) fn owner_of(&self, lines: &Lines) -> Option<usize> {
        let class = self.classes.iter().find(|class| class.lines == lines.len() && lines.block != OWN)?;
        let (chunk, index) = (lines.block as usize / class.per_chunk(), lines.block as usize % class.per_chunk());
        assert_eq!(class.start_of(lines.block as usize), lines.start);
        Some(class.chunks[chunk].owners[index] as usize)
    }
}

/// Memory for some blocks. The unused part is [set aside](set_aside).
#[derive(Debug)]
struct ChunkMemory(NonNull<Line>);

// SAFETY: the memory has a single owner.
unsafe impl Send for ChunkMemory {}
// SAFETY: nothing is reached through a shared reference.
unsafe impl Sync for ChunkMemory {}

impl ChunkMemory {
    const LAYOUT: Layout = match Layout::from_size_align(CHUNK_BYTES, align_of::<Line>()) {
        Ok(layout) => layout,
        Err(_) => panic!("no such alignment"),
    };

    fn new() -> ChunkMemory {
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc(ChunkMemory::LAYOUT) };
        set_aside(CHUNK_BYTES as isize);
        ChunkMemory(NonNull::new(start.cast()).unwrap_or_else(|| handle_alloc_error(ChunkMemory::LAYOUT)))
    }
}

impl Drop for ChunkMemory {
    fn drop(&mut self) {
        set_aside(-(CHUNK_BYTES as isize));
        // SAFETY: it was allocated with this layout. All its lines have been given back, or are dropped with the table.
        unsafe { dealloc(self.0.as_ptr().cast(), ChunkMemory::LAYOUT) };
    }
}

/// Blocks with the same number of lines.
#[derive(Debug)]
struct Class {
    lines: usize,
    /// All chunks but the last are full, and none is empty.
    chunks: Vec<Chunk>,
}

/// Blocks that lie together, the used ones first.
#[derive(Debug)]
struct Chunk {
    memory: ChunkMemory,
    /// The owning segments of the used blocks.
    owners: Vec<u32>,
}

impl Class {
    /// Returns the number of blocks in a chunk.
    fn per_chunk(&self) -> usize {
        CHUNK_BYTES / self.block_bytes()
    }

    fn block_bytes(&self) -> usize {
        self.lines * size_of::<Line>()
    }

    /// Returns the number of blocks in use.
    fn blocks(&self) -> usize {
        let full = self.chunks.len().saturating_sub(1);
        full * self.per_chunk() + self.chunks.last().map_or(0, |chunk| chunk.owners.len())
    }

    fn is_full(&self) -> bool {
        self.blocks() == self.chunks.len() * self.per_chunk()
    }

    /// Returns the start of a block.
    fn start_of(&self, block: usize) -> NonNull<Line> {
        let (chunk, index) = (block / self.per_chunk(), block % self.per_chunk());
        // SAFETY: the block lies in this chunk.
        unsafe { self.chunks[chunk].memory.0.add(index * self.lines) }
    }

    /// Adds a block, for which there must be room in the last chunk.
    fn push(&mut self, owner: u32) -> Lines {
        let block = self.blocks();
        self.chunks.last_mut().expect("there is room").owners.push(owner);
        set_aside(-(self.block_bytes() as isize));
        let start = self.start_of(block);
        for line in 0..self.lines {
            // SAFETY: these lines belong to the block, which is not in use yet.
            unsafe { start.add(line).write(Line::EMPTY) };
        }
        self.lines_at(block)
    }

    /// Removes a block, and moves the last one to its place. The last chunk may then be empty.
    fn remove(&mut self, block: usize) -> Option<Moved> {
        set_aside(self.block_bytes() as isize);
        let owner =
            self.chunks.last_mut().and_then(|chunk| chunk.owners.pop()).expect("there is a block in the last chunk");
        let last = self.blocks();
        (block != last).then(|| {
            // SAFETY: these are two different blocks. The first is no longer used; the second is in use, so its lines
            // are written.
            unsafe { self.start_of(block).copy_from_nonoverlapping(self.start_of(last), self.lines) };
            let per_chunk = self.per_chunk();
            self.chunks[block / per_chunk].owners[block % per_chunk] = owner;
            Moved { owner: owner as usize, from: self.start_of(last).as_ptr(), lines: self.lines_at(block) }
        })
    }

    fn lines_at(&self, block: usize) -> Lines {
        Lines { start: self.start_of(block), count: self.lines as u32, block: block as u32 }
    }
}

impl Drop for Class {
    fn drop(&mut self) {
        // The chunks put all of their bytes back when they are dropped, so the used ones are set aside first.
        set_aside((self.blocks() * self.block_bytes()) as isize);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn mark(lines: &mut Lines, owner: usize) {
        lines.iter_mut().for_each(|line| assert!(line.put(7, owner as u32)));
    }

    fn is_marked(lines: &Lines, owner: usize) -> bool {
        lines.iter().all(|line| line.entries().eq([(7, owner as u32)]))
    }

    proptest! {
        /// Whatever is taken and given back, each owner must keep its lines, and blocks of one size must lie together.
        #[test]
        fn returned_blocks_leave_no_hole(
            steps in prop::collection::vec(0usize..1_500, 0..if cfg!(miri) { 200 } else { 6_000 }),
        ) {
            let mut pool = Pool::default();
            let mut all: HashMap<usize, Lines> = HashMap::new();
            for owner in steps {
                if let Some(lines) = all.remove(&owner) {
                    assert!(is_marked(&lines, owner));
                    if let Some(Moved { owner, from, lines }) = pool.give_back(lines) {
                        assert!(is_marked(&lines, owner) && all[&owner].as_ptr() == from);
                        assert_eq!(all.insert(owner, lines).map(|before| before.len()), Some([9, 40, 120][owner % 3]));
                    }
                } else {
                    let mut lines = pool.take([9, 40, 120][owner % 3], owner);
                    assert!(lines.iter().all(|line| line.entries().count() == 0));
                    mark(&mut lines, owner);
                    all.insert(owner, lines);
                }
                let used: usize = pool.classes.iter().map(|class| class.chunks.len()).sum();
                assert!(pool.used == used && pool.spare.len() <= used.div_ceil(SPARE_SHARE));
                let chunks = pool.classes.iter().flat_map(|class| &class.chunks);
                let blocks: usize = chunks.map(|chunk| chunk.owners.len()).sum();
                assert_eq!(blocks, all.len());
                for class in &pool.classes {
                    let full = class.chunks.iter().filter(|chunk| chunk.owners.len() == class.per_chunk()).count();
                    assert!(full + 1 >= class.chunks.len());
                    assert!(class.chunks.iter().all(|chunk| !chunk.owners.is_empty()));
                }
            }
            assert!(all.iter().all(|(owner, lines)| is_marked(lines, *owner)));
        }
    }

    #[test]
    fn large_and_empty_blocks_are_not_from_the_pool() {
        let mut pool = Pool::default();
        for count in [0, POOLED_LINES_MAX + 1] {
            let lines = pool.take(count, 1);
            assert_eq!((lines.len(), lines.block), (count, OWN));
            assert!(pool.give_back(lines).is_none());
        }
        assert!(pool.is_empty());
    }

    #[test]
    fn a_copy_has_memory_of_its_own() {
        let mut pool = Pool::default();
        let mut lines = pool.take(9, 3);
        mark(&mut lines, 3);
        let copy = lines.clone();
        assert!(pool.give_back(lines).is_none());
        drop(pool);
        assert!(is_marked(&copy, 3));
    }
}
