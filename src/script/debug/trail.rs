//! Tells a line that a script comes to from one that it only comes back to.
//!
//! When a function returns in the middle of its caller's line, LuaJIT announces that line once more; Lua's own interpreter
//! does not, and who steps through a script does not want to stop there twice. So the trail remembers at which line each
//! function that is under way was seen last. A function that is seen again at the same line after one deeper down ran
//! has only come back; without one, it has jumped back in a loop.

/// See the module's header.
#[derive(Default)]
pub(super) struct Trail(Vec<Place>);

/// Where a function was seen.
struct Place {
    /// Its coroutine.
    thread: usize,
    /// How many functions are below it there.
    depth: usize,
    line: usize,
}

impl Trail {
    /// How deep the function was that was seen last.
    pub(super) fn last_depth(&self) -> usize {
        self.0.last().map_or(0, |place| place.depth)
    }

    /// Notes that the function at `depth` of `thread` is at `line`. Answers false if it has only come back to it.
    pub(super) fn arrive(&mut self, thread: usize, depth: usize, line: usize) -> bool {
        // Functions that are deeper in this coroutine have ended, and so has all that they called, in whatever coroutine.
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
        assert!(arrive(0, 7), "it begins");
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
        assert!(trail.arrive(2, 0, 3), "which runs");
        assert!(trail.arrive(2, 1, 30));
        assert!(!trail.arrive(1, 0, 10), "and yields");
        assert!(trail.arrive(1, 0, 11), "resumes again");
        assert!(trail.arrive(2, 1, 31));
        assert!(trail.arrive(2, 0, 3), "a function there, of which nothing is known any more, returns");
        assert!(!trail.arrive(1, 0, 11));
        assert_eq!(trail.last_depth(), 0);
    }
}
