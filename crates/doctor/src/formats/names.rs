//! Derives sizes from product names in a text: parameters of a model, memory of a card or a board.
//!
//! They are used only if the text states no size.

use plimsoll_base::{Bytes, round_u64};

use super::words::{has_any, words};
use crate::facts::Facts;
use crate::sizes::all;

/// Characters between the name of a card and its memory.
const NEAR: usize = 24;

pub(super) fn read(facts: &mut Facts, text: &str) {
    let lower = text.to_ascii_lowercase();
    let model = &mut facts.model;
    model.parameters = parameters(&lower).or(model.parameters);
    model.bits = bits(&lower).or(model.bits);
    model.trains |= has_any("trains", &lower);
    model.named_cards = cards(&lower).or(model.named_cards);
    // Boards first: a board's memory is the host's, so it must not count as a card's size.
    let board = words("board").iter().find(|(name, _)| lower.contains(name));
    let host = &mut facts.host;
    host.of_board = host.of_board.or(board.map(|(_, gib)| Bytes::gib(round_u64(*gib))));
    sizes_of_cards(facts, &lower);
}

/// `RTX 3090 24GB`, `2xL40 48 GB`.
fn sizes_of_cards(facts: &mut Facts, lower: &str) {
    for (name, _) in words("series") {
        for (at, _) in lower.match_indices(name).take(4) {
            // `2xL40` is two cards, `stl4` is no card.
            let before = lower[..at].bytes().next_back();
            let starts =
                before.is_none_or(|byte| matches!(byte, b'x' | b' ' | b'-' | b'(' | b',' | b'\n' | b'"'));
            let behind = &lower[at + name.len()..];
            let end = behind.char_indices().nth(NEAR).map_or(behind.len(), |(end, _)| end);
            let size = all(&behind[..end]).map(|(size, _)| size).find(|size| *size >= Bytes::gib(1));
            facts.add_card_size(size.filter(|_| starts));
        }
    }
}

/// Memory of the card that a program's line names.
pub(super) fn card(line: &str) -> Option<Bytes> {
    cards(&line.to_ascii_lowercase())
}

/// The first card that is named, times the number before or after its name.
fn cards(text: &str) -> Option<Bytes> {
    // A 4060 Ti has 8 or 16 GiB, and a laptop's card less than the card of its name.
    if has_any("ambiguous", text) {
        return None;
    }
    let place = |name: &str| {
        let places = text.match_indices(name).map(|(at, _)| at);
        places.into_iter().find(|at| is_word(text, *at, name.len()))
    };
    let (at, name, gib) = words("card").iter().find_map(|(name, gib)| Some((place(name)?, name, *gib)))?;
    let mut before = text[..at].trim_end();
    // `2x NVIDIA GeForce RTX 3090`: the count stands before the maker's words.
    for maker in ["rtx", "gtx", "geforce", "nvidia", "tesla", "amd", "radeon", "rx"] {
        before = before.strip_suffix(maker).unwrap_or(before).trim_end();
    }
    let behind = text[at + name.len()..].trim_start();
    let count = times_before(before).or_else(|| times_behind(behind)).unwrap_or(1);
    Some(Bytes::gib(round_u64(gib)) * count)
}

fn is_word(text: &str, at: usize, length: usize) -> bool {
    // `2x4090` is the card of this name, `14090` is not.
    let before = at > 0 && text.as_bytes()[at - 1].is_ascii_alphanumeric() && text.as_bytes()[at - 1] != b'x';
    let behind =
        text.as_bytes().get(at + length).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    !before && !behind
}

/// `4x` or `4 x` at the end of `text`.
fn times_before(text: &str) -> Option<u64> {
    let rest = text.strip_suffix('x')?.trim_end();
    let digit = rest.chars().next_back()?.to_digit(10)?;
    // `12x` of a resolution or `v4x` of a version is no count of cards.
    let longer = rest.len() > 1 && rest.as_bytes()[rest.len() - 2].is_ascii_alphanumeric();
    (!longer && digit > 0).then_some(u64::from(digit))
}

/// `x4` or `x 4` at the start of `text`.
fn times_behind(text: &str) -> Option<u64> {
    let digit = text.strip_prefix('x')?.trim_start().chars().next()?.to_digit(10)?;
    (digit > 0).then_some(u64::from(digit))
}

/// `Qwen1.5-14B-Chat`: 14 thousand million parameters; the largest name counts. `8x7B` has 47, since experts
/// share the rest.
fn parameters(lower: &str) -> Option<f64> {
    let words = lower.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    let sizes = words.filter_map(|word| {
        let number = word.strip_suffix('b')?;
        let (experts, number) = number.split_once('x').unwrap_or(("1", number));
        let (experts, number): (f64, f64) = (experts.parse().ok()?, number.parse().ok()?);
        // Mixtral 8x7B: 46.7 of 56, Mixtral 8x22B: 141 of 176.
        let all = if experts > 1.0 { experts * number * 0.84 } else { number };
        // `0.05b` and `70000b` are versions, hashes or batch sizes.
        (0.1..=2000.0).contains(&all).then_some(all)
    });
    sizes.reduce(f64::max)
}

/// The first name of a quantisation that starts a word.
fn bits(lower: &str) -> Option<f64> {
    let starts = |name: &str| {
        let mut places = lower.match_indices(name).map(|(at, _)| at);
        places.find(|at| *at == 0 || !lower.as_bytes()[at - 1].is_ascii_alphanumeric())
    };
    let named = words("bits").iter().filter_map(|(name, bits)| Some((starts(name)?, *bits)));
    named.min_by_key(|(at, _)| *at).map(|(_, bits)| bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Facts {
        let mut facts = Facts::default();
        read(&mut facts, text);
        facts
    }

    #[test]
    fn a_model_and_its_cards_are_sized_by_their_names() {
        let facts = named("Llama-3-70B in fp16 on 2x RTX 4090");
        assert_eq!(facts.model.named_cards, Some(Bytes::gib(48)));
        assert!(facts.weights() > Some(Bytes::gib(128)));
        assert_eq!(named("2xL40 48 GB").card(), Some(Bytes::gib(48)));
    }
}
