//! The title of this process in `ps`.
//!
//! Linux shows the memory in which it put the command line when the process began and, if that no longer ends in a
//! zero, the environment behind it. The title overwrites both, after the environment has been moved away.
//! `/proc/self/stat` tells where they are (proc(5): arg_start, arg_end, env_start, env_end).

use std::sync::OnceLock;

/// The memory of the title; empty if the system does not tell its place.
static PLACE: OnceLock<Place> = OnceLock::new();

#[derive(Debug, Default)]
struct Place {
    start: usize,
    len: usize,
    program: String,
}

/// Finds the place for a title and moves the environment away from it. Has no effect if the system does not tell the
/// place.
///
/// # Safety
/// No other thread may run, and no reference to the memory of the command line or the environment may be in use.
pub unsafe fn prepare() {
    let program = std::env::args().next().unwrap_or_default();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let Some((start, end)) = bounds(&stat) else { return };
    // A name with a `=` is invalid and can't be set.
    for (name, value) in std::env::vars_os().filter(|(name, _)| !name.as_encoded_bytes().contains(&b'=')) {
        // SAFETY: there is only one thread. The C library copies both strings, so that nothing refers to the old place
        // any more.
        unsafe { std::env::set_var(name, value) };
    }
    // A second call would find the same place.
    let _ = PLACE.set(Place { start, len: end - start, program });
}

/// Returns start and end of the command line and the environment, which must be one piece.
fn bounds(stat: &str) -> Option<(usize, usize)> {
    // The program's name, in parentheses, may contain anything.
    let fields: Vec<usize> =
        stat.rsplit_once(')')?.1.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
    match fields.get(45..49)? {
        &[start, arg_end, env_start, end]
            if start > 0 && start < arg_end && arg_end <= env_start && env_start < end =>
        {
            Some((start, end))
        }
        _ => None,
    }
}

/// Returns the program's name as it was called.
pub fn program() -> &'static str {
    PLACE.get().map_or("tidegate", |place| place.program.as_str())
}

/// Shows `title`, cut to the room available. Has no effect unless [`prepare`] was called.
pub fn set(title: &str) {
    let Some(place) = PLACE.get().filter(|place| place.len > 0) else { return };
    let title = title.as_bytes();
    let shown = title.len().min(place.len - 1);
    let start = std::ptr::with_exposed_provenance_mut::<u8>(place.start);
    // SAFETY: the system has put the strings of the command line and of the environment there, `place.len` writable
    // bytes, and nothing refers to them any more (see `prepare`). Only the thread that runs commands sets titles.
    unsafe {
        std::ptr::copy_nonoverlapping(title.as_ptr(), start, shown);
        std::ptr::write_bytes(start.add(shown), 0, place.len - shown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_found_behind_any_name() {
        let stat = |name: &str, bounds: [usize; 4]| {
            let fields: Vec<String> = (0..45).map(|n| n.to_string()).chain(bounds.map(|n| n.to_string())).collect();
            format!("7 ({name}) {} 0", fields.join(" "))
        };
        assert_eq!(bounds(&stat("tidegate", [100, 110, 110, 150])), Some((100, 150)));
        assert_eq!(bounds(&stat("a) b (c", [100, 110, 112, 150])), Some((100, 150)));
        for bad in [[0, 0, 0, 0], [100, 90, 110, 150], [100, 120, 110, 150], [100, 110, 110, 110]] {
            assert_eq!(bounds(&stat("tidegate", bad)), None);
        }
        assert_eq!(bounds("7 (x) R 1"), None);
        let own = std::fs::read_to_string("/proc/self/stat").expect("Linux tells it");
        assert!(bounds(&own).is_some_and(|(start, end)| end > start));
    }
}
