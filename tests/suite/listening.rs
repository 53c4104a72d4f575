//! Ports and addresses that change while the server runs: connected clients stay connected, and an error changes
//! nothing.

use std::net::{TcpListener, TcpStream};

use crate::crowd::on_both;
use crate::harness::{Program, Raw, Server, Value, encode, free_port, until};

on_both!(
    the_port_moves,
    a_port_in_use_changes_nothing,
    addresses_can_change_at_the_same_port,
    connected_clients_stay_when_the_port_is_closed,
);

fn set(client: &mut Raw, pairs: &[&str]) -> Value {
    client.command(&[&["CONFIG", "SET"], pairs].concat())
}

fn answers(port: u16) -> bool {
    Raw::connect(port).command(&["PING"]) == Value::status("PONG")
}

fn is_closed(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_err()
}

fn parameter(client: &mut Raw, name: &str) -> Value {
    match client.command(&["CONFIG", "GET", name]) {
        Value::Array(mut pair) => pair.pop().expect("name and value"),
        other => panic!("{other:?}"),
    }
}

fn the_port_moves(program: Program) {
    let server = Server::start(program, &[]);
    let (mut client, first, second) = (server.raw(), server.port(), free_port());
    assert_eq!(set(&mut client, &["port", &second.to_string()]), Value::status("OK"));
    assert!(is_closed(first) && answers(second));
    // Back and forth in one pipeline: a closed port is closed at once.
    let there_and_back = [first, second, first].map(|port| encode(&["CONFIG", "SET", "port", &port.to_string()]));
    client.send(&there_and_back.concat());
    for _ in 0..3 {
        assert_eq!(client.reply().value, Value::status("OK"));
    }
    assert!(is_closed(second) && answers(first));
    // Setting the same value again is not a change.
    assert_eq!(set(&mut client, &["port", &first.to_string()]), Value::status("OK"));
    assert!(answers(first));
    let info = client.command(&["INFO", "server"]);
    let info = String::from_utf8_lossy(info.bytes().expect("text")).into_owned();
    assert!(info.contains(&format!("tcp_port:{first}\r\n")), "{info}");
}

fn a_port_in_use_changes_nothing(program: Program) {
    let server = Server::start(program, &[]);
    let mut client = server.raw();
    let taken = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = taken.local_addr().expect("an address").port();
    let refusal = |name: &str, why: &str| {
        Value::error(&format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"))
    };
    let in_use = refusal("port", "Unable to listen on this port. Check server logs.");
    assert_eq!(set(&mut client, &["hz", "20", "port", &port.to_string()]), in_use);
    let no_address = refusal("bind", "Failed to bind to specified addresses.");
    assert_eq!(set(&mut client, &["bind", "127.0.0.1 203.0.113.77"]), no_address);
    assert_eq!(parameter(&mut client, "hz"), Value::bulk("10"));
    assert_eq!(parameter(&mut client, "port"), Value::bulk(&server.port().to_string()));
    assert_eq!(parameter(&mut client, "bind"), Value::bulk("127.0.0.1"));
    assert!(answers(server.port()));
    // A missing optional address is not a failure.
    assert_eq!(set(&mut client, &["bind", "127.0.0.1 -203.0.113.77"]), Value::status("OK"));
    assert!(answers(server.port()));
}

fn addresses_can_change_at_the_same_port(program: Program) {
    let server = Server::start(program, &[]);
    let (mut client, port) = (server.raw(), server.port());
    // The old address conflicts with the new one, and with itself when it is restored after a failure.
    assert_eq!(set(&mut client, &["bind", "*"]), Value::status("OK"));
    assert!(answers(port));
    assert!(TcpStream::connect(("127.0.0.2", port)).is_ok());
    assert!(matches!(set(&mut client, &["bind", "127.0.0.1 203.0.113.77"]), Value::Error(_)));
    assert_eq!(parameter(&mut client, "bind"), Value::bulk("*"));
    assert!(TcpStream::connect(("127.0.0.2", port)).is_ok() && answers(port));
    assert_eq!(set(&mut client, &["bind", "127.0.0.1"]), Value::status("OK"));
    assert!(TcpStream::connect(("127.0.0.2", port)).is_err() && answers(port));
    assert_eq!(client.command(&["PING"]), Value::status("PONG"));
}

fn connected_clients_stay_when_the_port_is_closed(program: Program) {
    let server = Server::start(program, &[]);
    let (mut client, port) = (server.raw(), server.port());
    for pair in [["port", "0"], ["bind", ""]] {
        assert_eq!(set(&mut client, &pair), Value::status("OK"));
        assert!(is_closed(port));
        assert_eq!(client.command(&["PING"]), Value::status("PONG"));
        assert_eq!(set(&mut client, &["port", &port.to_string(), "bind", "127.0.0.1"]), Value::status("OK"));
        until(|| answers(port), "the server listens again");
    }
}
