//! Two client crates that share no code with the server or with each other: `redis` (blocking here) and `fred` (async).
//!
//! Covers features that programs rely on: pipelines, transactions with WATCH, scripts, pub/sub, RESP2 and RESP3, and
//! errors that the crates must recognise.

use std::collections::HashMap;
use std::time::Duration;

use fred::prelude::*;
use fred::types::RespVersion;
use redis::{Commands, Connection, PushKind, Value as RedisValue};

use crate::bundled::bundled;
use crate::crowd::{on_both, run, try_run};
use crate::harness::{Program, REPLY_DEADLINE, Server};

on_both!(
    redis_crate_pipelines,
    redis_crate_transactions,
    redis_crate_scripts,
    redis_crate_pubsub,
    redis_crate_resp3,
    redis_crate_errors,
    fred_over_resp2,
    fred_over_resp3,
    fred_pubsub,
);

fn start(program: Program) -> (Server, Connection) {
    let server = Server::start(program, &[]);
    let connection = server.client();
    (server, connection)
}

fn redis_crate_pipelines(program: Program) {
    let (_server, mut c) = start(program);
    let mut pipe = redis::pipe();
    for n in 0..1_000 {
        pipe.set(format!("key:{n}"), n).ignore();
        pipe.incr(format!("key:{n}"), 1);
    }
    let counts: Vec<i64> = pipe.query(&mut c).expect("2,000 commands in one write");
    assert_eq!(counts, (1..=1_000).collect::<Vec<i64>>());

    // A value larger than any read, in the middle of a pipeline, with every byte value in it.
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).chain(0..=255).collect();
    let (first, read, last): (i64, Vec<u8>, i64) = redis::pipe()
        .incr("before", 1)
        .set("large", &large)
        .ignore()
        .get("large")
        .incr("after", 1)
        .query(&mut c)
        .expect("the pipeline runs");
    assert_eq!((first, last), (1, 1));
    assert!(read == large, "3 MB came back changed");
}

fn redis_crate_transactions(program: Program) {
    let (server, mut c) = start(program);
    let (old, new): (i64, i64) =
        redis::pipe().atomic().incr("n", 5).incr("n", 6).query(&mut c).expect("MULTI, two commands, EXEC");
    assert_eq!((old, new), (5, 11));

    // Optimistic locking as the crate does it: WATCH, read, MULTI, write, EXEC, again after a concurrent write.
    let mut rival = server.client();
    let mut attempts = 0;
    let (result,): (i64,) = redis::transaction(&mut c, &["n"], |c, pipe| {
        attempts += 1;
        let n: i64 = c.get("n")?;
        if attempts == 1 {
            let _: i64 = rival.incr("n", 100)?;
        }
        pipe.set("n", n + 1).ignore().get("n").query(c)
    })
    .expect("the second attempt commits");
    assert_eq!((attempts, result), (2, 112));
}

fn redis_crate_scripts(program: Program) {
    let (_server, mut c) = start(program);
    let script = redis::Script::new(bundled("lease_gate_acquire").text());
    let outcome: (i64, i64, i64) = script
        .key("gate")
        .arg("job-1")
        .arg(1)
        .arg(60_000)
        .invoke(&mut c)
        .expect("EVALSHA, SCRIPT LOAD when unknown, EVALSHA");
    assert_eq!(outcome, (1, 1, 60_000));
    let known: Vec<bool> = run(&mut c, &format!("SCRIPT EXISTS {} {}", script.get_hash(), "0".repeat(40)));
    assert_eq!(known, [true, false]);
}

