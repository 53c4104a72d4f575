//! Bytes on their way to a client: replies, from their making until the socket takes them, and pushed messages.
//!
//! The bytes lie in chunks, in the order in which they are sent. A chunk is freed as soon as it is sent, so that the
//! memory held ([`Outbox::held`]) stays close to the unsent bytes, and it grows without copying the bytes already
//! there. Most outboxes hold one small reply for a moment, in `front` alone.
//!
//! **Fences.** Data that a client has read must not be lost by a later crash. So bytes come with a fence, the last unit
//! that they show ([`Lsn::NONE`] if they show none), and leave when the journal has reached it. The order is kept:
//! bytes behind a fence wait for it, too. [`Outbox::sendable`] is the one way out; without a journal there are no
//! fences, and all bytes may leave.

use std::collections::VecDeque;
use std::task::Waker;

use crate::base::lsn::Lsn;
use crate::persist::fences::Reach;
use crate::session::limits::{OUTBOX_CHUNK_BYTES, OUTBOX_FENCES_MAX, OUTBOX_TAKE_OVER_BYTES};

/// See the module's header.
#[derive(Default)]
pub struct Outbox {
    /// The chunk that is being sent. Empty only when nothing is unsent.
    front: Vec<u8>,
    /// Bytes of `front` that were sent.
    front_sent: usize,
    /// The chunks behind it.
    more: VecDeque<Vec<u8>>,
    /// Bytes in `more`.
    more_len: usize,
    /// Bytes that the chunks in `more` have allocated.
    more_held: usize,
    /// How many of the bytes were here before the current batch of commands.
    older: usize,
    /// Whether something was pushed since that batch began.
    has_fresh: bool,
    /// How many bytes were sent: the position of the first unsent byte.
    gone: u64,
    /// The positions from which bytes wait for a unit. Position and unit only grow from one fence to the next.
    fences: Fences,
    /// The fence of the replies that are appended next, and the offset among them from which it holds; [`Lsn::NONE`]
    /// without a fence.
    coming: (usize, Lsn),
    /// The unit that the connection is known to wait for.
    awaited: Lsn,
    /// Whether the outbox is closed and sends nothing more.
    is_closed: bool,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, Debug)]
struct Fence {
    from: u64,
    lsn: Lsn,
}

/// Fences in order. Mostly there is one, which needs no memory of its own.
#[derive(Default)]
struct Fences {
    /// `None` only if there are no fences.
    first: Option<Fence>,
    more: VecDeque<Fence>,
}

impl Fences {
    #[inline]
    fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.len()
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    #[inline]
    fn front(&self) -> Option<&Fence> {
        self.first.as_ref()
    }

    fn back(&self) -> Option<&Fence> {
        self.more.back().or(self.first.as_ref())
    }

    #[inline]
    fn back_mut(&mut self) -> Option<&mut Fence> {
        self.more.back_mut().or(self.first.as_mut())
    }

    #[inline]
    fn push_back(&mut self, fence: Fence) {
        match &mut self.first {
            None => self.first = Some(fence),
            Some(_) => self.more.push_back(fence),
        }
    }

    /// Drops the first fence; with the last one, all memory.
    #[inline]
    fn pop_front(&mut self) {
        self.first = self.more.pop_front();
        if self.first.is_none() && self.more.capacity() > 0 {
            self.more = VecDeque::new();
        }
    }

    /// Drops all fences from position `end` on.
    fn cut(&mut self, end: u64) {
        self.first.take_if(|fence| fence.from >= end);
        self.more.retain(|fence| fence.from < end);
    }
}

/// Whether taking a buffer over costs less than copying it. A buffer that is mostly empty would be held as a whole.
#[inline]
fn is_worth_taking(bytes: &Vec<u8>) -> bool {
    bytes.len() >= OUTBOX_TAKE_OVER_BYTES && bytes.capacity() / 2 <= bytes.len()
}

impl Outbox {
    /// Appends bytes, which show the data as of unit `fence` at the latest, and wakes the connection's task.
    pub fn push(&mut self, bytes: &[u8], fence: Lsn) {
        self.push_by(fence, |outbox| outbox.copy(bytes));
    }

    /// As [`push`](Self::push), and takes the bytes over where copying would cost more.
    pub(crate) fn push_whole(&mut self, bytes: Vec<u8>, fence: Lsn) {
        self.push_by(
            fence,
            |outbox| if is_worth_taking(&bytes) { outbox.add_chunk(bytes) } else { outbox.copy(&bytes) },
        );
    }

