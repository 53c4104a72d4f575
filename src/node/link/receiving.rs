//! The connections that peers dial: accepts them, shakes hands, and hands the messages on.
//!
//! Until the handshake is over the other end is a stranger. It gets little memory, little time, and one of a bounded
//! number of places.

use std::convert::Infallible;
use std::rc::Rc;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use super::error::LinkError;
use super::frame::FrameReader;
use super::greeting::{Greeted, Purpose};
use super::handshake::answer;
use super::incoming;
use super::limits::ACCEPT_RETRY;
use super::peers::{ConnectionId, Peer, Peers, Task};
use super::security::Stream;
use crate::consensus::codec::decode;
use crate::consensus::message::Body;

/// Accepts connections for as long as the task lives.
pub(super) async fn accept_all(peers: Rc<Peers>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((socket, address)) => peers.begin_handshake(|id| {
                let peers = Rc::clone(&peers);
                Task::spawn(async move {
                    match shake_hands(&peers, socket).await {
                        Ok((stream, greeted, Purpose::Snapshot)) => {
                            incoming::serve(&peers, id, greeted.node, stream).await;
                        }
                        Ok((stream, greeted, _)) => serve(&peers, id, greeted, stream).await,
                        Err(error) => {
                            if peers.failures.add(&error) {
                                tracing::warn!("{address} can't be received from: {error}");
                            }
                            drop(peers.end_handshake(id));
                        }
                    }
                })
            }),
            Err(error) => {
                let error = error.into();
                if peers.failures.add(&error) {
                    tracing::warn!("no connection of a node can be accepted: {error}");
                }
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

async fn shake_hands(peers: &Peers, socket: TcpStream) -> Result<(Stream, Greeted, Purpose), LinkError> {
    let shake_hands = async {
        socket.set_nodelay(true)?;
        let mut stream = peers.guard.accepted(socket).await?;
        let (greeted, purpose) = answer(&mut stream, peers).await?;
        Ok((stream, greeted, purpose))
    };
    let done = timeout(peers.settings.deadlines.handshake, shake_hands).await;
    done.map_err(|_| LinkError::Late("the handshake"))?
}

/// Reads what a node sends until the connection ends.
async fn serve(peers: &Peers, id: ConnectionId, greeted: Greeted, mut stream: Stream) {
    let node = greeted.node;
    let Some(peer) = peers.adopt(id, node) else { return };
    peer.receiving.connected();
    peers.receiver.greeted(greeted);
    let Err(error) = receive(peers, &peer, &mut stream).await;
    if peer.receiving.ended(&error, peers.settings.deadlines.sound_after).is_news {
        tracing::warn!("node {node} ({}) can't be received from: {error}", peer.address);
    }
}

async fn receive(peers: &Peers, peer: &Peer, stream: &mut Stream) -> Result<Infallible, LinkError> {
    let own = peers.settings.node;
    let mut frames = FrameReader::default();
    loop {
        let read = timeout(peers.settings.deadlines.silence, stream.read_buf(frames.room())).await;
        match read.map_err(|_| LinkError::Silent)?? {
            0 => return Err(LinkError::Ended),
            read => peer.receiving.add_bytes(read),
        }
        while let Some(payload) = frames.next()? {
            let (group, message) = decode(payload, peer.node, own)?;
            if group != peers.settings.group {
                return Err(LinkError::Group(group));
            }
            // It would announce a file that has never arrived.
            if matches!(message.body, Body::Install(_)) {
                return Err(LinkError::NoSnapshot);
            }
            peers.receiver.received(peer.node, message);
        }
    }
}
