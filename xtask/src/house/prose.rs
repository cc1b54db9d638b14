//! Wording check of doc comments: question words at the beginning, and words for people (who, nobody) where processes
//! are meant.

use super::lexer::CommentKind;
use super::tree::Comment;

/// A doc comment that opens with one of these names nothing that one could search for.
const OPENERS: &[&str] = &["what", "who", "whose", "where", "how", "whether", "why", "when", "which"];

/// Words for people, which processes and things are not.
const PEOPLE: &[&str] = &["who", "whoever", "whom", "somebody", "nobody", "anybody", "someone"];

/// A run of `///` or of `//!` lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DocComment {
    pub(super) line: usize,
    pub(super) first_line: String,
}

impl DocComment {
    pub(super) fn opens_with_a_question(&self) -> bool {
        words(&self.first_line).next().is_some_and(|word| OPENERS.contains(&word.to_lowercase().as_str()))
    }
}

/// The doc comments of a file, from all its comments in order.
pub(super) fn doc_comments(comments: &[Comment]) -> Vec<DocComment> {
    let mut found: Vec<DocComment> = Vec::new();
    let mut before: Option<&Comment> = None;
    for comment in comments.iter().filter(|comment| comment.kind != CommentKind::Plain) {
        let continues =
            before.is_some_and(|before| before.kind == comment.kind && before.line + 1 == comment.line);
        if !continues {
            found.push(DocComment { line: comment.line, first_line: comment.text.trim().to_owned() });
        }
        before = Some(comment);
    }
    found
}

/// The words of a text: runs of letters, with apostrophes within.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphabetic() && c != '\'' && c != '’')
        .map(|word| word.trim_matches(['\'', '’']))
        .filter(|word| !word.is_empty())
}

pub(super) fn is_for_people(word: &str) -> bool {
    PEOPLE.contains(&word.to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::super::lexer;
    use super::*;

    fn comments(source: &str) -> Vec<Comment> {
        let lexed = lexer::lex(source);
        let copied = lexed.comments.iter().map(|comment| Comment {
            kind: comment.kind,
            text: comment.text.to_owned(),
            line: comment.line,
            is_first: comment.is_first,
        });
        copied.collect()
    }

    #[test]
    fn a_run_of_lines_is_one_doc_comment() {
        let docs = doc_comments(&comments(
            "//! What it is.\n//! More.\n\n/// Size.\n/// Who asks.\nfn a() {}\n/// `How` long.\nfn b() {}\n// Why not.\n",
        ));
        let found: Vec<_> = docs.iter().map(|doc| (doc.line, doc.opens_with_a_question())).collect();
        assert_eq!(found, [(1, true), (4, false), (7, true)]);
    }

    #[test]
    fn words_are_letters_with_apostrophes() {
        let found: Vec<&str> = words(" the card's `u64`, 12 (nobody)").collect();
        assert_eq!(found, ["the", "card's", "u", "nobody"]);
        assert!(is_for_people("Nobody") && !is_for_people("whole"));
    }
}
