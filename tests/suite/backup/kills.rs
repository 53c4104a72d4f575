//! kill -9 of a server, a follower, a backup and a restore, again and again, each in the middle of its work.
//!
//! After each kill whatever was killed is called again, and must go on or begin anew. A folder `tidegate-data`, which a
//! server loads, exists only where all of its data is. In the end everything that was acknowledged can be restored.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidegate::base::rng::Rng;

use super::{Bench, Helper, assert_equal, furnish, last_lsn, ok, restore_from, run, serve};
use crate::differential::search::env_number;
use crate::harness::{REPLY_DEADLINE, Raw, Value, until};

/// Kills while a copy is followed, and in the middle of backups and of restores.
const FOLLOWED: u64 = 24;
const BACKUPS: u64 = 16;
const RESTORES: u64 = 16;

/// Bytes that make a backup or a restore last: more than a pipe and the buffers before it hold.
const FILLER: usize = 4_000_000;

fn rng() -> Rng {
    Rng::seeded(env_number("SUITE_SEED").unwrap_or(1))
}

/// Fills a server with data of all kinds, and enough of it.
fn fill(bench: &Bench) {
    furnish(bench.server());
    let value = "0123456789".repeat(FILLER / 10 / 40);
    (0..40).for_each(|n| _ = bench.server().raw().command(&["SET", &format!("filler{n}"), &value]));
}

/// Works until it is told to stop, or the server is gone. Returns the last value of its counter.
fn work(mut raw: Raw, round: u64, steps: &AtomicU64, is_over: &AtomicBool) -> i64 {
    let mut counter = 0;
    for n in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("{round}-{n}");
        let calls: [&[&str]; 8] = [
            &["INCR", "counter"],
            &["LOCK.ACQUIRE", &format!("lock:{}", n % 3), &name, "PX", "3000000"],
            &["GATE.ACQUIRE", "gate", &name, "LIMIT", "100000", "PX", "3000000"],
            &["STOCK.RESERVE", "stock", &name, "PX", "3000000"],
            &["XADD", "jobs", "DELAY", "3000000", "*", "job", &name],
            &["ONCE", &format!("once:{name}"), "PX", "3000000", "INCR", "payments"],
            &["EVAL", "redis.call('SET', KEYS[1], ARGV[1]) redis.call('SET', KEYS[2], ARGV[1])", "2", "a", "b", &name],
            &["LOCK.BREAK", &format!("lock:{}", n % 3)],
        ];
        for call in calls {
            raw.send_command(call);
            match raw.try_reply(REPLY_DEADLINE) {
                Ok(reply) => assert!(!matches!(reply.value, Value::Error(_)), "{call:?}: {reply:?}"),
                Err(why) if why.starts_with("hung up") => return counter,
                Err(why) => panic!("{call:?}: {why}"),
            }
            counter += i64::from(call[0] == "INCR");
            steps.fetch_add(1, Ordering::Relaxed);
        }
    }
    counter
}

/// Whether every folder that a server would load, here or below, is one of a finished copy.
fn assert_nothing_half(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_name() == "tidegate-data" {
            let is_finished = folder.join("SOURCE").is_file() && folder.extension().is_none();
            assert!(is_finished, "{} is not finished", path.display());
        } else if path.is_dir() {
            assert_nothing_half(&path);
        }
    }
}

