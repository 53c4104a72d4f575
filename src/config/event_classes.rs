//! The keyspace notifications to send: the letters of `notify-keyspace-events`.

use bitflags::bitflags;

use super::kind::{Origin, Shape};
use super::refusal::Refusal;

bitflags! {
    /// A set of classes of events, and of the channels on which they are published.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct EventClasses: u16 {
        /// Channels named after the key.
        const BY_KEY = 1;
        /// Channels named after the event.
        const BY_EVENT = 1 << 1;
        /// Commands on keys of any type.
        const GENERIC = 1 << 2;
        /// Commands on strings.
        const STRING = 1 << 3;
        /// Commands on lists.
        const LIST = 1 << 4;
        /// Commands on sets.
        const SET = 1 << 5;
        /// Commands on hashes.
        const HASH = 1 << 6;
        /// Commands on sorted sets.
        const ZSET = 1 << 7;
        /// A key has expired.
        const EXPIRED = 1 << 8;
        /// A key was evicted.
        const EVICTED = 1 << 9;
        /// Commands on streams.
        const STREAM = 1 << 10;
        /// Events of modules, of which there are none.
        const MODULE = 1 << 11;
        /// A key was looked up and not found.
        const MISS = 1 << 12;
        /// A new key was created.
        const NEW = 1 << 13;
        /// A grant of a lock or of a gate's place has changed. Redis has no such events, so they are not among
        /// [`ALL`](Self::ALL).
        const GRANT = 1 << 14;
        /// The classes that the letter `A` stands for.
        const ALL = 0b1111_1111_1100;
    }
}

impl EventClasses {
    /// No class.
    pub const NONE: EventClasses = EventClasses::empty();
}

/// Each class with its letter, in the order of output.
const LETTERS: [(u8, EventClasses); 15] = [
    (b'g', EventClasses::GENERIC),
    (b'$', EventClasses::STRING),
    (b'l', EventClasses::LIST),
    (b's', EventClasses::SET),
    (b'h', EventClasses::HASH),
    (b'z', EventClasses::ZSET),
    (b'x', EventClasses::EXPIRED),
    (b'e', EventClasses::EVICTED),
    (b't', EventClasses::STREAM),
    (b'd', EventClasses::MODULE),
    (b'n', EventClasses::NEW),
    (b'K', EventClasses::BY_KEY),
    (b'E', EventClasses::BY_EVENT),
    (b'm', EventClasses::MISS),
    (b'L', EventClasses::GRANT),
];

impl EventClasses {
    /// Whether any event is published. That takes both a class and a kind of channel.
    pub fn publish_any(self) -> bool {
        let channels = EventClasses::BY_KEY.union(EventClasses::BY_EVENT);
        self.intersects(channels) && !self.difference(channels).is_empty()
    }
}

/// The kind of the parameter.
pub(super) struct EventLetters;

impl EventLetters {
    pub(super) fn shape(&self) -> Shape {
        Shape::One("CLASSES")
    }

    pub(super) fn set(&self, field: &mut EventClasses, args: &[&[u8]], _: Origin) -> Result<(), Refusal> {
        let [letters] = args else { return Err(Refusal::Arity) };
        let mut classes = EventClasses::NONE;
        for letter in *letters {
            classes |= match LETTERS.iter().find(|(known, _)| known == letter) {
                Some((_, class)) => *class,
                None if *letter == b'A' => EventClasses::ALL,
                None => return Err(Refusal::EventClass),
            };
        }
        *field = classes;
        Ok(())
    }

    pub(super) fn get(&self, field: &EventClasses, out: &mut Vec<u8>) {
        let are_all = field.contains(EventClasses::ALL);
        if are_all {
            out.push(b'A');
        }
        let is_written = |class: EventClasses| field.contains(class) && !(are_all && EventClasses::ALL.contains(class));
        out.extend(LETTERS.iter().filter(|(_, class)| is_written(*class)).map(|(letter, _)| *letter));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(letters: &str) -> Result<String, Refusal> {
        let (mut field, mut out) = (EventClasses::NONE, Vec::new());
        EventLetters.set(&mut field, &[letters.as_bytes()], Origin::Set)?;
        EventLetters.get(&field, &mut out);
        Ok(String::from_utf8(out).expect("letters"))
    }

    #[test]
    fn classes_are_written_in_one_order() {
        for (given, written) in [
            ("", ""),
            ("KEA", "AKE"),
            ("mnKA", "AnKm"),
            ("EKnmdtexzhsl$", "$lshzxetdnKEm"),
            ("LEAK", "AKEL"),
            ("g$lshzxetd", "A"),
            ("KKgg", "gK"),
        ] {
            assert_eq!(canonical(given).as_deref(), Ok(written), "{given}");
            assert_eq!(canonical(written).as_deref(), Ok(written), "{given}");
        }
        assert_eq!(canonical("KEa"), Err(Refusal::EventClass));
    }

    #[test]
    fn a_class_needs_a_channel() {
        for (letters, publishes) in [("", false), ("A", false), ("KE", false), ("Km", true), ("gE", true)] {
            let mut field = EventClasses::NONE;
            EventLetters.set(&mut field, &[letters.as_bytes()], Origin::Set).expect("letters");
            assert_eq!(field.publish_any(), publishes, "{letters}");
        }
    }
}
