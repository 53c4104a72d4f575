//! A collection in one word. The word points to a [`Block`] while the collection is small, and to a separate large form
//! from then on. Features that most keys do not use therefore cost those keys nothing. The lowest bit of the pointer
//! distinguishes the two.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use super::block::Block;

/// A small collection in a block, or a large one in an `L`. See the module's header.
pub(crate) struct OneWord<L> {
    /// Either a [`Block`] itself, whose bits are even, or the address of an `L` plus [`LARGE`].
    word: NonNull<u8>,
    owns: PhantomData<(Block, Box<L>)>,
}

const LARGE: usize = 1;

/// The contents of a [`OneWord`].
pub(crate) enum Held<'a, L> {
    Small(&'a Block),
    Large(&'a L),
}

/// The contents of a [`OneWord`], for changing them.
pub(crate) enum HeldMut<'a, L> {
    Small(&'a mut Block),
    Large(&'a mut L),
}

impl<L> OneWord<L> {
    /// An empty block, without allocation.
    pub(crate) const fn new() -> OneWord<L> {
        OneWord::small(Block::new())
    }

    /// A small collection.
    pub(crate) const fn small(block: Block) -> OneWord<L> {
        const { assert!(align_of::<L>() > LARGE && size_of::<Block>() == size_of::<NonNull<u8>>()) };
        // SAFETY: a block is one non-null pointer, and from here on it belongs to the word.
        OneWord { word: unsafe { std::mem::transmute::<Block, NonNull<u8>>(block) }, owns: PhantomData }
    }

    /// A large collection.
    pub(crate) fn large(large: L) -> OneWord<L> {
        let word = NonNull::from(Box::leak(Box::new(large))).cast::<u8>();
        OneWord { word: word.map_addr(|address| address | LARGE), owns: PhantomData }
    }

    /// The contents.
    #[inline]
    pub(crate) fn held(&self) -> Held<'_, L> {
        match self.large_pointer() {
            // SAFETY: the word is a block.
            None => Held::Small(unsafe { &*ptr::from_ref(&self.word).cast() }),
            // SAFETY: the word owns the large form and is borrowed.
            Some(large) => Held::Large(unsafe { large.as_ref() }),
        }
    }

    /// The contents, for changing them.
    #[inline]
    pub(crate) fn held_mut(&mut self) -> HeldMut<'_, L> {
        match self.large_pointer() {
            // SAFETY: as in `held`. A block stays even through every change.
            None => HeldMut::Small(unsafe { &mut *ptr::from_mut(&mut self.word).cast() }),
            // SAFETY: as in `held`, and borrowed mutably.
            Some(mut large) => HeldMut::Large(unsafe { large.as_mut() }),
        }
    }

    /// The block, if the collection is small.
    #[inline]
    pub(crate) fn as_small(&self) -> Option<&Block> {
        match self.held() {
            Held::Small(block) => Some(block),
            Held::Large(_) => None,
        }
    }

    /// The block of a small collection, for changing it.
    #[inline]
    pub(crate) fn as_small_mut(&mut self) -> Option<&mut Block> {
        match self.held_mut() {
            HeldMut::Small(block) => Some(block),
            HeldMut::Large(_) => None,
        }
    }

    /// The large form, if the collection has it.
    #[inline]
    pub(crate) fn as_large(&self) -> Option<&L> {
        match self.held() {
            Held::Small(_) => None,
            Held::Large(large) => Some(large),
        }
    }

    /// The large form, for changing it.
    #[inline]
    pub(crate) fn as_large_mut(&mut self) -> Option<&mut L> {
        match self.held_mut() {
            HeldMut::Small(_) => None,
            HeldMut::Large(large) => Some(large),
        }
    }

    /// Converts a small collection to the large form: `enlarge` builds it from the block. Returns the large form.
    pub(crate) fn make_large(&mut self, enlarge: impl FnOnce(Block) -> L) -> &mut L {
        if let HeldMut::Small(block) = self.held_mut() {
            let block = std::mem::take(block);
            *self = OneWord::large(enlarge(block));
        }
        match self.held_mut() {
            HeldMut::Large(large) => large,
            HeldMut::Small(_) => unreachable!("it was just made large"),
        }
    }

    #[inline]
    fn large_pointer(&self) -> Option<NonNull<L>> {
        let address = self.word.as_ptr().addr();
        // The address without the bit is not 0, since it comes from a box.
        (address & LARGE != 0).then(|| NonNull::new(self.word.as_ptr().wrapping_sub(LARGE).cast())).flatten()
    }
}

impl<L> Drop for OneWord<L> {
    fn drop(&mut self) {
        match self.large_pointer() {
            // SAFETY: the word is a block, which is not used after this.
            None => unsafe { ptr::from_mut(&mut self.word).cast::<Block>().drop_in_place() },
            // SAFETY: the pointer came out of a box and is not used after this.
            Some(large) => drop(unsafe { Box::from_raw(large.as_ptr()) }),
        }
    }
}

impl<L: Clone> Clone for OneWord<L> {
    fn clone(&self) -> OneWord<L> {
        match self.held() {
            Held::Small(block) => OneWord::small(block.clone()),
            Held::Large(large) => OneWord::large(large.clone()),
        }
    }
}

impl<L> Default for OneWord<L> {
    fn default() -> OneWord<L> {
        OneWord::new()
    }
}

// SAFETY: the word owns a block, which may be sent, or a box of an `L`.
unsafe impl<L: Send> Send for OneWord<L> {}
// SAFETY: the word owns a block, which may be shared, or a box of an `L`.
unsafe impl<L: Sync> Sync for OneWord<L> {}

impl<L: fmt::Debug> fmt::Debug for OneWord<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.held() {
            Held::Small(block) => block.fmt(f),
            Held::Large(large) => large.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    const _: () = assert!(size_of::<Option<OneWord<u64>>>() == 8);

    #[test]
    fn contents_are_kept_and_freed_once() {
        let witness = Rc::new(5u64);
        let mut word: OneWord<(Rc<u64>, Vec<u8>)> = OneWord::new();
        assert!(word.as_large().is_none());
        match word.held_mut() {
            HeldMut::Small(block) => block.splice(0, 0, &[b"bytes"]),
            HeldMut::Large(_) => unreachable!("it is new"),
        }
        let copy = word.clone();
        word.make_large(|block| (Rc::clone(&witness), block.bytes().to_vec())).1.push(b'!');
        assert_eq!(word.as_large().map(|large| &large.1[..]), Some(&b"bytes!"[..]));
        assert!(matches!(copy.held(), Held::Small(block) if block.bytes() == b"bytes"));
        let copy = word.clone();
        assert_eq!(word.make_large(|_| unreachable!("it is large")).0, witness);
        assert_eq!(Rc::strong_count(&witness), 3);
        word = OneWord::new();
        drop(copy);
        assert_eq!((Rc::strong_count(&witness), word.as_large_mut().is_some()), (1, false));
    }
}
