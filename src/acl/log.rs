//! Denied calls and logins for ACL LOG: the latest cases, with similar cases merged.

use std::borrow::Cow;
use std::collections::VecDeque;

use crate::acl::limits::{ACL_LOG_MAX_TEXT_BYTES, ACL_LOG_MERGE_AMONG, ACL_LOG_MERGE_WITHIN_MS};
use crate::resp::request::abridge;

/// The kind of denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A command.
    Command,
    /// A key.
    Key,
    /// A channel.
    Channel,
    /// A login as a user.
    Auth,
    /// A login by a TLS certificate.
    TlsCert,
    /// A database.
    Database,
}

impl Reason {
    /// Returns the name that ACL LOG shows.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Auth => "auth",
            Reason::TlsCert => "tls-cert",
            Reason::Database => "database",
        }
    }
}

/// The context of the denied call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// A direct call by a client.
    Toplevel,
    /// A transaction, or a command queued for one.
    Multi,
    /// A script or function.
    Lua,
}

impl Context {
    /// Returns the name that ACL LOG shows.
    pub fn name(self) -> &'static str {
        match self {
            Context::Toplevel => "toplevel",
            Context::Multi => "multi",
            Context::Lua => "lua",
        }
    }
}

/// One denial.
#[derive(Clone, Debug)]
pub struct Case {
    /// The kind of denial.
    pub reason: Reason,
    /// The context of the call.
    pub context: Context,
    /// The denied command, key or channel.
    pub object: Vec<u8>,
    /// The user's name.
    pub user: Vec<u8>,
    /// The line in CLIENT LIST of the last client.
    pub client: Vec<u8>,
}

/// Similar denials merged into one entry.
#[derive(Clone, Debug)]
pub struct Cases {
    /// The latest denial.
    pub case: Case,
    /// Number of denials.
    pub count: u64,
    /// The entry's id.
    pub id: u64,
    /// Time of the first denial, Unix ms.
    pub created_ms: i64,
    /// Time of the latest denial, Unix ms.
    pub updated_ms: i64,
}

/// See the module's header.
#[derive(Default)]
pub struct AclLog {
    /// Newest first.
    cases: VecDeque<Cases>,
    next_id: u64,
}

impl AclLog {
    /// Records a denial and drops the oldest entries beyond `max_len`. Long texts are truncated, because the denied
    /// client chooses them.
    pub fn note(&mut self, mut case: Case, now_ms: i64, max_len: usize) {
        for text in [&mut case.object, &mut case.user, &mut case.client] {
            if let Cow::Owned(short) = abridge(text, ACL_LOG_MAX_TEXT_BYTES) {
                *text = short;
            }
        }
        let is_alike = |other: &Cases| {
            other.case.reason == case.reason
                && other.case.context == case.context
                && other.case.object == case.object
                && other.case.user == case.user
                && (now_ms - other.updated_ms).abs() <= ACL_LOG_MERGE_WITHIN_MS
        };
        let alike = self.cases.iter().take(ACL_LOG_MERGE_AMONG).position(is_alike);
        let cases = match alike.and_then(|at| self.cases.remove(at)) {
            Some(cases) => Cases { case, count: cases.count + 1, updated_ms: now_ms, ..cases },
            None => {
                self.next_id += 1;
                Cases { case, count: 1, id: self.next_id - 1, created_ms: now_ms, updated_ms: now_ms }
            }
        };
        self.cases.push_front(cases);
        self.cases.truncate(max_len);
    }

    /// Iterates over the entries, newest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Cases> {
        self.cases.iter()
    }

    /// Returns the bytes that the log holds.
    pub(super) fn mem_bytes(&self) -> usize {
        let texts = |case: &Case| case.object.capacity() + case.user.capacity() + case.client.capacity();
        self.cases.capacity() * size_of::<Cases>() + self.cases.iter().map(|cases| texts(&cases.case)).sum::<usize>()
    }

    /// Drops all entries and frees their memory.
    pub fn clear(&mut self) {
        self.cases = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::os::allocated::{apart, apart_bytes};

    #[test]
    fn the_counted_memory_equals_the_memory_held() {
        apart(|| {
            let mut log = AclLog::default();
            for number in 0..65 {
                let text = || {
                    let mut text = Vec::with_capacity(100);
                    text.extend_from_slice(format!("{number}").as_bytes());
                    text
                };
                let (object, user, client) = (text(), text(), text());
                let case = Case { reason: Reason::Key, context: Context::Toplevel, object, user, client };
                log.note(case, 1_000, 128);
            }
            assert_eq!((log.iter().len(), log.mem_bytes() as isize), (65, apart_bytes()));
        });
    }

    #[test]
    fn equal_refusals_share_an_entry_with_a_count() {
        let case = |object: &str| Case {
            reason: Reason::Key,
            context: Context::Lua,
            object: object.into(),
            user: b"u".to_vec(),
            client: Vec::new(),
        };
        let mut log = AclLog::default();
        log.note(case("a"), 1_000, 3);
        log.note(case("b"), 2_000, 3);
        log.note(case("a"), 3_000, 3);
        let seen = |log: &AclLog| {
            log.iter().map(|cases| (cases.case.object.clone(), cases.count, cases.id)).collect::<Vec<_>>()
        };
        assert_eq!(seen(&log), [(b"a".to_vec(), 2, 0), (b"b".to_vec(), 1, 1)]);
        assert_eq!(log.iter().next().map(|cases| (cases.created_ms, cases.updated_ms)), Some((1_000, 3_000)));
        log.note(case("a"), 3_001 + ACL_LOG_MERGE_WITHIN_MS, 2);
        assert_eq!(seen(&log), [(b"a".to_vec(), 1, 2), (b"a".to_vec(), 2, 0)]);
        log.clear();
        assert_eq!(log.iter().len(), 0);
    }

    #[test]
    fn only_the_beginning_of_a_long_text_is_kept() {
        let long = || vec![b'k'; 1_000_000];
        let case =
            || Case { reason: Reason::Key, context: Context::Toplevel, object: long(), user: long(), client: long() };
        let mut log = AclLog::default();
        log.note(case(), 1_000, 3);
        log.note(case(), 2_000, 3);
        let all: Vec<&Cases> = log.iter().collect();
        let [Cases { case: Case { object, user, client, .. }, count: 2, .. }] = all[..] else { panic!("{all:?}") };
        for text in [object, user, client] {
            assert!(text.len() < ACL_LOG_MAX_TEXT_BYTES + 100 && text.starts_with(b"kkk"), "{}", text.len());
        }
    }
}
