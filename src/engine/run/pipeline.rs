//! The pipeline of commands that is running.

/// Facts about the running pipeline and its current command.
#[derive(Debug, Default)]
pub(crate) struct Pipeline {
    /// Whether the pipeline has run so long, or was sent so much, that other clients come first.
    pub(in crate::engine) others_come_first: bool,
    /// The session's count of commands at the end of the batch, if none is refused.
    pub(in crate::engine) batch_ends_at: u64,
    /// Bytes [sent past the replies](crate::engine::ServerState::answer_large) of the pipeline.
    pub(in crate::engine) sent_past: usize,
    /// Bytes sent past the reply of the running command.
    pub(in crate::engine) past_of_call: Past,
}

/// Bytes sent past the replies.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Past {
    pub(super) bytes: usize,
    /// How long the sending took, in ticks of the processor's clock.
    pub(super) ticks: u64,
}
