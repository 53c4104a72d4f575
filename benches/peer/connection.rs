//! A connection to a server: requests out, whole replies in. Replies are parsed only as far as needed to find their
//! ends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;

use super::Server;
use crate::requests::{Requests, encode};

/// See the module's header. If the server hangs up or answers with an error, the bench ends: errors are fast, too.
pub(crate) struct Connection {
    pub stream: TcpStream,
    replies: Replies,
    /// Buffer for one read.
    piece: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(server: &Server) -> Connection {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).expect("the server accepts");
        stream.set_nodelay(true).expect("a TCP socket");
        Connection { stream, replies: Replies::default(), piece: vec![0; 64 * 1024] }
    }

    /// Sends one command. Returns its reply as text without the head: the fields of INFO, or `+OK`.
    pub(crate) fn ask(&mut self, words: &[&str]) -> String {
        self.send(&encode(words));
        let mut reply = Vec::new();
        while self.replies.complete == 0 {
            let n = self.read();
            reply.extend_from_slice(&self.piece[..n]);
        }
        self.replies.complete = 0;
        let text = String::from_utf8_lossy(&reply).trim_end().to_owned();
        match text.split_once("\r\n") {
            Some((head, body)) if head.starts_with('$') => body.to_owned(),
            _ => text,
        }
    }

    /// Sends requests and waits for their replies.
    pub(crate) fn pipeline(&mut self, requests: &[u8], replies: u64) {
        self.send(requests);
        self.receive(replies);
    }

    pub(crate) fn send(&mut self, requests: &[u8]) {
        self.stream.write_all(requests).expect("the server reads");
    }

    /// Waits for `replies` replies.
    pub(crate) fn receive(&mut self, replies: u64) {
        while self.replies.complete < replies {
            self.read();
        }
        self.replies.complete -= replies;
    }

    /// Reads available bytes. Returns how many replies they completed.
    pub(crate) fn receive_some(&mut self) -> u64 {
        self.read();
        std::mem::take(&mut self.replies.complete)
    }

    fn read(&mut self) -> usize {
        let n = self.stream.read(&mut self.piece).expect("the server answers");
        assert!(n > 0, "the server hung up");
        self.replies.feed(&self.piece[..n]);
        n
    }

    /// Sends a request for each number of `range`, `at_once` at a time.
    pub(crate) fn fill(&mut self, range: Range<u64>, at_once: usize, request: &[u8]) {
        let mut batch = Requests::new(request, at_once);
        for first in range.clone().step_by(at_once) {
            let count = at_once.min((range.end - first) as usize);
            if count < at_once {
                batch = Requests::new(request, count);
            }
            self.pipeline(batch.numbered(first), count as u64);
        }
    }
}

/// Counts RESP2 replies in a stream that arrives in pieces.
#[derive(Default)]
pub(crate) struct Replies {
    /// Whole replies since the count was last reset.
    pub complete: u64,
    /// Elements still to come of arrays that have begun.
    open: u64,
    /// Bytes still to come of a bulk string, including its line end.
    skip: usize,
    /// The beginning of an unfinished line.
    head: Vec<u8>,
}

impl Replies {
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if skipped > 0 && self.skip == 0 {
                self.end_element();
            }
            let Some(end) = memchr::memchr(b'\n', bytes) else { break };
            if self.head.is_empty() {
                self.line(&bytes[..end]);
            } else {
                let mut line = std::mem::take(&mut self.head);
                line.extend_from_slice(&bytes[..end]);
                self.line(&line);
            }
            bytes = &bytes[end + 1..];
        }
        self.head.extend_from_slice(bytes);
    }

    fn line(&mut self, line: &[u8]) {
        let number = || {
            let digits = line[1..].iter().take_while(|b| b.is_ascii_digit());
            digits.fold(0, |n, b| n * 10 + usize::from(b - b'0'))
        };
        match line {
            [b'+' | b':', ..] | [b'$' | b'*', b'-', ..] | [b'*', b'0', ..] => self.end_element(),
            [b'$', ..] => self.skip = 2 + number(),
            [b'*', ..] => {
                // A nested array is one of the outer array's elements.
                self.open = self.open.saturating_sub(1) + number() as u64;
            }
            _ => panic!("the server answered: {}", line.escape_ascii()),
        }
    }

    fn end_element(&mut self) {
        self.open = self.open.saturating_sub(1);
        if self.open == 0 {
            self.complete += 1;
        }
    }
}
