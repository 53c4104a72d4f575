//! Scripts against a toy engine, compared with what Redis 7.0.15 answered (`golden/`, recorded by `golden/record.py`).

use std::collections::HashMap;
use std::path::Path;

use super::*;
use crate::resp::reply::{Form, Reply};
use crate::resp::request::{Argv, OwnedArgv};

/// A handful of commands over a map.
#[derive(Default)]
pub(super) struct Toy {
    strings: HashMap<Vec<u8>, Vec<u8>>,
    pub(super) calls: usize,
    pub(super) asked: usize,
    pub(super) kill_after: Option<usize>,
    pub(super) logged: Vec<(LogLevel, Vec<u8>)>,
}

impl Host for Toy {
    fn call(&mut self, argv: Argv<'_>, reply: &mut Reply) {
        self.calls += 1;
        match (argv[0].to_ascii_lowercase().as_slice(), argv.len()) {
            (b"echo", 2) => reply.bulk(&argv[1]),
            (b"get", 2) => reply.bulk_or_null(self.strings.get(&argv[1]).map(Vec::as_slice)),
            (b"set", 3) => {
                self.strings.insert(argv[1].to_vec(), argv[2].to_vec());
                reply.ok();
            }
            (b"incr", 2) if &argv[1] == b"list" => {
                reply.error(b"WRONGTYPE Operation against a key holding the wrong kind of value");
            }
            (b"incr", 2) => {
                let value = self.strings.entry(argv[1].to_vec()).or_default();
                let next = std::str::from_utf8(value).unwrap().parse::<i64>().unwrap_or(0) + 1;
                *value = next.to_string().into_bytes();
                reply.integer(next);
            }
            (b"expire", 3) => reply.integer(1),
            (b"hgetall", 2) => reply.map(0),
            (b"panic", 1) => panic!("the engine broke"),
            _ => reply.error(b"ERR Unknown Redis command called from script"),
        }
    }

    fn interrupted(&mut self) -> Verdict {
        self.asked += 1;
        if self.kill_after.is_some_and(|n| self.asked > n) { Verdict::Kill } else { Verdict::Continue }
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        self.logged.push((level, message.to_vec()));
    }

    fn set_resp(&mut self, _version: u8) {}
}

pub(super) fn vm() -> Vm {
    Vm::new(ServerVersion { text: "7.0.15", number: 0x0007_000f }, 0).expect("a fresh state")
}

/// Runs a script as EVAL would, with the keys and arguments of the transcripts.
pub(super) fn eval(vm: &mut Vm, toy: &mut Toy, form: Form, script: &str) -> String {
    let sha = store::sha1_hex(script.as_bytes());
    if let Err(error) = vm.compile(&sha, script.as_bytes()) {
        return format!("-{error}\\r\\n").replace('\'', "\\'").replace('"', "\\\"");
    }
    let (mut keys, mut args) = (OwnedArgv::default(), OwnedArgv::default());
    [b"k1".as_slice(), b"k2"].into_iter().for_each(|key| keys.push(key));
    [b"a1".as_slice(), b"2"].into_iter().for_each(|arg| args.push(arg));
    let mut reply = Reply::new(form);
    assert!(vm.run(&sha, keys.as_argv(), args.as_argv(), toy, &mut reply));
    reply.as_bytes().escape_ascii().to_string()
}

struct Case {
    script: String,
    two: String,
    three: Option<String>,
}

/// Reads a transcript; what stands behind `=` replaces what Redis answered. Cases marked `?` are left out.
fn read_cases(path: &Path) -> Vec<Case> {
    let text = std::fs::read_to_string(path).expect("a transcript of this repository");
    let mut cases = Vec::new();
    for block in text.split("\n\n") {
        let lines =
            |prefix: &str| -> Vec<&str> { block.lines().filter_map(|line| line.strip_prefix(prefix)).collect() };
        let script = lines("> ").join("\n");
        if script.is_empty() || block.lines().any(|line| line.starts_with('?')) {
            continue;
        }
        let one = |ours: &str, redis: &str| {
            lines(ours).first().or(lines(redis).first()).map(|line| line.trim_end_matches('\n').to_owned())
        };
        let two = one("=2 ", "2 ").expect("each case has its answer");
        let three = if lines("=2 ").is_empty() {
            one("=3 ", "3 ")
        } else {
            lines("=3 ").first().map(|line| (*line).to_owned())
        };
        cases.push(Case { script, two, three });
    }
    cases
}

#[test]
fn answers_equal_those_of_redis() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/script/golden");
    let mut failures = Vec::new();
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the folder of transcripts") {
        let path = entry.expect("a readable folder").path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let mut vm = vm();
        for case in read_cases(&path) {
            for (form, want) in [(Form::Resp2, &case.two), (Form::Resp3, case.three.as_ref().unwrap_or(&case.two))] {
                count += 1;
                if std::env::var_os("TRACE").is_some() {
                    eprintln!("{}", case.script);
                }
                let got = eval(&mut vm, &mut Toy::default(), form, &case.script);
                if got != *want {
                    failures.push(format!("{:?} {}\n  redis {want}\n  ours  {got}", form, case.script));
                }
            }
        }
    }
    assert!(count > 0);
    assert!(failures.is_empty(), "{} of {count} differ:\n{}", failures.len(), failures.join("\n"));
}
