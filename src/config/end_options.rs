//! How the server should end, in the words of SHUTDOWN.

use super::kind::{Args, Origin, Shape, words};
use super::refusal::Refusal;

/// How the server should end: the options of SHUTDOWN and of the parameters for signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndOptions {
    /// SAVE or NOSAVE; `None`: as `save` and the journal require.
    pub save: Option<bool>,
    /// NOW: waits neither for a snapshot nor for replies to be sent.
    pub now: bool,
    /// FORCE: ends even if something can't be saved.
    pub force: bool,
}

/// The kind of [`EndOptions`].
pub(super) struct EndWords;

impl EndWords {
    const WORDS: [&'static str; 5] = ["default", "save", "nosave", "now", "force"];

    pub(super) fn shape(&self) -> Shape {
        Shape::Many("default|save|nosave|now|force")
    }

    pub(super) fn set(&self, field: &mut EndOptions, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let mut options = EndOptions::default();
        if args.is_empty() {
            return Err(Refusal::Word(Self::WORDS.join(", ")));
        }
        for word in words(args) {
            let (save, now, force) = match word.to_ascii_lowercase().as_slice() {
                b"default" => continue,
                b"save" => (Some(true), false, false),
                b"nosave" => (Some(false), false, false),
                b"now" => (None, true, false),
                b"force" => (None, false, true),
                _ => return Err(Refusal::Word(Self::WORDS.join(", "))),
            };
            if save.is_some() && options.save.is_some_and(|said| Some(said) != save) {
                return Err(Refusal::EndWords);
            }
            options =
                EndOptions { save: save.or(options.save), now: now || options.now, force: force || options.force };
        }
        *field = options;
        Ok(())
    }

    pub(super) fn get(&self, field: &EndOptions, out: &mut Vec<u8>) {
        let said = [("save", field.save == Some(true)), ("nosave", field.save == Some(false))];
        let said = said.into_iter().chain([("now", field.now), ("force", field.force)]);
        let words: Vec<&str> = said.filter_map(|(word, is_said)| is_said.then_some(word)).collect();
        out.extend_from_slice(if words.is_empty() { "default".to_owned() } else { words.join(" ") }.as_bytes());
    }
}
