//! What a short report says without any known phrase: readings one below the other, the card's name with its memory, the model's size.
//!
//! DECISION: only a report of up to 64 KiB is read this way. In a long log such patterns are chance.

use plimsoll_base::Bytes;

use super::{choice, figures, named, sentences};
use crate::evidence::{Evidence, Holder, Quote, Source};
use crate::line::{clean, shortened};
use crate::saying::Saying;
use crate::sizes::{all, behind, count};

/// Names of cards, in lower case, behind which a size is the card's memory.
const CARDS: [&str; 17] = [
    "rtx", "gtx", "a100", "a40", "a10", "v100", "p40", "p100", "t4", "l4", "l40", "h100", "h200", "titan",
    "quadro", "radeon", "rx ",
];
/// How far behind the name of a card its memory may stand.
const NEAR: usize = 24;
const MOST: usize = 64;

pub(super) fn read(evidence: &mut Evidence, source: Source, report: &[u8]) {
    let lines: Vec<_> = report.split(|byte| *byte == b'\n').map(clean).collect();
    let text = lines.join("\n");
    readings(evidence, source, &text);
    choice::read(evidence, source, &text);
    figures::read(evidence, source, &text);
    sentences::read(evidence, source, &text);
    processes(evidence, source, &text);
    if source == Source::Context || report.len() <= 1 << 14 {
        cards(evidence, &text);
        named::read(evidence, &text);
    }
}

/// Lines that are a number and a size: `2. 751MB`.
fn readings(evidence: &mut Evidence, source: Source, text: &str) {
    let read = |line: &str| {
        let line = line.trim();
        let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
        let rest = rest.strip_prefix(['.', ':', ')'])?;
        let (size, behind) = all(rest).next()?;
        (line.len() < 48 && line.len() != rest.len() && behind.len() < 16).then_some(size)
    };
    let readings: Vec<Bytes> = text.lines().filter_map(read).take(MOST).collect();
    let counted = by_rounds(text);
    if readings.len() >= 3 {
        evidence.series = readings;
    } else if counted.len() >= 3 {
        evidence.series = counted;
    }
    if let Some(quote) = rate(source, text) {
        evidence.note(Saying::GrowsEachRound, &quote);
    }
    let rows = text.lines().filter(|line| line.len() < 400).map(in_a_row);
    if let Some(row) = rows.filter(|row| row.len() >= 3).max_by_key(Vec::len)
        && evidence.series.len() < row.len()
    {
        evidence.series = row;
    }
}

/// What is counted where one quantity is read again and again.
const ROUNDS: [&str; 18] = [
    "run ",
    "iteration ",
    "epoch ",
    "round ",
    "loop ",
    "cycle ",
    "step ",
    "request ",
    "call ",
    "prompt ",
    "file ",
    "image ",
    "batch ",
    "query ",
    "generation ",
    "reload ",
    "message ",
    "turn ",
];

/// Short lines that count rounds upwards, each with one size: `after request 10: 9518 MiB`.
fn by_rounds(text: &str) -> Vec<Bytes> {
    let read = |line: &str| {
        let lower = line.to_ascii_lowercase();
        let word = ROUNDS.iter().find(|word| lower.contains(**word))?;
        let rest = behind(&lower, word)?.trim_start_matches('#');
        let (number, digits) = (count(rest)?, rest.bytes().take_while(u8::is_ascii_digit).count());
        let mut sizes = all(&rest[digits..]);
        let size = sizes.next()?.0;
        (line.len() < 80 && digits > 0 && sizes.next().is_none()).then_some((number, size))
    };
    let rounds: Vec<(u64, Bytes)> = text.lines().filter_map(read).take(MOST).collect();
    let upwards = rounds.windows(2).all(|pair| pair[0].0 < pair[1].0);
    rounds
        .into_iter()
        .filter(|_| upwards)
        .map(|(_, size)| size)
        .collect()
}