fn redis_crate_pubsub(program: Program) {
    let (server, mut c) = start(program);
    let mut listener = server.client();
    let mut pubsub = listener.as_pubsub();
    pubsub.set_read_timeout(Some(REPLY_DEADLINE)).expect("a deadline");
    pubsub.subscribe("news").expect("SUBSCRIBE");
    pubsub.psubscribe("n?ws").expect("PSUBSCRIBE");
    assert_eq!(c.publish::<_, _, i64>("news", "hello").expect("PUBLISH"), 2);
    for pattern in [None, Some("n?ws".to_owned())] {
        let message = pubsub.get_message().expect("a message in time");
        assert_eq!(message.get_channel_name(), "news");
        assert_eq!(message.get_payload::<String>().expect("a text"), "hello");
        assert_eq!(message.get_pattern::<Option<String>>().expect("a pattern or none"), pattern);
    }
    drop(pubsub);
    let again: String = redis::cmd("PING").query(&mut listener).expect("an ordinary connection again");
    assert_eq!(again, "PONG");
}

fn redis_crate_resp3(program: Program) {
    let (server, mut c2) = start(program);
    let url = format!("redis://127.0.0.1:{}/?protocol=resp3", server.port());
    let client = redis::Client::open(url).expect("a valid address");
    let mut c3 = client.get_connection().expect("HELLO 3");
    let _: () = run(&mut c3, "HSET h a 1 b 2");
    let _: () = run(&mut c3, "SADD s x");
    let _: () = run(&mut c3, "ZADD z 1.5 m");
    assert!(matches!(run(&mut c3, "HGETALL h"), RedisValue::Map(pairs) if pairs.len() == 2));
    assert!(matches!(run(&mut c2, "HGETALL h"), RedisValue::Array(items) if items.len() == 4));
    assert!(matches!(run(&mut c3, "SMEMBERS s"), RedisValue::Set(items) if items.len() == 1));
    assert_eq!(run::<RedisValue>(&mut c3, "ZSCORE z m"), RedisValue::Double(1.5));
    assert_eq!(run::<RedisValue>(&mut c2, "ZSCORE z m"), RedisValue::BulkString(b"1.5".to_vec()));
    assert_eq!(run::<RedisValue>(&mut c3, "GET none"), RedisValue::Nil);
    let typed: HashMap<String, i64> = c3.hgetall("h").expect("a map");
    assert_eq!(typed, HashMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]));

    // In RESP3 a subscriber may run commands; messages come as pushes beside the replies.
    let (sender, pushes) = std::sync::mpsc::channel();
    c3.set_push_sender(sender);
    c3.subscribe_resp3("news").expect("SUBSCRIBE");
    // It is sent but not answered until another message arrives.
    let _: () = run(&mut c3, "PING");
    assert_eq!(c2.publish::<_, _, i64>("news", "hello").expect("PUBLISH"), 1);
    assert_eq!(c3.get::<_, Option<String>>("none").expect("a command between the pushes"), None);
    let kinds: Vec<PushKind> = pushes.try_iter().map(|push| push.kind).collect();
    assert!(kinds.contains(&PushKind::Message), "the message came before the later reply: {kinds:?}");
}

fn redis_crate_errors(program: Program) {
    let (_server, mut c) = start(program);
    let _: () = run(&mut c, "SET text abc");
    for (line, code) in [
        ("LPUSH text x", "WRONGTYPE"),
        ("INCR text", "ERR"),
        ("NOSUCHCOMMAND", "ERR"),
        ("EVALSHA 0000000000000000000000000000000000000000 0", "NOSCRIPT"),
        ("HELLO 4", "NOPROTO"),
        ("EXEC", "ERR"),
    ] {
        let error = try_run::<RedisValue>(&mut c, line).expect_err(line);
        assert_eq!(error.code(), Some(code), "{line}: {error}");
    }
    let _: () = run(&mut c, "MULTI");
    let _: () = run(&mut c, "INCR n");
    assert!(try_run::<RedisValue>(&mut c, "NOSUCHCOMMAND").is_err());
    let refused = try_run::<RedisValue>(&mut c, "EXEC").expect_err("a command was refused while queueing");
    assert_eq!(refused.code(), Some("EXECABORT"));
    assert_eq!(run::<Option<i64>>(&mut c, "GET n"), None);
}

