//! Loops without a bound that writes follow: [`Rule::WriteAfterLoop`].

use super::warning::{Rule, Warning};

/// What a function does, in the order of its text.
#[derive(Clone, Default)]
pub(super) struct Flow {
    /// The line of a loop without bound that nothing was written behind so far.
    open_loop: Option<u32>,
    /// The same, whatever came behind it.
    any_loop: Option<u32>,
    writes: bool,
}

impl Flow {
    /// A loop without a bound begins.
    pub(super) fn open_loop(&mut self, line: u32) {
        self.open_loop = Some(line);
        self.any_loop = Some(line);
    }

    /// Something is written.
    pub(super) fn write(&mut self) -> Option<Warning> {
        self.writes = true;
        let message = "this loop has no bound, and the script writes in it or behind it: others wait, and where a script that \
                       wrote can't be ended they wait for good; work in batches";
        let line = self.open_loop.take()?;
        Some(Warning { line, rule: Rule::WriteAfterLoop, message: message.to_owned() })
    }

    /// A function is called that does this.
    pub(super) fn call(&mut self, function: &Flow) -> Option<Warning> {
        let warning = if function.writes { self.write() } else { None };
        if let Some(line) = function.any_loop {
            self.any_loop = Some(line);
            self.open_loop = function.open_loop;
        }
        warning
    }
}
