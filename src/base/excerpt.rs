//! The beginning of a text that may be long, or of bytes that may be no text, for messages to people.

/// Bytes shown.
const EXCERPT_BYTES: usize = 200;

/// Returns the beginning of a text. Control characters are escaped: output of a server must not drive a terminal.
pub fn of_text(text: &str) -> String {
    let (start, end) = cut(text.as_bytes(), text.floor_char_boundary(EXCERPT_BYTES));
    let mut excerpt = String::new();
    for character in String::from_utf8_lossy(start).chars() {
        if character.is_control() {
            excerpt.extend(character.escape_default());
        } else {
            excerpt.push(character);
        }
    }
    excerpt + end
}

/// Returns the beginning of bytes, with everything but plain ASCII escaped.
pub fn of_bytes(bytes: &[u8]) -> String {
    let (start, end) = cut(bytes, EXCERPT_BYTES);
    start.escape_ascii().to_string() + end
}

fn cut(bytes: &[u8], len: usize) -> (&[u8], &'static str) {
    if bytes.len() > len { (&bytes[..len], "...") } else { (bytes, "") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_binary_texts_become_short_and_plain() {
        assert_eq!(of_text("it's\r\u{1b}ä"), "it's\\r\\u{1b}ä");
        assert_eq!(of_bytes(b"k\xff"), "k\\xff");
        assert_eq!(of_text(&"ä".repeat(1000)), "ä".repeat(100) + "...");
        assert_eq!(of_text(&format!("x{}", "ä".repeat(1000))).chars().count(), 103);
        assert_eq!(of_bytes(&[b'x'; 201]), "x".repeat(200) + "...");
        assert_eq!(of_bytes(&[b'x'; 200]), "x".repeat(200));
    }
}
