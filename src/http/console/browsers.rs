//! Browsers that are known, since somebody has signed in by them.
//!
//! Wrong passwords slow down whoever comes from the same address, and everybody behind one proxy or tunnel has its
//! address. So that no stranger there keeps others out, a browser gets a name at its first sign-in, in a cookie that
//! outlives the session: its own wrong passwords [count](super::brakes) by this name, and no others do.
//!
//! A browser is known for the user who signed in by it, and not for others: else somebody with one password could
//! guess those of others anew after each sign-in. All are forgotten when the server ends.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::http::HeaderMap;

use super::super::limits::{BROWSER_LIFETIME, BROWSERS_MAX, BROWSERS_OF_USER_MAX};
use super::brakes::Pair;
use super::cookie::{Cookie, Hash, hash_of, random_name};

/// See the file's header.
pub(super) struct Browsers {
    cookie: Cookie,
    /// Those first that signed in longest ago.
    known: Mutex<VecDeque<Known>>,
}

#[derive(Clone, PartialEq, Eq)]
struct Known {
    browser: Hash,
    user: Hash,
}

impl Known {
    fn new(name: &str, user: &str) -> Known {
        Known { browser: hash_of(name), user: hash_of(user) }
    }
}

impl Browsers {
    pub(super) fn new(port: u16) -> Browsers {
        let cookie = Cookie::new(format!("tidegate-{port}-browser"), Some(BROWSER_LIFETIME));
        Browsers { cookie, known: Mutex::default() }
    }

    /// The name that a browser gives.
    pub(super) fn name_in(&self, headers: &HeaderMap) -> Option<String> {
        self.cookie.value_in(headers).map(str::to_owned)
    }

    /// As whose guesses those at a user count: a browser with this name, at this address.
    pub(super) fn pair(&self, name: Option<&str>, address: IpAddr, user: &[u8]) -> Pair {
        let known = name.zip(std::str::from_utf8(user).ok()).map(|(name, user)| Known::new(name, user));
        match known.filter(|known| self.known().contains(known)) {
            Some(known) => Pair::of_browser(known.browser, user),
            None => Pair::of(address, user),
        }
    }

    /// Notes that a user has signed in by a browser, which may have a name. Returns the cookie for it.
    pub(super) fn remember(&self, name: Option<&str>, user: &str, is_secure: bool) -> io::Result<String> {
        let mut known = self.known();
        let again = name.and_then(|name| {
            let at = known.iter().position(|other| *other == Known::new(name, user))?;
            known.remove(at).map(|_| name.to_owned())
        });
        // A name that is not known here may be one that somebody else gave the browser.
        let name = again.map_or_else(random_name, Ok)?;
        let new = Known::new(&name, user);
        if known.iter().filter(|other| other.user == new.user).count() >= BROWSERS_OF_USER_MAX {
            known.iter().position(|other| other.user == new.user).map(|first| known.remove(first));
        } else if known.len() >= BROWSERS_MAX {
            known.pop_front();
        }
        known.push_back(new);
        Ok(self.cookie.set(&name, is_secure))
    }

    fn known(&self) -> MutexGuard<'_, VecDeque<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn sign_in(browsers: &Browsers, name: Option<&str>, user: &str) -> String {
        let cookie = browsers.remember(name, user, false).expect("random bits");
        let value = cookie.split(['=', ';']).nth(1).expect("a value");
        value.to_owned()
    }

    #[test]
    fn a_browser_is_known_for_the_user_who_signed_in_by_it() {
        let browsers = Browsers::new(1);
        let pair = |name: &str, user: &str| browsers.pair(Some(name), HERE, user.as_bytes());
        let name = sign_in(&browsers, Some("made-up"), "ann");
        assert_ne!(name, "made-up");
        assert_ne!(pair(&name, "ann"), Pair::of(HERE, b"ann"));
        assert_eq!(pair(&name, "bob"), Pair::of(HERE, b"bob"), "for her alone");
        assert_eq!(pair("made-up", "ann"), Pair::of(HERE, b"ann"));
        assert_eq!(sign_in(&browsers, Some(&name), "ann"), name, "it keeps its name");
        assert_eq!(browsers.known().len(), 1);
    }

    #[test]
    fn few_are_remembered() {
        let browsers = Browsers::new(1);
        let name = sign_in(&browsers, None, "bob");
        (0..2 * BROWSERS_OF_USER_MAX).for_each(|_| drop(sign_in(&browsers, None, "ann")));
        assert_eq!(browsers.known().len(), 1 + BROWSERS_OF_USER_MAX);
        assert_ne!(browsers.pair(Some(&name), HERE, b"bob"), Pair::of(HERE, b"bob"), "one user forgets no other's");
        (0..2 * BROWSERS_MAX).for_each(|number| drop(sign_in(&browsers, None, &number.to_string())));
        assert_eq!(browsers.known().len(), BROWSERS_MAX);
    }
}
