//! Elements of KEYS that should not be there: [`Rule::KeyAsArgument`] and [`Rule::UnusedKey`].

use std::collections::BTreeMap;

use super::value::Value;
use super::warning::{Rule, Warning};

/// How a value is used.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Use {
    /// As a key of a command.
    Key,
    /// Examined, or passed as something other than a key.
    Other,
    /// In a place where it can't be followed.
    Away,
}

/// The keys of all functions, by the function.
#[derive(Default)]
pub(super) struct Keys(BTreeMap<usize, KeyUses>);

/// How the keys of a function are used.
#[derive(Default)]
struct KeyUses {
    by_index: BTreeMap<u32, KeyUse>,
    /// Some use doesn't show the index.
    is_open: bool,
    /// The number of keys that a comparison with `#KEYS` asks for, and its line.
    asked: Option<(u32, u32)>,
}

struct KeyUse {
    /// The line that names it first.
    line: u32,
    is_key: bool,
    is_away: bool,
    /// The first line that uses it as something other than a key.
    other_line: Option<u32>,
}

impl Keys {
    /// Notes that a comparison with `#KEYS` asks for `count` keys.
    pub(super) fn ask(&mut self, of: usize, count: u32, line: u32) {
        let uses = self.0.entry(of).or_default();
        uses.asked = uses.asked.max(Some((count, line)));
    }

    /// Notes that a key of a function is named, with its index if known.
    pub(super) fn name(&mut self, of: usize, index: Option<u32>, line: u32) {
        let uses = self.0.entry(of).or_default();
        match index {
            None => uses.is_open = true,
            Some(index) => {
                let fresh = KeyUse { line, is_key: false, is_away: false, other_line: None };
                uses.by_index.entry(index).or_insert(fresh);
            }
        }
    }

    /// Notes the use of a value, if it is a key.
    pub(super) fn mark(&mut self, value: &Value<'_>, line: u32, usage: Use) {
        match value {
            Value::Key(of, Some(index)) => {
                self.name(*of, Some(*index), line);
                let uses = self.0.get_mut(of).and_then(|uses| uses.by_index.get_mut(index));
                let Some(uses) = uses else { return };
                match usage {
                    Use::Key => uses.is_key = true,
                    Use::Other => uses.other_line = uses.other_line.or(Some(line)),
                    Use::Away => uses.is_away = true,
                }
            }
            Value::Key(of, None) | Value::Keys(of) => self.name(*of, None, line),
            Value::Spread(of) | Value::Iterator(of) => self.mark(of, line, usage),
            _ => {}
        }
    }

    /// Returns the warnings about all keys, after the walk.
    pub(super) fn judge(self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let mut warn = |line, rule, message| warnings.push(Warning { line, rule, message });
        for uses in self.0.into_values() {
            for (index, KeyUse { line, is_key, is_away, other_line }) in &uses.by_index {
                match other_line {
                    _ if *is_key || *is_away => {}
                    Some(line) => {
                        let message = format!(
                            "KEYS[{index}] is used as an argument and never as a key: pass it in ARGV, because a \
                             cluster routes by all KEYS"
                        );
                        warn(*line, Rule::KeyAsArgument, message);
                    }
                    None => warn(*line, Rule::UnusedKey, format!("KEYS[{index}] is never used")),
                }
            }
            let last = uses.by_index.last_key_value().map(|(&index, uses)| (index, uses.line));
            let Some((last, line)) = uses.asked.max(last).filter(|_| !uses.is_open) else { continue };
            if let Some(gap) = (1..=last).find(|index| !uses.by_index.contains_key(index)) {
                warn(line, Rule::UnusedKey, format!("KEYS[{gap}] is never used, though there are {last} keys"));
            }
        }
        warnings
    }
}
