//! Cookies, whose values are names that can't be guessed.
//!
//! A name has 256 random bits. The server keeps only a hash of it, so no comparison of bytes tells how much of a guess
//! is right. No script reads the cookies, and the browser sends them only for pages from here.

use std::io::{self, Read as _};
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::COOKIE;
use sha2::{Digest as _, Sha256};

use crate::base::hex::hex;

/// A hash of a name.
pub(super) type Hash = [u8; 32];

/// See the file's header.
pub(super) struct Cookie {
    name: String,
    /// How long the browser keeps it; `None` for until it is closed.
    lifetime: Option<Duration>,
}

impl Cookie {
    pub(super) fn new(name: String, lifetime: Option<Duration>) -> Cookie {
        Cookie { name, lifetime }
    }

    /// Its value in a request.
    pub(super) fn value_in<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|field| field.to_str().ok());
        let mut pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(cookie, _)| *cookie == self.name).map(|(_, value)| value)
    }

    /// The text that sets it.
    pub(super) fn set(&self, value: &str, is_secure: bool) -> String {
        let secure = if is_secure { "; Secure" } else { "" };
        let age = self.lifetime.map(|lifetime| format!("; Max-Age={}", lifetime.as_secs())).unwrap_or_default();
        format!("{}={value}; HttpOnly; SameSite=Strict; Path=/{secure}{age}", self.name)
    }

    /// The text that makes the browser forget it.
    pub(super) fn unset(&self, is_secure: bool) -> String {
        self.set("", is_secure) + "; Max-Age=0"
    }
}

/// A name that can't be guessed.
pub(super) fn random_name() -> io::Result<String> {
    let mut bytes = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(hex(&bytes))
}

pub(super) fn hash_of(name: &str) -> Hash {
    Sha256::digest(name).into()
}
