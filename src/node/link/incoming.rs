//! Takes a snapshot that a peer sends: asks whether it is wanted, hands its bytes to a thread that writes and checks
//! them, and answers. `offer` has the bytes.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncReadExt;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::error::LinkError;
use super::frame::{self, FrameReader};
use super::limits::{TRANSFER_CHUNK_BYTES, TRANSFER_CHUNKS_WAITING};
use super::offer::{Offer, decode_offer, encode_answer};
use super::peers::{ConnectionId, Peer, Peers};
use super::security::Stream;
use super::sending::write;
use crate::log::replicated::types::NodeId;
use crate::log::snapshot::arriving::{ArrivalError, ArrivingSnapshot};

/// Takes the snapshot that a node sends on this connection.
pub(super) async fn serve(peers: &Peers, id: ConnectionId, node: NodeId, stream: Stream) {
    let Some(peer) = peers.adopt_transfer(id, node) else { return };
    peer.incoming.connected();
    match receive(peers, &peer, stream).await {
        Ok(()) => peer.incoming.ended_well(),
        Err(error) => {
            if peer.incoming.ended(&error, Duration::MAX).is_news {
                tracing::warn!("no snapshot can be received from node {node} ({}): {error}", peer.address);
            }
        }
    }
}

async fn receive(peers: &Peers, peer: &Peer, stream: Stream) -> Result<(), LinkError> {
    let stall = peers.settings.deadlines.transfer_stall;
    let mut incoming = Incoming { stream, frames: FrameReader::up_to(TRANSFER_CHUNK_BYTES), peer, stall };
    let (message, bytes) = decode_offer(incoming.next().await?, peers.settings.group, peer.node, peers.settings.node)?;
    let (answer, answered) = oneshot::channel();
    peers.receiver.offered(Offer { message: message.clone(), bytes, answer });
    let wanted = answered.await.unwrap_or_else(|_| Err("the node is not ready for it".to_owned()));
    let taken = match wanted {
        Ok(snapshot) => incoming.take(snapshot, bytes, peers.settings.deadlines.keep_alive).await?,
        Err(reason) => Err(reason),
    };
    if taken.is_ok() {
        tracing::info!("a snapshot of {bytes} bytes has come from node {} ({})", peer.node, peer.address);
        peers.receiver.received(peer.node, message);
    }
    incoming.answer(&taken).await?;
    taken.map_err(LinkError::TakesNot)
}

/// A connection that brings a snapshot.
struct Incoming<'a> {
    stream: Stream,
    frames: FrameReader,
    peer: &'a Peer,
    stall: Duration,
}

impl Incoming<'_> {
    async fn next(&mut self) -> Result<Bytes, LinkError> {
        loop {
            if let Some(payload) = self.frames.next()? {
                return Ok(payload);
            }
            let read = timeout(self.stall, self.stream.read_buf(self.frames.room())).await;
            match read.map_err(|_| LinkError::Silent)?? {
                0 => return Err(LinkError::Ended),
                read => self.peer.incoming.add_bytes(read),
            }
        }
    }

    /// Writes the file. Returns why it was not taken, or fails with the connection.
    async fn take(
        &mut self,
        snapshot: ArrivingSnapshot,
        bytes: u64,
        keep_alive: Duration,
    ) -> Result<Result<(), String>, LinkError> {
        let (sender, chunks) = mpsc::channel(TRANSFER_CHUNKS_WAITING);
        // Its thread gives up when this is dropped.
        let (outcome, mut ended) = oneshot::channel();
        drop(spawn_blocking(move || take_all(snapshot, chunks, outcome)));
        let mut missing = bytes;
        while missing > 0 {
            let chunk = self.next().await?;
            missing = missing.saturating_sub(chunk.len() as u64);
            if sender.send(chunk).await.is_err() {
                break;
            }
        }
        drop(sender);
        // Checking gigabytes takes a while. The other end must not take that for a dead connection.
        loop {
            let mut sign = Vec::new();
            tokio::select! {
                outcome = &mut ended => {
                    return Ok(outcome.map_err(|_| LinkError::Ending)?.map_err(|error| error.to_string()));
                }
                () = sleep(keep_alive) => frame::append_sign_of_life(&mut sign),
            }
            write(&mut self.stream, &sign, self.stall).await?;
        }
    }

    /// Sends the answer. Behind a refusal, what the other end still sends is passed over until it has read the answer
    /// and closes: bytes that nobody reads would take the answer with them.
    async fn answer(&mut self, answer: &Result<(), String>) -> Result<(), LinkError> {
        let mut bytes = Vec::new();
        frame::append(&mut bytes, |out| encode_answer(answer, out));
        write(&mut self.stream, &bytes, self.stall).await?;
        let mut scrap = vec![0; TRANSFER_CHUNK_BYTES / 4];
        let pass_over = async { while self.stream.read(&mut scrap).await.is_ok_and(|read| read > 0) {} };
        let _ = timeout(self.stall, pass_over).await;
        Ok(())
    }
}

/// Writes and checks the file on a thread of its own, until nobody waits for the outcome.
fn take_all(
    mut snapshot: ArrivingSnapshot,
    mut chunks: mpsc::Receiver<Bytes>,
    outcome: oneshot::Sender<Result<(), ArrivalError>>,
) {
    while let Some(chunk) = chunks.blocking_recv() {
        if let Err(error) = snapshot.write(&chunk) {
            // Dropped first: nothing of it is left when the outcome is known.
            drop(snapshot);
            let _ = outcome.send(Err(error));
            return;
        }
    }
    let done = snapshot.finish(&|| !outcome.is_closed());
    let _ = outcome.send(done);
}
