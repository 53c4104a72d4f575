//! The Redis serialization protocol, both ways. Requests are decoded by borrowing from the read buffer; replies are
//! written once, in the form that their reader expects. The code is pure: it knows no socket, no clock and no key.

pub mod limits;
pub mod reply;
pub mod request;
pub(crate) mod tape;
