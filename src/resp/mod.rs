//! The Redis serialization protocol, both ways: requests are decoded by borrowing from the read buffer, replies are
//! written once in the form their reader wants. Pure: no socket, no clock, no key.

pub mod reply;
pub mod request;
pub(crate) mod tape;