fn bytes_in(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_in(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

/// Kills a helper once what it has written there has so many bytes. Returns whether that was before its end.
fn kill_at(mut child: Child, folder: &Path, bytes: u64) -> bool {
    loop {
        if let Some(status) = child.try_wait().expect("our own child") {
            assert!(status.success(), "it ends well, if nobody kills it");
            return false;
        }
        if bytes_in(folder) >= bytes {
            child.kill().expect("our own child");
            return !child.wait().expect("our own child").success();
        }
    }
}

#[test]
fn a_followed_copy_survives_kills_of_either_side() {
    let (mut bench, mut rng) = (Bench::new(), rng());
    furnish(bench.server());
    let log = bench.path("log");
    let follow = |bench: &Bench| {
        let out = std::fs::OpenOptions::new().create(true).append(true).open(&log).expect("a file");
        Helper(
            bench
                .backup(&["--follow"])
                .stdout(out.try_clone().expect("it is open"))
                .stderr(out)
                .spawn()
                .expect("it starts"),
        )
    };
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    let times_following = || said().matches("following from Lsn ").count();
    let mut copying = follow(&bench);
    until(|| times_following() > 0, "it follows");
    let (mut acknowledged, mut from) = (0, 0);
    for round in 0..FOLLOWED {
        let (steps, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let enough = 1 + rng.below(300);
        let is_of_server = round % 2 == 1;
        let before = times_following();
        acknowledged += std::thread::scope(|scope| {
            let (raw, steps, is_over) = (bench.server().raw(), &steps, &is_over);
            let worker = scope.spawn(move || work(raw, round, steps, is_over));
            until(|| steps.load(Ordering::Relaxed) >= enough || worker.is_finished(), "the server answers");
            if round % 5 == 2 {
                bench.server().raw().command(&["SAVE"]);
            }
            if is_of_server {
                bench.server = None;
            } else {
                copying.0.kill().expect("it runs: a follower never ends by itself");
                is_over.store(true, Ordering::Relaxed);
            }
            worker.join().expect("it works until then")
        });
        if is_of_server {
            bench.start();
        } else {
            copying.0.wait().expect("it was killed");
            copying = follow(&bench);
        }
        assert_nothing_half(&bench.path("copies"));
        // It goes on with what it has, or says why not.
        until(|| times_following() > before, "it follows");
        let lsn = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next().and_then(|lsn| lsn.parse::<u64>().ok());
        let said = said();
        let resumed = said.rsplit("following from Lsn ").next().and_then(lsn).expect("an Lsn");
        let copies = bench.copies().len();
        let explained = 1 + said.matches("another copy begins").count();
        assert!(resumed >= from && copies <= explained, "{copies} copies, {from}: {said}");
        from = resumed;
        if round % 4 == 3 {
            let (name, last) = (format!("round {round}"), last_lsn(bench.server()).to_string());
            until(|| bench.restore(&name, &["--until", &last]).is_good, "the copy has everything");
            let restored = serve(&bench.path(&name));
            assert_equal(&restored, bench.server());
            let counted = super::integer(&mut restored.raw(), &["GET", "counter"]);
            // The last INCR before a kill may have been done without a reply.
            assert!((acknowledged..=acknowledged + 12).contains(&counted), "{counted}, acknowledged {acknowledged}");
            drop(restored);
            std::fs::remove_dir_all(bench.path(&name)).expect("it is ours");
        }
    }
    let copies = bench.copies().len();
    assert!(acknowledged > 100 && copies <= 3, "{acknowledged} acknowledged, {copies} copies");
}

#[test]
fn a_backup_that_was_killed_leaves_nothing_that_looks_whole() {
    let (mut bench, mut rng) = (Bench::new(), rng());
    fill(&bench);
    let (mut killed, mut tries, mut whole) = (0, 0, 0);
    while killed < BACKUPS {
        tries += 1;
        assert!(tries < 20 * BACKUPS, "{killed} of {tries} were killed in time");
        if tries % 7 == 3 {
            bench.server().raw().command(&["SAVE"]);
        }
        let bytes = rng.below(FILLER as u64);
        match tries % 4 {
            // The server, or what reads the copy from it, while the copy is in a pipe that nobody empties.
            0 | 1 => {
                let mut command = bench.backup_into(Path::new("-"), &[]);
                let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
                let mut output = child.stdout.take().expect("a pipe");
                let mut copy = vec![0; bytes as usize / 2];
                output.read_exact(&mut copy).expect("it writes");
                if tries % 4 == 0 {
                    child.kill().expect("our own child");
                } else {
                    bench.start();
                }
                output.read_to_end(&mut copy).expect("it ends");
                assert_ne!(child.wait().expect("it ends").code(), Some(0));
                std::fs::write(bench.path("broken"), copy).expect("a file");
                let said = run(&mut restore_from(&bench.path("broken"), &bench.path("never")));
                assert!(!said.is_good && said.text.contains("the copy was cut off"), "{}", said.text);
                assert_nothing_half(&bench.path("never"));
                killed += 1;
            }
            _ => {
                let mut command = bench.backup(&[]);
                let child = command.stdout(Stdio::null()).spawn().expect("it starts");
                let before = bytes_in(&bench.path("copies"));
                let is_killed = kill_at(child, &bench.path("copies"), before + bytes);
                killed += u64::from(is_killed);
                whole += usize::from(!is_killed);
                // It may have been killed behind the last of its steps.
                assert!((whole..=whole + 1).contains(&bench.copies().len()));
                whole = bench.copies().len();
            }
        }
        assert_nothing_half(&bench.path("copies"));
    }
    ok(&run(&mut bench.backup(&[])));
    let left = std::fs::read_dir(bench.path("copies")).expect("a folder").count();
    assert_eq!((bench.copies().len(), left), (whole + 1, whole + 2), "the copies and the lock");
    ok(&bench.restore("restored", &[]));
    assert_equal(&serve(&bench.path("restored")), bench.server());
}

#[test]
fn a_restore_that_was_killed_leaves_nothing_that_can_be_started() {
    let (bench, mut rng) = (Bench::new(), rng());
    fill(&bench);
    bench.server().raw().command(&["SAVE"]);
    bench.server().raw().command(&["INCR", "behind the snapshot"]);
    ok(&run(&mut bench.backup(&[])));
    let file = std::fs::File::create(bench.path("file")).expect("a file");
    ok(&run(bench.backup_into(Path::new("-"), &[]).stdout(file)));
    let file = std::fs::read(bench.path("file")).expect("it was written");
    let into = bench.path("into");
    let (mut killed, mut tries) = (0, 0);
    while killed < RESTORES {
        tries += 1;
        assert!(tries < 20 * RESTORES, "{killed} of {tries} were killed in time");
        if tries % 2 == 0 {
            let mut command = restore_from(Path::new("-"), &into);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
            let mut input = child.stdin.take().expect("a pipe");
            let bytes = FILLER / 4 + rng.below(FILLER as u64 / 2) as usize;
            input.write_all(&file[..bytes]).expect("it reads");
            child.kill().expect("our own child");
            assert!(!child.wait().expect("it ends").success());
            killed += 1;
        } else {
            let child = restore_from(&bench.path("copies"), &into).stdout(Stdio::null()).spawn().expect("it starts");
            if !kill_at(child, &into, rng.below(FILLER as u64)) {
                // It was too fast.
                std::fs::remove_dir_all(&into).expect("it is ours");
                continue;
            }
            killed += 1;
            if into.join("tidegate-data").exists() {
                // It was killed behind its last step.
                assert_equal(&serve(&into), bench.server());
                std::fs::remove_dir_all(&into).expect("it is ours");
            }
        }
        assert_nothing_half(&into);
    }
    // A server that is started there all the same finds nothing.
    std::fs::rename(&into, bench.path("other"))
        .or_else(|_| std::fs::create_dir(bench.path("other")))
        .expect("a folder");
    assert_eq!(serve(&bench.path("other")).raw().command(&["DBSIZE"]), Value::Integer(0));
    ok(&run(&mut restore_from(&bench.path("copies"), &into)));
    assert_equal(&serve(&into), bench.server());
}
