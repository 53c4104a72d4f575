//! Room in memory: for replies, from the engine until the page has them, and for the state that pages are shown. There
//! is so much for everybody together, and for each user, so that no user takes all of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::super::limits::{ROOM_FREE_BYTES, ROOM_PIECE_BYTES};

/// See the file's header.
pub(super) struct Rooms {
    /// Pieces of [`ROOM_PIECE_BYTES`].
    of_all: Arc<Semaphore>,
    of_users: Mutex<HashMap<String, Weak<Semaphore>>>,
    user_bytes: usize,
}

/// What a user may take.
#[derive(Clone)]
pub(super) struct Share {
    of_all: Arc<Semaphore>,
    of_user: Arc<Semaphore>,
}

/// Memory for the replies to one request, or for one state. It is given back when the value is dropped.
pub(super) struct Room {
    share: Share,
    bytes: usize,
    pieces: usize,
    held: Vec<OwnedSemaphorePermit>,
}

/// There is no room left.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Rooms {
    pub(super) fn new(total_bytes: usize, user_bytes: usize) -> Rooms {
        let of_all = Arc::new(Semaphore::new(total_bytes / ROOM_PIECE_BYTES));
        Rooms { of_all, of_users: Mutex::default(), user_bytes }
    }

    /// The share of a user.
    pub(super) fn of(&self, user: &str) -> Share {
        let mut of_users = self.of_users.lock().unwrap_or_else(PoisonError::into_inner);
        let of_user = of_users.get(user).and_then(Weak::upgrade).unwrap_or_else(|| {
            of_users.retain(|_, of_user| of_user.strong_count() > 0);
            let of_user = Arc::new(Semaphore::new(self.user_bytes / ROOM_PIECE_BYTES));
            of_users.insert(user.to_owned(), Arc::downgrade(&of_user));
            of_user
        });
        Share { of_all: Arc::clone(&self.of_all), of_user }
    }
}

impl Share {
    pub(super) fn room(&self) -> Room {
        Room { share: self.clone(), bytes: 0, pieces: 0, held: Vec::new() }
    }
}

impl Room {
    /// Grows to this many bytes, if it has fewer. A few bytes need no piece: people sign in, and learn why something is
    /// refused, also when none is left.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), Full> {
        let pieces = bytes.saturating_sub(ROOM_FREE_BYTES).div_ceil(ROOM_PIECE_BYTES);
        let missing = u32::try_from(pieces.saturating_sub(self.pieces)).map_err(|_| Full)?;
        for semaphore in [&self.share.of_user, &self.share.of_all] {
            self.held.push(Arc::clone(semaphore).try_acquire_many_owned(missing).map_err(|_| Full)?);
        }
        (self.bytes, self.pieces) = (bytes, pieces.max(self.pieces));
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTAL: usize = 8 * USER;
    const USER: usize = 4 * ROOM_PIECE_BYTES;

    #[test]
    fn a_user_takes_no_more_than_a_share() {
        let rooms = Rooms::new(TOTAL, USER);
        let mut ann = [rooms.of("ann").room(), rooms.of("ann").room()];
        let half = USER / 2;
        assert_eq!([ann[0].grow(half), ann[1].grow(half)], [Ok(()), Ok(())]);
        let (own, mut others) = (rooms.of("ann"), rooms.of("bob").room());
        assert_eq!(own.room().grow(half), Err(Full));
        assert_eq!(own.room().grow(ROOM_FREE_BYTES), Ok(()), "short replies need no room");
        assert_eq!(others.grow(USER), Ok(()));
        drop((ann, own));
        assert_eq!(rooms.of("ann").room().grow(USER), Ok(()));
    }

    #[test]
    fn all_together_have_a_bound() {
        let rooms = Rooms::new(TOTAL, USER);
        let mut all: Vec<Room> = (0..100).map(|user| rooms.of(&user.to_string()).room()).collect();
        let in_use = all.iter_mut().filter_map(|room| room.grow(USER).ok()).count();
        assert_eq!(in_use, TOTAL / USER);
        drop(all);
        drop(rooms.of("ann"));
        assert_eq!(rooms.of_users.lock().map(|users| users.len()).ok(), Some(1), "users who have none are forgotten");
    }
}
