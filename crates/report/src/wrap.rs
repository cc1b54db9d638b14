//! Breaks text between words into lines that fit a width, with an indent from the second line on.

use plimsoll_base::one_line;

/// Breaks `text` into lines of at most `width` characters; a longer word stays whole. Every line but the
/// first begins with `indent` blanks. Control characters are shown, so the text cannot break a line itself.
pub fn wrapped(text: &str, width: usize, indent: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let (mut line, mut used) = (String::new(), 0);
    let mut is_begun = false;
    let text = one_line(text);
    // Blanks at the front and between words stay, since columns are made of them.
    for word in text.split(' ') {
        let length = word.chars().count();
        if is_begun && used + 1 + length > width {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            (used, is_begun) = (indent, false);
            // Blanks at a break are dropped.
            if word.is_empty() {
                continue;
            }
        }
        if is_begun {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += length;
        is_begun = is_begun || !lines.is_empty() && length > 0 || lines.is_empty();
    }
    lines.push(line);
    lines
}

/// The beginning of a text that is longer than `most` characters, with an ellipsis.
pub fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() > most {
        text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
    } else {
        text.to_owned()
    }
}
