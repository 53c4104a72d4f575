//! Access control: which users may run which commands on which keys and channels.
//!
//! A [`User`](user::User) has passwords and [`Selector`](selector::Selector)s, one of which must allow a call as a
//! whole. [Rules](selector::Selector::apply) in Redis' language change selectors, and selectors are displayed in the
//! same language. [`check`] decides about a single call and changes nothing. [`Acl`](users::Acl) keeps the users by
//! name, [`log`] records denials, and [`file`](mod@file) reads and writes whole lists of users.
//!
//! A session remembers its user by a [`UserId`](users::UserId). A session whose user may do everything has no
//! restriction, so its commands are not checked.

pub mod check;
pub mod file;
pub mod limits;
pub mod log;
pub mod rule;
pub mod selector;
pub mod user;
pub mod users;
