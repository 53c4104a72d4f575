//! Unbounded loops that are followed by writes: [`Rule::WriteAfterLoop`].

use super::warning::{Rule, Warning};

/// The loops and writes of a function, in the order of its text.
#[derive(Clone, Default)]
pub(super) struct Flow {
    /// The line of an unbounded loop that no write has followed so far.
    open_loop: Option<u32>,
    /// The line of the last unbounded loop, with or without writes after it.
    any_loop: Option<u32>,
    writes: bool,
}

impl Flow {
    /// Notes that an unbounded loop begins.
    pub(super) fn open_loop(&mut self, line: u32) {
        self.open_loop = Some(line);
        self.any_loop = Some(line);
    }

    /// Notes a write.
    pub(super) fn write(&mut self) -> Option<Warning> {
        self.writes = true;
        let message = "this loop has no bound, and the script writes in it or after it: other clients wait, and where \
                       a script that wrote can't be ended they wait forever; work in batches";
        let line = self.open_loop.take()?;
        Some(Warning { line, rule: Rule::WriteAfterLoop, message: message.to_owned() })
    }

    /// Notes the call of a function with this flow.
    pub(super) fn call(&mut self, function: &Flow) -> Option<Warning> {
        let warning = if function.writes { self.write() } else { None };
        if let Some(line) = function.any_loop {
            self.any_loop = Some(line);
            self.open_loop = function.open_loop;
        }
        warning
    }
}
