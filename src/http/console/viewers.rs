//! The pages that are shown the state: how many there are, of everybody and of each user.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::limits::{VIEWERS_MAX, VIEWERS_OF_USER_MAX};

/// See the file's header.
#[derive(Default)]
pub(super) struct Viewers(Mutex<HashMap<String, usize>>);

/// A page, which counts until the value is dropped.
pub(super) struct Viewer {
    viewers: Arc<Viewers>,
    user: String,
}

impl Viewers {
    /// Lets a page of a user in; `None` if there are too many.
    pub(super) fn enter(self: &Arc<Viewers>, user: &str) -> Option<Viewer> {
        let mut counts = self.counts();
        let own = counts.get(user).copied().unwrap_or(0);
        if own >= VIEWERS_OF_USER_MAX || counts.values().sum::<usize>() >= VIEWERS_MAX {
            return None;
        }
        counts.insert(user.to_owned(), own + 1);
        Some(Viewer { viewers: Arc::clone(self), user: user.to_owned() })
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let mut counts = self.viewers.counts();
        if let Some(count) = counts.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_by_user_and_together() {
        let viewers = Arc::<Viewers>::default();
        let mut inside: Vec<Viewer> = Vec::new();
        while let Some(viewer) = viewers.enter("ann") {
            inside.push(viewer);
        }
        assert_eq!(inside.len(), VIEWERS_OF_USER_MAX);
        inside.extend((0..VIEWERS_MAX).filter_map(|user| viewers.enter(&user.to_string())));
        assert_eq!(inside.len(), VIEWERS_MAX);
        drop(inside);
        assert!(viewers.counts().is_empty());
    }
}