/// A MiB or more for each round: `+7.96 MiB/req`, `grows by 2 MiB per image`.
fn rate(source: Source, text: &str) -> Option<Quote> {
    const WORDS: [&str; 6] = ["+", "grow", "leak", "increas", "climb", "rise"];
    let of_a_round = |behind: &str| {
        let behind = behind.trim_start_matches([' ', '*', '`']);
        let rest = behind.strip_prefix('/').or_else(|| behind.strip_prefix("per "));
        rest.is_some_and(|rest| {
            let round = |word: &str| rest.starts_with(word.trim_end()) || rest.starts_with("req");
            ROUNDS.iter().any(|word| round(word))
        })
    };
    (1..).zip(text.lines()).find_map(|(line, row)| {
        let lower = row.to_ascii_lowercase();
        let grows = row.len() < 400 && WORDS.iter().any(|word| lower.contains(word));
        let rate = || all(&lower).any(|(size, behind)| size >= Bytes::mib(1) && of_a_round(behind));
        let text = shortened(row.trim()).to_owned();
        (grows && rate()).then_some(Quote { source, line, text })
    })
}

/// Rows of a process and what it holds of a card: `3794364 5144MiB`.
fn processes(evidence: &mut Evidence, source: Source, text: &str) {
    for (line, row) in (1..).zip(text.lines()) {
        let mut words = row.trim_start_matches(['#', '|', ' ']).split_whitespace();
        let Some(pid) = words
            .next()
            .filter(|word| word.len() >= 3)
            .and_then(|word| word.parse().ok())
        else {
            continue;
        };
        let rest = words.collect::<Vec<_>>().join(" ");
        let row_of_rocm = || rocm_row(&rest).filter(|_| evidence.holders.len() < MOST);
        if let Some((name, used)) = row_of_rocm() {
            let text = shortened(row).to_owned();
            let (name, quote) = (name.to_owned(), Quote { source, line, text });
            evidence.holders.push(Holder {
                card: None,
                pid: Some(pid),
                name,
                used,
                quote,
            });
        } else if let (Some((used, "")), true) = (
            all(&rest).next(),
            evidence.holders.len() < MOST && rest.ends_with("iB"),
        ) {
            let quote = Quote {
                source,
                line,
                text: shortened(row).to_owned(),
            };
            evidence.holders.push(Holder {
                card: None,
                pid: Some(pid),
                name: format!("process {pid}"),
                used,
                quote,
            });
        }
    }
}

/// `VLLM::EngineCor 1 114151137280 0 0` behind the number of a process: name, cards, bytes of VRAM. Source: `rocm-smi --showpids`.
fn rocm_row(rest: &str) -> Option<(&str, Bytes)> {
    let mut words = rest.split(' ');
    let (name, cards, used) = (words.next()?, words.next()?, words.next()?);
    let named = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let used = Bytes::new(used.parse().ok()?);
    (named && cards.parse::<u8>().is_ok() && used >= Bytes::mib(64)).then_some((name, used))
}

/// `8012 -> 8034 -> 8056 MiB`; `run 1: 8.1 GB, run 2: 12.3 GB, run 3: 16.9 GB`.
fn in_a_row(line: &str) -> Vec<Bytes> {
    let lower = line.to_ascii_lowercase();
    let sized = ["mib", "mb", "gib", "gb"].iter().any(|unit| lower.contains(unit));
    if sized && (lower.contains("->") || lower.contains('\u{2192}')) {
        let steps = lower.replace('\u{2192}', "->");
        let unit = if lower.contains("gb") || lower.contains("gib") {
            "GiB"
        } else {
            "MiB"
        };
        let number = |step: &str| {
            let mut words = step.split(|c: char| !c.is_ascii_digit() && c != '.');
            let number = words.rfind(|word| !word.trim_matches('.').is_empty())?;
            all(&format!("{number} {unit}")).next().map(|(size, _)| size)
        };
        return steps.split("->").filter_map(number).take(MOST).collect();
    }
    let times = ROUNDS
        .iter()
        .map(|word| lower.matches(word).count())
        .max()
        .unwrap_or_default();
    let after = lower.matches(" after ").count() >= 2;
    match times.max(if after { 3 } else { 0 }) {
        3.. => all(line).map(|(size, _)| size).take(MOST).collect(),
        _ => Vec::new(),
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
