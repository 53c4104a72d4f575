//! Access control: who may call what, with which keys and channels.
//!
//! A [`User`](user::User) has passwords and [`Selector`](selector::Selector)s, of which one must allow a call as a whole. Selectors are
//! changed by [rules](selector::Selector::apply), in the language of Redis, and show themselves in it again. [`check`] decides about one
//! call and touches nothing else. [`Acl`](users::Acl) keeps the users by name, [`log`] what was refused, and [`file`](mod@file) reads and writes
//! whole lists of users.
//!
//! A session remembers its user by a [`UserId`](users::UserId). One whose user may do everything has no restriction, and nothing is asked
//! for its commands.

pub mod check;
pub mod file;
pub mod log;
pub mod rule;
pub mod selector;
pub mod user;
pub mod users;
