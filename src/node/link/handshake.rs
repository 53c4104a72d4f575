//! Exchanges greetings at the start of a connection, inside TLS.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::error::LinkError;
use super::greeting::{Greeted, Greeting, HEAD_BYTES, Purpose, Verdict};
use super::peers::Peers;
use super::security::Stream;
use crate::log::replicated::types::NodeId;

/// Greets the node `to` on a connection that this node has dialled.
pub(super) async fn greet(
    stream: &mut Stream,
    peers: &Peers,
    to: NodeId,
    purpose: Purpose,
) -> Result<Greeted, LinkError> {
    let own = Greeting::of(&peers.settings, peers.identity.get(), to, purpose, Verdict::Welcome);
    write(stream, &own).await?;
    let theirs = read(stream).await?;
    let agreed = own.agree(&theirs)?;
    match (theirs.verdict, peers.judge(to, theirs.identity.birth)) {
        (Verdict::Welcome, Verdict::Welcome) => Ok(theirs.said(agreed)),
        (Verdict::Welcome, own) => Err(LinkError::Refuses(own)),
        (verdict, _) => {
            if matches!(verdict, Verdict::NoPeer | Verdict::Birth) {
                peers.receiver.turned_away(theirs.said(agreed), verdict);
            }
            Err(LinkError::Refused(verdict))
        }
    }
}

/// Answers a node that has dialled this one. Returns what the connection is for, too.
pub(super) async fn answer(stream: &mut Stream, peers: &Peers) -> Result<(Greeted, Purpose), LinkError> {
    let theirs = read(stream).await?;
    let verdict = match theirs.purpose {
        Purpose::Messages | Purpose::Snapshot => peers.judge(theirs.from, theirs.identity.birth),
        Purpose::Unknown(_) => Verdict::Purpose,
    };
    let own = Greeting::of(&peers.settings, peers.identity.get(), theirs.from, theirs.purpose, verdict);
    // Before any refusal, so that the other end learns the reason, too.
    write(stream, &own).await?;
    let agreed = own.agree(&theirs)?;
    let purpose = theirs.purpose;
    match verdict {
        Verdict::Welcome => Ok((theirs.said(agreed), purpose)),
        Verdict::NoPeer => {
            peers.receiver.knocked(theirs.said(agreed));
            Err(LinkError::Refuses(verdict))
        }
        verdict => Err(LinkError::Refuses(verdict)),
    }
}

async fn write(stream: &mut Stream, greeting: &Greeting) -> Result<(), LinkError> {
    stream.write_all(&greeting.bytes()).await?;
    Ok(stream.flush().await?)
}

async fn read(stream: &mut Stream) -> Result<Greeting, LinkError> {
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head).await?;
    let mut body = vec![0; Greeting::len(&head)?];
    stream.read_exact(&mut body).await?;
    Ok(Greeting::parse(&body)?)
}