fn fred_over_resp2(program: Program) {
    fred_works(program, RespVersion::RESP2);
}

fn fred_over_resp3(program: Program) {
    fred_works(program, RespVersion::RESP3);
}

/// A client of the `fred` crate, connected; it fails at once instead of connecting again.
async fn fred_client(server: &Server, version: RespVersion) -> Client {
    let mut config = Config::from_url(&format!("redis://127.0.0.1:{}", server.port())).expect("a valid address");
    config.version = version;
    let client = Builder::from_config(config)
        .with_performance_config(|performance| performance.default_command_timeout = REPLY_DEADLINE)
        .set_policy(ReconnectPolicy::new_constant(1, 10))
        .build()
        .expect("a client");
    client.init().await.expect("fred connects");
    client
}

fn block_on<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), work).await.expect("done in time") })
}

fn fred_works(program: Program, version: RespVersion) {
    let (server, _c) = start(program);
    block_on(async {
        let client = fred_client(&server, version).await;

        let pipeline = client.pipeline();
        for _ in 0..500 {
            let _: () = pipeline.incr("count").await.expect("queued");
        }
        let counts: Vec<i64> = pipeline.all().await.expect("a pipeline");
        assert_eq!(counts, (1..=500).collect::<Vec<i64>>());

        let transaction = client.multi();
        let _: () = transaction.set("a", 1, None, None, false).await.expect("queued");
        let _: () = transaction.incr_by("a", 41).await.expect("queued");
        let (set, sum): (String, i64) = transaction.exec(true).await.expect("EXEC");
        assert_eq!((set.as_str(), sum), ("OK", 42));

        let script = bundled("seckill_v1");
        let sell = || client.evalsha::<i64, _, _, _>(script.sha1(), vec!["stock", "buyers"], vec!["u"]);
        // A server that has the bundled scripts loaded knows it at once.
        if let Err(error) = sell().await {
            assert!(error.details().starts_with("NOSCRIPT"), "{error}");
            let sha1: String = client.script_load(script.text()).await.expect("SCRIPT LOAD");
            assert_eq!(sha1, script.sha1());
        }
        let _: () = client.set("stock", 1, Some(Expiration::EX(100)), None, false).await.expect("SET EX");
        for outcome in [0, 1] {
            assert_eq!(sell().await.expect("EVALSHA"), outcome);
        }

        let _: i64 = client.hset("h", [("name", "tide"), ("gate", "60")]).await.expect("HSET");
        let fields: HashMap<String, String> = client.hgetall("h").await.expect("HGETALL");
        assert_eq!(fields["gate"], "60");
        let entry: String = client.xadd("orders", false, None, "*", ("id", "7")).await.expect("XADD");
        assert!(entry.contains('-'));
        let wrong = client.incr::<i64, _>("h").await.expect_err("a hash has no number");
        assert!(wrong.details().starts_with("WRONGTYPE"), "{wrong}");
        client.quit().await.expect("QUIT");
    });
}

fn fred_pubsub(program: Program) {
    let (server, _c) = start(program);
    block_on(async {
        for version in [RespVersion::RESP2, RespVersion::RESP3] {
            let subscriber = fred_client(&server, version.clone()).await;
            let publisher = fred_client(&server, version).await;
            let mut messages = subscriber.message_rx();
            subscriber.subscribe("news").await.expect("SUBSCRIBE");
            // fred returns from a RESP2 SUBSCRIBE before the server has read it.
            while publisher.publish::<i64, _, _>("news", "hello").await.expect("PUBLISH") == 0 {
                tokio::task::yield_now().await;
            }
            let message = messages.recv().await.expect("a message");
            assert_eq!(message.channel, "news");
            assert_eq!(message.value.as_str().as_deref(), Some("hello"));
            subscriber.unsubscribe("news").await.expect("UNSUBSCRIBE");
            subscriber.quit().await.expect("QUIT");
            publisher.quit().await.expect("QUIT");
        }
    });
}
