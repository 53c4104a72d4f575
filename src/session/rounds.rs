//! The rounds of a group that a session's unsent bytes wait for: see [`GroupLog`](crate::persist::group::GroupLog).
//!
//! Two of them suffice. The first one frees bytes up to a position, and the newest one frees all. While the first one
//! is awaited, later ones take each other's place; so a client that never stops sending still gets its replies.

/// See the file's header. The numbers of rounds grow, and so do positions.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// The round that the first bytes wait for, and the position up to which it frees them.
    first: Option<(u64, u64)>,
    /// The round that the last bytes wait for; 0 if none of the bytes waits.
    newest: u64,
    /// The last round that the session was put in line for.
    awaited: u64,
}

impl Rounds {
    /// Whether no byte waits.
    #[inline]
    pub(crate) fn are_none(&self) -> bool {
        self.newest == 0
    }

    /// Returns the round that the last bytes wait for.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// Returns the round that the first bytes wait for; 0 if none waits.
    pub(crate) fn first(&self) -> u64 {
        self.first.map_or(self.newest, |(round, _)| round)
    }

    /// Makes the bytes from `position` on wait for a round.
    pub(crate) fn begin(&mut self, round: u64, position: u64) {
        if self.first.is_none() && self.newest > 0 && self.newest < round {
            self.first = Some((self.newest, position));
        }
        self.newest = round;
    }

    /// Returns how many bytes behind the position `sent` may leave; [`usize::MAX`] if none waits.
    pub(crate) fn free(&mut self, sent: u64, is_confirmed: impl Fn(u64) -> bool) -> usize {
        if is_confirmed(self.newest) {
            (self.first, self.newest) = (None, 0);
            return usize::MAX;
        }
        self.first.take_if(|(round, to)| *to <= sent && is_confirmed(*round));
        match self.first {
            Some((round, to)) if is_confirmed(round) => (to - sent) as usize,
            _ => 0,
        }
    }

    /// Returns the round to be put in line for, if the session was not before.
    pub(crate) fn begin_waiting(&mut self) -> Option<u64> {
        let round = self.first();
        let is_new = round > self.awaited;
        self.awaited = self.awaited.max(round);
        is_new.then_some(round)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_although_later_ones_come_all_the_time() {
        let mut rounds = Rounds::default();
        assert!(rounds.are_none());
        rounds.begin(5, 0);
        assert_eq!((rounds.free(0, |round| round <= 4), rounds.begin_waiting()), (0, Some(5)));
        rounds.begin(6, 100);
        rounds.begin(7, 250);
        assert_eq!((rounds.begin_waiting(), rounds.newest()), (None, 7));
        assert_eq!(rounds.free(10, |round| round <= 5), 90);
        assert_eq!(rounds.free(100, |round| round <= 6), 0, "all behind it wait for the newest");
        rounds.begin(8, 300);
        assert_eq!((rounds.begin_waiting(), rounds.free(100, |round| round <= 7)), (Some(7), 200));
        assert_eq!((rounds.free(120, |round| round <= 8), rounds.are_none()), (usize::MAX, true));
    }
}
