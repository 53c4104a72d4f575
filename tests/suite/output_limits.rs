//! `client-output-buffer-limit`: counted when a reply is added, not when a socket stops accepting bytes.

use crate::crowd::on_both;
use crate::harness::{Program, Raw, Server, Value, encode};

on_both!(
    a_reply_beyond_the_limit_closes_the_client_unsent,
    a_pipeline_beyond_the_limit_is_closed_without_replies,
    a_transaction_beyond_the_limit_runs_though_its_client_is_closed,
    unauthenticated_clients_may_leave_little_unread,
);

/// A server whose clients may leave 100,000 bytes unread, in which `list` has 150,000.
fn limited(program: Program) -> (Server, Raw) {
    let server = Server::start(program, &["--client-output-buffer-limit", "normal 100000 0 0"]);
    let mut client = server.raw();
    (0..150).for_each(|_| drop(client.command(&["RPUSH", "list", &"x".repeat(1_000)])));
    (server, client)
}

/// Asserts how many clients were closed, where INFO counts that: before Redis 7.4 it does not.
fn closed(client: &mut Raw, count: u64) {
    let info = client.command(&["INFO", "stats"]);
    let text = String::from_utf8_lossy(info.bytes().expect("text")).into_owned();
    let field = "client_output_buffer_limit_disconnections:";
    let counted = text.lines().find_map(|line| line.strip_prefix(field)).map(|count| count.parse());
    assert!(counted.is_none_or(|counted| counted == Ok(count)), "{text}");
}

fn a_reply_beyond_the_limit_closes_the_client_unsent(program: Program) {
    let (server, mut client) = limited(program);
    client.command(&["SETRANGE", "large", "149999", "x"]);
    for (already, command) in [&["LRANGE", "list", "0", "-1"][..], &["GET", "large"]].into_iter().enumerate() {
        let mut reader = server.raw();
        reader.send_command(command);
        assert_eq!(reader.read_to_end(), b"");
        closed(&mut client, already as u64 + 1);
    }
    // Each reply alone is within the limit.
    for _ in 0..3 {
        assert!(matches!(client.command(&["LRANGE", "list", "0", "80"]), Value::Array(items) if items.len() == 81));
    }
    closed(&mut client, 2);
}

fn a_pipeline_beyond_the_limit_is_closed_without_replies(program: Program) {
    let (server, mut client) = limited(program);
    client.command(&["SETRANGE", "some", "9999", "x"]);
    let pipeline = encode(&["GET", "some"]).repeat(20);
    let mut reader = server.raw();
    reader.send(&pipeline);
    assert_eq!(reader.read_to_end(), b"");
    closed(&mut client, 1);
}

fn a_transaction_beyond_the_limit_runs_though_its_client_is_closed(program: Program) {
    let (server, mut client) = limited(program);
    let mut reader = server.raw();
    for command in [&["MULTI"][..], &["SET", "before", "1"], &["LRANGE", "list", "0", "-1"], &["SET", "behind", "1"]] {
        reader.command(command);
    }
    reader.send_command(&["EXEC"]);
    assert_eq!(reader.read_to_end(), b"");
    assert_eq!(client.command(&["MGET", "before", "behind"]), Value::Array(vec![Value::bulk("1"), Value::bulk("1")]));
}

fn unauthenticated_clients_may_leave_little_unread(program: Program) {
    let server = Server::start(program, &["--requirepass", "secret"]);
    let mut stranger = server.raw();
    // A few errors at once are not an attack.
    stranger.send(&encode(&["GET", "a"]).repeat(100));
    (0..100).for_each(|_| assert!(matches!(stranger.reply().value, Value::Error(_))));
    // This many are an attack; some errors may have been sent before the others are counted.
    stranger.send(&encode(&["GET", "a"]).repeat(2_000));
    let answered = stranger.read_to_end().len();
    assert!(answered < 2_000 * "-NOAUTH Authentication required.\r\n".len(), "{answered}");
    let mut client = server.raw();
    assert_eq!(client.command(&["AUTH", "secret"]), Value::status("OK"));
    closed(&mut client, 1);
}
