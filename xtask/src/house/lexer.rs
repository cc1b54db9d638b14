//! Lexer for Rust source: tokens and comments with their line numbers.
//!
//! It handles only what is needed to separate code from text: strings, raw strings, character literals, lifetimes and
//! nested block comments. Macros are read like other code. Malformed source causes no error: an unterminated literal or
//! comment extends to the end of the file.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A keyword, a name, or `r#name`.
    Word,
    /// A string, character or number.
    Literal,
    Lifetime,
    /// One character, or `::`.
    Punctuation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind,
    pub(super) text: &'a str,
    /// First and last line, from 1. They differ in literals of several lines only.
    pub(super) line: usize,
    pub(super) end_line: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommentKind {
    /// `// …` or `/* … */`
    Plain,
    /// `/// …` or `/** … */`
    Outer,
    /// `//! …` or `/*! … */`
    Inner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Comment<'a> {
    pub(super) kind: CommentKind,
    /// Without the comment signs.
    pub(super) text: &'a str,
    pub(super) line: usize,
    /// Nothing but white space stands before it on its line.
    pub(super) is_first: bool,
}

#[derive(Debug, Default)]
pub(super) struct Lexed<'a> {
    pub(super) tokens: Vec<Token<'a>>,
    pub(super) comments: Vec<Comment<'a>>,
}

/// Splits `text` into tokens and comments.
pub(super) fn lex(text: &str) -> Lexed<'_> {
    let mut lexer = Lexer { text, at: 0, line: 1, found: Lexed::default() };
    while lexer.at < text.len() {
        lexer.step();
    }
    lexer.found
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    found: Lexed<'a>,
}

impl<'a> Lexer<'a> {
    fn step(&mut self) {
        let rest = &self.text[self.at..];
        let mut characters = rest.chars();
        let Some(first) = characters.next() else { return };
        let second = characters.next();
        if first == '\n' {
            self.line += 1;
            self.at += 1;
        } else if first.is_whitespace() {
            self.at += first.len_utf8();
        } else if rest.starts_with("//") {
            self.line_comment(rest);
        } else if rest.starts_with("/*") {
            self.block_comment(rest);
        } else if let Some(length) = string(rest) {
            self.push(TokenKind::Literal, length);
        } else if first == '\'' {
            let (kind, length) = quoted(rest);
            self.push(kind, length);
        } else if first.is_ascii_digit() {
            self.push(TokenKind::Literal, number(rest));
        } else if is_word(first) {
            self.push(TokenKind::Word, word(rest));
        } else if first == ':' && second == Some(':') {
            self.push(TokenKind::Punctuation, 2);
        } else {
            self.push(TokenKind::Punctuation, first.len_utf8());
        }
    }

    fn push(&mut self, kind: TokenKind, length: usize) {
        let text = &self.text[self.at..self.at + length];
        let line = self.line;
        self.line += text.matches('\n').count();
        self.at += length;
        self.found.tokens.push(Token { kind, text, line, end_line: self.line });
    }

    fn line_comment(&mut self, rest: &'a str) {
        let text = rest.lines().next().unwrap_or(rest);
        let (kind, signs) = match text.as_bytes() {
            [b'/', b'/', b'/', b'/', ..] => (CommentKind::Plain, 2),
            [b'/', b'/', b'/', ..] => (CommentKind::Outer, 3),
            [b'/', b'/', b'!', ..] => (CommentKind::Inner, 3),
            _ => (CommentKind::Plain, 2),
        };
        self.comment(kind, &text[signs..], text.len());
    }

    fn block_comment(&mut self, rest: &'a str) {
        let length = block_length(rest);
        let whole = &rest[..length];
        let (kind, signs) = match whole.as_bytes() {
            [b'/', b'*', b'*', b'*' | b'/', ..] => (CommentKind::Plain, 2),
            [b'/', b'*', b'*', ..] => (CommentKind::Outer, 3),
            [b'/', b'*', b'!', ..] => (CommentKind::Inner, 3),
            _ => (CommentKind::Plain, 2),
        };
        let text = &whole[signs..];
        self.comment(kind, text.strip_suffix("*/").unwrap_or(text), length);
    }

    fn comment(&mut self, kind: CommentKind, text: &'a str, length: usize) {
        let before = self.text[..self.at].rsplit('\n').next().unwrap_or_default();
        self.found.comments.push(Comment { kind, text, line: self.line, is_first: before.trim().is_empty() });
        self.line += self.text[self.at..self.at + length].matches('\n').count();
        self.at += length;
    }
}

fn is_word(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

fn word(rest: &str) -> usize {
    let start = if rest.starts_with("r#") { 2 } else { 0 };
    start + rest[start..].find(|c| !is_word(c)).unwrap_or(rest.len() - start)
}

/// Digits, a type suffix, and one decimal point that a digit follows: `0..4` and `1.max(2)` end before the
/// point.
fn number(rest: &str) -> usize {
    let whole = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
    let fraction = &rest[whole..];
    let mut characters = fraction.chars();
    if characters.next() == Some('.') && characters.next().is_some_and(|c| c.is_ascii_digit()) {
        whole + 1 + fraction[1..].find(|c| !is_word(c)).unwrap_or(fraction.len() - 1)
    } else {
        whole
    }
}

/// The length of a string literal with its prefix, if `rest` starts with one.
fn string(rest: &str) -> Option<usize> {
    let prefix = ["br", "cr", "b", "c", "r"]
        .into_iter()
        .find(|prefix| rest.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(['"', '#'])));
    let start = prefix.map_or(0, str::len);
    let raw = prefix.is_some_and(|prefix| prefix.ends_with('r'));
    let hashes = if raw { rest[start..].bytes().take_while(|b| *b == b'#').count() } else { 0 };
    let body = rest[start + hashes..].strip_prefix('"')?;
    let length = if raw {
        let end = format!("\"{}", "#".repeat(hashes));
        body.find(&end).map_or(body.len(), |at| at + end.len())
    } else {
        escaped(body, '"')
    };
    Some(start + hashes + 1 + length)
}

/// The length up to and with the first `end` that no backslash precedes.
fn escaped(body: &str, end: char) -> usize {
    let mut characters = body.char_indices();
    while let Some((at, character)) = characters.next() {
        if character == '\\' {
            characters.next();
        } else if character == end {
            return at + end.len_utf8();
        }
    }
    body.len()
}

/// A character literal or a lifetime.
fn quoted(rest: &str) -> (TokenKind, usize) {
    let body = &rest[1..];
    let mut characters = body.chars();
    let first = characters.next();
    if first == Some('\\') || (first.is_some() && characters.next() == Some('\'')) {
        return (TokenKind::Literal, 1 + escaped(body, '\''));
    }
    let name = body.find(|c| !is_word(c)).unwrap_or(body.len());
    (TokenKind::Lifetime, 1 + name)
}

/// The length of the block comment that `rest` starts with, comments within it included.
fn block_length(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests;
