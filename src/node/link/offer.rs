//! What two nodes say to each other around a snapshot. The connection is one of its own, so messages never wait behind
//! gigabytes.
//!
//! | Frame | From | Bytes | Field |
//! |---|---|--:|---|
//! | offer | sender | 8 | bytes of the file, little-endian |
//! | | | | message `install` of [`codec`](crate::consensus::codec), with the mark of the snapshot |
//! | chunk | sender | | bytes of the file, in their order, until all are sent |
//! | answer | receiver | 1 | 0 taken, 1 refused |
//! | | | | reason of a refusal, in UTF-8 |
//!
//! The receiver may refuse at any time. It answers that a snapshot is taken when the file is checked and durable.

use bytes::Bytes;
use tokio::sync::oneshot;

use super::error::LinkError;
use super::limits::REFUSAL_MAX_BYTES;
use crate::consensus::codec::{decode, encode};
use crate::consensus::message::{Body, Message};
use crate::log::replicated::types::{GroupId, NodeId};
use crate::log::snapshot::arriving::ArrivingSnapshot;

/// A snapshot that a peer offers.
pub(crate) struct Offer {
    /// The message that follows the file. It comes from the peer, and has a mark.
    pub(crate) message: Message,
    /// Bytes of the file, as the peer says.
    pub(crate) bytes: u64,
    /// Takes what the file is written to, or the reason why this node does not want it.
    pub(crate) answer: oneshot::Sender<Result<ArrivingSnapshot, String>>,
}

const LENGTH_BYTES: usize = 8;
const TAKEN: u8 = 0;
const REFUSED: u8 = 1;

/// Appends an offer.
pub(super) fn encode_offer(group: GroupId, message: &Message, bytes: u64, out: &mut Vec<u8>) {
    out.extend(bytes.to_le_bytes());
    encode(group, message, out);
}

/// Reads an offer that `from` has sent to `to`: the message, which has a mark, and the bytes of the file.
pub(super) fn decode_offer(
    mut payload: Bytes,
    group: GroupId,
    from: NodeId,
    to: NodeId,
) -> Result<(Message, u64), LinkError> {
    let bytes = payload.first_chunk::<LENGTH_BYTES>().copied().ok_or(LinkError::NoSnapshot)?;
    let (theirs, message) = decode(payload.split_off(LENGTH_BYTES), from, to)?;
    if theirs != group {
        return Err(LinkError::Group(theirs));
    }
    match message.body {
        Body::Install(_) => Ok((message, u64::from_le_bytes(bytes))),
        _ => Err(LinkError::NoSnapshot),
    }
}

/// Appends the answer to an offer. A long reason is cut short.
pub(super) fn encode_answer(answer: &Result<(), String>, out: &mut Vec<u8>) {
    match answer {
        Ok(()) => out.push(TAKEN),
        Err(reason) => {
            out.push(REFUSED);
            out.extend(&reason.as_bytes()[..reason.floor_char_boundary(REFUSAL_MAX_BYTES)]);
        }
    }
}

/// Reads the answer to an offer. The reason goes into the log, so it is one line whatever the other end says.
pub(super) fn decode_answer(payload: &[u8]) -> Result<(), LinkError> {
    match payload.split_first() {
        Some((&TAKEN, [])) => Ok(()),
        Some((&REFUSED, reason)) => {
            let reason = String::from_utf8_lossy(reason);
            Err(LinkError::NotTaken(reason.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()))
        }
        _ => Err(LinkError::Unasked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let through = |answer: Result<(), String>| {
            let mut bytes = Vec::new();
            encode_answer(&answer, &mut bytes);
            decode_answer(&bytes)
        };
        assert!(through(Ok(())).is_ok());
        let refusal = |reason: &str| match through(Err(reason.to_owned())) {
            Err(LinkError::NotTaken(reason)) => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(refusal("no space"), "no space");
        assert_eq!(refusal("one\nline\u{1b}"), "one line ");
        assert_eq!(refusal(&"é".repeat(REFUSAL_MAX_BYTES)).len(), REFUSAL_MAX_BYTES);
        for bytes in [&b""[..], b"\0more", b"\x02"] {
            assert!(matches!(decode_answer(bytes), Err(LinkError::Unasked)), "{bytes:?}");
        }
    }

    #[test]
    fn any_bytes_are_an_offer_or_are_refused() {
        let [one, two] = [1, 2].map(|number| NodeId::new(number).unwrap());
        let mut rng = Rng::seeded(1);
        for len in 0..200 {
            let mut bytes: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
            if let Some(head) = bytes.get_mut(8..16) {
                head.copy_from_slice(&[0, 0, 0, 0, 8, 0, 0, 0]);
            }
            assert!(decode_offer(bytes.into(), GroupId(0), one, two).is_err());
        }
    }
}
