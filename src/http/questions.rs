//! The way from the thread of `metrics-port` to the engine's metrics.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use crate::engine::Engine;
use crate::net::serve::Shared;

/// The engine's report for a scrape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) metrics: String,
    /// The folder of the data.
    pub(super) dir: PathBuf,
}

/// Scrapes that wait for the engine's metrics.
#[derive(Default)]
pub(crate) struct Questions {
    waiting: Mutex<Vec<oneshot::Sender<Answer>>>,
    moved: Notify,
}

impl Questions {
    /// The engine's metrics; `None` when it is too busy to answer within `patience`.
    pub(super) async fn ask(&self, patience: Duration) -> Option<Answer> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            // A script may hold the engine for hours, during which others ask and give up.
            waiting.retain(|sender| !sender.is_closed());
            waiting.push(sender);
        }
        self.moved.notify_one();
        timeout(patience, receiver).await.ok()?.ok()
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<oneshot::Sender<Answer>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves requests without end, as one of the tasks of the engine's thread. `render` makes the text.
    pub(crate) async fn answer(self: Arc<Questions>, shared: Rc<Shared>, render: fn(&mut Engine) -> String) {
        loop {
            self.moved.notified().await;
            let waiting = std::mem::take(&mut *self.waiting());
            if waiting.iter().any(|sender| !sender.is_closed()) {
                let engine = &mut shared.engine.borrow_mut();
                let answer = Answer { metrics: render(engine), dir: engine.server.config.dir.clone() };
                // A scrape that no longer waits has given up.
                waiting.into_iter().for_each(|sender| drop(sender.send(answer.clone())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_busy_engine_is_reported_after_a_bounded_time() {
        let questions = Questions::default();
        for _ in 0..3 {
            assert_eq!(questions.ask(Duration::from_millis(1)).await, None);
        }
        assert_eq!(questions.waiting().len(), 1, "those who gave up are forgotten by the next");
    }
}
