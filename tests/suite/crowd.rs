//! Many clients at once, and both servers in turn: shared by the scenario tests and the tests of bundled scripts.
//!
//! A test is a function of the [`Program`] to start; [`on_both!`] makes two tests of it, so that each claim is also
//! checked against a real Redis. No test waits for time to pass: data that must have lapsed is written with a past
//! deadline.

use std::sync::Barrier;

use redis::{Connection, FromRedisValue, RedisResult, Value};

use crate::harness::Server;

/// How many clients work at once.
pub(crate) const CROWD: usize = 32;

/// Makes two tests of each named test function of a `Program`: `on_tidegate::name`, and `on_redis::name`, which is
/// skipped where there is no Redis.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        mod on_redis {
            $( #[test] fn $name() {
                if !$crate::oracle::REDIS_SERVER.is_missing() {
                    super::$name($crate::harness::Program::Redis)
                }
            } )+
        }
        mod on_redis_8 {
            $( #[test] fn $name() {
                if !$crate::oracle::REDIS_SERVER_8.is_missing() {
                    super::$name($crate::harness::Program::Redis8)
                }
            } )+
        }
        mod on_tidegate { $( #[test] fn $name() { super::$name($crate::harness::Program::Tidegate) } )+ }
    };
}
pub(crate) use on_both;

/// Lets [`CROWD`] clients do `work` at once, each with its number and a connection of its own. Returns their results,
/// ordered by number.
pub(crate) fn at_once<T: Send>(server: &Server, work: impl Fn(usize, &mut Connection) -> T + Sync) -> Vec<T> {
    let start = Barrier::new(CROWD);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CROWD)
            .map(|number| {
                let (start, work) = (&start, &work);
                scope.spawn(move || {
                    let mut connection = server.client();
                    start.wait();
                    work(number, &mut connection)
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("a client of the crowd panicked")).collect()
    })
}

/// Runs one command, written as in redis-cli (arguments separated by blanks), and expects a reply of this type.
pub(crate) fn run<T: FromRedisValue>(connection: &mut Connection, line: &str) -> T {
    try_run(connection, line).unwrap_or_else(|e| panic!("{line}: {e}"))
}

/// Like [`run`], for a command that may fail.
pub(crate) fn try_run<T: FromRedisValue>(connection: &mut Connection, line: &str) -> RedisResult<T> {
    let mut words = line.split_whitespace();
    let mut command = redis::cmd(words.next().expect("a command has a name"));
    command.arg(words.collect::<Vec<_>>());
    command.query(connection)
}

/// A Lua script as programs run it: EVALSHA first, EVAL with the text only after NOSCRIPT.
pub(crate) struct Lua {
    text: String,
    sha1: String,
}

impl Lua {
    /// A script with this text.
    pub(crate) fn new(text: impl Into<String>) -> Lua {
        let text = text.into();
        let sha1 = redis::Script::new(&text).get_hash().to_owned();
        Lua { text, sha1 }
    }

    /// The script in a file.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The SHA1 of the text, in hex.
    pub(crate) fn sha1(&self) -> &str {
        &self.sha1
    }

    /// Runs it and expects a reply of this type.
    pub(crate) fn call<T: FromRedisValue>(&self, connection: &mut Connection, keys: &[&str], args: &[&str]) -> T {
        self.try_call(connection, keys, args).unwrap_or_else(|e| panic!("{keys:?} {args:?}: {e}"))
    }

    /// Runs it. The reply may be an error.
    pub(crate) fn try_call<T: FromRedisValue>(
        &self,
        connection: &mut Connection,
        keys: &[&str],
        args: &[&str],
    ) -> RedisResult<T> {
        let send = |verb: &str, script: &str, connection: &mut Connection| {
            redis::cmd(verb).arg(script).arg(keys.len()).arg(keys).arg(args).query::<Value>(connection)
        };
        let reply = match send("EVALSHA", &self.sha1, connection) {
            Err(e) if e.code() == Some("NOSCRIPT") => send("EVAL", &self.text, connection)?,
            other => other?,
        };
        redis::from_owned_redis_value(reply)
    }
}

/// The server's clock, ms since 1970.
pub(crate) fn now_ms(connection: &mut Connection) -> u64 {
    let (seconds, micros): (u64, u64) = run(connection, "TIME");
    seconds * 1000 + micros / 1000
}
