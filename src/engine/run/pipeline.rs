//! The pipeline of commands that runs.

/// Facts of the pipeline that runs, and of its current command.
#[derive(Debug, Default)]
pub(crate) struct Pipeline {
    /// It has taken so long, or been sent so much, that other clients come first.
    pub(in crate::engine) others_come_first: bool,
    /// How many commands its session will have run at the end of the batch, if none is refused.
    pub(in crate::engine) batch_ends_at: u64,
    /// Bytes it was [sent past its replies](crate::engine::ServerState::answer_large).
    pub(in crate::engine) sent_past: usize,
    /// As above, for the command that runs.
    pub(in crate::engine) past_of_call: Past,
}

/// Bytes sent past the replies.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Past {
    pub(super) bytes: usize,
    /// The time that took, in ticks of the processor's clock.
    pub(super) ticks: u64,
}
