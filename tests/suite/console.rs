//! The console: what a browser is sent, what it may ask, and that nobody else gets through.
//!
//! The tests speak HTTP by themselves, so that they can send what no browser would.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::harness::{Program, Server, Value, until};
use crate::protocol::raise_descriptor_limit;

/// A server with a console, and the address of the console.
pub(crate) fn start(flags: &[&str]) -> (Server, SocketAddr) {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    (start_at(address, flags), address)
}

/// A server with a console at this address.
pub(crate) fn start_at(address: SocketAddr, flags: &[&str]) -> Server {
    let port = address.port().to_string();
    Server::start(Program::Tidegate, &[&["--console-port", &port], flags].concat())
}

/// A response.
#[derive(Debug)]
struct Response {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Response {
    fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn json(&self) -> Json {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// The word that says why a request was refused.
    fn refused(&self) -> String {
        self.json()["refused"].as_str().unwrap_or_default().to_owned()
    }
}

/// Sends bytes, and reads the response to them.
fn exchange(address: SocketAddr, request: &[u8]) -> Response {
    let mut stream = TcpStream::connect(address).expect("a listening console");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    stream.write_all(request).expect("it is taken");
    response(&mut BufReader::new(stream))
}

fn response(reader: &mut impl BufRead) -> Response {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).expect("a line") > 0, "the connection ended: {head:?}");
    }
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let mut response = Response { status, head, body: Vec::new() };
    if let Some(length) = response.header("content-length") {
        let length = length.parse().expect("a length");
        response.body = vec![0; length];
        reader.read_exact(&mut response.body).expect("the whole body");
    }
    response
}

/// Headers by their names.
type Headers<'a> = &'a [(&'a str, &'a str)];

/// A request with these headers besides `Host`, and this body.
fn request(method: &str, path: &str, headers: Headers<'_>, body: &str) -> Vec<u8> {
    let mut request = format!("{method} {path} HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request += "Host: localhost\r\n";
    }
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() {
        request += &format!("Content-Length: {}\r\n", body.len());
    }
    (request + "\r\n" + body).into_bytes()
}

fn get(address: SocketAddr, path: &str) -> Response {
    exchange(address, &request("GET", path, &[], ""))
}

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// Signs in; the response, and the session.
fn try_sign_in(address: SocketAddr, user: &str, password: &str) -> (Response, Option<Session>) {
    let body = json!({ "user": user, "password": password }).to_string();
    let response = exchange(address, &request("POST", "/api/sign-in", &[JSON], &body));
    let session = (response.status == 200).then(|| Session {
        address,
        cookie: response.header("set-cookie").expect("a cookie").split(';').next().unwrap_or_default().to_owned(),
        token: response.json()["token"].as_str().expect("a token").to_owned(),
    });
    (response, session)
}

pub(crate) fn sign_in(address: SocketAddr, user: &str, password: &str) -> Session {
    let (response, session) = try_sign_in(address, user, password);
    session.unwrap_or_else(|| panic!("{}", response.text()))
}

/// Somebody who is signed in.
pub(crate) struct Session {
    address: SocketAddr,
    cookie: String,
    token: String,
}

impl Session {
    /// Runs calls, and returns the response.
    fn try_run(&self, db: u64, calls: &[&[&str]]) -> Response {
        let headers = [JSON, ("Cookie", &self.cookie), ("X-Tidegate-Token", &self.token)];
        let body = json!({ "db": db, "calls": calls }).to_string();
        exchange(self.address, &request("POST", "/api/command", &headers, &body))
    }

    /// The status of a question about the session: 200 while it lasts.
    fn status(&self) -> u16 {
        exchange(self.address, &request("GET", "/api/session", &[("Cookie", &self.cookie)], "")).status
    }

    /// Runs one call, and returns its reply.
    fn run(&self, call: &[&str]) -> Json {
        let response = self.try_run(0, &[call]);
        assert_eq!(response.status, 200, "{}", response.text());
        response.json()["replies"][0].clone()
    }

    /// A stream of state.
    pub(crate) fn stream(&self, query: &str) -> Stream {
        let mut stream = TcpStream::connect(self.address).expect("a listening console");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        let bytes = request("GET", &format!("/api/stream?{query}"), &[("Cookie", &self.cookie)], "");
        stream.write_all(&bytes).expect("it is taken");
        let mut reader = BufReader::new(stream);
        let head = response(&mut reader);
        assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")), "{head:?}");
        Stream { reader: BufReader::new(Chunks { reader, left: 0 }) }
    }
}

pub(crate) struct Stream {
    reader: BufReader<Chunks>,
}

/// A body in chunks (RFC 9112, section 7.1).
struct Chunks {
    reader: BufReader<TcpStream>,
    /// Bytes of the chunk that are left.
    left: usize,
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            let mut length = String::new();
            // An empty line ends the chunk before.
            while length.trim().is_empty() {
                length.clear();
                if self.reader.read_line(&mut length)? == 0 {
                    return Ok(0);
                }
            }
            self.left = usize::from_str_radix(length.trim(), 16).map_err(io::Error::other)?;
        }
        let most = buffer.len().min(self.left);
        let read = self.reader.read(&mut buffer[..most])?;
        self.left -= read;
        Ok(read)
    }
}

