//! Searches a log for all known phrases in one pass.

use std::sync::LazyLock;

use aho_corasick::automaton::{Automaton, OverlappingState};
use aho_corasick::{Anchored, Input, dfa::DFA};
use plimsoll_base::Order;

use super::table::{PatternRow, rows};
use crate::pattern::Pattern;

// Overlapping matches need the unanchored start alone, which halves the table.
// DECISION: one Aho-Corasick automaton (a DFA) takes one table look-up per byte. So a line full of phrases
// takes no longer than any other.
static PHRASES: LazyLock<Option<DFA>> = LazyLock::new(|| {
    let phrases = rows().iter().map(|row| row.phrase);
    DFA::builder()
        .ascii_case_insensitive(true)
        .start_kind(aho_corasick::StartKind::Unanchored)
        .build(phrases)
        .ok()
});

/// Position of a phrase in a block of bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PhraseHit {
    pub(crate) start: usize,
    /// Number of the row in the table.
    pub(crate) row: usize,
    pub(crate) pattern: Pattern,
}

/// Matches in a block, ordered by the end of their phrases.
pub(crate) struct Hits<'a> {
    block: &'a [u8],
    state: OverlappingState,
}

/// Looks for every phrase in `block`, overlapping ones included.
pub(crate) fn hits(block: &[u8]) -> Hits<'_> {
    Hits { block, state: OverlappingState::start() }
}

impl Iterator for Hits<'_> {
    type Item = PhraseHit;

    fn next(&mut self) -> Option<PhraseHit> {
        let automaton = PHRASES.as_ref()?;
        let input = Input::new(self.block).anchored(Anchored::No);
        loop {
            automaton.try_find_overlapping(&input, &mut self.state).ok()?;
            let found = self.state.get_match()?;
            let (row, number) = (&rows()[found.pattern().as_usize()], found.pattern().as_usize());
            if is_whole(row, self.block, found.start(), found.end()) {
                return Some(PhraseHit { start: found.start(), row: number, pattern: row.pattern });
            }
        }
    }
}

fn is_whole(row: &PatternRow, block: &[u8], start: usize, end: usize) -> bool {
    let in_word = start > 0 && block[start - 1].is_ascii_alphanumeric() && !ends_colour(&block[..start]);
    let goes_on = block.get(end).is_some_and(u8::is_ascii_alphanumeric);
    !(row.starts_word && in_word || row.ends_word && goes_on)
}

/// `ESC [ 0 ; 31 m`: a colour, which ends in a letter.
fn ends_colour(before: &[u8]) -> bool {
    let parameter = |byte: &u8| byte.is_ascii_digit() || *byte == b';';
    let Some(before) = before.strip_suffix(b"m") else { return false };
    let digits = before.iter().rev().take(16).take_while(|byte| parameter(byte)).count();
    before[..before.len() - digits].ends_with(b"\x1b[")
}

/// The rows whose phrase is in `line`, one per pattern, in the order of the patterns.
pub(crate) fn rows_in(line: &str) -> Vec<&'static PatternRow> {
    let mut found = vec![false; rows().len()];
    // A phrase may stand hundreds of times in a long line.
    hits(line.as_bytes()).for_each(|hit| found[hit.row] = true);
    let found = rows().iter().zip(found).filter(|(_, found)| *found);
    let mut found: Vec<&PatternRow> = found.map(|(row, _)| row).collect();
    found.order_by_key(|row| row.pattern);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phrase_is_found_in_any_case_and_place() {
        for row in rows() {
            for text in [row.phrase.to_owned(), format!("é{}.z", row.phrase.to_ascii_uppercase())] {
                let found = rows_in(&text);
                assert!(found.iter().any(|other| other.phrase == row.phrase), "{text}");
            }
        }
    }

    #[test]
    fn a_phrase_that_must_be_a_word_is_not_found_within_one() {
        assert!(rows_in("the room: OOMKilled=false, skilled").is_empty());
        assert!(!rows_in("Killed").is_empty() && !rows_in("cuda oom").is_empty());
    }

    #[test]
    fn hits_overlap_and_are_ordered_by_their_ends() {
        let ends =
            |text: &[u8]| hits(text).map(|hit| hit.start + rows()[hit.row].phrase.len()).collect::<Vec<_>>();
        let found = ends(b"cudaMalloc failed: out of memory; CUDA error: out of memory");
        assert!(found.len() >= 4 && found.is_sorted(), "{found:?}");
    }
}
