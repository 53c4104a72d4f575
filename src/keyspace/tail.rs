//! The tail of the stream: the effects of finished units, one behind the other, until whoever keeps the data or copies it
//! elsewhere takes them.

/// See the file's header.
#[derive(Debug, Default)]
pub struct Tail {
    bytes: Vec<u8>,
    /// Where the effects of each unit end.
    ends: Vec<usize>,
}

impl Tail {
    /// Appends what a unit has recorded in full; one that changed nothing leaves no trace.
    pub fn append(&mut self, effects: &[u8]) {
        if !effects.is_empty() {
            self.bytes.extend_from_slice(effects);
            self.ends.push(self.bytes.len());
        }
    }

    /// The encoded effects of each unit that changed something.
    pub fn units(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(&0).chain(&self.ends);
        begins.zip(&self.ends).map(|(&begin, &end)| &self.bytes[begin..end])
    }
}