impl Stream {
    /// The next event of this name that is as wanted.
    fn first(&mut self, name: &str, is_wanted: impl Fn(&Json) -> bool) -> Json {
        loop {
            let event = self.next(name).expect("the stream goes on");
            if is_wanted(&event) {
                return event;
            }
        }
    }

    /// The next event of this name; `None` when the stream ends.
    pub(crate) fn next(&mut self, wanted: &str) -> Option<Json> {
        let mut name = String::new();
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            if let Some(event) = line.strip_prefix("event: ") {
                name = event.trim_end().to_owned();
            } else if let Some(data) = line.strip_prefix("data: ").filter(|_| name == wanted) {
                return Some(serde_json::from_str(data).expect("JSON"));
            }
        }
    }
}

#[test]
fn the_page_is_served_by_digest_and_compressed() {
    let (_server, address) = start(&[]);
    let index = get(address, "/");
    assert_eq!((index.status, index.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let text = index.text();
    let assets: Vec<&str> = text.split('"').filter(|part| part.starts_with("assets/")).collect();
    assert!(assets.len() > 10, "{text}");
    let mut bytes = index.body.len();
    for path in assets {
        let response = exchange(address, &request("GET", &format!("/{path}"), &[("Accept-Encoding", "gzip")], ""));
        assert_eq!(response.status, 200, "{path}");
        assert!(response.header("cache-control").is_some_and(|cache| cache.contains("immutable")), "{response:?}");
        bytes += response.body.len();
    }
    assert!(bytes <= 120 * 1024, "{bytes} bytes for the whole page");
    let policy = index.header("content-security-policy").expect("a policy");
    assert!(policy.starts_with("default-src 'self';") && !policy.contains("unsafe"), "{policy}");
    assert!(!text.contains("http://") && !text.contains("https://"), "nothing comes from elsewhere");
    let mut stream = TcpStream::connect(address).expect("a listening console");
    stream.write_all(&request("HEAD", "/", &[("Connection", "close")], "")).expect("it is taken");
    let mut head = String::new();
    stream.read_to_string(&mut head).expect("text");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn no_path_leads_out_of_the_page() {
    let (_server, address) = start(&[]);
    let text = get(address, "/").text();
    let assets = text.split('"').find(|part| part.starts_with("assets/")).expect("an address");
    let digest = assets.split('/').nth(1).expect("a digest").to_owned();
    for path in [
        "/../Cargo.toml".to_owned(),
        "/assets/../../Cargo.toml".to_owned(),
        format!("/assets/{digest}/../../Cargo.toml"),
        format!("/assets/{digest}/..%2f..%2fCargo.toml"),
        format!("/assets/{digest}/%2e%2e/%2e%2e/etc/passwd"),
        format!("/assets/{digest}//etc/passwd"),
        format!("/assets/{digest}/vendor/../../Cargo.toml"),
        format!("/assets/{digest}/index.html"),
        format!("/assets/{digest}/README.md"),
        "/assets/0000000000000000/main.js".to_owned(),
        "/etc/passwd".to_owned(),
        "/api/nosuch".to_owned(),
    ] {
        assert_eq!(get(address, &path).status, 404, "{path}");
    }
}

#[test]
fn commands_run_as_the_user_who_is_signed_in() {
    let (server, address) = start(&["--requirepass", "secret"]);
    let mut raw = server.raw();
    raw.command(&["AUTH", "secret"]);
    raw.command(&["ACL", "SETUSER", "ann", "on", ">pass", "~app:*", "+get", "+set", "+select", "+hello"]);
    for (user, password) in [("", ""), ("", "wrong"), ("ann", "wrong"), ("nosuch", "pass")] {
        let (response, session) = try_sign_in(address, user, password);
        assert_eq!((response.status, response.refused().as_str()), (401, "password"), "{user} {password}");
        assert!(session.is_none());
    }
    let ann = sign_in(address, "ann", "pass");
    assert_eq!(ann.run(&["SET", "app:k", "v"]), json!({"status": "OK"}));
    assert_eq!(ann.run(&["GET", "app:k"]), json!("v"));
    for (call, part) in
        [(&["GET", "other"][..], "key"), (&["DEL", "app:k"], "'del'"), (&["CONFIG", "GET", "*"], "'config|get'")]
    {
        let text = ann.run(call)["error"].as_str().expect("a refusal").to_owned();
        assert!(text.starts_with("NOPERM ") && text.contains(part), "{text}");
    }
    let all = sign_in(address, "", "secret");
    assert_eq!(all.run(&["ACL", "WHOAMI"]), json!("default"));
    let replies = all.try_run(3, &[&["SET", "k", "3"], &["GET", "k"], &["NOSUCH"]]).json();
    assert_eq!(replies["replies"][1], json!("3"));
    assert!(replies["replies"][2]["error"].as_str().is_some_and(|text| text.contains("unknown command")));
    assert_eq!(all.run(&["GET", "k"]), Json::Null, "each request has a connection of its own");
    let list = format!("{:?}", raw.command(&["CLIENT", "LIST"]));
    assert_eq!(list.matches("name=console").count(), 2, "one for each session: {list}");
    until(|| server.log().contains("sign-in refused"), "the audit knows who was refused");
}

#[test]
fn a_session_ends_with_its_user_and_by_signing_out() {
    let (server, address) = start(&[]);
    let mut raw = server.raw();
    raw.command(&["ACL", "SETUSER", "ann", "on", ">pass", "~*", "+@all"]);
    let session_of =
        |session: &Session| exchange(address, &request("GET", "/api/session", &[("Cookie", &session.cookie)], ""));
    let (first, second, third) =
        (sign_in(address, "ann", "pass"), sign_in(address, "ann", "pass"), sign_in(address, "ann", "pass"));
    assert_eq!(session_of(&first).json(), json!({"user": "ann", "token": first.token}));
    let headers = [JSON, ("Cookie", &*first.cookie), ("X-Tidegate-Token", &*first.token)];
    let out = exchange(address, &request("POST", "/api/sign-out", &headers, "{}"));
    assert!(
        out.status == 200 && out.header("set-cookie").is_some_and(|cookie| cookie.contains("Max-Age=0")),
        "{out:?}"
    );
    until(|| session_of(&first).status == 401, "the first session is over");
    assert_eq!(session_of(&second).status, 200, "the others are not");
    // An operator closes the anchor.
    let id = second.run(&["CLIENT", "LIST"]).as_str().and_then(|list| {
        let line = list.lines().find(|line| line.contains("name=console"))?.to_owned();
        line.split(' ').next()?.strip_prefix("id=").map(str::to_owned)
    });
    raw.command(&["CLIENT", "KILL", "ID", &id.expect("an anchor")]);
    until(|| [&second, &third].iter().filter(|session| session_of(session).status == 401).count() == 1, "one is over");
    let mut stream = third.stream("overview");
    raw.command(&["ACL", "DELUSER", "ann"]);
    until(|| session_of(&second).status == 401 && session_of(&third).status == 401, "their user is gone");
    while stream.next("tick").is_some() {}
}

#[test]
fn a_session_ends_when_its_user_may_no_longer_sign_in() {
    let (server, address) = start(&[]);
    let mut raw = server.raw();
    raw.command(&["ACL", "SETUSER", "ann", "on", ">pass", "~*", "+@all"]);
    let (caller, looker) = (sign_in(address, "ann", "pass"), sign_in(address, "ann", "pass"));
    let mut stream = looker.stream("overview");
    // Another password beside it changes nothing.
    raw.command(&["ACL", "SETUSER", "ann", ">other"]);
    assert_eq!(caller.run(&["PING"]), json!({"status": "PONG"}));
    raw.command(&["ACL", "SETUSER", "ann", "<pass"]);
    let response = caller.try_run(0, &[&["PING"]]);
    assert_eq!((response.status, response.refused().as_str()), (401, "signed-out"), "the password is gone");
    until(|| caller.status() == 401, "its session is over");
    while stream.next("tick").is_some() {}
    until(|| looker.status() == 401, "one that only looks is over, too");
    let third = sign_in(address, "ann", "other");
    raw.command(&["ACL", "SETUSER", "ann", "off"]);
    assert_eq!(third.try_run(0, &[&["PING"]]).status, 401, "the user is switched off");
    let open = sign_in(address, "", "");
    raw.command(&["CONFIG", "SET", "requirepass", "secret"]);
    assert_eq!(open.try_run(0, &[&["PING"]]).status, 401, "the server wants a password now");
}

#[test]
fn a_session_outlives_the_timeout_of_clients() {
    let (server, address) = start(&["--timeout", "1"]);
    let session = sign_in(address, "", "");
    let mut client = TcpStream::connect(("127.0.0.1", server.port())).expect("a listening server");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    assert!(matches!(client.read(&mut [0]), Ok(0)), "a client that was idle for as long is closed");
    assert_eq!(session.status(), 200);
}

#[test]
fn protected_mode_takes_nobody_behind_a_proxy_for_local() {
    let (server, address) = start(&["--console-hosts", "console.example"]);
    let (response, _) = try_sign_in(address, "", "");
    assert_eq!((response.status, response.refused().as_str()), (503, "not-now"), "{}", response.text());
    assert!(response.text().contains("protected mode"), "{}", response.text());
    until(|| server.log().contains("audit: remote client refused"), "the audit tells of it");
    server.raw().command(&["CONFIG", "SET", "requirepass", "secret"]);
    assert_eq!(sign_in(address, "", "secret").status(), 200, "with a password it needs no protection");
}

#[test]
fn a_user_has_a_bounded_number_of_sessions() {
    let (server, address) = start(&[]);
    server.raw().command(&["ACL", "SETUSER", "ann", "on", ">pass", "~*", "+@all"]);
    let other = sign_in(address, "", "");
    let sessions: Vec<Session> = (0..16).map(|_| sign_in(address, "ann", "pass")).collect();
    assert_eq!(sessions[0].status(), 200);
    let last = sign_in(address, "ann", "pass");
    assert_eq!(sessions[1].status(), 401, "the one that was idle for longest has ended");
    for session in [&other, &sessions[0], &sessions[15], &last] {
        assert_eq!(session.status(), 200, "no other one has");
    }
}

#[test]
fn clients_are_found_on_the_server() {
    raise_descriptor_limit(4_096);
    let (server, address) = start(&[]);
    let mut clients: Vec<_> = (0..300).map(|_| server.raw()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.command(&["CLIENT", "SETNAME", &format!("worker-{number}")]);
    }
    let session = sign_in(address, "", "");
    let find = |body: Json, token: &str| {
        let headers = [JSON, ("Cookie", &session.cookie), ("X-Tidegate-Token", token)];
        exchange(address, &request("POST", "/api/clients", &headers, &body.to_string()))
    };
    let said = find(json!({ "find": "worker-" }), &session.token).json();
    assert_eq!((said["found"].as_u64(), said["lines"].as_array().map(Vec::len)), (Some(300), Some(200)));
    let said = find(json!({ "find": "worker-", "from": 299 }), &session.token).json();
    assert_eq!(said["lines"].as_array().map(Vec::len), Some(1), "{said}");
    let said = find(json!({ "find": "worker-77" }), &session.token).json();
    assert_eq!(said["found"], json!(1), "{said}");
    assert_eq!(find(json!({}), "0").status, 403);
    server.raw().command(&["ACL", "SETUSER", "default", "-client|list"]);
    let said = find(json!({}), &session.token).json();
    assert!(said["error"].as_str().is_some_and(|text| text.starts_with("NOPERM ")), "{said}");
}

#[test]
fn long_replies_are_compressed_for_browsers_that_accept_it() {
    let (_server, address) = start(&[]);
    let session = sign_in(address, "", "");
    session.run(&["SETRANGE", "zeros", "60000", "0"]);
    let headers =
        [JSON, ("Cookie", &*session.cookie), ("X-Tidegate-Token", &*session.token), ("Accept-Encoding", "gzip")];
    let body = json!({ "calls": [["GET", "zeros"]] }).to_string();
    let response = exchange(address, &request("POST", "/api/command", &headers, &body));
    assert_eq!((response.status, response.header("content-encoding")), (200, Some("gzip")));
    assert!(response.body.len() < 10_000, "{} bytes", response.body.len());
}

#[test]
fn the_console_has_places_when_clients_have_taken_all() {
    let (server, address) = start(&["--maxclients", "4"]);
    let _clients: Vec<TcpStream> =
        (0..8).map(|_| TcpStream::connect(("127.0.0.1", server.port())).expect("a listening server")).collect();
    let refused = || {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a listening server");
        stream.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
        let mut text = String::new();
        stream.read_to_string(&mut text).is_ok() && text.starts_with("-ERR max number of clients")
    };
    until(refused, "no client is let in");
    let session = sign_in(address, "", "");
    assert_eq!(session.run(&["CONFIG", "GET", "maxclients"])["map"][1], json!("4"));
}

#[test]
fn requests_of_other_sites_do_nothing() {
    let (server, address) = start(&["--console-hosts", "console.example", "--protected-mode", "no"]);
    let session = sign_in(address, "", "");
    let (cookie, token) = (("Cookie", &*session.cookie), ("X-Tidegate-Token", &*session.token));
    let body = json!({ "calls": [["SET", "attacked", "yes"]] }).to_string();
    let port = address.port();
    let (here, there) = (format!("http://127.0.0.1:{port}"), format!("127.0.0.1:{port}"));
    let attacks: &[(Headers<'_>, u16, &str)] = &[
        // A form, as any page can send it.
        (&[cookie, ("Content-Type", "text/plain")], 403, "cross-site"),
        (&[cookie, ("Content-Type", "application/x-www-form-urlencoded")], 403, "cross-site"),
        // The right type, but no token, or a wrong one.
        (&[cookie, JSON], 403, "token"),
        (&[cookie, JSON, ("X-Tidegate-Token", "0")], 403, "token"),
        // A token without a session.
        (&[token, JSON], 401, "signed-out"),
        (&[("Cookie", "tidegate=x"), token, JSON], 401, "signed-out"),
        // Another site says who it is.
        (&[cookie, token, JSON, ("Origin", "http://evil.example")], 403, "cross-site"),
        (&[cookie, token, JSON, ("Origin", "null")], 403, "cross-site"),
        (&[cookie, token, JSON, ("Host", &there), ("Origin", "http://127.0.0.1:1")], 403, "cross-site"),
        (&[cookie, token, JSON, ("Sec-Fetch-Site", "cross-site")], 403, "cross-site"),
        (&[cookie, token, JSON, ("Sec-Fetch-Site", "same-site")], 403, "cross-site"),
        // A foreign name that was made to lead here.
        (&[cookie, token, JSON, ("Host", "evil.example")], 421, "host"),
        (&[cookie, token, JSON, ("Host", "evil.example"), ("Origin", "http://evil.example")], 421, "host"),
    ];
    for (headers, status, why) in attacks {
        let response = exchange(address, &request("POST", "/api/command", headers, &body));
        assert_eq!((response.status, response.refused().as_str()), (*status, *why), "{headers:?}");
    }
    for path in ["/", "/api/session", "/api/stream?overview", "/ready"] {
        let rebound = exchange(address, &request("GET", path, &[cookie, ("Host", "evil.example:8379")], ""));
        assert_eq!(rebound.status, 421, "{path}");
    }
    let framed =
        exchange(address, &request("GET", "/api/stream?overview", &[cookie, ("Sec-Fetch-Site", "cross-site")], ""));
    assert_eq!(framed.status, 403);
    assert_eq!(server.raw().command(&["EXISTS", "attacked"]), Value::Integer(0));
    let own = [cookie, token, JSON, ("Host", &*there), ("Origin", &*here), ("Sec-Fetch-Site", "same-origin")];
    assert_eq!(exchange(address, &request("POST", "/api/command", &own, &body)).status, 200);
    let named = [cookie, token, JSON, ("Host", "Console.Example:443"), ("Origin", "https://console.example:443")];
    assert_eq!(exchange(address, &request("POST", "/api/command", &named, &body)).status, 200, "behind a proxy");
    assert_eq!(server.raw().command(&["EXISTS", "attacked"]), Value::Integer(1));
    let cookie = try_sign_in(address, "", "").0.header("set-cookie").expect("a cookie").to_owned();
    assert!(cookie.ends_with("; HttpOnly; SameSite=Strict; Path=/"), "{cookie}");
    let proxied = [JSON, ("Host", "console.example"), ("Origin", "https://console.example")];
    let answer = exchange(address, &request("POST", "/api/sign-in", &proxied, "{}"));
    assert!(answer.header("set-cookie").is_some_and(|cookie| cookie.ends_with("; Secure")), "{answer:?}");
}

#[test]
fn guesses_are_slowed_down_and_noted() {
    let (server, address) = start(&["--requirepass", "secret"]);
    let (mut tries, mut began) = (0, Instant::now());
    let slow = loop {
        let now = Instant::now();
        let (response, _) = try_sign_in(address, "", &format!("guess-{tries}"));
        tries += 1;
        match response.status {
            401 => {
                began = now;
                assert!(tries < 100, "nobody slows it down");
            }
            429 => break response,
            status => panic!("{status}: {}", response.text()),
        }
    };
    assert_eq!(slow.refused(), "slow");
    assert!(slow.header("retry-after").is_some_and(|wait| wait.parse::<u64>().is_ok_and(|wait| wait >= 1)), "{slow:?}");
    // The right password has to wait as well: an answer would tell that it is right.
    let right = try_sign_in(address, "", "secret").0.status;
    assert!(right == 429 || began.elapsed() >= Duration::from_secs(1), "{right}");
    until(|| server.log().contains("sign-in to the console delayed"), "the audit says that it is slowed down");
}

#[test]
fn guesses_by_commands_and_with_another_password_in_between_are_slowed_down() {
    let (server, address) = start(&[]);
    let mut raw = server.raw();
    raw.command(&["ACL", "SETUSER", "ann", "on", ">pass", "~*", "+@all"]);
    raw.command(&["ACL", "SETUSER", "bob", "on", ">secret", "~*", "+@all"]);
    let ann = sign_in(address, "ann", "pass");
    // Her own password, which is right, clears nothing of the guesses at his.
    for guess in ["1", "2", "3", "4", "5"] {
        let call: &[&str] = if guess < "4" { &["AUTH", "bob", guess] } else { &["HELLO", "3", "AUTH", "bob", guess] };
        let text = ann.run(call)["error"].as_str().expect("a refusal").to_owned();
        assert!(text.starts_with("WRONGPASS "), "{text}");
        assert_eq!(ann.run(&["AUTH", "ann", "pass"]), json!({"status": "OK"}));
    }
    let pipeline = ann.try_run(0, &[&["AUTH", "bob", "6"], &["AUTH", "bob", "7"]]);
    assert_eq!((pipeline.status, pipeline.refused().as_str()), (429, "slow"), "{}", pipeline.text());
    assert_eq!(sign_in(address, "ann", "pass").status(), 200, "others go on");
}

#[test]
fn a_known_browser_does_not_wait_for_those_who_guess_at_its_address() {
    let (_server, address) = start(&["--requirepass", "secret"]);
    let sign_in_by = |cookie: &str, password: &str| {
        let body = json!({ "password": password }).to_string();
        exchange(address, &request("POST", "/api/sign-in", &[JSON, ("Cookie", cookie)], &body))
    };
    let first = sign_in_by("", "secret");
    let mut fields = first.head.lines().filter_map(|line| line.split_once(": "));
    let cookie = fields.find(|(name, value)| name.eq_ignore_ascii_case("set-cookie") && value.contains("-browser="));
    let known = cookie.and_then(|(_, value)| value.split(';').next()).expect("a name for the browser");
    let wait = |response: &Response| response.header("retry-after").and_then(|wait| wait.parse::<u64>().ok());
    until(|| wait(&sign_in_by("", "guess")).is_some_and(|wait| wait > 2), "a stranger has to wait for a while");
    let right = sign_in_by(known, "secret");
    assert_eq!(right.status, 200, "{}", right.text());
    // Its own guesses are slowed down.
    until(|| sign_in_by(known, "guess").status == 429, "it has to wait");
}

#[test]
fn a_call_can_make_no_other_reply_look_like_its_own() {
    let (_server, address) = start(&[]);
    let session = sign_in(address, "", "");
    let response = session.try_run(0, &[&["HELLO", "2"], &["UNSUBSCRIBE", "a", "b"], &["PING"]]);
    assert_eq!((response.status, response.refused().as_str()), (400, "protocol"), "{}", response.text());
    assert!(session.run(&["HELLO", "2"]).is_array(), "at the end it harms nobody");
}

#[test]
fn the_state_of_locks_comes_as_it_changes() {
    let (server, address) = start(&[]);
    let (mut raw, mut waiter) = (server.raw(), server.raw());
    raw.command(&["LOCK.ACQUIRE", "lock:a", "ann", "PX", "600000", "NOTE", "<b>work</b>"]);
    let session = sign_in(address, "", "");
    let mut stream = session.stream("overview&who=t:lock%3Aa&who=x:6e6f6e65");
    let whole = stream.next("who").expect("the state")["whole"].clone();
    assert_eq!(whole["0"]["holders"][0]["holder"], json!("ann"));
    assert_eq!(whole["0"]["holders"][0]["note"], json!("<b>work</b>"));
    assert!(whole["0"]["holders"][0]["ends-ms"].as_i64().is_some_and(|ends_ms| ends_ms > 0), "{whole}");
    assert_eq!(whole["1"]["type"], json!("none"));
    waiter.send_command(&["LOCK.ACQUIRE", "lock:a", "bob", "PX", "600000", "BLOCK", "0"]);
    // A busy machine may make further changes of times.
    let change = stream.first("who", |change| change["set"]["0"]["waiting"] == json!(1));
    assert_eq!(change["set"]["0"]["waiters"][0]["holder"], json!("bob"), "{change}");
    assert_eq!(change["set"].get("1"), None, "only what has changed: {change}");
    let broken = session.run(&["LOCK.BREAK", "lock:a", "ann", "NOTE", "stuck"]);
    assert_eq!(broken[0], json!(1));
    stream.first("who", |change| change["set"]["0"]["holders"][0]["holder"] == json!("bob"));
    let mut other = session.stream("overview");
    let overview = other.next("overview").expect("the state")["whole"].clone();
    assert_eq!(overview["durability"], json!("none"), "{overview}");
    raw.command(&["CONFIG", "SET", "save", "3600 1"]);
    other.first("overview", |change| change["set"]["durability"] == json!("snapshots"));
    assert!(
        overview["coordination_lock"].as_str().is_some_and(|line| line.contains("granted=2,refused=0")),
        "{overview}"
    );
}

#[test]
fn many_long_grants_are_shown() {
    let (server, address) = start(&[]);
    let session = sign_in(address, "", "");
    let (mut raw, note) = (server.raw(), "n".repeat(1_000));
    let keys: Vec<String> = (0..100).map(|key| format!("{key:0>200}")).collect();
    for key in &keys {
        for holder in 0..20 {
            let holder = format!("{holder:h>1000}");
            raw.command(&["GATE.ACQUIRE", key, &holder, "LIMIT", "20", "PX", "600000", "NOTE", &note]);
        }
    }
    let query = format!("events&who=t:{}", keys.join("&who=t:"));
    let mut stream = session.stream(&query);
    // Events are of as many grants as the server remembers.
    let events = stream.next("events").expect("the state")["whole"].clone();
    assert_eq!(events.as_object().map(serde_json::Map::len), Some(200), "the newest");
    assert!(events.as_object().is_some_and(|events| events.values().any(|event| event["key"] == json!(keys[99]))));
    let who = session.stream(&query).next("who").expect("the state")["whole"].clone();
    assert_eq!(who["99"]["holders"].as_array().map(Vec::len), Some(20), "{:.200}", who.to_string());
    assert_eq!(who.get("no-reply"), None);
}

#[test]
fn what_a_user_may_not_see_is_not_asked_for_each_second() {
    let (server, address) = start(&[]);
    let mut raw = server.raw();
    raw.command(&["ACL", "SETUSER", "ann", "on", ">pass", "~app:*", "+info", "+hello", "+who", "+select"]);
    let mut stream = sign_in(address, "ann", "pass").stream("overview&who=t:app:a&who=t:other");
    let who = stream.next("who").expect("the state")["whole"].clone();
    assert!(who["1"]["error"].as_str().is_some_and(|text| text.starts_with("NOPERM ")), "{who}");
    for _ in 0..3 {
        let overview = stream.next("overview").expect("changes");
        let refused = overview["whole"].get("refused-latency");
        assert!(refused.is_none_or(|text| text.as_str().is_some_and(|text| text.starts_with("NOPERM "))), "{overview}");
    }
    let stats = format!("{:?}", raw.command(&["INFO", "stats"]));
    for denied in ["acl_access_denied_cmd:1", "acl_access_denied_key:1"] {
        assert!(stats.contains(&format!("{denied}\\r")), "not {denied}: {stats}");
    }
}

#[test]
fn a_viewer_sees_and_changes_nothing() {
    let (server, address) = start(&[]);
    let recipes = include_str!("../../docs/access.md");
    let recipe = recipes.lines().find(|line| line.starts_with("ACL SETUSER viewer ")).expect("a recipe");
    let mut raw = server.raw();
    raw.command(&recipe.split(' ').collect::<Vec<_>>());
    for call in [
        &["LOCK.ACQUIRE", "app:lock", "ann", "PX", "600000"][..],
        &["GATE.ACQUIRE", "app:gate", "ann", "LIMIT", "1", "PX", "600000"],
        &["STOCK.SET", "app:stock", "10"],
        &["STOCK.RESERVE", "app:stock", "order", "PX", "600000"],
        &["XADD", "jobs", "*", "a", "1"],
    ] {
        raw.command(call);
    }
    let viewer = sign_in(address, "viewer", "change-me");
    let mut stream = viewer.stream("overview&events&who=t:app:lock&stocks=t:app:stock&queues=t:jobs");
    assert_eq!(stream.next("who").expect("the state")["whole"]["0"]["holding"], json!(1));
    // Each action of the page.
    for call in [
        &["LOCK.BREAK", "app:lock", "ann", "NOTE", "x"][..],
        &["GATE.RELEASE", "app:gate", "ann"],
        &["STOCK.CANCEL", "app:stock", "order"],
        &["XDLQ.REDRIVE", "jobs:dead", "jobs", "START", "1-1", "END", "1-1", "COUNT", "1"],
        &["UNLINK", "app:lock"],
        &["CLIENT", "KILL", "ID", "1"],
        &["SCRIPT", "KILL"],
        &["CONFIG", "SET", "maxmemory", "1"],
        &["ACL", "SETUSER", "viewer", "+@all"],
        &["EVAL", "return redis.call('DEL', 'app:lock')", "0"],
        &["FLUSHALL"],
        &["SHUTDOWN", "NOSAVE"],
    ] {
        let reply = viewer.run(call);
        assert!(reply["error"].as_str().is_some_and(|text| text.starts_with("NOPERM ")), "{call:?}: {reply}");
    }
    let who = format!("{:?}", raw.command(&["WHO", "app:lock"]));
    assert!(who.contains("\"ann\""), "{who}");
}

#[test]
fn the_console_answers_beside_a_busy_script() {
    let (server, address) = start(&["--busy-reply-threshold", "20"]);
    let session = sign_in(address, "", "");
    let mut stream = session.stream("overview");
    assert!(stream.next("overview").is_some());
    let mut runner = server.raw();
    runner.send_command(&["EVAL", "while true do end", "0"]);
    until(|| stream.next("tick").expect("a tick")["state"] == json!("busy"), "the page says that it is busy");
    assert_eq!(get(address, "/").status, 200);
    // Somebody else signs in and ends the script.
    let other = sign_in(address, "", "");
    assert!(other.run(&["GET", "k"])["error"].as_str().is_some_and(|text| text.starts_with("BUSY ")));
    assert_eq!(other.run(&["SCRIPT", "KILL"]), json!({"status": "OK"}));
    assert!(matches!(runner.reply().value, Value::Error(_)));
    until(|| stream.next("tick").expect("a tick")["state"] == json!("ready"), "it is well again");
}

#[test]
fn no_check_waits_for_the_console() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let (server, address) = start(&["--metrics-port", &free.port().to_string()]);
    assert_eq!([get(address, "/health").status, get(free, "/health").status], [200, 200]);
    // What one thread does can't hold up the other.
    let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", server.pid())) else { return };
    let names: Vec<String> =
        threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok()).collect();
    for name in ["console\n", "metrics\n"] {
        assert!(names.iter().any(|thread| thread == name), "{names:?}");
    }
}

#[test]
fn a_call_that_waits_is_given_up() {
    let (server, address) = start(&[]);
    let session = sign_in(address, "", "");
    let response = session.try_run(0, &[&["BLPOP", "list", "0"]]);
    assert_eq!((response.status, response.refused().as_str()), (504, "no-reply"), "{}", response.text());
    let mut raw = server.raw();
    until(|| format!("{:?}", raw.command(&["INFO", "clients"])).contains("blocked_clients:0"), "nobody waits");
    assert_eq!(session.run(&["PING"]), json!({"status": "PONG"}), "the session goes on");
}

#[test]
fn slow_and_large_requests_are_bounded() {
    raise_descriptor_limit(4_096);
    let (server, address) = start(&[]);
    let silent: Vec<TcpStream> = (0..600).filter_map(|_| TcpStream::connect(address).ok()).collect();
    let halfway: Vec<TcpStream> = (0..600)
        .filter_map(|_| {
            let mut stream = TcpStream::connect(address).ok()?;
            stream.write_all(b"GET / HTTP/1.1\r\nHost: loc").ok()?;
            Some(stream)
        })
        .collect();
    // The head is whole, and promises a body that never comes.
    let bodiless: Vec<TcpStream> = (0..600)
        .filter_map(|_| {
            let mut stream = TcpStream::connect(address).ok()?;
            stream.write_all(&request("POST", "/api/sign-in", &[JSON, ("Content-Length", "9")], "")).ok()?;
            Some(stream)
        })
        .collect();
    (0..20).for_each(|_| assert_eq!(get(address, "/ready").status, 200, "others are served"));
    let open = || {
        let files = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("its descriptors");
        files.count()
    };
    until(|| open() < 400, "most of them were closed");
    drop((silent, halfway, bodiless));
    let long =
        [b"GET / HTTP/1.1\r\nHost: localhost\r\n".as_slice(), &b"x: yyyyyyyyyyyyyyyyyyyyyyyyyy\r\n".repeat(20_000)]
            .concat();
    let mut stream = TcpStream::connect(address).expect("a listening console");
    let _ = stream.write_all(&long);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431 "), "{}", String::from_utf8_lossy(&answer));
    // Strangers are turned away before they have sent anything long.
    let unknown = exchange(address, &request("POST", "/api/command", &[JSON, ("Content-Length", "1000000")], ""));
    assert_eq!(unknown.status, 401);
    let long = json!({ "user": "u".repeat(5_000) }).to_string();
    assert_eq!(exchange(address, &request("POST", "/api/sign-in", &[JSON], &long)).status, 413);
    let session = sign_in(address, "", "");
    let headers = [JSON, ("Cookie", &*session.cookie), ("X-Tidegate-Token", &*session.token)];
    let large = json!({ "calls": [["SET", "k", "x".repeat(2 << 20)]] }).to_string();
    let mut stream = TcpStream::connect(address).expect("a listening console");
    let _ = stream.write_all(&request("POST", "/api/command", &headers, &large));
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 413 "), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(server.raw().command(&["EXISTS", "k"]), Value::Integer(0));
    server.raw().command(&["SETRANGE", "long", "20000000", "x"]);
    let response = session.try_run(0, &[&["GET", "long"]]);
    assert_eq!(response.refused(), "too-long", "{}", response.text());
    let cut = session.run(&["GETRANGE", "long", "0", "100000"]);
    assert_eq!(cut["bytes"], json!(100_001));
    for bad in ["", "[]", "{}", "{\"calls\": [[]]}", "{\"calls\": [[1e999]]}", &"[".repeat(100_000)] {
        let response = exchange(address, &request("POST", "/api/command", &headers, bad));
        assert_eq!(response.status, 400, "{}", &bad[..bad.len().min(40)]);
    }
}

#[test]
fn slow_readers_take_nothing_from_other_users() {
    let (server, address) = start(&[]);
    let mut raw = server.raw();
    for user in ["ann", "bob"] {
        raw.command(&["ACL", "SETUSER", user, "on", "nopass", "~*", "+@all"]);
    }
    // In hexadecimal digits they are more than the sockets hold.
    let fill = "for _ = 1, 60 do redis.call('RPUSH', KEYS[1], string.rep('\\255', 60000)) end";
    raw.command(&["EVAL", fill, "1", "list"]);
    let sessions: Vec<Session> = (0..3).map(|_| sign_in(address, "ann", "")).collect();
    let ask = |session: &Session| {
        let headers = [JSON, ("Cookie", &*session.cookie), ("X-Tidegate-Token", &*session.token)];
        let mut stream = TcpStream::connect(address).expect("a listening console");
        let body = json!({ "calls": [["LRANGE", "list", "0", "-1"]] }).to_string();
        stream.write_all(&request("POST", "/api/command", &headers, &body)).expect("it is taken");
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).expect("the response begins");
        (line.contains(" 200 "), reader)
    };
    // They read no further than the first line.
    let slow: Vec<_> = sessions.iter().flat_map(|session| (0..6).map(|_| ask(session))).collect();
    let answered = slow.iter().filter(|(is_answered, _)| *is_answered).count();
    assert!((1..=6).contains(&answered), "{answered}");
    assert_eq!(sessions[0].status(), 200);
    let other = sign_in(address, "bob", "");
    assert_eq!(other.run(&["LRANGE", "list", "0", "-1"]).as_array().map(Vec::len), Some(60));
    drop(slow);
}

#[test]
fn pages_are_bounded_and_nothing_is_asked_while_nobody_looks() {
    raise_descriptor_limit(4_096);
    let (server, address) = start(&[]);
    let sessions: Vec<Session> = (0..13)
        .map(|number| {
            let user = format!("user-{number}");
            server.raw().command(&["ACL", "SETUSER", &user, "on", "nopass", "+@all"]);
            sign_in(address, &user, "")
        })
        .collect();
    let refused = |session: &Session| {
        let headers = [("Cookie", &*session.cookie)];
        let response = exchange(address, &request("GET", "/api/stream?overview", &headers, ""));
        (response.status, response.refused()) == (429, "crowded".to_owned())
    };
    let mut streams: Vec<Stream> = (0..16).map(|_| sessions[0].stream("overview")).collect();
    assert!(refused(&sessions[0]), "a user has 16 at most");
    streams.extend((16..200).map(|number| sessions[number / 16].stream("overview")));
    assert!(refused(&sessions[12]), "all together have 200 at most");
    for stream in &mut streams {
        assert!(stream.next("overview").is_some());
    }
    let mut raw = server.raw();
    let mut asked = || {
        let text = format!("{:?}", raw.command(&["INFO", "commandstats"]));
        let rest = text.split("cmdstat_latency|histogram:calls=").nth(1).unwrap_or("0");
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u64>().unwrap_or_default()
    };
    let before = asked();
    streams[0].next("tick");
    streams[0].next("tick");
    let between = asked() - before;
    assert!(between < 10 * sessions.len() as u64, "the 16 pages of a user share the questions: {between}");
    drop(streams);
    // The last page has left, and so does the connection that asked for it.
    let clients = || format!("{:?}", server.raw().command(&["CLIENT", "LIST"])).matches("name=console").count();
    until(|| clients() == sessions.len(), "only the sessions are left");
}
