//! How long replies of a reign have waited for the group.
//!
//! Now and then it is noted how far the reign is. So nothing has to be kept for each unit, and a reply is found to be
//! overdue a little later than its time.

use std::collections::VecDeque;

use crate::base::lsn::Lsn;

/// The longest pause between two notes, in ms, and the part of the wait that it may be.
const NOTE_EVERY_MS: i64 = 100;
const PART_OF_WAIT: i64 = 50;

/// The last unit of a reign, and its last round.
type Point = (Lsn, u64);

/// See the file's header.
#[derive(Debug, Default)]
pub(super) struct Milestones(VecDeque<(i64, Point)>);

impl Milestones {
    /// Notes how far the reign is `now`, and how far the group has `confirmed` it. Returns the last point that is not
    /// confirmed after `wait_ms`.
    pub(super) fn overdue(&mut self, now: Point, confirmed: Point, now_ms: i64, wait_ms: i64) -> Option<Point> {
        let is_confirmed = |point: &Point| point.0 <= confirmed.0 && point.1 <= confirmed.1;
        while self.0.pop_front_if(|(_, point)| is_confirmed(point)).is_some() {}
        let every_ms = NOTE_EVERY_MS.max(wait_ms / PART_OF_WAIT);
        let is_due = self.0.back().is_none_or(|(at_ms, last)| *last != now && now_ms - at_ms >= every_ms);
        if !is_confirmed(&now) && is_due {
            self.0.push_back((now_ms, now));
        }
        let is_overdue = |(at_ms, _): &(i64, Point)| now_ms - at_ms >= wait_ms;
        // All before the last one are overdue as well.
        while self.0.get(1).is_some_and(is_overdue) {
            self.0.pop_front();
        }
        self.0.front().filter(|first| is_overdue(first)).map(|(_, point)| *point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(lsn: u64, round: u64) -> Point {
        (Lsn::new(lsn), round)
    }

    #[test]
    fn what_waits_for_too_long_is_overdue_until_it_is_confirmed() {
        let mut milestones = Milestones::default();
        let mut at = |now_ms, now, confirmed| milestones.overdue(now, confirmed, now_ms, 1_000);
        assert_eq!(at(0, point(5, 1), point(5, 1)), None, "nothing waits");
        assert_eq!(at(100, point(7, 2), point(5, 1)), None);
        assert_eq!(at(150, point(8, 2), point(5, 1)), None);
        assert_eq!(at(250, point(9, 3), point(5, 1)), None);
        assert_eq!(at(1_099, point(9, 3), point(5, 1)), None);
        assert_eq!(at(1_100, point(9, 3), point(5, 1)), Some(point(7, 2)), "8 came later");
        assert_eq!(at(1_300, point(9, 3), point(5, 1)), Some(point(9, 3)));
        assert_eq!(at(1_300, point(9, 3), point(9, 2)), Some(point(9, 3)), "its round is not confirmed");
        assert_eq!(at(1_300, point(9, 3), point(9, 3)), None);
        assert_eq!(at(9_000, point(10, 4), point(9, 3)), None, "it has just begun to wait");
    }

    #[test]
    fn few_points_are_kept() {
        let mut milestones = Milestones::default();
        for now_ms in 0..100_000 {
            milestones.overdue(point(now_ms as u64 + 1, 1), point(0, 0), now_ms, 5_000);
        }
        assert!(milestones.0.len() <= 52, "{}", milestones.0.len());
    }
}
