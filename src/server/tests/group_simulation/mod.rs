//! The simulation of a group of whole servers: engines with their clients, the journal of the group, the turns of the
//! nodes, the core of consensus, logs and snapshots over simulated disks, and the links between them, in one thread.
//! One seed decides the requests, the time that everything takes, and everything that goes wrong; the same seed gives
//! the same run.
//!
//! The simulation of the [core](crate::consensus) judges consensus alone, and the one of a
//! [single server](super::simulation) what a crash leaves. This one judges what lies between: the way of a change from
//! a client through the engine into the group, and back.
//!
//! - A reply that a client has received stays true: nothing acknowledged is lost, done twice or undone, and nothing
//!   refused is done.
//! - What a client asks a leader after another client was answered shows what that one has seen, or more.
//! - Changes made together are seen together.
//! - Any two nodes have the same data behind the same unit, whether they executed, applied or loaded it.
//! - No node refuses a message, or ends by itself. When the faults end, the group comes back to life, each request is
//!   answered, and all nodes come to the same end; and so they do when all start once more.
//!
//! [`world`] has the order of events, [`server`] a server's life, [`clients`], [`requests`] and [`judge`] what clients
//! ask and are told, [`faults`] and [`transfers`] what happens on the way. Rare states are counted, and a run that has
//! not reached them all fails; planted bugs show that the simulation can fail. `SUITE_ROUNDS` gives the number of
//! seeds, starting at `SUITE_SEED`.

mod clients;
mod faults;
mod judge;
mod requests;
mod server;
mod transfers;
mod world;

use self::faults::Faults;
use self::world::World;
use crate::log::planted::{Bug, plant};
use crate::log::reached::{fault_of, reached, seeds};
use crate::script::without_alarm;

/// Seeds of the test.
const SEEDS: u64 = 10;

reached! {
    elections "a node that became the leader"
    loads "an engine that has loaded its data"
    power_losses "losses of power"
    kills "kills"
    clean_ends "clean ends"
    crashes_in_writes "losses of power in the middle of a write"
    crashes_at_start "crashes while a server started"
    all_down "all servers down at once"
    hand_overs "leaders that were to hand over"
    stuck "leaders whose engine was stuck"
    hung_disks "disks that hung for longer than a leader may wait"
    full_disks "full disks"
    pauses "processes that stood still for longer than a lease"
    clock_jumps "wall clocks that were set"
    one_way "links cut in one direction"
    late_messages "messages later than an election timeout"
    learners "learners that were to join"
    voters_changed "voters that were to come or to go"
    snapshots "snapshots of nodes"
    installs "snapshots that a node got from another one"
    failed_transfers "transfers that broke off"
    fetches "entries that were read from the files"
    held "replies that had to wait"
    disconnected "clients that a server has disconnected"
}

/// Names faults that a run has in any case.
type Focus = fn(&mut Faults);

/// Runs a seed, with the faults that `focus` names and others that the seed chooses. Returns what was reached, and a
/// digest of everything that happened, or the fault that was found.
fn run(seed: u64, focus: Focus) -> Result<(Reached, u64), String> {
    let run = || {
        let mut world = World::new(seed, focus);
        world.run();
        (world.reached, world.trace)
    };
    fault_of(|| without_alarm(run))
}

#[test]
fn what_a_group_has_told_its_clients_is_true_whatever_happens() {
    let seeds = seeds(SEEDS);
    let rounds = seeds.end - seeds.start;
    let mut all = Reached::default();
    for seed in seeds {
        // Changes of voters are rare, so every other seed has changes of members in any case.
        let focus: Focus = if seed % 2 == 0 { |faults| faults.members = true } else { |_| {} };
        match run(seed, focus) {
            Ok((reached, _)) => all.add(&reached),
            Err(found) => panic!("SUITE_SEED={seed}: {found}"),
        }
    }
    println!("{all:#?}");
    // Fewer seeds than by default need not reach everything.
    assert!(rounds < SEEDS || all.missing().is_empty(), "not reached: {:?}", all.missing());
}

#[test]
fn a_seed_runs_the_same_way_twice() {
    for seed in seeds(2) {
        let (first, second) = (run(seed, |_| {}), run(seed, |_| {}));
        assert!(first.is_ok() && first == second, "seed {seed}: {first:?}, then {second:?}");
    }
}

/// Each planted bug is found, within 500 seeds from the first one that is named. The runs have the faults that bring it
/// out.
#[test]
fn planted_bugs_are_found() {
    let bugs: [(Bug, u64, Focus); _] = [
        (Bug::FirstBlockTwice, 0, |faults| (faults.snapshots, faults.crashes) = (true, true)),
        (Bug::KeepsUnproposed, 0, |faults| (faults.links, faults.pauses) = (true, true)),
        (Bug::SnapshotBeforeCommit, 0, |faults| (faults.snapshots, faults.links) = (true, true)),
        (Bug::FollowerKeepsScripts, 0, |_| {}),
        (Bug::KeepsTokens, 0, |faults| faults.links = true),
        (Bug::NoReload, 30, |faults| faults.links = true),
        (Bug::ReplyBeforeCommit, 5, |faults| (faults.links, faults.pauses) = (true, true)),
        (Bug::FollowerExpires, 0, |_| {}),
        (Bug::NoRound, 0, |faults| faults.links = true),
        (Bug::AckBeforePersist, 0, |faults| (faults.crashes, faults.disks) = (true, true)),
        (Bug::SendBeforePersist, 0, |faults| (faults.crashes, faults.disks) = (true, true)),
    ];
    let only = std::env::var("SUITE_BUG").ok();
    for (bug, first, focus) in bugs {
        if only.as_ref().is_some_and(|only| *only != format!("{bug:?}")) {
            continue;
        }
        plant(Some(bug));
        let found = (first..first + 500).find_map(|seed| run(seed, focus).err().map(|found| (seed, found)));
        plant(None);
        let (seed, found) = found.unwrap_or_else(|| panic!("{bug:?} is not found"));
        // It is the bug that was found, and not a fault of the simulation.
        run(seed, focus).unwrap_or_else(|error| panic!("seed {seed} without {bug:?}: {error}"));
        println!("{bug:?}: seed {seed}: {}", found.chars().take(160).collect::<String>());
    }
}