    fn push_by(&mut self, fence: Lsn, add: impl FnOnce(&mut Outbox)) {
        if self.is_closed {
            return;
        }
        if fence > Lsn::NONE {
            self.fence_from(0, fence);
        }
        add(self);
        self.has_fresh = true;
        self.wake();
    }

    /// Notes that among the replies [appended](Self::append) next, those from offset `from` on show the data as of unit
    /// `fence`.
    #[inline]
    pub fn fence_coming(&mut self, from: usize, fence: Lsn) {
        let (first, lsn) = self.coming;
        self.coming = (if lsn == Lsn::NONE { from } else { first.min(from) }, lsn.max(fence));
    }

    /// Returns the offset from which the replies [appended](Self::append) next wait, and the unit they wait for.
    #[inline]
    pub(crate) fn coming(&self) -> Option<(usize, Lsn)> {
        Some(self.coming).filter(|(_, lsn)| *lsn > Lsn::NONE)
    }

    /// Returns the unit that further replies [appended](Self::append) next wait for in any case, since the bytes before
    /// them do.
    #[inline]
    pub(crate) fn fence_of_next(&self) -> Lsn {
        self.coming.1
    }

    /// Drops the fences of the replies that would be [appended](Self::append) next, from offset `start` on,
    /// together with those replies.
    pub(crate) fn unfence_coming(&mut self, start: usize) {
        if self.coming.0 >= start {
            self.coming = (0, Lsn::NONE);
        }
    }

    /// Appends replies and empties their buffer. Takes the buffer over where copying would cost more.
    #[inline]
    pub fn append(&mut self, replies: &mut Vec<u8>) {
        if self.is_closed {
            replies.clear();
            return;
        }
        if let Some((from, fence)) = self.coming() {
            self.fence_from(from, fence);
            self.coming = (0, Lsn::NONE);
        }
        if is_worth_taking(replies) {
            self.add_chunk(std::mem::take(replies));
        } else {
            self.copy(replies);
            replies.clear();
        }
    }

    /// Makes all bytes from `offset` bytes after the present end wait for a unit.
    fn fence_from(&mut self, offset: usize, lsn: Lsn) {
        let from = self.gone + (self.len() + offset) as u64;
        let is_full = self.fences.len() >= OUTBOX_FENCES_MAX;
        match self.fences.back_mut() {
            Some(last) if last.lsn >= lsn => {}
            // With many fences, some bytes wait for more than they show.
            Some(last) if last.from >= from || is_full => last.lsn = lsn,
            _ => self.fences.push_back(Fence { from, lsn }),
        }
    }

    /// Returns the position of the first unsent byte.
    pub(crate) fn sent_to(&self) -> u64 {
        self.gone
    }

