//! Snapshots on their way from one node to another, in pieces. `node/link` says how servers do it.

use std::collections::BTreeMap;

use super::world::{Event, MS, World};
use crate::consensus::message::{Body, Message};
use crate::log::replicated::types::NodeId;
use crate::log::snapshot::arriving::ArrivingSnapshot;
use crate::log::snapshot::departing::DepartingSnapshot;

/// Bytes of a piece.
const PIECE_MAX: u64 = 3_000;

/// All transfers, by number. There is one at most from each node to each other one.
#[derive(Default)]
pub(super) struct Transfers {
    last: u64,
    under_way: BTreeMap<u64, Transfer>,
}

struct Transfer {
    message: Message,
    /// The lives of the sender and of the receiver.
    lives: (u64, u64),
    /// The file, once it is open.
    file: Option<DepartingSnapshot>,
    sent: u64,
    /// What it is written to, once the receiver wants it.
    arriving: Option<ArrivingSnapshot>,
}

impl Transfers {
    /// Ends the transfers of a node that does not lead. Nothing is reported.
    pub(super) fn end_those_of(&mut self, from: NodeId) {
        self.under_way.retain(|_, transfer| transfer.message.from != from);
    }

    /// Forgets the transfers of a node that has ended. The one that receives notices by itself.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.under_way.retain(|_, transfer| transfer.message.to != node);
    }
}

impl World {
    /// Begins a transfer, which takes the place of an earlier one to the same node.
    pub(super) fn begin_transfer(&mut self, from: NodeId, life: u64, message: Message) {
        let to = message.to;
        self.transfers.under_way.retain(|_, other| (other.message.from, other.message.to) != (from, to));
        self.transfers.last += 1;
        let number = self.transfers.last;
        let lives = (life, self.servers.get(&to).map_or(0, |server| server.life));
        let transfer = Transfer { message, lives, file: None, sent: 0, arriving: None };
        self.transfers.under_way.insert(number, transfer);
        self.soon(5 * MS, Event::Transfer(number));
    }

    /// Moves a transfer on by a piece. Whatever goes wrong ends it, and is reported after a while.
    pub(super) fn transfer(&mut self, number: u64) {
        let Some(mut transfer) = self.transfers.under_way.remove(&number) else { return };
        let (from, to) = (transfer.message.from, transfer.message.to);
        let life_of = |id| self.servers.get(&id).filter(|server| server.process.is_some()).map(|server| server.life);
        if life_of(from) != Some(transfer.lives.0) {
            return;
        }
        let is_there = life_of(to) == Some(transfer.lives.1);
        let breaks = self.faults.transfers_break && self.rng.below(8) == 0;
        let is_cut = self.is_cut(from, to) || self.is_cut(to, from);
        let paused_until = self.servers[&to].paused_until.max(self.servers[&from].paused_until);
        if is_there && !is_cut && paused_until > self.now {
            self.transfers.under_way.insert(number, transfer);
            return self.after(paused_until - self.now, Event::Transfer(number));
        }
        let moved = if is_there && !is_cut && !breaks { self.move_on(&mut transfer) } else { None };
        match moved {
            Some(false) => {
                self.transfers.under_way.insert(number, transfer);
                self.soon(3 * MS, Event::Transfer(number));
            }
            Some(true) => {
                let (sender, receiver) = transfer.lives;
                self.soon(3 * MS, Event::Installed(to, receiver, transfer.message));
                // The answer may be lost.
                let is_known = !(self.faults.transfers_break && self.rng.below(10) == 0);
                self.soon(6 * MS, Event::Report(from, sender, to, is_known));
            }
            None => {
                self.reached.failed_transfers += 1;
                let pause = 20 * MS + self.rng.below(200 * MS);
                self.after(pause, Event::Report(from, transfer.lives.0, to, false));
            }
        }
    }

    /// Returns whether the snapshot has arrived; `None` if it can't.
    fn move_on(&mut self, transfer: &mut Transfer) -> Option<bool> {
        let (from, to) = (transfer.message.from, transfer.message.to);
        let Body::Install(mark) = &transfer.message.body else { panic!("{:?} has no snapshot", transfer.message) };
        let mut piece = None;
        let mut is_last = false;
        let len = 1 + self.rng.below(PIECE_MAX);
        self.with(from, transfer.lives.0, |_, process| {
            if transfer.file.is_none() {
                // A newer one may have taken its place.
                transfer.file = DepartingSnapshot::open(&process.directory, mark).ok();
            }
            let Some(file) = &transfer.file else { return };
            let mut bytes = vec![0; len.min(file.bytes() - transfer.sent) as usize];
            piece = file.read(&mut bytes, transfer.sent).ok().map(|()| bytes);
            is_last = transfer.sent + len >= file.bytes();
        });
        let piece = piece?;
        let bytes = transfer.file.as_ref().map_or(0, DepartingSnapshot::bytes);
        let mut moved = None;
        self.with(to, transfer.lives.1, |world, process| {
            if transfer.arriving.is_none() {
                let judged = process.turns.offered(from, &transfer.message, bytes);
                transfer.arriving = judged.ok();
            }
            let Some(arriving) = &mut transfer.arriving else { return };
            if arriving.write(&piece).is_err() {
                transfer.arriving = None;
                return;
            }
            transfer.sent += piece.len() as u64;
            moved = Some(false);
            if is_last && let Some(arriving) = transfer.arriving.take() {
                moved = match arriving.finish(&|| true) {
                    Ok(()) => Some(true),
                    Err(_) if world.servers[&to].disk.is_off() => None,
                    Err(error) => panic!("a snapshot was damaged on its way to node {to}: {error}"),
                };
            }
        });
        moved
    }
}
