//! Sends a snapshot: dials a connection of its own, announces the file, sends it, and waits for the answer. `offer` has
//! the bytes.
//!
//! The file is read on another thread, a few frames ahead.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWrite, ReadHalf, split};
use tokio::sync::mpsc;
use tokio::task::{spawn_blocking, yield_now};
use tokio::time::{sleep, timeout};

use super::error::LinkError;
use super::frame::{self, FrameReader};
use super::greeting::Purpose;
use super::limits::{REFUSAL_MAX_BYTES, TRANSFER_CHUNK_BYTES, TRANSFER_CHUNKS_WAITING};
use super::offer::{decode_answer, encode_offer};
use super::peers::{Peer, Peers, Report};
use super::security::Stream;
use super::sending::{connect, write};
use crate::consensus::message::{Body, Message};
use crate::log::directory::Directory;
use crate::log::snapshot::departing::{DepartingSnapshot, DepartureError};

/// Sends the snapshot that a message names, and reports the end. A failure is reported after a pause.
pub(super) async fn serve(
    peers: Rc<Peers>,
    peer: Rc<Peer>,
    message: Message,
    directory: Arc<Directory>,
    report: Rc<Report>,
) {
    let sent = transfer(&peers, &peer, message, directory).await;
    if let Err(error) = &sent {
        if peer.outgoing.ended(error, Duration::MAX).is_news {
            tracing::warn!("no snapshot can be sent to node {} ({}): {error}", peer.node, peer.address);
        }
        sleep(peers.settings.deadlines.transfer_retry).await;
    }
    report.end(sent.is_ok());
}

async fn transfer(peers: &Peers, peer: &Peer, message: Message, directory: Arc<Directory>) -> Result<(), LinkError> {
    let Body::Install(mark) = message.body.clone() else { return Err(LinkError::NoSnapshot) };
    let opened = spawn_blocking(move || DepartingSnapshot::open(&directory, &mark)).await;
    let snapshot = opened.map_err(|_| LinkError::Ending)??;
    let bytes = snapshot.bytes();
    let stall = peers.settings.deadlines.transfer_stall;
    let (stream, _) = connect(peers, peer, Purpose::Snapshot, stall).await?;
    peer.outgoing.connected();
    tracing::info!("sending a snapshot of {bytes} bytes to node {} ({})", peer.node, peer.address);
    let mut offer = Vec::new();
    frame::append(&mut offer, |out| encode_offer(peers.settings.group, &message, bytes, out));
    let (reading, mut writing) = split(stream);
    let mut answers = Answers { stream: reading, frames: FrameReader::up_to(1 + REFUSAL_MAX_BYTES) };
    // A refusal may come at any time, and the answer to a short file before this task runs again.
    let early = tokio::select! {
        biased;
        answer = answers.next(Duration::MAX) => Some(answer),
        sent = send(peer, &mut writing, offer, snapshot, stall) => sent.map(|()| None)?,
    };
    match early {
        Some(answer) => answer?,
        None => answers.next(stall).await?,
    }
    peer.outgoing.ended_well();
    tracing::info!("node {} ({}) has taken the snapshot", peer.node, peer.address);
    Ok(())
}

async fn send(
    peer: &Peer,
    stream: &mut (impl AsyncWrite + Unpin),
    offer: Vec<u8>,
    snapshot: DepartingSnapshot,
    stall: Duration,
) -> Result<(), LinkError> {
    let (sender, mut chunks) = mpsc::channel(TRANSFER_CHUNKS_WAITING);
    // It ends when the receiver of the chunks is dropped.
    drop(spawn_blocking(move || read_all(&snapshot, &sender)));
    write(stream, &offer, stall).await?;
    while let Some(chunk) = chunks.recv().await {
        let chunk = chunk?;
        write(stream, &chunk, stall).await?;
        peer.outgoing.add_bytes(chunk.len());
        // Others on this thread have their turn, even if neither the disk nor the connection makes this task wait.
        yield_now().await;
    }
    Ok(())
}

/// Reads the file, in frames.
fn read_all(snapshot: &DepartingSnapshot, chunks: &mpsc::Sender<Result<Vec<u8>, DepartureError>>) {
    let mut at = 0;
    while at < snapshot.bytes() {
        let len = (snapshot.bytes() - at).min(TRANSFER_CHUNK_BYTES as u64);
        let mut read = Ok(());
        let mut chunk = Vec::new();
        frame::append(&mut chunk, |out| {
            let start = out.len();
            out.resize(start + len as usize, 0);
            read = snapshot.read(&mut out[start..], at);
        });
        let is_over = read.is_err();
        if chunks.blocking_send(read.map(|()| chunk)).is_err() || is_over {
            return;
        }
        at += len;
    }
}

/// The frames that the other end sends back.
struct Answers {
    stream: ReadHalf<Stream>,
    frames: FrameReader,
}

impl Answers {
    /// Waits for the answer; signs of life may come before it. May be dropped and called again.
    async fn next(&mut self, silence: Duration) -> Result<(), LinkError> {
        loop {
            if let Some(payload) = self.frames.next()? {
                return decode_answer(&payload);
            }
            let read = timeout(silence, self.stream.read_buf(self.frames.room())).await;
            if read.map_err(|_| LinkError::Silent)?? == 0 {
                return Err(LinkError::Ended);
            }
        }
    }
}
