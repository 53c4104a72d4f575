//! Exchanges greetings at the start of a connection, inside TLS.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::error::LinkError;
use super::greeting::{Greeting, HEAD_BYTES, MESSAGES, Verdict};
use super::security::Stream;
use super::settings::{Agreed, LinkSettings};
use crate::log::replicated::types::NodeId;

/// Greets the node `to` on a connection that this node has dialled.
pub(super) async fn greet(stream: &mut Stream, settings: &LinkSettings, to: NodeId) -> Result<Agreed, LinkError> {
    let own = Greeting::of(settings, to, Verdict::Welcome);
    write(stream, &own).await?;
    let theirs = read(stream).await?;
    let agreed = own.agree(&theirs)?;
    match theirs.verdict {
        Verdict::Welcome => Ok(agreed),
        verdict => Err(LinkError::Refused(verdict)),
    }
}

/// Answers a node that has dialled this one. `is_peer` says whether it is welcome.
pub(super) async fn answer(
    stream: &mut Stream,
    settings: &LinkSettings,
    is_peer: impl FnOnce(NodeId) -> bool,
) -> Result<(NodeId, Agreed), LinkError> {
    let theirs = read(stream).await?;
    let verdict = match theirs.purpose {
        MESSAGES if is_peer(theirs.from) => Verdict::Welcome,
        MESSAGES => Verdict::NoPeer,
        _ => Verdict::Purpose,
    };
    let own = Greeting::of(settings, theirs.from, verdict);
    // Before any refusal, so that the other end learns the reason, too.
    write(stream, &own).await?;
    let agreed = own.agree(&theirs)?;
    match verdict {
        Verdict::Welcome => Ok((theirs.from, agreed)),
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
