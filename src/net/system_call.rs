//! Receiving and sending by direct system calls, where rustix makes those (on Linux). The corresponding functions of
//! glibc are thread cancellation points, which costs some 2 % of the CPU time of a command that comes by itself.

use std::io;
use std::os::fd::AsFd;

use rustix::net::{RecvFlags, SendFlags};

/// Receives up to as many bytes as `input` holds; 0 at the end.
#[inline]
pub(super) fn receive(socket: impl AsFd, input: &mut [u8]) -> io::Result<usize> {
    let (_, received) = rustix::net::recv(socket, input, RecvFlags::empty())?;
    Ok(received)
}

/// Sends some of `bytes`, from the beginning on.
#[inline]
pub(super) fn send(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)?)
}
