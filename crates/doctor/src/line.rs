//! Cleans a log line: removes colours and control bytes, and limits its length.

use std::borrow::Cow;

// DECISION: of a long line, only a window around the phrase that was searched for is kept. So a line of 100
// MB takes no more memory than one of 4 KiB.
/// Bytes that are kept before and after the phrase of a line.
pub(super) const WINDOW: usize = 2048;
/// Maximum length of an evidence text, in characters.
pub(super) const LONGEST_QUOTE: usize = 400;

/// The part of `line` around `at`, as text.
pub(super) fn around(line: &[u8], at: usize) -> Cow<'_, str> {
    // The cut may split a character, which then reads as U+FFFD.
    let from = at.saturating_sub(WINDOW);
    let to = line.len().min(at.saturating_add(WINDOW));
    clean(&line[from..to])
}

/// Without colours and control bytes, tabs as blanks.
pub(super) fn clean(line: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(line);
    // Most lines are clean, and stay borrowed.
    if text.bytes().any(|byte| byte < b' ') {
        return Cow::Owned(without_controls(&text));
    }
    text
}

fn without_controls(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' => skip_escape(&mut letters),
            '\t' => kept.push(' '),
            letter if letter < ' ' => {}
            letter => kept.push(letter),
        }
    }
    kept
}

/// `ESC [ 31 m` and its like: parameters, then one letter.
fn skip_escape(letters: &mut std::str::Chars<'_>) {
    if letters.as_str().starts_with('[') {
        let _ = letters.find(char::is_ascii_alphabetic);
    } else {
        letters.next();
    }
}

/// The longest prefix of a line that is worth keeping.
pub(super) fn shortened(line: &str) -> &str {
    let line = line.trim_end();
    match line.char_indices().nth(LONGEST_QUOTE) {
        Some((end, _)) => &line[..end],
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_and_control_bytes_go_and_words_stay() {
        let text = around(b"\x1b[31mCUDA\x1b[0m error\x00:\tout of memory\r", 3);
        assert_eq!(text, "CUDA error: out of memory");
        assert_eq!(around(b"\xff\xfe half", 0), "\u{fffd}\u{fffd} half");
        assert_eq!(around(b"\x1b[", 0), "");
    }

    #[test]
    fn of_a_long_line_the_part_around_the_phrase_is_kept() {
        let mut line = vec![b'x'; 1 << 20];
        line[1 << 19] = b'y';
        let text = around(&line, 1 << 19);
        assert!(text.contains('y') && text.len() <= 2 * WINDOW);
        assert_eq!(shortened(&text).len(), LONGEST_QUOTE);
    }
}
