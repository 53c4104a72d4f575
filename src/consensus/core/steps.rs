//! The end of each step: the role is compared with the one before, and the crate's news are taken.

use std::mem;

use raft::Ready;
use raft::eraftpb::Entry as RaftEntry;

use super::super::entries::{mark_of, own};
use super::super::fuse::{self, Fuse};
use super::super::limits::ELECTION_TICKS;
use super::super::message::Round;
use super::super::output::{Order, Why};
use super::super::reign::Reign;
use super::{Core, Pending};
use crate::log::planted::{self, Bug};
use crate::log::replicated::entry::Payload;
use crate::log::replicated::types::{Ballot, Index, NodeId, Position, Term};
use crate::log::replicated::write::Write;

impl Core {
    /// Compares the role and the term with those before the step, and takes the crate's news.
    pub(super) fn after_step(&mut self) {
        loop {
            self.follow_role();
            self.collect();
            if self.is_followed() {
                break;
            }
        }
        let may_lead = self.orders.engine_is_ready() || planted::is(Bug::StandWhileLoading);
        match self.reign {
            // The crate gives a transfer up after an election timeout, and would take proposals of this term again.
            Reign::Leaving { .. } if self.raft.raft.lead_transferee.is_none() => self.resign(Why::Transfer),
            // The engine has become stuck since this node stood.
            Reign::Coming { .. } if !may_lead => self.resign(Why::Stuck),
            _ => {}
        }
        self.trim();
    }

    fn is_followed(&self) -> bool {
        self.role == (self.raft.raft.term, self.raft.raft.state)
    }

    fn follow_role(&mut self) {
        if self.is_followed() {
            return;
        }
        self.role = (self.raft.raft.term, self.raft.raft.state);
        self.draw_timeout();
        let leads_in = self.leads().then(|| self.term());
        if self.reign.term() != leads_in {
            self.close(Why::Lost);
            if let Some(term) = leads_in {
                let start = Index(self.raft.raft.raft_log.last_index());
                self.reign = Reign::Coming { term, start };
                if planted::is(Bug::LeadBeforeStart) {
                    self.lead(term);
                }
            }
        }
    }

    /// Draws the time after which this node may stand for election.
    pub(super) fn draw_timeout(&mut self) {
        let timeout = ELECTION_TICKS + self.rng.below(ELECTION_TICKS as u64) as usize;
        self.raft.raft.set_randomized_election_timeout(timeout);
    }

    fn collect(&mut self) {
        loop {
            self.release();
            if !self.raft.has_ready() {
                break;
            }
            let ready = self.raft.ready();
            self.take(ready);
        }
        self.publish();
        self.publish_copied();
    }

    /// Takes one step's news of the crate: what to write, then what to send, then what is committed.
    fn take(&mut self, mut ready: Ready) {
        let number = ready.number();
        let write = self.write_of(&mut ready);
        let rounds = ready.take_read_states();
        for message in ready.take_messages() {
            self.send(&message);
        }
        let (urgent, messages): (Vec<_>, Vec<_>) =
            ready.take_persisted_messages().into_iter().partition(|message| self.is_urgent(message));
        for message in urgent {
            self.send(&message);
        }
        let committed = ready.take_committed_entries();
        self.raft.advance_append_async(ready);
        if write.is_some() {
            self.last_write = number;
        }
        self.pending.push_back(Pending {
            since: self.now,
            ready: number,
            after_write: self.last_write,
            ballot: write.as_ref().and_then(|write| write.ballot),
            installed: write.as_ref().and_then(|write| write.install.as_ref()).map(|mark| mark.at.index),
            first: write.as_ref().and_then(|write| write.entries.first()).map(|entry| entry.index),
            last: self.last().index,
            messages,
        });
        if let Some(mark) = write.as_ref().and_then(|write| write.install.clone()) {
            self.load(mark);
        }
        self.out.writes.extend(write);
        self.apply(&committed);
        for round in rounds.iter().filter_map(|state| Round::read(&state.request_ctx)) {
            self.round_answered(round);
        }
    }

    /// Returns the changes that have to become durable, and makes them in memory.
    fn write_of(&mut self, ready: &mut Ready) -> Option<Write> {
        let hard_state = ready.hs().map(|hs| Ballot { term: Term(hs.term), vote: NodeId::new(hs.vote) });
        let ballot = hard_state.filter(|ballot| *ballot != self.ballot);
        if let Some(ballot) = ballot {
            let known = self.ballot;
            fuse::check(Fuse::Term, ballot.term >= known.term, || format!("{ballot:?} after {known:?}"));
            self.ballot = ballot;
        }
        let install = (!ready.snapshot().is_empty()).then(|| match mark_of(ready.snapshot()) {
            Some(mark) => mark,
            None => fuse::blow(Fuse::Snapshot, "a snapshot without a mark"),
        });
        if let Some(mark) = &install {
            let (index, known) = (mark.at.index, self.committed);
            fuse::check(Fuse::Cut, index > known, || format!("snapshot {index}, committed {known}"));
            self.raft.mut_store().install(mark.clone());
        }
        let entries = ready.take_entries();
        if let Some(first) = entries.first() {
            let (known, first) = (self.committed, first.index);
            fuse::check(Fuse::Cut, first > known.0, || format!("entry {first}, committed {known}"));
        }
        let entries = match self.raft.mut_store().append(&entries) {
            Ok(entries) => entries,
            // Those of others were checked when they arrived.
            Err(error) => fuse::blow(Fuse::Chain, &error.to_string()),
        };
        let is_empty = ballot.is_none() && install.is_none() && entries.is_empty();
        let committed = self.committed();
        (!is_empty).then(|| Write { number: ready.number(), ballot, install, entries, committed })
    }

