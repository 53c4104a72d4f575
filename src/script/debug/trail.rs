//! Tells a line that a script reaches from a line to which it only returns.
//!
//! When a function returns in the middle of its caller's line, LuaJIT calls the line hook for that line once more.
//! Lua's own interpreter does not, and a user who steps through a script does not want to stop there twice. So the
//! trail remembers the last line of each active function. If a function is seen at that line again after a deeper
//! function ran, it has only returned to it. If none ran, it has jumped back in a loop.

/// See the module's header.
#[derive(Default)]
pub(super) struct Trail(Vec<Place>);

/// The last known line of an active function.
struct Place {
    /// The address of its coroutine.
    thread: usize,
    /// Number of functions below it in the coroutine.
    depth: usize,
    line: usize,
}

impl Trail {
    /// Depth of the function seen last.
    pub(super) fn last_depth(&self) -> usize {
        self.0.last().map_or(0, |place| place.depth)
    }

    /// Notes that the function at `depth` of `thread` is at `line`. Returns false if it has only returned to that line.
    pub(super) fn arrive(&mut self, thread: usize, depth: usize, line: usize) -> bool {
        // Deeper functions of this coroutine have ended, and so have all functions they called, in any coroutine.
        let ended = self.0.iter().position(|place| place.thread == thread && place.depth > depth);
        let here = self.0[..ended.unwrap_or(self.0.len())]
            .iter()
            .rposition(|place| place.thread == thread && place.depth == depth);
        let keep = here.map(|at| at + 1).or(ended).unwrap_or(self.0.len());
        let came_up = self.0.len() > keep;
        self.0.truncate(keep);
        match here.map(|at| &mut self.0[at]) {
            Some(place) => {
                let is_new = !came_up || place.line != line;
                place.line = line;
                is_new
            }
            None => {
                self.0.push(Place { thread, depth, line });
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_counts_when_it_begins_and_in_each_round_of_a_loop() {
        let mut trail = Trail::default();
        let mut arrive = |depth, line| trail.arrive(1, depth, line);
        assert!(arrive(0, 7), "the line begins");
        assert!(arrive(0, 7), "a loop within one line");
        assert!(arrive(1, 2), "a call");
        assert!(arrive(1, 3), "the next line there");
        assert!(!arrive(0, 7), "back in the middle of the line");
        assert!(arrive(0, 7), "and round once more");
        assert!(arrive(1, 2) && arrive(2, 2), "two calls deep");
        assert!(!arrive(0, 7), "back from both, as after an error");
        assert!(arrive(1, 2), "another call");
        assert!(arrive(0, 8), "back at the next line");
    }

    #[test]
    fn coroutines_have_trails_of_their_own() {
        let mut trail = Trail::default();
        assert!(trail.arrive(1, 0, 10), "the main thread resumes another");
        assert!(trail.arrive(2, 0, 3), "the other coroutine runs");
        assert!(trail.arrive(2, 1, 30));
        assert!(!trail.arrive(1, 0, 10), "and yields");
        assert!(trail.arrive(1, 0, 11), "resumes again");
        assert!(trail.arrive(2, 1, 31));
        assert!(trail.arrive(2, 0, 3), "a function of a forgotten trail returns");
        assert!(!trail.arrive(1, 0, 11));
        assert_eq!(trail.last_depth(), 0);
    }
}
