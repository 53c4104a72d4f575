//! Replies of WHO, WHY and EVENTS about past events.

use super::grant::{Said, say};
use crate::engine::observe::history::{Client, Past, What, split_note};
use crate::keyspace::effect::Turn;
use crate::resp::reply::Reply;

/// How many items a reply lists without COUNT: people read them.
pub(super) const SHOWN_COUNT: usize = 10;

/// The fields that name a connection: the id 0 and empty texts if no connection was involved, or if it is forgotten.
pub(super) fn client_fields<'a>(client: &Client<'a>) -> [(&'static str, Said<'a>); 3] {
    [
        ("client-id", client.id.into()),
        ("client-addr", Said::Text(client.address)),
        ("client-name", Said::Text(client.name)),
    ]
}

/// The name of an event.
fn event_name(what: What) -> &'static str {
    match what {
        What::Turn { turn, .. } => turn.name(),
        What::Refused { .. } => "refused",
    }
}

/// Writes a list of events, with their keys if the caller did not name one.
pub(super) fn answer(reply: &mut Reply, pasts: &[Past<'_>], with_keys: bool) {
    reply.array(pasts.len());
    for past in pasts {
        let mut fields = vec![
            ("id", past.id.into()),
            ("at-ms", Said::Number(past.at_ms)),
            ("event", Said::Text(event_name(past.what).as_bytes())),
        ];
        if with_keys {
            fields.extend([("db", u64::from(past.db).into()), ("key", Said::Text(past.key))]);
        }
        fields.push(("holder", Said::Text(past.subject)));
        match past.what {
            What::Turn { turn: Turn::DeadLettered | Turn::DeadLetterStays, units, .. } => {
                let (message, group) = split_note(past.note);
                fields.extend([
                    ("group", Said::Text(group)),
                    ("message", Said::Text(message)),
                    ("deliveries", units.into()),
                ]);
            }
            What::Turn { token, units, .. } => {
                fields.extend([("token", token.into()), ("units", units.into()), ("note", Said::Text(past.note))]);
            }
            What::Refused { command, reason, in_use, limit } => {
                fields.extend([
                    ("command", Said::Text(command.as_bytes())),
                    ("reason", Said::Text(reason.as_bytes())),
                    ("in-use", Said::Number(in_use)),
                    ("limit", Said::Number(limit)),
                ]);
            }
        }
        fields.extend(client_fields(&past.client));
        reply.map(fields.len());
        say(reply, &fields);
    }
}
