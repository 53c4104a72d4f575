//! A copy in one file, or through a pipe.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Bench, assert_equal, digest, furnish, last_lsn, ok, restore_from, run, serve};
use crate::harness::Value;

const OUTPUT: &str = "-";

/// Writes a copy to a file of this name. Returns what was said.
fn copy_to(bench: &Bench, name: &str) -> String {
    let file = File::create(bench.path(name)).expect("a file");
    let said = run(bench.backup_into(Path::new(OUTPUT), &[]).stdout(file));
    ok(&said).to_owned()
}

fn check(path: &Path) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("check").arg(path).output().expect("this program");
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).expect("text"))
}

#[test]
fn a_copy_in_one_file_has_everything() {
    let bench = Bench::new();
    furnish(bench.server());
    let mut raw = bench.server().raw();
    // Once with the journal alone, and once behind a snapshot.
    for name in ["journal", "snapshot"] {
        if name == "snapshot" {
            raw.command(&["SAVE"]);
            raw.command(&["SET", "behind", "1"]);
            raw.command(&["SET", "behind", "2"]);
        }
        let said = copy_to(&bench, name);
        let last = last_lsn(bench.server());
        assert!(said.starts_with(&format!("copied up to Lsn {last}, ")), "{said}");
        let (code, said) = check(&bench.path(name));
        assert!(code == Some(0) && said.contains(&format!("good: all data up to Lsn {last}")), "{said}");
        let into = |way: &str| bench.path(&format!("{name} by {way}"));
        ok(&run(&mut restore_from(&bench.path(name), &into("file"))));
        let input = File::open(bench.path(name)).expect("it was written");
        ok(&run(restore_from(Path::new(OUTPUT), &into("pipe")).stdin(input)));
        ["file", "pipe"].iter().for_each(|way| assert_equal(&serve(&into(way)), bench.server()));
        // A moment between the snapshot and the end.
        let said = run(restore_from(&bench.path(name), &into("moment")).args(["--until", &(last - 1).to_string()]));
        assert!(ok(&said).contains(&format!("Lsn {},", last - 1)), "{}", said.text);
        let behind = if name == "snapshot" { Value::bulk("1") } else { Value::Null };
        assert_eq!(serve(&into("moment")).raw().command(&["GET", "behind"]), behind);
        for (until, expected) in [(last + 1, "the copies end with the change"), (0, "no copy up to that moment")] {
            let said = run(restore_from(&bench.path(name), &into("never")).args(["--until", &until.to_string()]));
            assert!(!said.is_good && said.text.contains(expected), "{}", said.text);
        }
    }
}

/// A busy machine makes a copy take longer, never shorter.
#[test]
fn a_copy_is_no_faster_than_asked() {
    let bench = Bench::new();
    let value = "0123456789".repeat(20_000);
    bench.server().raw().command(&["SET", "filler0", &value]);
    bench.server().raw().command(&["SAVE"]);
    bench.server().raw().command(&["SET", "filler1", &value]);
    let begun = Instant::now();
    let file = File::create(bench.path("copy")).expect("a file");
    ok(&run(bench.backup_into(Path::new(OUTPUT), &["--max-rate", "128kb"]).stdout(file)));
    let least = Duration::from_secs_f64(400_000.0 / 131_072.0);
    assert!(begun.elapsed() >= least, "{:?} for what takes {least:?}", begun.elapsed());
    ok(&run(&mut restore_from(&bench.path("copy"), &bench.path("again"))));
    assert_eq!(digest(&serve(&bench.path("again"))), digest(bench.server()));
    for rate in ["127kb", "0", "fast"] {
        let said = run(&mut bench.backup(&["--max-rate", rate]));
        assert!(!said.is_good && said.text.contains("at least 128kb, such as 20mb"), "{rate}: {}", said.text);
    }
}

