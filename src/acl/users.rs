//! The set of all users.

use std::collections::BTreeMap;

use super::log::AclLog;
use super::rule::RuleError;
use super::user::User;
use crate::spec::table::CommandTable;

/// Identifies a user; the id of a deleted user is never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UserId(u32);

/// The user of every client before it logs in.
pub const DEFAULT: UserId = UserId(0);

/// The name of that user.
pub const DEFAULT_NAME: &[u8] = b"default";

/// All users by name, and the log of denials. A user called `default` always exists.
pub struct Acl {
    ids: BTreeMap<Vec<u8>, UserId>,
    users: BTreeMap<UserId, (Vec<u8>, User)>,
    last_id: u32,
    /// The log of denials.
    pub log: AclLog,
}

impl Acl {
    /// Makes the set with an all-powerful `default`.
    pub fn new<R>(table: &CommandTable<R>) -> Acl {
        let user = User::all_powerful(table);
        Acl {
            ids: BTreeMap::from([(DEFAULT_NAME.to_vec(), DEFAULT)]),
            users: BTreeMap::from([(DEFAULT, (DEFAULT_NAME.to_vec(), user))]),
            last_id: 0,
            log: AclLog::default(),
        }
    }

    /// Returns the bytes held by the users, whose names are stored twice, and by the log of denials.
    pub fn mem_bytes(&self) -> usize {
        let user = |(name, user): (&[u8], &User)| 2 * (size_of::<Vec<u8>>() + name.len()) + user.mem_bytes();
        self.iter().map(user).sum::<usize>() + self.log.mem_bytes()
    }

    /// Finds the user of this name.
    pub fn find(&self, name: &[u8]) -> Option<(UserId, &User)> {
        let id = *self.ids.get(name)?;
        Some((id, &self.users.get(&id)?.1))
    }

    /// Returns a user, unless it was deleted.
    pub fn get(&self, id: UserId) -> Option<&User> {
        self.users.get(&id).map(|(_, user)| user)
    }

    /// Returns a user's name; empty if the user was deleted.
    pub fn name(&self, id: UserId) -> &[u8] {
        self.users.get(&id).map_or(b"", |(name, _)| name)
    }

    /// Iterates over all users by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &User)> {
        self.ids.iter().map(|(name, id)| (name.as_slice(), &self.users[id].1))
    }

    /// Adds a user, or replaces the user of that name.
    pub fn put(&mut self, name: &[u8], user: User) -> UserId {
        let id = match self.ids.get(name) {
            Some(id) => *id,
            None => {
                self.last_id += 1;
                UserId(self.last_id)
            }
        };
        self.ids.insert(name.to_vec(), id);
        self.users.insert(id, (name.to_vec(), user));
        id
    }

    /// Deletes a user; returns whether it existed. `default` can't be deleted.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        if name == DEFAULT_NAME {
            return false;
        }
        self.ids.remove(name).and_then(|id| self.users.remove(&id)).is_some()
    }

    /// Returns whether new connections may proceed without a password.
    pub fn is_open(&self) -> bool {
        self.get(DEFAULT).is_some_and(|user| user.is_on && user.no_password)
    }

    /// Returns whether the user `default` accepts any password.
    pub fn has_open_default(&self) -> bool {
        self.get(DEFAULT).is_some_and(|user| user.no_password)
    }

    /// Replaces the passwords of the user `default` by this one; with an empty password, none is needed.
    pub fn set_default_password<R>(&mut self, password: &[u8], table: &CommandTable<R>) {
        let Some((_, user)) = self.users.get_mut(&DEFAULT) else { return };
        let rules: [&[u8]; 2] = match password {
            b"" => [b"resetpass", b"nopass"],
            _ => [b"resetpass", &[b">", password].concat()],
        };
        for rule in rules {
            let done: Result<(), RuleError> = user.apply(rule, table, true);
            debug_assert_eq!(done, Ok(()));
        }
    }

    /// Replaces all users; a user that keeps its name keeps its id.
    pub fn replace(&mut self, users: BTreeMap<Vec<u8>, User>) {
        let gone: Vec<Vec<u8>> = self.ids.keys().filter(|name| !users.contains_key(*name)).cloned().collect();
        gone.iter().for_each(|name| {
            self.remove(name);
        });
        for (name, user) in users {
            self.put(&name, user);
        }
    }
}
