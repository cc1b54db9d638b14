//! Makes foreign text safe to print: control characters, line separators and direction marks become visible
//! escapes.
//!
//! Names, errors and log lines come from files, engines, servers and hosts. A terminal would obey what they
//! hold.

use std::borrow::Cow;

/// Characters for the use of one program alone (Unicode, section 23.7): the command line marks its colours
/// with them.
const INTERNAL: std::ops::RangeInclusive<char> = '\u{fdd0}'..='\u{fdef}';

/// True for control characters (C0, DEL and C1), line separators, marks that turn the direction of text
/// (CVE-2021-42574), and characters that mean something to this program alone.
pub fn is_control(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
        || INTERNAL.contains(&letter)
}

/// Text for a place of one line: a line feed is shown too.
pub fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_control(letter) { shown.extend(letter.escape_default()) } else { shown.push(letter) }
    }
    Cow::Owned(shown)
}

/// Foreign lines below a line of ours: each on a line of its own, indented.
pub fn indented(text: &str) -> String {
    text.lines().map(|line| format!("\n  {}", one_line(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_other_text_stays() {
        for plain in ["", "Qwen3 4B – größer", "日本語", "a\\b 'c' \"d\"", "👩‍💻"] {
            assert!(matches!(one_line(plain), Cow::Borrowed(_)), "{plain}");
        }
        for (foreign, shown) in [
            ("\u{1b}[2Ja", "\\u{1b}[2Ja"),
            ("a\r\nb\tc", "a\\r\\nb\\tc"),
            ("\u{7f}\u{80}\u{85}\u{9b}31m", "\\u{7f}\\u{80}\\u{85}\\u{9b}31m"),
            ("\u{202e}a\u{2066}\u{2028}", "\\u{202e}a\\u{2066}\\u{2028}"),
            ("\u{fdd0}x", "\\u{fdd0}x"),
        ] {
            assert_eq!(one_line(foreign), shown);
        }
    }
}
