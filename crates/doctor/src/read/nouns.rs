//! Sizes in prose, which are of the noun that stands nearest.

use plimsoll_base::Bytes;

use crate::evidence::Evidence;
use crate::sizes::all;

/// What a size in prose is of, by the nearest noun: `a large model (147G)`, `16GB RAM and 48GB VRAM`, `the GPU has around 98GB`.
pub(super) fn read(evidence: &mut Evidence, lower: &str, cards_by_name: &[(&str, u64)]) {
    const NOUNS: [(&str, Noun); 14] = [
        ("orin", Noun::Host),
        ("xavier", Noun::Host),
        ("jetson", Noun::Host),
        ("spark", Noun::Host),
        ("gb10", Noun::Host),
        ("vram", Noun::Card),
        ("gpu", Noun::Card),
        ("card", Noun::Card),
        ("model", Noun::Model),
        ("weights", Noun::Model),
        ("gguf", Noun::Model),
        (" ram", Noun::Host),
        ("host", Noun::Host),
        ("system memory", Noun::Host),
    ];
    /// Characters between a size and its noun.
    const NEAR: usize = 24;
    for line in lower.lines().filter(|line| line.len() < 1000) {
        for (at, size, end) in gigabytes(line) {
            let behind: String = line[end..]
                .chars()
                .take(NEAR)
                .take_while(|c| !matches!(c, ',' | ';' | '.' | '|'))
                .collect();
            let before: String = line[..at]
                .chars()
                .rev()
                .take(NEAR)
                .take_while(|c| !matches!(c, ';' | '.' | '|'))
                .collect();
            let before: String = before.chars().rev().collect();
            let cards = cards_by_name
                .iter()
                .filter(|(name, _)| name.len() > 3)
                .map(|(name, _)| (*name, Noun::Card));
            let nouns = NOUNS.into_iter().chain(cards).flat_map(|(name, noun)| {
                let after = format!(" {behind}").find(name).map(|distance| (distance, noun));
                let ahead = before
                    .rfind(name)
                    .map(|place| (before.len() - place - name.len() + 2, noun));
                [after, ahead]
            });
            match nouns.flatten().min_by_key(|(distance, _)| *distance) {
                Some((_, Noun::Card)) if evidence.cards.len() < 64 => evidence.cards.push(size),
                Some((_, Noun::Model)) => evidence.told_model = evidence.told_model.max(Some(size)),
                Some((_, Noun::Host)) => evidence.told_host = evidence.told_host.max(Some(size)),
                _ => {}
            }
        }
    }
}

/// Whole or broken numbers of gigabytes, with where they start and end: `147g`, `24 gb`, `35.7gib`.
fn gigabytes(line: &str) -> Vec<(usize, Bytes, usize)> {
    /// What a card, a host or a model may have.
    const LARGE: std::ops::RangeInclusive<Bytes> = Bytes::gib(1)..=Bytes::gib(4096);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = line[at..]
        .find(|c: char| c.is_ascii_digit())
        .map(|start| at + start)
    {
        let digits = line[start..]
            .bytes()
            .take_while(|byte| byte.is_ascii_digit() || *byte == b'.')
            .count();
        let end = start + digits;
        let glued = start > 0
            && (line.as_bytes()[start - 1].is_ascii_alphanumeric() || line.as_bytes()[start - 1] == b'.');
        let rest = line[end..].trim_start_matches(' ');
        let unit = ["gib", "gb", "g"].into_iter().find(|unit| {
            rest.starts_with(unit)
                && !rest
                    .as_bytes()
                    .get(unit.len())
                    .is_some_and(u8::is_ascii_alphanumeric)
        });
        let number = line[start..end].trim_end_matches('.');
        let size = all(&format!("{number} GiB")).next().map(|(size, _)| size);
        if let (false, Some(unit), Some(size)) = (glued, unit, size.filter(|size| LARGE.contains(size))) {
            let stop = line.len() - rest.len() + unit.len();
            found.push((start, size, stop));
        }
        at = end;
    }
    found
}

#[derive(Clone, Copy)]
enum Noun {
    Card,
    Model,
    Host,
}
