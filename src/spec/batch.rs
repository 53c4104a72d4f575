//! Commands decoded ahead of running them.
//!
//! With many keys, a pipeline's lookups mostly miss the processor's cache, and run one by one, each would wait for
//! memory in turn. So up to [`BATCH_MAX`] commands are decoded first, then the lookups of their first keys are started
//! together ([`Batch::warm`]), and then the commands run. Before each command, the keyspace is given the probable
//! location of its key and need not search the index again. Replies do not depend on this hint.

use super::table::{CommandTable, Entry, Finder};
use super::{Begin, Find};
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::resp::request::{Argv, Decoder, ProtocolError, RequestLimits, Span};

/// Maximum number of commands decoded ahead: enough to hide memory latency, few enough that their lines stay in L1.
const BATCH_MAX: usize = 32;

/// A decoded command.
pub(crate) struct Planned<R: 'static> {
    /// The entry that its name resolved to; `None` if there is none.
    pub(crate) entry: Option<&'static Entry<R>>,
    /// Offset at which it begins in the input.
    pub(crate) starts_at: usize,
    /// Its arguments are in the decoder, not in the input.
    pub(crate) is_inline: bool,
    first_span: u32,
    spans: u32,
    /// Probable location of its first key.
    pub(crate) slot: Option<Slot>,
}

/// A batch of decoded commands. See the module's header.
pub(crate) struct Batch<R: 'static> {
    spans: Vec<Span>,
    commands: Vec<Planned<R>>,
    finder: Finder<R>,
}

impl<R> Default for Batch<R> {
    fn default() -> Batch<R> {
        Batch { spans: Vec::new(), commands: Vec::new(), finder: Finder::default() }
    }
}

impl<R> Batch<R> {
    /// Decodes buffered commands up to the limits; returns their number. An error is reported only when it comes first,
    /// so that the commands before it run.
    #[inline]
    pub(crate) fn fill(
        &mut self,
        decoder: &mut Decoder,
        input: &[u8],
        limits: &RequestLimits,
        table: &'static CommandTable<R>,
    ) -> Result<usize, ProtocolError> {
        self.spans.clear();
        self.commands.clear();
        self.finder.look_in(table);
        // An unauthenticated client's next command may be AUTH, after which larger commands are allowed.
        let most = if limits.unauthenticated { 1 } else { BATCH_MAX };
        while self.commands.len() < most && decoder.position() < input.len() {
            let starts_at = decoder.keep_from();
            let first_span = self.spans.len() as u32;
            if decoder.decode_short(input, limits, &mut self.spans) {
                let spans = self.spans.get(first_span as usize..).unwrap_or(&[]);
                self.commands.push(Planned {
                    entry: self.finder.resolve(table, Argv::new(input, spans)),
                    starts_at,
                    is_inline: false,
                    first_span,
                    spans: spans.len() as u32,
                    slot: None,
                });
                continue;
            }
            match decoder.decode(input, limits) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if self.commands.is_empty() => return Err(error),
                Err(_) => {
                    decoder.rewind_to(starts_at);
                    break;
                }
            }
            if decoder.is_inline() && !self.commands.is_empty() {
                // Its arguments are in the decoder, which holds only one such command at a time, so it forms its own
                // batch.
                decoder.rewind_to(starts_at);
                break;
            }
            self.spans.extend_from_slice(decoder.spans());
            self.commands.push(Planned {
                entry: self.finder.resolve(table, decoder.argv(input)),
                starts_at,
                is_inline: decoder.is_inline(),
                first_span,
                spans: decoder.spans().len() as u32,
                slot: None,
            });
            if decoder.is_inline() {
                break;
            }
        }
        Ok(self.commands.len())
    }

    /// Starts the lookups of the commands' first keys and records their probable locations.
    pub(crate) fn warm(&mut self, ks: &Keyspace, db: DbIndex, input: &[u8]) {
        let keys = self.commands.iter().map(|planned| self.first_key(planned, input));
        let slots = ks.prefetch::<BATCH_MAX>(db, keys);
        for (planned, slot) in self.commands.iter_mut().zip(slots) {
            planned.slot = slot;
        }
    }

    /// Returns the first key of a command; `None` if it would have to be searched for.
    #[inline]
    fn first_key<'a>(&'a self, planned: &Planned<R>, input: &'a [u8]) -> Option<&'a [u8]> {
        let keys = planned.entry?.command.keys.first()?;
        let index = match (keys.begin, keys.find) {
            (Begin::Index(index), Find::Range { .. }) => index,
            (Begin::Index(count_at), Find::Counted | Find::CountedPairs) => count_at + 1,
            _ => return None,
        };
        self.argv(planned, input).get(index)
    }

    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Planned<R>> {
        self.commands.iter()
    }

    /// Returns the arguments of a command that was not sent inline.
    #[inline]
    pub(crate) fn argv<'a>(&'a self, planned: &Planned<R>, input: &'a [u8]) -> Argv<'a> {
        let first = planned.first_span as usize;
        Argv::new(input, self.spans.get(first..first + planned.spans as usize).unwrap_or(&[]))
    }
}
