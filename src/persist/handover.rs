//! A handover: the data of a running server becomes that of another one.
//!
//! The new server *receives*: it is filled with a snapshot of the old one, and then takes its changes. Once it is up to
//! date, the old server *gives* its data away, which is its last change. When the new one has that, it takes the data
//! for its own. `tidegate import --follow` does all of this, and docs/migration.md describes it.
//!
//! ```text
//! old    Own ------------------------------------> Given
//! new    Own --> Receiving, incomplete --> Receiving, complete --> Own
//! ```
//!
//! In all states but `Own`, nothing else changes the data: no key expires, no key is evicted and no client writes. The
//! state is part of the data, so it holds again after a restart, and on all nodes of a group.

use crate::base::lsn::Lsn;
use crate::keyspace::effect::{Effect, EffectWriter};
use crate::keyspace::{Keyspace, Misfit};
use crate::spec::error::Error;
use crate::spec::session_key::SessionKey;

/// Whose the data is. See the module's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Handover {
    /// This server's own. If it was taken over from another server, the last change that came from there.
    Own(Option<Box<Origin>>),
    /// That of another server, which still changes it.
    Receiving(Box<Received>),
    /// That of the server at this address, from now on.
    Given(Box<str>),
}

/// A change of another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The name of its history.
    pub(crate) history: Box<str>,
    /// The number of the change there.
    pub(crate) last: Lsn,
}

/// How much of another server's data is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// The address of the other server.
    pub(crate) from: Box<str>,
    /// The last change that is here, once the data is complete.
    pub(crate) origin: Origin,
    /// Whether a whole snapshot is here.
    pub(crate) is_complete: bool,
    /// Whether the other server has given the data away, as far as is known here.
    pub(crate) is_given: bool,
    /// The client whose calls go on with this. It is not part of the data.
    pub(crate) sent_by: Option<SessionKey>,
}

impl Default for Handover {
    fn default() -> Handover {
        Handover::Own(None)
    }
}

impl Handover {
    /// Replays a change of the state; `None` for any other effect.
    pub(crate) fn apply(&mut self, ks: &mut Keyspace, effect: &Effect<'_>) -> Option<Result<(), Misfit>> {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned().into_boxed_str();
        let origin = |history, last| Origin { history: text(history), last: Lsn::new(last) };
        *self = match *effect {
            Effect::HandoverReceive { from, history, last, complete, given } => {
                Handover::Receiving(Box::new(Received {
                    from: text(from),
                    origin: origin(history, last),
                    is_complete: complete,
                    is_given: given,
                    sent_by: None,
                }))
            }
            Effect::HandoverGive { to } => Handover::Given(text(to)),
            Effect::HandoverEnd { history: b"", .. } => Handover::Own(None),
            Effect::HandoverEnd { history, last } => Handover::Own(Some(Box::new(origin(history, last)))),
            _ => return None,
        };
        ks.record_beside(*effect);
        Some(Ok(()))
    }

    /// Makes this the state, as a change of the current unit. The engine has
    /// [more to do](crate::engine::ServerState::set_handover).
    pub(crate) fn set(&mut self, ks: &mut Keyspace, state: Handover) {
        *self = state;
        self.with_effect(|effect| ks.record_beside(*effect));
    }

    /// Writes the state at the beginning of a snapshot.
    pub(crate) fn write(&self, out: &mut EffectWriter) {
        if *self != Handover::Own(None) {
            self.with_effect(|effect| out.write(0, effect));
        }
    }

    fn with_effect(&self, record: impl FnOnce(&Effect<'_>)) {
        match self {
            Handover::Own(None) => record(&Effect::HandoverEnd { history: b"", last: 0 }),
            Handover::Own(Some(origin)) => {
                record(&Effect::HandoverEnd { history: origin.history.as_bytes(), last: origin.last.get() });
            }
            Handover::Receiving(received) => record(&Effect::HandoverReceive {
                from: received.from.as_bytes(),
                history: received.origin.history.as_bytes(),
                last: received.origin.last.get(),
                complete: received.is_complete,
                given: received.is_given,
            }),
            Handover::Given(to) => record(&Effect::HandoverGive { to: to.as_bytes() }),
        }
    }

    /// Returns whether a server that has made this change has given its data away; `None` for changes of anything else.
    pub(crate) fn gives(effect: &Effect<'_>) -> Option<bool> {
        match effect {
            Effect::HandoverGive { .. } => Some(true),
            Effect::HandoverReceive { .. } | Effect::HandoverEnd { .. } => Some(false),
            _ => None,
        }
    }

    /// Whether clients may change the data.
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        matches!(self, Handover::Own(_))
    }

    /// Returns how much is here of the data that another server still changes.
    pub(crate) fn received(&self) -> Option<&Received> {
        match self {
            Handover::Receiving(received) => Some(received),
            Handover::Own(_) | Handover::Given(_) => None,
        }
    }

    /// Whether the data is a part of another server's.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.received().is_some_and(|received| !received.is_complete)
    }

    /// Returns the address of the server that the data was given to.
    pub(crate) fn given_to(&self) -> Option<&str> {
        match self {
            Handover::Given(to) => Some(to),
            Handover::Own(_) | Handover::Receiving(_) => None,
        }
    }

    /// Returns the error for commands that change data.
    pub(crate) fn refusal(&self) -> Option<Error> {
        match self {
            Handover::Own(_) => None,
            Handover::Receiving(received) => Some(received.refusal()),
            Handover::Given(to) => Some(Error::owned(format!("READONLY This data has moved to {to}"))),
        }
    }

    /// Returns the error for commands that read data, and for messages to other clients; `None` if they may.
    pub(crate) fn refusal_of_reads(&self) -> Option<Error> {
        let to = self.given_to()?;
        Some(Error::owned(format!("MASTERDOWN This data has moved to {to}")))
    }

    /// Says in the log that no client is served, and how that is changed.
    pub(crate) fn warn(&self) {
        match self {
            Handover::Own(_) => {}
            Handover::Receiving(received) => tracing::warn!(
                "this server receives its data from {} and serves no clients: go on with `tidegate import --follow`, \
                 or take the data as it is with HANDOVER END FORCE",
                received.from
            ),
            Handover::Given(to) => tracing::warn!(
                "this data was given to {to}, and clients are refused: to take it back, if no client uses it there, \
                 send HANDOVER END"
            ),
        }
    }
}

impl Received {
    /// Returns the error for all commands that need the data.
    pub(crate) fn refusal(&self) -> Error {
        Error::owned(format!("LOADING This server receives its data from {}", self.from))
    }
}
