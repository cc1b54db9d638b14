//! What a short report says without any known phrase: readings one below the other, the card's name with its memory, the model's size.
//!
//! DECISION: only a report of up to 64 KiB is read this way. In a long log such patterns are chance.

use crate::bytes::Bytes;
use crate::diagnose::evidence::{Evidence, Source};
use crate::diagnose::sizes::all;

/// Names of cards, in lower case, behind which a size is the card's memory.
const CARDS: [&str; 17] = [
    "rtx", "gtx", "a100", "a40", "a10", "v100", "p40", "p100", "t4", "l4", "l40", "h100", "h200", "titan",
    "quadro", "radeon", "rx ",
];
/// How far behind the name of a card its memory may stand.
const NEAR: usize = 24;
const MOST: usize = 64;

pub(super) fn read(evidence: &mut Evidence, source: Source, report: &[u8]) {
    let text = String::from_utf8_lossy(report);
    readings(evidence, &text);
    if source == Source::Context || report.len() <= 1 << 14 {
        cards(evidence, &text);
        evidence.parameters = parameters(&text).or(evidence.parameters);
    }
}

/// Lines that are a number and a size: `2. 751MB`.
fn readings(evidence: &mut Evidence, text: &str) {
    let read = |line: &str| {
        let line = line.trim();
        let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
        let rest = rest.strip_prefix(['.', ':', ')'])?;
        let (size, behind) = all(rest).next()?;
        (line.len() < 48 && line.len() != rest.len() && behind.len() < 16).then_some(size)
    };
    let readings: Vec<Bytes> = text.lines().filter_map(read).take(MOST).collect();
    if readings.len() >= 3 {
        evidence.series = readings;
    }
}

fn cards(evidence: &mut Evidence, text: &str) {
    let lower = text.to_ascii_lowercase();
    for name in CARDS {
        for (at, _) in lower.match_indices(name).take(4) {
            // `2xL40` is two cards.
            let glued = at > 0
                && !matches!(
                    lower.as_bytes()[at - 1],
                    b'x' | b' ' | b'-' | b'(' | b',' | b'\n' | b'"'
                );
            let behind = &lower[at + name.len()..];
            let near = behind
                .char_indices()
                .nth(NEAR)
                .map_or(behind, |(end, _)| &behind[..end]);
            let size = all(near)
                .map(|(size, _)| size)
                .find(|size| *size >= Bytes::gib(1));
            if let (false, Some(size)) = (glued, size)
                && evidence.cards.len() < MOST
            {
                evidence.cards.push(size);
            }
        }
    }
}

/// `Qwen1.5-14B-Chat`: 14 thousand million parameters; the largest that is named.
fn parameters(text: &str) -> Option<f64> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    let sizes = words.filter_map(|word| {
        let number = word.strip_suffix(['B', 'b'])?;
        let number: f64 = number.parse().ok()?;
        (0.1..=2000.0).contains(&number).then_some(number)
    });
    sizes.fold(None, |largest, size| {
        Some(largest.map_or(size, |before: f64| before.max(size)))
    })
}
