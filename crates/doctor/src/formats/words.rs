//! Word table for problem reports: names of cards and quantisations, options, and words for repeated steps.
//!
//! The table `words.tsv` has a word in each row, with its kind and, for some kinds, a number.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Words of a kind with their numbers; 0 for kinds without.
pub(crate) type Words = Vec<(&'static str, f64)>;

static WORDS: LazyLock<HashMap<&'static str, Words>> = LazyLock::new(|| {
    let mut words: HashMap<&str, Words> = HashMap::new();
    for row in include_str!("words.tsv").lines().filter(|row| !row.starts_with("# ")) {
        let mut cells = row.split('\t');
        if let (Some(kind), Some(word), Some(number)) = (cells.next(), cells.next(), cells.next()) {
            words.entry(kind).or_default().push((word, number.parse().unwrap_or_default()));
        }
    }
    words
});

/// The words of a kind, in the order of the table.
pub(crate) fn words(kind: &str) -> &'static [(&'static str, f64)] {
    WORDS.get(kind).map_or(&[], Vec::as_slice)
}

/// True for a word of this kind.
pub(crate) fn is_word(kind: &str, word: &str) -> bool {
    words(kind).iter().any(|(known, _)| *known == word)
}

/// True if `text` contains a word of this kind.
pub(crate) fn has_any(kind: &str, text: &str) -> bool {
    words(kind).iter().any(|(word, _)| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_that_is_asked_for_has_words_and_those_with_numbers_have_numbers() {
        let kinds = [
            "card",
            "board",
            "bits",
            "ambiguous",
            "trains",
            "series",
            "hides",
            "picks",
            "round",
            "subject",
            "failure",
            "template",
            "heading",
            "changes",
            "grammar",
            "driver",
            "context",
        ];
        assert_eq!(WORDS.len(), kinds.len());
        for kind in kinds {
            let words = words(kind);
            assert!(words.len() >= 6, "{kind}");
            let numbered = words.iter().filter(|(_, number)| *number > 0.0).count();
            let all = if matches!(kind, "card" | "board" | "bits") { words.len() } else { 0 };
            assert_eq!(numbered, all, "{kind}");
            assert!(words.iter().all(|(word, _)| *word == word.to_ascii_lowercase()), "{kind}");
        }
    }
}
