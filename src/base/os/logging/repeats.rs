//! A limit for the lines of each place in the program.
//!
//! Clients can cause nearly every line, and many of them without logging in. So each place may log only a certain
//! number of lines a minute. The others are counted, and a line of its own reports their number.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::line::{self, AUDIT, BY_SCRIPTS};
use crate::base::limits::{LOG_LINES_A_MINUTE, LOG_REPEATED_MAX_BYTES, LOG_SCRIPT_LINES_A_MINUTE};

const WINDOW: Duration = Duration::from_secs(60);

/// Lines that were suppressed, by the place in the program that logs them.
#[derive(Debug, Default)]
pub(super) struct Repeats(Mutex<HashMap<Identifier, Place>>);

/// Suppressed lines.
#[derive(Debug, PartialEq)]
pub(super) struct LeftOut {
    pub(super) lines: u64,
    /// The beginning of the first of the lines.
    pub(super) first: String,
    /// Whether they belong to the audit, and so does the report about them.
    pub(super) is_audit: bool,
}

/// One place in the program, in the window of its last line.
#[derive(Debug)]
struct Place {
    began: Instant,
    lines: u64,
    left_out: Option<LeftOut>,
}

impl Repeats {
    /// Returns whether a line may be written; if not, when the report about suppressed lines is due.
    fn admit(
        &self,
        place: Identifier,
        max_lines: u64,
        now: Instant,
        left_out: impl FnOnce() -> LeftOut,
    ) -> Result<(), Instant> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = places.entry(place).or_insert(Place { began: now, lines: 0, left_out: None });
        // A place with suppressed lines keeps its window until they were reported.
        if place.left_out.is_none() && now.duration_since(place.began) >= WINDOW {
            (place.began, place.lines) = (now, 0);
        }
        place.lines += 1;
        if place.lines <= max_lines {
            return Ok(());
        }
        place.left_out.get_or_insert_with(left_out).lines += 1;
        Err(place.began + WINDOW)
    }

    /// Takes the suppressed lines of all windows, or only of those that are over.
    pub(super) fn take(&self, now: Instant, all: bool) -> Vec<LeftOut> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let over = places.values_mut().filter(|place| all || now.duration_since(place.began) >= WINDOW);
        over.filter_map(|place| place.left_out.take()).collect()
    }
}

/// Suppresses lines, and schedules the report about them.
pub(super) struct Limit<F> {
    pub(super) repeats: &'static Repeats,
    pub(super) wake_at: F,
}

impl<S: Subscriber, F: Fn(Instant) + 'static> Layer<S> for Limit<F> {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let about = event.metadata();
        let max_lines = if about.target() == BY_SCRIPTS { LOG_SCRIPT_LINES_A_MINUTE } else { LOG_LINES_A_MINUTE };
        let left_out = || LeftOut {
            lines: 0,
            first: line::beginning(event, LOG_REPEATED_MAX_BYTES),
            is_audit: about.target() == AUDIT,
        };
        let admitted = self.repeats.admit(about.callsite(), max_lines, Instant::now(), left_out);
        admitted.map_err(|due| (self.wake_at)(due)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use tracing::Metadata;
    use tracing::callsite::Callsite;
    use tracing::subscriber::Interest;

    use super::*;

    struct Here(u8);

    impl Callsite for Here {
        fn set_interest(&self, _: Interest) {}

        fn metadata(&self) -> &Metadata<'_> {
            unreachable!("nobody asks")
        }
    }

    #[test]
    fn each_place_has_its_limit_in_each_minute() {
        static ONE: Here = Here(1);
        static OTHER: Here = Here(2);
        assert_ne!(ONE.0, OTHER.0);
        let (one, other) = (Identifier(&ONE), Identifier(&OTHER));
        let (repeats, began) = (Repeats::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        let left_out = |lines, first: &str| LeftOut { lines, first: first.to_owned(), is_audit: false };
        let admit =
            |place: &Identifier, seconds, text| repeats.admit(place.clone(), 2, at(seconds), || left_out(0, text));
        assert_eq!((admit(&one, 0, "a"), admit(&one, 30, "b")), (Ok(()), Ok(())));
        assert_eq!((admit(&one, 40, "c"), admit(&one, 59, "d")), (Err(at(60)), Err(at(60))));
        assert_eq!(admit(&other, 59, "e"), Ok(()));
        assert_eq!(repeats.take(at(59), false), []);
        // The report is late.
        assert_eq!(admit(&one, 61, "f"), Err(at(60)));
        assert_eq!(repeats.take(at(62), false), [left_out(3, "c")]);
        assert_eq!((admit(&one, 62, "g"), admit(&one, 62, "h")), (Ok(()), Ok(())));
        assert_eq!(admit(&one, 62, "i"), Err(at(122)));
        assert_eq!(repeats.take(at(63), true), [left_out(1, "i")]);
    }
}