#[test]
fn a_file_that_is_not_whole_is_refused_and_nothing_is_restored() {
    let bench = Bench::new();
    furnish(bench.server());
    bench.server().raw().command(&["SAVE"]);
    bench.server().raw().command(&["SET", "behind", "1"]);
    copy_to(&bench, "whole");
    let whole = std::fs::read(bench.path("whole")).expect("it was written");
    let (broken, into) = (bench.path("broken"), bench.path("into"));
    let refused = |bytes: &[u8], expected: &str| {
        std::fs::write(&broken, bytes).expect("a file");
        let said = run(&mut restore_from(&broken, &into));
        assert!(!said.is_good && said.text.contains(expected), "{} bytes: {}", bytes.len(), said.text);
        assert_eq!(std::fs::read_dir(&into).expect("a folder").count(), 0, "nothing is left");
        let (code, said) = check(&broken);
        assert!(code == Some(1) && said.contains(expected), "{said}");
    };
    let len = whole.len();
    for cut in [0, 1, 15, 16, 17, 56, 57, 2_000, len / 3, len / 2, len - 41, len - 40, len - 1] {
        refused(&whole[..cut], &format!("the copy was cut off: it has {cut} bytes and no end"));
    }
    for at in [12, 20, 70, len / 2, len - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        refused(&bytes, "the checksum does not match");
    }
    refused(&[&whole[..], b"\n"].concat(), "more bytes follow");
    refused(b"this is a letter, and no copy of any data", "this is no copy that `tidegate backup -` has written");
    // Whatever stands in its way, the whole file is restored.
    std::fs::create_dir_all(into.join("tidegate-data.part/of an earlier call")).expect("a folder");
    ok(&run(&mut restore_from(&bench.path("whole"), &into)));
    assert_equal(&serve(&into), bench.server());
}

#[test]
fn a_pipe_that_closes_early_is_an_error() {
    let bench = Bench::new();
    let value = "x".repeat(1_000_000);
    (0..4).for_each(|n| _ = bench.server().raw().command(&["SET", &format!("key{n}"), &value]));
    let mut command = bench.backup_into(Path::new(OUTPUT), &[]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut first = [0; 8];
    child.stdout.take().expect("a pipe").read_exact(&mut first).expect("it writes");
    assert_eq!(&first, b"TIDECOPY");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.code() == Some(1) && said.contains("standard output: Broken pipe"), "{said}");
    assert!(!said.contains("panicked") && !said.contains("copied"), "{said}");
    // What has read it goes no further, either.
    let mut command = restore_from(Path::new(OUTPUT), &bench.path("into"));
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("a pipe").write_all(&first).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8(output.stderr).expect("text");
    let expected = "standard input: the copy was cut off: it has 8 bytes";
    assert!(output.status.code() == Some(1) && said.contains(expected), "{said}");
}

#[test]
fn what_needs_a_folder_is_refused() {
    let bench = Bench::new();
    for (flags, expected) in [
        (&["--follow"][..], "need a folder"),
        (&["--follow", "--every", "1h"], "need a folder"),
        (&["--keep", "1h"], "need a folder"),
        (&["--every", "1h"], "--follow"),
    ] {
        let said = run(&mut bench.backup_into(Path::new(OUTPUT), flags));
        assert!(!said.is_good && said.text.contains(expected), "{flags:?}: {}", said.text);
    }
}

#[test]
fn one_restore_at_a_time_uses_a_folder() {
    let bench = Bench::new();
    bench.server().raw().command(&["SET", "a", "1"]);
    copy_to(&bench, "whole");
    let into = bench.path("into");
    let mut command = restore_from(Path::new(OUTPUT), &into);
    let mut first = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
    let whole = std::fs::read(bench.path("whole")).expect("it was written");
    let mut input = first.stdin.take().expect("a pipe");
    input.write_all(&whole[..whole.len() - 1]).expect("it reads");
    crate::harness::until(|| into.join("tidegate-data.part").exists(), "the first one has begun");
    let said = run(&mut restore_from(&bench.path("whole"), &into));
    assert!(!said.is_good && said.text.contains("another restore uses this folder"), "{}", said.text);
    input.write_all(&whole[whole.len() - 1..]).expect("it reads");
    drop(input);
    assert!(first.wait().expect("it ends").success());
    assert_eq!(serve(&into).raw().command(&["GET", "a"]), Value::bulk("1"));
}
