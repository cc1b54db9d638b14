//! The search for all phrases at once.
//!
//! DECISION: a filter of 64 Ki bits says of any four bytes whether a phrase can begin with them; only where it does is a phrase
//! compared. So a byte costs one load, one multiplication and one test of 8 KiB that stay in the first cache, whatever the log. An
//! automaton of the same phrases takes megabytes, and every other program on the machine fights it for the cache.

use super::Row;

/// Bytes of a phrase that the filter looks at; no phrase is shorter.
const PREFIX: usize = 4;
/// Sets the bit that tells small letters from capital ones.
const SMALL: u32 = 0x2020_2020;

/// Finds the rows of a table.
#[derive(Debug)]
pub(super) struct Search {
    rows: &'static [Row],
    filter: Vec<u64>,
    /// The first bytes of each phrase and its row, in the order of the bytes.
    prefixes: Vec<(u32, usize)>,
}

impl Search {
    pub(super) fn new(rows: &'static [Row]) -> Self {
        let mut filter = vec![0_u64; 1 << 10];
        let mut prefixes = Vec::with_capacity(rows.len());
        for (row, phrase) in rows.iter().enumerate() {
            if let Some(prefix) = phrase.phrase.as_bytes().first_chunk::<PREFIX>() {
                let prefix = folded(*prefix);
                let bit = bit(prefix);
                filter[bit >> 6] |= 1 << (bit & 63);
                prefixes.push((prefix, row));
            }
        }
        prefixes.sort_unstable();
        Self {
            rows,
            filter,
            prefixes,
        }
    }

    /// The first place at or after `from` where a phrase starts, and its row.
    pub(super) fn find(&self, bytes: &[u8], from: usize) -> Option<(usize, usize)> {
        let rest = bytes.get(from..)?;
        for (at, window) in rest.windows(PREFIX).enumerate() {
            let prefix = folded([window[0], window[1], window[2], window[3]]);
            let bit = bit(prefix);
            if self.filter[bit >> 6] >> (bit & 63) & 1 == 1
                && let Some(row) = self.rows_at(prefix, bytes, from + at).next()
            {
                return Some((from + at, row));
            }
        }
        None
    }

    /// Every row whose phrase is in `line`, in the order of the table.
    pub(super) fn all(&self, line: &[u8]) -> Vec<usize> {
        let mut found = Vec::new();
        let mut from = 0;
        while let Some((at, _)) = self.find(line, from) {
            if let Some(prefix) = line[at..].first_chunk::<PREFIX>() {
                found.extend(self.rows_at(folded(*prefix), line, at));
            }
            from = at + 1;
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    fn rows_at<'a>(&'a self, prefix: u32, bytes: &'a [u8], at: usize) -> impl Iterator<Item = usize> + 'a {
        let rest = &bytes[at..];
        let in_word = at > 0 && bytes[at - 1].is_ascii_alphanumeric();
        let first = self.prefixes.partition_point(|(other, _)| *other < prefix);
        let same = self.prefixes[first..]
            .iter()
            .take_while(move |(other, _)| *other == prefix);
        same.map(|(_, row)| *row).filter(move |row| {
            let Row {
                phrase,
                starts_word,
                ends_word,
                ..
            } = self.rows[*row];
            let found = rest
                .get(..phrase.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(phrase.as_bytes()));
            let goes_on = rest.get(phrase.len()).is_some_and(u8::is_ascii_alphanumeric);
            found && !(starts_word && in_word) && !(ends_word && goes_on)
        })
    }
}

fn folded(bytes: [u8; PREFIX]) -> u32 {
    u32::from_le_bytes(bytes) | SMALL
}

/// Sixteen well mixed bits (Knuth's multiplicative hash).
fn bit(prefix: u32) -> usize {
    let [_, _, low, high] = prefix.wrapping_mul(0x9e37_79b1).to_le_bytes();
    usize::from(u16::from_le_bytes([low, high]))
}

#[cfg(test)]
mod tests {
    use super::super::ROWS;
    use super::*;

    #[test]
    fn every_phrase_is_long_enough_and_found_in_any_case_and_place() {
        let search = Search::new(&ROWS);
        for (row, phrase) in ROWS.iter().enumerate() {
            assert!(phrase.phrase.len() >= PREFIX, "{phrase:?}");
            assert_eq!(phrase.phrase, phrase.phrase.to_ascii_lowercase());
            for text in [
                phrase.phrase.to_owned(),
                format!("é{}.z", phrase.phrase.to_ascii_uppercase()),
            ] {
                assert!(search.all(text.as_bytes()).contains(&row), "{text}");
                assert!(search.find(text.as_bytes(), 0).is_some());
            }
        }
    }

    #[test]
    fn the_first_place_is_found_and_the_search_goes_on_behind_it() {
        let search = Search::new(&ROWS);
        let text = b"no, leak; and a LEAK";
        assert_eq!(search.find(text, 0).map(|(at, _)| at), Some(4));
        assert_eq!(search.find(text, 5).map(|(at, _)| at), Some(16));
        for from in [17, 20, 21] {
            assert_eq!(search.find(text, from), None);
        }
    }
}
