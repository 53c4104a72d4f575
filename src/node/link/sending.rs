//! The connection that this node dials: looks up the peer's address, connects, shakes hands, and sends what is queued.
//! Whatever goes wrong ends the connection, drops what is queued, and begins anew after a pause.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{sleep, timeout};

use super::error::LinkError;
use super::frame;
use super::greeting::{Greeted, Purpose};
use super::handshake::greet;
use super::limits::WRITE_BATCH_BYTES;
use super::peers::{Peer, Peers};
use super::security::Stream;
use super::settings::Deadlines;
use crate::base::rng::Rng;
use crate::consensus::codec::encode;

/// Keeps a connection to the peer for as long as the task lives.
pub(super) async fn serve(peers: Rc<Peers>, peer: Rc<Peer>) {
    let Deadlines { retry_first, retry_max, sound_after, .. } = peers.settings.deadlines;
    let mut rng = Rng::from_entropy();
    let mut pause = retry_first;
    loop {
        let Err(error) = connect_and_send(&peers, &peer).await;
        let end = peer.sending.ended(&error, sound_after);
        if end.is_news {
            tracing::warn!("node {} ({}) can't be sent to: {error}", peer.node, peer.address);
        }
        if end.was_sound {
            pause = retry_first;
        }
        // Between half of the pause and all of it, so that nodes that were cut off together do not return together.
        sleep(pause.mul_f64(0.5 + rng.next_f64() / 2.0)).await;
        pause = (pause * 2).min(retry_max);
    }
}

async fn connect_and_send(peers: &Peers, peer: &Peer) -> Result<Infallible, LinkError> {
    let stall = peers.settings.deadlines.stall;
    let (mut stream, greeted) = connect(peers, peer, Purpose::Messages, stall).await?;
    tracing::info!("node {} ({}) is connected", peer.node, peer.address);
    peer.sending.connected();
    peer.queue.open();
    peers.receiver.greeted(greeted);
    peers.receiver.connected(peer.node);
    let ended = send(peers, peer, &mut stream).await;
    peer.queue.close();
    peers.receiver.disconnected(peer.node);
    ended
}

/// Opens a connection on which no byte may wait longer than `stall` until the other end has it.
pub(super) async fn connect(
    peers: &Peers,
    peer: &Peer,
    purpose: Purpose,
    stall: Duration,
) -> Result<(Stream, Greeted), LinkError> {
    let Deadlines { connect, handshake, .. } = peers.settings.deadlines;
    let socket = timeout(connect, dial(peers, &peer.address)).await.map_err(|_| LinkError::Late("connecting"))??;
    socket.set_nodelay(true)?;
    // Messages in the system's buffer grow old, too, when the other machine is gone.
    SockRef::from(&socket).set_tcp_user_timeout(Some(stall))?;
    let shake_hands = async {
        let mut stream = peers.guard.dialled(socket, &peer.address).await?;
        let greeted = greet(&mut stream, peers, peer.node, purpose).await?;
        Ok((stream, greeted))
    };
    timeout(handshake, shake_hands).await.map_err(|_| LinkError::Late("the handshake"))?
}

/// Connects to the first address of a host that answers. The name is looked up each time, because nodes move.
async fn dial(peers: &Peers, address: &str) -> Result<TcpStream, LinkError> {
    let mut last: LinkError = io::Error::new(ErrorKind::NotFound, "the host has no address").into();
    for address in lookup_host(address).await? {
        if !peers.guard.allows(address) {
            last = LinkError::Exposed(address);
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

/// Sends messages as they come, and signs of life while there are none.
async fn send(peers: &Peers, peer: &Peer, stream: &mut Stream) -> Result<Infallible, LinkError> {
    let Deadlines { keep_alive, stall, .. } = peers.settings.deadlines;
    let mut bytes = Vec::new();
    loop {
        let mut unasked = [0];
        tokio::select! {
            () = peer.queue.filled() => {}
            () = sleep(keep_alive) => frame::append_sign_of_life(&mut bytes),
            // The other end sends nothing behind its greeting, so this is where its end is noticed.
            read = stream.read(&mut unasked) => return match read? {
                0 => Err(LinkError::Ended),
                _ => Err(LinkError::Unasked),
            },
        }
        while bytes.len() < WRITE_BATCH_BYTES
            && let Some(message) = peer.queue.pop()
        {
            frame::append(&mut bytes, |out| encode(peers.settings.group, &message, out));
        }
        write(stream, &bytes, stall).await?;
        peer.sending.add_bytes(bytes.len());
        bytes.clear();
        bytes.shrink_to(2 * WRITE_BATCH_BYTES);
    }
}

/// Writes all bytes. The deadline is one of each step, so a slow connection is not a stalled one.
pub(super) async fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    mut bytes: &[u8],
    stall: Duration,
) -> Result<(), LinkError> {
    while !bytes.is_empty() {
        let written = timeout(stall, stream.write(bytes)).await.map_err(|_| LinkError::Stalled)??;
        if written == 0 {
            return Err(LinkError::Ended);
        }
        bytes = &bytes[written..];
    }
    Ok(timeout(stall, stream.flush()).await.map_err(|_| LinkError::Stalled)??)
}
