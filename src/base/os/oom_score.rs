//! How readily the system kills this process when memory runs out: `/proc/self/oom_score_adj`.
//!
//! Turning the adjustment off restores the value from before it was turned on.

use std::io;
use std::sync::Mutex;

const FILE: &str = "/proc/self/oom_score_adj";

/// The original value; `None` while nothing is adjusted.
static BEFORE: Mutex<Option<i32>> = Mutex::new(None);

/// An adjustment of the score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adjustment {
    /// The original value.
    None,
    /// The original value plus this number.
    By(i32),
    /// This value.
    To(i32),
}

/// Applies an adjustment, which replaces the previous one.
pub(crate) fn adjust(adjustment: Adjustment) -> io::Result<()> {
    let mut before = BEFORE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if adjustment == Adjustment::None {
        let Some(original) = *before else { return Ok(()) };
        write(original)?;
        *before = None;
        return Ok(());
    }
    let original = match *before {
        Some(original) => original,
        None => read()?,
    };
    write(match adjustment {
        Adjustment::By(score) => original.saturating_add(score).clamp(-1_000, 1_000),
        Adjustment::To(score) => score.clamp(-1_000, 1_000),
        Adjustment::None => original,
    })?;
    *before = Some(original);
    Ok(())
}

fn read() -> io::Result<i32> {
    std::fs::read_to_string(FILE)?.trim().parse().map_err(io::Error::other)
}

fn write(score: i32) -> io::Result<()> {
    std::fs::write(FILE, score.to_string())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_original_score_comes_back() {
        let original = read().expect("Linux tells it");
        // Every process may raise its own score.
        for (adjustment, expected) in [(Adjustment::By(1), original + 1), (Adjustment::To(1_000), 1_000)] {
            adjust(adjustment).expect("raising the score is allowed");
            assert_eq!(read().ok(), Some(expected));
        }
        adjust(Adjustment::None).expect("the original value is allowed");
        assert_eq!(read().ok(), Some(original));
        adjust(Adjustment::None).expect("nothing to do");
    }
}
