//! For how long a group of three nodes acknowledges nothing when its leader changes:
//! `cargo bench --bench group_failover`.
//!
//! A client writes to the leader, one INCR after the other, until something happens to that node. Then it asks one node
//! after the other for the next INCR, with 2 ms between two attempts and at most 50 ms for each, and so finds the new
//! leader as any client could that knows nothing but the addresses. The time runs from the event until the first
//! reply that acknowledges a write. Then the group comes to rest again, with three nodes that have everything.
//!
//! | Event | What happens |
//! |---|---|
//! | kill -9 of the leader | its process is gone at once; the others notice that they hear nothing |
//! | transfer | NODE TRANSFER, as before the service of a machine |
//! | end of the leader in order | SIGTERM; the leader hands over before it ends |
//! | the leader stands still | SIGSTOP: for all others it is cut off, but its connections stay open |
//! | kill -9 of all nodes | all are launched again at once; the time includes their starts |
//!
//! Each acknowledged count must be greater than the one before: the bench ends if a change of the leader loses a write.
//!
//! No process is pinned to a core. The data goes to a temporary folder (`TMPDIR`), which should be on a disk.

mod figures;
mod nodes;
mod peer;
mod requests;

use std::time::{Duration, Instant};

use clap::Parser;

use figures::{Quantity, Recorder};
use nodes::{Client, FOUNDERS, Group};
use peer::Setup;

/// Measures changes of the leader. Takes some 10 minutes in full.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    setup: Setup,
    /// Changes of the leader of each kind in each round.
    #[arg(long, default_value_t = 20)]
    changes: u64,
}

/// How a leader is lost.
#[derive(Clone, Copy, PartialEq)]
enum Event {
    Kill,
    Transfer,
    End,
    Pause,
    KillAll,
}

const EVENTS: [(Event, &str); 5] = [
    (Event::Kill, "kill -9 of the leader"),
    (Event::Transfer, "transfer"),
    (Event::End, "end of the leader in order"),
    (Event::Pause, "the leader stands still"),
    (Event::KillAll, "kill -9 of all nodes"),
];

/// Writes before each event, so that the leader is in the middle of its work.
const WRITES_BEFORE: usize = 50;

/// The pause between two attempts of a client that looks for the leader.
const ATTEMPT_EVERY: Duration = Duration::from_millis(2);

/// How long such a client waits for a reply before it tries the next node.
const ATTEMPT_MAX: Duration = Duration::from_millis(50);

/// How long the group rests before the next event: nodes that start keep their votes for a moment.
const REST: Duration = Duration::from_millis(500);

fn main() {
    let Options { mut setup, changes } = Options::parse();
    let changes = setup.scaled(changes * setup.rounds as u64);
    // The changes of all rounds are one sample: a percentile needs many.
    setup.rounds = 1;
    let mut recorder = Recorder::new("group_failover", &setup);
    let name = recorder.own_name();
    let quantities = [Quantity::less("p50 ms", 0), Quantity::less("p99 ms", 0), Quantity::less("longest ms", 0)];
    recorder.table_of("failover", &format!("{changes} times each"), vec![name], quantities);
    let mut group = Group::start(&setup.server, &[]);
    let mut writer = Writer { leader: group.leader(), client: None, count: 0 };
    for (event, case) in EVENTS {
        recorder.case(case, None, |_| {
            let mut ms: Vec<f64> = (0..changes).map(|_| writer.survive(event, &mut group)).collect();
            ms.sort_by(f64::total_cmp);
            let rank = |percent: usize| ms[(ms.len() * percent).div_ceil(100) - 1];
            [rank(50), rank(99), rank(100)]
        });
    }
    recorder.finish();
}

/// A client that writes, and follows the leader.
struct Writer {
    /// The node that acknowledged the last write.
    leader: usize,
    client: Option<Client>,
    /// The count after that write.
    count: u64,
}

impl Writer {
    /// Writes for a while, then lets `event` happen. Returns the ms until the next acknowledged write.
    fn survive(&mut self, event: Event, group: &mut Group) -> f64 {
        (0..WRITES_BEFORE).for_each(|_| self.write(group, self.leader));
        let (old, other) = (self.leader, (self.leader + 1) % FOUNDERS);
        let begin = Instant::now();
        match event {
            Event::Kill => group.kill(old),
            Event::Transfer => assert!(group.admin("TRANSFER", other), "the leader does not hand over"),
            Event::End => group.server(old).end(),
            Event::Pause => group.server(old).pause(),
            Event::KillAll => {
                (0..FOUNDERS).for_each(|place| group.kill(place));
                (0..FOUNDERS).for_each(|place| group.launch(place));
            }
        }
        let first = if event == Event::KillAll { old } else { other };
        self.client = None;
        self.write(group, first);
        let ms = begin.elapsed().as_secs_f64() * 1e3;
        match event {
            Event::Kill => group.launch(old),
            Event::End => {
                group.stop(old);
                group.launch(old);
            }
            Event::Pause => group.server(old).go_on(),
            Event::Transfer | Event::KillAll => {}
        }
        group.await_all();
        std::thread::sleep(REST);
        ms
    }

    /// Makes one write, at the node that the last one went to, or else at whichever node takes it, `first` tried first.
    fn write(&mut self, group: &Group, first: usize) {
        let incr = |client: &mut Client| client.ask(&["INCR", "count"]).ok()?.parse::<u64>().ok();
        let mut count = self.client.as_mut().and_then(incr);
        let mut place = first;
        while count.is_none() {
            let client = group.client(place).and_then(|client| client.with_patience(ATTEMPT_MAX));
            if let Ok(mut client) = client {
                count = incr(&mut client);
                (self.leader, self.client) = (place, Some(client));
            }
            if count.is_none() {
                place = (place + 1) % FOUNDERS;
                std::thread::sleep(ATTEMPT_EVERY);
            }
        }
        let count = count.expect("the loop ends with a count");
        assert!(count > self.count, "the count of {} was acknowledged before, and now it is {count}", self.count);
        self.count = count;
    }
}
