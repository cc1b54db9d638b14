//! A card's memory as one bar: what others hold, the terms in the order in which they are taken, the load line.

use plimsoll_base::{Bytes, Source};
use plimsoll_planner::CardPlan;

/// A stretch of the bar. The glyph tells it apart where colours are not seen.
#[derive(Debug)]
pub(super) struct Stretch<'a> {
    pub(super) name: &'static str,
    pub(super) glyph: char,
    pub(super) colour: &'static str,
    /// `None` where the amount is not known.
    pub(super) bytes: Option<Bytes>,
    pub(super) source: Option<&'a Source>,
}

/// What others hold, and the five terms; the first is left out where the card is all free.
pub(super) fn stretches(card: &CardPlan) -> Vec<Stretch<'_>> {
    let terms = &card.terms;
    let term = |name, glyph, colour, term: &'_ plimsoll_planner::Term| (name, glyph, colour, term.bytes);
    let named = [
        (
            term("weights", '█', "#2f5d8a", &terms.weights),
            &terms.weights.source,
        ),
        (term("KV cache", '▓', "#4f9d8f", &terms.kv), &terms.kv.source),
        (
            term("compute", '▒', "#c9a227", &terms.compute),
            &terms.compute.source,
        ),
        (
            term("context", '╳', "#8a5a83", &terms.context),
            &terms.context.source,
        ),
        (term("pool", '░', "#c8623c", &terms.pool), &terms.pool.source),
    ];
    let held = card.total.saturating_sub(card.free);
    let others = Stretch {
        name: "others",
        glyph: '#',
        colour: "#9aa0a6",
        bytes: Some(held),
        source: None,
    };
    let own = named.map(|((name, glyph, colour, bytes), source)| Stretch {
        name,
        glyph,
        colour,
        bytes,
        source: Some(source),
    });
    std::iter::once(others)
        .filter(|others| others.bytes.is_some_and(|held| !held.is_zero()))
        .chain(own)
        .collect()
}

/// A bar of `width` cells to the card's end, longer where the plan is: the line stands where memory ends.
pub(super) fn bar(card: &CardPlan, width: u64) -> String {
    let mut text = String::new();
    let mut end = Bytes::ZERO;
    let mut drawn = 0;
    let line = width;
    for stretch in stretches(card) {
        end += stretch.bytes.unwrap_or_default();
        let until = cells(end, card.total, width).min(width * 2);
        while drawn < until {
            if drawn == line {
                text.push('┃');
            }
            text.push(stretch.glyph);
            drawn += 1;
        }
    }
    if drawn < line {
        text.extend(std::iter::repeat_n(
            '·',
            usize::try_from(line - drawn).unwrap_or_default(),
        ));
    }
    if drawn <= line {
        text.push('┃');
    }
    text
}

/// The cell in which `bytes` end, rounded up: something beyond the line is always seen beyond it.
fn cells(bytes: Bytes, total: Bytes, width: u64) -> u64 {
    let whole = bytes.scaled(width, total.get()).get();
    let rest = bytes > total.scaled(whole, width);
    whole + u64::from(rest)
}
