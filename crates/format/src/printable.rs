//! Bytes of a file as text for messages.

/// The text of a name: invalid UTF-8 replaced, control characters escaped, cut after 200 characters.
pub fn printable(name: &[u8]) -> String {
    let cut = &name[..name.len().min(800)];
    let mut text = String::new();
    for (count, character) in String::from_utf8_lossy(cut).chars().enumerate() {
        if count == 200 {
            text.push('…');
            break;
        }
        if character.is_control() {
            text.extend(character.escape_default());
        } else {
            text.push(character);
        }
    }
    text
}
