//! Lifetimes of scripts and libraries: which texts leave the script cache and which stay, and how the library of the
//! bundled scripts coexists with those of clients.
//!
//! Their durability is tested where a stream of effects can be replayed, in `src/server`.

use redis::{Connection, Value};
use tidegate::script::bundled::{BUNDLED, Bundled, library_code};

use crate::crowd::{run, try_run};
use crate::harness::{Program, Server};

fn start(flags: &[&str]) -> (Server, Connection) {
    let server = Server::start(Program::Tidegate, flags);
    let connection = server.client();
    (server, connection)
}

/// Runs a text by EVAL; returns its SHA1, by which EVALSHA finds it from then on.
fn eval(c: &mut Connection, text: &str) -> String {
    let _: Value = redis::cmd("EVAL").arg(text).arg(0).query(c).unwrap_or_else(|e| panic!("{text}: {e}"));
    redis::Script::new(text).get_hash().to_owned()
}

fn exist(c: &mut Connection, names: &[&str]) -> Vec<bool> {
    redis::cmd("SCRIPT").arg("EXISTS").arg(names).query(c).expect("SCRIPT EXISTS takes any names")
}

/// A script of this many bytes.
fn text(mark: char, bytes: usize) -> String {
    let text = format!("return '{}'", mark.to_string().repeat(bytes - 9));
    assert_eq!(text.len(), bytes);
    text
}

#[test]
fn texts_from_eval_have_a_limit_on_their_bytes() {
    let (_server, mut c) = start(&["--script-cache-max-bytes", "1000"]);
    let bundled = redis::Script::new(Bundled::named("funnel").expect("it is bundled").body);
    let loaded: String = redis::cmd("SCRIPT").arg("LOAD").arg(text('l', 5000)).query(&mut c).expect("it compiles");
    let [a, b] = ['a', 'b'].map(|mark| eval(&mut c, &text(mark, 400)));
    assert_eq!(exist(&mut c, &[&a, &b]), [true, true]);
    // The longest unused script leaves, not the oldest.
    let _: Value = run(&mut c, &format!("EVALSHA {a} 0"));
    let third = eval(&mut c, &text('c', 400));
    assert_eq!(exist(&mut c, &[&a, &b, &third]), [true, false, true]);
    assert_eq!(try_run::<Value>(&mut c, &format!("EVALSHA {b} 0")).unwrap_err().code(), Some("NOSCRIPT"));
    // A script larger than the limit runs, and can be run again until another one comes.
    let large = eval(&mut c, &text('x', 2000));
    let _: Value = run(&mut c, &format!("EVALSHA {large} 0"));
    assert_eq!(exist(&mut c, &[&a, &third, &large]), [false, false, true]);
    let small = eval(&mut c, "return 1");
    assert_eq!(exist(&mut c, &[&large, &small]), [false, true]);
    // A script named by SCRIPT LOAD stays, even if EVAL brought it.
    let named: String = redis::cmd("SCRIPT").arg("LOAD").arg("return 1").query(&mut c).expect("it compiles");
    assert_eq!(named, small);
    // A lower limit takes effect at once.
    let many: Vec<String> = ('a'..'i').map(|mark| eval(&mut c, &text(mark, 100))).collect();
    let names: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(exist(&mut c, &names), [true; 8]);
    let _: () = run(&mut c, "CONFIG SET script-cache-max-bytes 250");
    assert_eq!(exist(&mut c, &names), [[false; 6].as_slice(), &[true; 2]].concat());
    assert_eq!(
        exist(&mut c, &[&small, &loaded, bundled.get_hash()]),
        [true; 3],
        "none of these scripts came by EVAL alone"
    );
    let _: () = run(&mut c, "SCRIPT FLUSH");
    assert_eq!(exist(&mut c, &[&small, &loaded, names[7], bundled.get_hash()]), [false, false, false, true]);
}

#[test]
fn texts_from_eval_have_a_limit_on_their_number() {
    let (_server, mut c) = start(&[]);
    let first = eval(&mut c, "return 'first'");
    let names: Vec<String> = (0..500).map(|n| eval(&mut c, &format!("return {n}"))).collect();
    assert_eq!(exist(&mut c, &[&first, &names[0], &names[499]]), [false, true, true]);
    let memory: String = run(&mut c, "INFO memory");
    assert!(memory.contains("number_of_cached_scripts:500\r\n"), "{memory}");
}

/// The numbers of libraries and functions in FUNCTION STATS.
fn counts(c: &mut Connection) -> String {
    format!("{:?}", run::<Value>(c, "FUNCTION STATS"))
}

fn function(c: &mut Connection, words: &[&str]) -> Value {
    redis::cmd("FUNCTION").arg(words).query(c).unwrap_or_else(|e| panic!("FUNCTION {words:?}: {e}"))
}

#[test]
fn the_bundled_library_is_listed_only_by_name() {
    let (_server, mut c) = start(&[]);
    let empty = (function(&mut c, &["LIST"]), function(&mut c, &["DUMP"]), counts(&mut c));
    assert_eq!(empty.0, Value::Array(Vec::new()));
    let Value::BulkString(payload) = &empty.1 else { panic!("a payload is a string: {:?}", empty.1) };
    assert_eq!(payload.len(), 10, "the payload holds no library");
    assert_eq!(function(&mut c, &["LIST", "LIBRARYNAME", "*"]), Value::Array(Vec::new()));

    let named = function(&mut c, &["LIST", "LIBRARYNAME", "tidegate", "WITHCODE"]);
    let told = format!("{named:?}");
    for script in BUNDLED {
        assert!(told.contains(&format!("{:?}", Value::BulkString(script.name.into()))), "{} is missing", script.name);
    }
    // No client can drop it.
    function(&mut c, &["FLUSH"]);
    let error = try_run::<Value>(&mut c, "FUNCTION DELETE tidegate").unwrap_err().to_string();
    assert!(error.contains("Library not found"), "{error}");
    let _: () = run(&mut c, "SCRIPT FLUSH");
    assert_eq!(run::<i64>(&mut c, "FCALL gate_acquire 1 gate 60"), 1);
    assert_eq!(empty, (function(&mut c, &["LIST"]), function(&mut c, &["DUMP"]), counts(&mut c)));
}

#[test]
fn functions_loaded_by_clients_override_bundled_ones() {
    let (_server, mut c) = start(&[]);
    let mine = "#!lua name=mine\nredis.register_function('Gate_Acquire', function() return 'mine' end)";
    function(&mut c, &["LOAD", mine]);
    assert_eq!(run::<String>(&mut c, "FCALL gate_acquire 1 gate 60"), "mine");
    assert_eq!(run::<Option<i64>>(&mut c, "FCALL gate_release 1 gate"), None, "the other functions are as before");
    // The name of the library is free, too: programs may load the same text into every server.
    function(&mut c, &["DELETE", "mine"]);
    assert_eq!(run::<i64>(&mut c, "FCALL gate_acquire 1 gate 60"), 1);
    function(&mut c, &["LOAD", &library_code()]);
    let Value::Array(listed) = function(&mut c, &["LIST", "LIBRARYNAME", "tidegate"]) else {
        panic!("a list of libraries")
    };
    assert_eq!(listed.len(), 1, "only the client's library is listed");
    assert_eq!(run::<i64>(&mut c, "FCALL gate_acquire 1 gate 60"), 2);
    assert!(counts(&mut c).contains("int(15)"), "{}", counts(&mut c));
    function(&mut c, &["DELETE", "tidegate"]);
    assert_eq!(run::<i64>(&mut c, "FCALL gate_acquire 1 gate 60"), 3);
}
