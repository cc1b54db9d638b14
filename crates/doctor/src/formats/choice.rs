//! Recognises which GPU a problem report selects, by environment variable, option, argument or call.

use super::words::words;
use crate::facts::{CardChoice, Facts, LineOrigin, Quote};

/// A longer line is a dump.
const LONGEST: usize = 1000;
const MOST_CARDS: usize = 16;

pub(super) fn read(facts: &mut Facts, origin: &LineOrigin, text: &str) {
    let hiding = words("hides").iter().map(|(name, _)| (*name, true));
    let names: Vec<(&str, bool)> =
        hiding.chain(words("picks").iter().map(|(name, _)| (*name, false))).collect();
    for (line, row) in (1..).zip(text.lines()).filter(|(_, row)| row.len() <= LONGEST) {
        let lower = row.to_ascii_lowercase();
        for (name, hides) in &names {
            // A usage text may repeat an option many times.
            for (at, _) in lower.match_indices(name).take(4) {
                let cards = listed(&lower[at + name.len()..]);
                if !cards.is_empty() {
                    let quote = Quote::new(origin, line, row);
                    facts.add_choice(CardChoice { cards, hides: *hides, quote });
                }
            }
        }
    }
}

/// The numbers after a name: `=1`, `'] = "0,2"`, `:1`, ` is set to 1`, `cuda:1`.
fn listed(behind: &str) -> Vec<u64> {
    const FILLERS: [&str; 7] = ["is set to", "was set to", "set to", "to ", "torch.device", "cuda", "gpu"];
    let marks = |c: char| matches!(c, ' ' | '=' | ':' | '"' | '\'' | '[' | ']' | '(' | ')' | '`' | '\\');
    let mut rest = behind.trim_start_matches(marks);
    for words in FILLERS {
        rest = rest.strip_prefix(words).unwrap_or(rest).trim_start_matches(marks);
    }
    // `0, 1` and `0,1` are both common.
    let rest = rest.replace(", ", ",");
    let list = rest.split(|c: char| !c.is_ascii_digit() && c != ',').next().unwrap_or_default();
    // `1920x1080`, `0.9` and `512m` are no cards.
    if rest[list.len()..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '.') {
        return Vec::new();
    }
    let cards = list.split(',').map_while(|number| number.parse().ok());
    // Larger numbers are ports, sizes or seeds.
    cards.filter(|card| *card < 64).take(MOST_CARDS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_cards_are_read_behind_every_way_to_choose_one() {
        for (behind, cards) in [
            ("=1", vec![1]),
            ("'] = '1'", vec![1]),
            (":1 GPU_DEVICE_ORDINAL:", vec![1]),
            (" is set to 1", vec![1]),
            ("=0,2,5 python", vec![0, 2, 5]),
            ("'cuda:3')", vec![3]),
            (" 6 -layers", vec![6]),
            ("=GPU-2ab", vec![]),
            ("=1.5", vec![]),
            ("\"cpu\")", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(listed(behind), cards, "{behind}");
        }
    }
}