    /// Returns the position behind the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.gone + self.len() as u64
    }

    /// Whether some of the bytes may have to wait for the journal. If not, all may leave.
    #[inline]
    pub fn is_fenced(&self) -> bool {
        !self.fences.is_empty()
    }

    /// The one way out: returns how many of the unsent bytes, from the first on, may leave when the units up to `safe`
    /// survive any crash.
    pub fn sendable(&mut self, safe: Lsn) -> usize {
        while self.fences.front().is_some_and(|fence| fence.lsn <= safe) {
            self.fences.pop_front();
        }
        match self.fences.front() {
            None => self.len(),
            Some(fence) => self.len().min((fence.from - self.gone) as usize),
        }
    }

    /// Returns how many of the bytes must not leave until units after `safe` become safe.
    pub(crate) fn held_bytes(&self, safe: Lsn) -> usize {
        let held = self.fences.first.iter().chain(&self.fences.more).find(|fence| fence.lsn > safe);
        held.map_or(0, |fence| self.len().saturating_sub((fence.from - self.gone) as usize))
    }

    /// Returns how many of the bytes count as unread. Bytes that wait for the journal are not the reader's fault; but a
    /// journal that takes nothing, as on a full disk, may do so for ever, and memory is finite.
    pub(crate) fn unread(&mut self, reach: Reach) -> usize {
        if reach.is_unlogged { self.len() } else { self.sendable(reach.safe) }
    }

    /// Returns the unit that the first bytes wait for, as of the last call of [`sendable`](Self::sendable); `None` if
    /// they wait for none or the unit was returned before.
    pub(crate) fn begin_waiting(&mut self) -> Option<Lsn> {
        let lsn = self.fences.front().map(|fence| fence.lsn).filter(|lsn| *lsn != self.awaited)?;
        self.awaited = lsn;
        Some(lsn)
    }

    /// Returns the unit that some of the bytes, the first ones of those that wait, wait for.
    pub(crate) fn waits_for(&self) -> Option<Lsn> {
        self.fences.front().map(|fence| fence.lsn)
    }

    /// Whether some bytes, including replies that are appended next, must not leave until units after `safe` become
    /// safe.
    pub fn shows_more_than(&self, safe: Lsn) -> bool {
        self.fences.back().map_or(Lsn::NONE, |fence| fence.lsn).max(self.coming.1) > safe
    }

    #[inline]
    fn copy(&mut self, bytes: &[u8]) {
        if self.front.is_empty() && bytes.len() <= OUTBOX_CHUNK_BYTES {
            self.front.extend_from_slice(bytes);
        } else {
            self.copy_to_back(bytes);
        }
    }

    fn copy_to_back(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let back = self.more.back_mut().unwrap_or(&mut self.front);
        if back.len() + bytes.len() > OUTBOX_CHUNK_BYTES {
            let mut chunk = Vec::with_capacity(bytes.len().max(OUTBOX_CHUNK_BYTES));
            chunk.extend_from_slice(bytes);
            return self.add_chunk(chunk);
        }
        let before = back.capacity();
        if before - back.len() < bytes.len() {
            let wanted = (2 * before).clamp(back.len() + bytes.len(), OUTBOX_CHUNK_BYTES);
            back.reserve_exact(wanted - back.len());
        }
        back.extend_from_slice(bytes);
        let grown = back.capacity() - before;
        if !self.more.is_empty() {
            self.more_len += bytes.len();
            self.more_held += grown;
        }
    }

    fn add_chunk(&mut self, chunk: Vec<u8>) {
        if self.front.is_empty() {
            self.front = chunk;
        } else {
            self.more_len += chunk.len();
            self.more_held += chunk.capacity();
            self.more.push_back(chunk);
        }
    }

    /// Notes that all present bytes precede the replies of the batch that begins.
    #[inline]
    pub fn begin_batch(&mut self) {
        self.older = self.len();
        self.has_fresh = false;
        self.coming = (0, Lsn::NONE);
    }

    /// Moves the messages pushed since the batch began behind the replies so far.
    #[inline]
    pub fn drain_fresh(&mut self, replies: &mut Vec<u8>) {
        if self.has_fresh {
            self.drain_fresh_now(replies);
        }
    }

    #[cold]
    fn drain_fresh_now(&mut self, replies: &mut Vec<u8>) {
        self.has_fresh = false;
        if self.len() > self.older {
            if let Some(fence) = self.fences.back() {
                self.fence_coming(replies.len(), fence.lsn);
            }
            let fresh = self.take_from(self.older);
            replies.extend_from_slice(&fresh);
        }
    }

    /// Takes out the unsent bytes after the first `keep` of them.
    pub fn take_from(&mut self, keep: usize) -> Vec<u8> {
        let mut taken = Vec::with_capacity(self.len().saturating_sub(keep));
        let chunks = std::mem::take(&mut self.more);
        (self.more_len, self.more_held) = (0, 0);
        let cut = self.front.len().min(self.front_sent + keep);
        let mut left = keep - (cut - self.front_sent);
        taken.extend_from_slice(&self.front[cut..]);
        self.front.truncate(cut);
        for mut chunk in chunks {
            let cut = chunk.len().min(left);
            left -= cut;
            taken.extend_from_slice(&chunk[cut..]);
            chunk.truncate(cut);
            if cut > 0 {
                self.add_chunk(chunk);
            }
        }
        self.sent(0);
        self.older = self.older.min(self.len());
        let end = self.gone + self.len() as u64;
        self.fences.cut(end);
        taken
    }

    /// Drops bytes from the front, at most as many as [`Outbox::front`] has. An empty outbox holds no memory.
    #[inline]
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.front_sent += bytes;
        self.gone += bytes as u64;
        self.older = self.older.saturating_sub(bytes);
        if self.front_sent >= self.front.len() {
            self.front_sent = 0;
            self.front = self.more.pop_front().unwrap_or_default();
            if !self.front.is_empty() {
                self.more_len -= self.front.len();
                self.more_held -= self.front.capacity();
            } else if self.more.capacity() > 0 {
                self.more = VecDeque::new();
            }
        }
    }

    /// Drops the unsent bytes and everything appended later: a part of a reply may have left, and the reader would take
    /// later bytes for the rest of it.
    pub(crate) fn close(&mut self) {
        *self = Outbox { is_closed: true, waker: self.waker.take(), ..Outbox::default() };
    }

    /// The first unsent bytes: all of them, or those in the first chunk.
    #[inline]
    pub fn front(&self) -> &[u8] {
        self.front.get(self.front_sent..).unwrap_or_default()
    }

    /// The first of the `free` bytes that may leave: all of them, or those in the first chunk.
    #[inline]
    pub fn first(&self, free: usize) -> &[u8] {
        let front = self.front();
        &front[..front.len().min(free)]
    }

    /// How many bytes are unsent.
    #[inline]
    pub fn len(&self) -> usize {
        self.front.len() - self.front_sent + self.more_len
    }

    /// Bytes of memory that hold them.
    #[inline]
    pub fn held(&self) -> usize {
        self.front.capacity() + self.more_held
    }

    /// The number of chunks.
    pub fn chunks(&self) -> usize {
        usize::from(!self.front.is_empty()) + self.more.len()
    }

    /// Whether everything was sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.front.is_empty()
    }

    /// Wakes the connection's task.
    pub fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Remembers the task to wake.
    #[inline]
    pub fn set_waker(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(known) if known.will_wake(waker) => {}
            known => *known = Some(waker.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;

    /// Drains all unsent bytes as a socket would.
    fn drained(outbox: &mut Outbox, at_once: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while !outbox.is_empty() {
            let piece = &outbox.front()[..outbox.front().len().min(at_once)];
            all.extend_from_slice(piece);
            outbox.sent(piece.len());
        }
        all
    }

    #[test]
    fn bytes_leave_an_outbox_as_they_came() {
        let mut rng = Rng::seeded(5);
        let (mut outbox, mut expected) = (Outbox::default(), Vec::new());
        for round in 0..400_u64 {
            let len = [0, 1, 100, 5_000, 33_000, 70_000, 200_000][(rng.next_u64() % 7) as usize];
            let bytes: Vec<u8> = (0..len).map(|at| (at as u64 ^ round) as u8).collect();
            expected.extend_from_slice(&bytes);
            match rng.next_u64() % 4 {
                0 => outbox.push(&bytes, Lsn::NONE),
                1 => outbox.push_whole(bytes.clone(), Lsn::NONE),
                2 => outbox.append(&mut bytes.clone()),
                _ => {
                    let mut roomy = Vec::with_capacity(1 << 20);
                    roomy.extend_from_slice(&bytes);
                    outbox.append(&mut roomy);
                }
            }
            if rng.next_u64().is_multiple_of(4) {
                let taken = outbox.front().len().min((rng.next_u64() % 100_000) as usize);
                assert_eq!(outbox.front()[..taken], expected[..taken]);
                outbox.sent(taken);
                expected.drain(..taken);
            }
            if rng.next_u64().is_multiple_of(20) {
                let keep = (rng.next_u64() as usize) % (expected.len() + 1);
                assert_eq!(outbox.take_from(keep), expected.split_off(keep));
            }
            assert_eq!((outbox.len(), outbox.is_empty()), (expected.len(), expected.is_empty()));
        }
        assert_eq!(drained(&mut outbox, 10_000), expected);
        assert_eq!((outbox.held(), outbox.chunks()), (0, 0), "an empty outbox holds no memory");
    }

    #[test]
    fn an_outbox_holds_little_more_than_its_unsent_bytes() {
        let mut outbox = Outbox::default();
        for len in [10, 1_000, 30_000].repeat(500) {
            outbox.push(&vec![b'x'; len], Lsn::NONE);
            assert!(outbox.held() <= 2 * outbox.len() + OUTBOX_CHUNK_BYTES, "{} for {}", outbox.held(), outbox.len());
        }
        // A large buffer with little in it is not taken over.
        for is_pushed in [false, true] {
            let mut outbox = Outbox::default();
            let mut roomy = Vec::with_capacity(1 << 20);
            roomy.resize(OUTBOX_TAKE_OVER_BYTES, b'x');
            if is_pushed {
                outbox.push_whole(roomy, Lsn::NONE)
            } else {
                outbox.append(&mut roomy)
            }
            assert_eq!((outbox.len(), outbox.held() < 1 << 19), (OUTBOX_TAKE_OVER_BYTES, true));
        }
    }

    #[test]
    fn pushes_to_the_commands_own_session_follow_its_reply() {
        let mut outbox = Outbox::default();
        outbox.push(b"before ", Lsn::NONE);
        outbox.begin_batch();
        outbox.push(b" pushed", Lsn::NONE);
        let mut replies = b"reply".to_vec();
        outbox.drain_fresh(&mut replies);
        outbox.append(&mut replies);
        assert_eq!(drained(&mut outbox, 3), b"before reply pushed");
    }

    /// Returns the bytes that leave when the units up to `safe` can't be lost.
    fn leaves(outbox: &mut Outbox, safe: u64) -> String {
        let mut all = Vec::new();
        while let free @ 1.. = outbox.sendable(Lsn::new(safe)) {
            let piece = outbox.first(free);
            all.extend_from_slice(piece);
            outbox.sent(piece.len());
        }
        String::from_utf8(all).expect("plain text")
    }

    #[test]
    fn bytes_leave_in_order_once_the_journal_has_what_they_show() {
        let mut outbox = Outbox::default();
        outbox.push(b"free ", Lsn::NONE);
        outbox.push(b"five ", Lsn::new(5));
        outbox.push(b"behind ", Lsn::NONE);
        outbox.push(b"three ", Lsn::new(3));
        outbox.fence_coming(6, Lsn::new(8));
        outbox.fence_coming(12, Lsn::new(9));
        outbox.append(&mut b"clean eight nine".to_vec());
        outbox.push(b" ten", Lsn::new(10));
        assert_eq!(leaves(&mut outbox, 4), "free ");
        assert_eq!([outbox.begin_waiting(), outbox.begin_waiting()], [Some(Lsn::new(5)), None]);
        assert!(outbox.shows_more_than(Lsn::new(9)));
        assert_eq!(leaves(&mut outbox, 5), "five behind three clean ");
        assert_eq!(leaves(&mut outbox, 8), "");
        assert_eq!(leaves(&mut outbox, 9), "eight nine");
        assert!(outbox.is_fenced() && !outbox.shows_more_than(Lsn::new(10)));
        assert_eq!(leaves(&mut outbox, 10), " ten");
        assert!(!outbox.is_fenced());
    }

    #[test]
    fn pushes_to_the_own_session_keep_their_fence() {
        let mut outbox = Outbox::default();
        outbox.push(b"before ", Lsn::new(1));
        outbox.begin_batch();
        outbox.push(b" pushed", Lsn::new(2));
        let mut replies = b"reply".to_vec();
        outbox.drain_fresh(&mut replies);
        outbox.append(&mut replies);
        assert_eq!(
            [leaves(&mut outbox, 0), leaves(&mut outbox, 1), leaves(&mut outbox, 2)],
            ["", "before reply", " pushed"]
        );
    }

    #[test]
    fn fences_are_bounded_and_never_come_too_early() {
        let mut rng = Rng::seeded(7);
        let mut outbox = Outbox::default();
        // The Lsn that each byte shows, from the first unsent byte on.
        let mut shown = VecDeque::new();
        for _ in 0..20_000 {
            let (lsn, len) = (rng.below(1_000), rng.below(4) as usize);
            outbox.push(&vec![b'x'; len], Lsn::new(lsn));
            shown.extend(std::iter::repeat_n(lsn, len));
            assert!(outbox.fences.len() <= OUTBOX_FENCES_MAX);
            if rng.below(10) == 0 {
                let safe = rng.below(1_000);
                let left = leaves(&mut outbox, safe).len();
                assert!(shown.drain(..left).all(|lsn| lsn <= safe));
            }
            if rng.below(50) == 0 {
                let keep = rng.below(shown.len() as u64 + 1) as usize;
                outbox.take_from(keep);
                shown.truncate(keep);
            }
        }
        assert_eq!(leaves(&mut outbox, 1_000).len(), shown.len());
    }
}
