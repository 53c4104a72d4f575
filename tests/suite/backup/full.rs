//! A disk of copies that gets full, and one that loses power.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;

use tidegate::base::rng::Rng;

use super::{Bench, Helper, assert_equal, digest, furnish, last_lsn, ok, restore_from, run, serve};
use crate::differential::search::env_number;
use crate::harness::{Value, until};
use crate::oracle::{SMALL_DISK, SmallDisk};
use crate::power_loss::PowerLoss;

/// Restores that lose power at their end, and followers.
const POWER_LOSSES: u64 = 12;

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Sets keys of this name, which take so many bytes together and can't be compressed.
fn write(bench: &Bench, name: &str, bytes: usize) {
    let (mut raw, mut rng) = (bench.server().raw(), Rng::seeded(7));
    for n in 0..bytes / 100_000 {
        let value: Vec<u8> = (0..100_000 / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        let key = format!("{name}{n}");
        assert_eq!(raw.command(&[b"SET", key.as_bytes(), &value]), Value::ok());
    }
}

#[test]
fn a_backup_on_a_full_disk_leaves_nothing_and_succeeds_when_there_is_space() {
    if SMALL_DISK.is_missing() {
        return;
    }
    let (bench, disk) = (Bench::new(), SmallDisk::mount("6m").expect("a disk, as the probe had one"));
    furnish(bench.server());
    write(&bench, "key", 10_000_000);
    let copies = disk.path().join("copies");
    // Once with the journal alone, and once behind a snapshot.
    for has_snapshot in [false, true] {
        if has_snapshot {
            bench.server().raw().command(&["SAVE"]);
        }
        let said = run(&mut bench.backup_into(&copies, &[]));
        assert!(!said.is_good && said.text.contains(".part"), "{}", said.text);
        assert!(said.text.contains("full") || said.text.contains("No space left"), "{}", said.text);
        assert_eq!(names(&copies), ["LOCK"]);
        let file = File::create(disk.path().join("file")).expect("an inode is left");
        let said = run(bench.backup_into(Path::new("-"), &[]).stdout(file));
        assert!(!said.is_good && said.text.contains("standard output: No space left"), "{}", said.text);
        std::fs::remove_file(disk.path().join("file")).expect("it is ours");
    }
    ok(&run(&mut bench.backup(&[])));
    let into = disk.path().join("into");
    let said = run(&mut restore_from(&bench.path("copies"), &into));
    assert!(!said.is_good, "{}", said.text);
    assert!(said.text.contains("full") || said.text.contains("No space left"), "{}", said.text);
    assert!(names(&into).is_empty(), "{:?}", names(&into));
    disk.grow_to("300m");
    ok(&run(&mut bench.backup_into(&copies, &[])));
    ok(&run(&mut restore_from(&copies, &into)));
    assert_equal(&serve(&into), bench.server());
}

#[test]
fn a_follower_on_a_full_disk_says_so_and_goes_on_when_there_is_space() {
    if SMALL_DISK.is_missing() {
        return;
    }
    let (bench, disk) = (Bench::new(), SmallDisk::mount("16m").expect("a disk, as the probe had one"));
    furnish(bench.server());
    let (copies, log) = (disk.path().join("copies"), bench.path("log"));
    let follow = || {
        let out = File::create(&log).expect("a file");
        let mut command = bench.backup_into(&copies, &["--follow"]);
        Helper(command.stdout(out.try_clone().expect("it is open")).stderr(out).spawn().expect("it starts"))
    };
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    let mut copying = follow();
    until(|| said().contains("following from"), "it follows");
    write(&bench, "key", 30_000_000);
    let status = copying.0.wait().expect("it ends");
    assert!(status.code() == Some(1) && said().contains("the disk is full"), "{}", said());
    // It refuses once more, and the copy is good up to where it ends.
    let mut copying = follow();
    assert_eq!(copying.0.wait().expect("it ends").code(), Some(1), "{}", said());
    ok(&run(&mut restore_from(&copies, &bench.path("meanwhile"))));
    assert_eq!(serve(&bench.path("meanwhile")).raw().command(&["GET", "text"]), Value::bulk("hello"));
    disk.grow_to("300m");
    let copying = follow();
    let last = last_lsn(bench.server()).to_string();
    let restored = || run(restore_from(&copies, &bench.path("restored")).args(["--until", &last]));
    until(|| restored().is_good, "the copy has everything");
    drop(copying);
    assert!(!said().contains("another copy begins"), "{}", said());
    assert_equal(&serve(&bench.path("restored")), bench.server());
}

/// A restore that has said that it is done has made everything durable: the data, and its name.
#[test]
fn a_restore_survives_a_loss_of_power_once_it_has_said_so() {
    let bench = Bench::new();
    furnish(bench.server());
    ok(&run(&mut bench.backup(&[])));
    bench.server().raw().command(&["SAVE"]);
    bench.server().raw().command(&["SET", "behind", "1"]);
    let file = File::create(bench.path("file")).expect("a file");
    ok(&run(bench.backup_into(Path::new("-"), &[]).stdout(file)));
    let seed = env_number("SUITE_SEED").unwrap_or(1);
    for round in 0..POWER_LOSSES {
        let folder = bench.path(&format!("machine {round}"));
        std::fs::create_dir(&folder).expect("a folder");
        let mut machine = PowerLoss::new(&folder, seed + round);
        let into = folder.join("new/into");
        let from = bench.path(if round % 2 == 0 { "copies" } else { "file" });
        let is_killed = round % 3 == 2;
        let mut command = restore_from(&from, &into);
        let environment = machine.environment();
        let mut child = command
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        if is_killed {
            let has_begun = || into.join("tidegate-data.part/ID").exists() || into.join("tidegate-data").exists();
            until(has_begun, "it has begun");
            child.kill().expect("our own child");
        }
        let is_done = child.wait().expect("it ends").success();
        assert!(is_done || is_killed);
        machine.strike();
        let is_there = into.join("tidegate-data").exists();
        assert!(is_there || !is_done, "what was done is there");
        if is_there {
            let restored = serve(&into);
            if round % 2 == 1 {
                assert_eq!(digest(&restored), digest(bench.server()));
            }
            assert_eq!(restored.raw().command(&["GET", "text"]), Value::bulk("hello"));
        } else {
            ok(&run(&mut restore_from(&from, &into)));
        }
    }
}

/// Whatever of a copy was on disk is good, and the next follower goes on with it. A restore reads what has been synced,
/// since the rest is in the memory of the follower.
#[test]
fn a_followed_copy_survives_losses_of_power() {
    let bench = Bench::new();
    furnish(bench.server());
    let (folder, log) = (bench.path("machine"), bench.path("log"));
    std::fs::create_dir(&folder).expect("a folder");
    let copies = folder.join("copies");
    let seed = env_number("SUITE_SEED").unwrap_or(1);
    let (mut machine, mut rng) = (PowerLoss::new(&folder, seed), Rng::seeded(seed));
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    let followed = || said().matches("following from Lsn ").count();
    for round in 0..POWER_LOSSES {
        let before = followed();
        let out = File::options().create(true).append(true).open(&log).expect("a file");
        let mut command = bench.backup_into(&copies, &["--follow"]);
        command.envs(machine.environment()).stdout(out.try_clone().expect("it is open")).stderr(out);
        let mut copying = Helper(command.spawn().expect("it starts"));
        // Now and then the power fails while a copy begins.
        if round % 4 != 0 {
            until(|| followed() > before, "it follows");
        }
        let mut raw = bench.server().raw();
        for n in 0..rng.below(200) {
            raw.command(&["RPUSH", "list", &format!("{round} {n}")]);
            raw.command(&["XADD", "jobs", "DELAY", "3000000", "*", "round", &round.to_string()]);
        }
        if round % 3 == 2 {
            raw.command(&["SAVE"]);
        }
        if round % 4 == 3 {
            let (into, last) = (bench.path(&format!("restored {round}")), last_lsn(bench.server()).to_string());
            until(|| run(restore_from(&copies, &into).args(["--until", &last])).is_good, "the copy has everything");
            assert_equal(&serve(&into), bench.server());
        }
        copying.0.kill().expect("it runs: a follower never ends by itself");
        copying.0.wait().expect("it was killed");
        machine.strike();
    }
    let text = said();
    assert!(!text.contains("damage"), "{text}");
    // A copy that had all of it may have lost its name, so others may have begun; none without need.
    let (begun, reasons) = (text.matches("copied up to").count(), text.matches("another copy begins").count());
    assert!(begun <= 1 + reasons + POWER_LOSSES as usize / 4, "{text}");
}
