//! A connection to a server: requests out, whole replies in, without looking at more of these than where they end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;

use super::Server;
use crate::requests::{Requests, encode};

/// See the module's header. Where the server hangs up or answers an error, the bench ends: errors are fast, too.
pub(crate) struct Connection {
    pub stream: TcpStream,
    replies: Replies,
    /// What was read at once.
    piece: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(server: &Server) -> Connection {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).expect("the server accepts");
        stream.set_nodelay(true).expect("a TCP socket");
        Connection { stream, replies: Replies::default(), piece: vec![0; 64 * 1024] }
    }

    /// One command, one reply, as text without its head: what INFO says, or `+OK`.
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

    /// Requests, and the wait for their replies.
    pub(crate) fn pipeline(&mut self, requests: &[u8], replies: u64) {
        self.send(requests);
        self.receive(replies);
    }

    pub(crate) fn send(&mut self, requests: &[u8]) {
        self.stream.write_all(requests).expect("the server reads");
    }

    /// Waits for so many replies.
    pub(crate) fn receive(&mut self, replies: u64) {
        while self.replies.complete < replies {
            self.read();
        }
        self.replies.complete -= replies;
    }

    /// Reads what is there, and answers how many replies it completed.
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

/// Counts replies of RESP2 in a stream of bytes that comes in pieces.
#[derive(Default)]
pub(crate) struct Replies {
    /// Whole replies since this was last set back.
    pub complete: u64,
    /// Elements of the arrays that have begun, still to come.
    open: u64,
    /// Bytes of a bulk string, its line end included, still to come.
    skip: usize,
    /// The beginning of a line whose end has not come yet.
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
                // An array inside another is one of its elements.
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