    /// Lets go what waited for the writes that are durable by now.
    fn release(&mut self) {
        while let Some(pending) = self.pending.pop_front_if(|pending| pending.after_write <= self.durable.write) {
            if let Some(ballot) = pending.ballot {
                self.durable.ballot = ballot;
            }
            self.durable.last = pending.last;
            // The crate would take entries of this write for durable even if a later one replaces them, if they are in
            // the log again by now. The later one makes up for it.
            let is_replaced =
                |later: &Pending| later.installed.is_some() || later.first.is_some_and(|first| first <= pending.last);
            if !self.pending.iter().any(is_replaced) {
                self.raft.on_persist_ready(pending.ready);
            }
            if let Some(index) = pending.installed.filter(|_| !self.is_installing()) {
                self.raft.advance_apply_to(index.0);
            }
            for message in &pending.messages {
                self.send(message);
            }
        }
    }

    /// Gives the engine the entries that are committed.
    pub(super) fn apply(&mut self, committed: &[RaftEntry]) {
        for entry in committed {
            let at = self.raft.store().at(Index(entry.index));
            let (Some(at), Ok(entry)) = (at, own(entry)) else {
                fuse::blow(Fuse::Apply, &format!("entry {} is not in the log", entry.index));
            };
            let before = mem::replace(&mut self.orders.last, at);
            fuse::check(Fuse::Apply, at.index == before.index.next(), || format!("{at:?} behind {before:?}"));
            self.raft.advance_apply_to(at.index.0);
            match entry.payload {
                Payload::Start => {
                    self.start_is_committed(at);
                    // It has no order of its own: the engine has it once it has followed all of those so far.
                    let last = self.orders.issued;
                    if self.orders.handled >= last {
                        self.orders.applied = at.index;
                    } else {
                        self.orders.entries.push_back((last, at.index));
                    }
                }
                Payload::Block(block) => {
                    fuse::check(Fuse::Apply, block.follows(before.link), || format!("{at:?} behind {before:?}"));
                    let number = self.order(Order::Apply { at, block });
                    self.orders.entries.push_back((number, at.index));
                }
                Payload::Change(change) => self.change_members(at, &change),
            }
        }
    }

    fn start_is_committed(&mut self, at: Position) {
        match self.reign {
            Reign::Coming { term, start } if start == at.index && term == at.term && self.leads() => self.lead(term),
            _ => {}
        }
    }

    fn round_answered(&mut self, round: Round) {
        if self.reign.open().is_some_and(|open| open.term == round.term && open.confirmed(round.number)) {
            self.out.confirmed = Some(round);
            self.begin_round();
        }
    }

    /// Asks the followers, if a round was asked for and none is on its way.
    pub(super) fn begin_round(&mut self) {
        let now = self.now;
        if let Some(round) = self.reign.open().and_then(|open| open.next_round(now)) {
            self.raft.read_index(round.bytes().to_vec());
        }
    }

    /// Publishes the last unit of this reign that is committed.
    fn publish(&mut self) {
        let committed = self.committed();
        self.committed = self.committed.max(committed);
        let Some(open) = self.reign.open() else { return };
        let term = open.term;
        let Some((index, lsn)) = open.take_committed(committed) else { return };
        let (of, published) = (self.raft.store().term_of(index), self.published);
        fuse::check(Fuse::Publish, of == Some(term) && lsn > published, || {
            format!("entry {index} of term {of:?} in reign {term}, Lsn {lsn} after {published}")
        });
        self.published = lsn;
        self.out.committed = Some((term, lsn));
    }

    /// Publishes the last unit that as many other nodes as wanted have on disk. A node that lacks what has left memory
    /// is far behind, and counts once it has caught up.
    fn publish_copied(&mut self) {
        let wanted = self.copies;
        if wanted == 0 || self.reign.open().is_none() {
            return;
        }
        let matched = |node: NodeId| self.raft.raft.prs().get(node.get()).map_or(0, |progress| progress.matched);
        let mut others: Vec<u64> = self.members.all().filter(|node| *node != self.id).map(matched).collect();
        others.sort_unstable_by(|a, b| b.cmp(a));
        let last = others.get(wanted - 1).and_then(|index| self.raft.store().at(Index(*index)));
        if let (Some(at), Some(open)) = (last, self.reign.open())
            && open.copied(at.link.lsn)
        {
            self.out.copied = Some((open.term, at.link.lsn));
        }
    }
}
