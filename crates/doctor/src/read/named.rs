//! What the names of a model and of a card say in numbers: how large its weights are, and how much the card has.
//!
//! DECISION: names are the weakest of all numbers, and stand in only where no program printed any. Of several sizes of one name (A100,
//! V100, RTX 4060 Ti) none is assumed.

use plimsoll_base::Bytes;

use super::nouns;
use crate::evidence::Evidence;

/// Cards in lower case and their memory in GiB, longer names first. Source: NVIDIA's and AMD's data sheets.
const CARDS: &[(&str, u64)] = &[
    ("rtx pro 6000", 96),
    ("rtx 6000 ada", 48),
    ("rtx a6000", 48),
    ("rtx a5000", 24),
    ("rtx a4000", 16),
    ("5070 ti", 16),
    ("4070 ti super", 16),
    ("4070 ti", 12),
    ("3080 ti", 12),
    ("3060 ti", 8),
    ("2080 ti", 11),
    ("1080 ti", 11),
    ("1660 ti", 6),
    ("7900 xtx", 24),
    ("7900 xt", 20),
    ("6900 xt", 16),
    ("6800 xt", 16),
    ("titan rtx", 24),
    ("titan xp", 12),
    ("5090", 32),
    ("5080", 16),
    ("5070", 12),
    ("4090", 24),
    ("4080", 16),
    ("4070", 12),
    ("4060", 8),
    ("3090", 24),
    ("3080", 10),
    ("3070", 8),
    ("3060", 12),
    ("2080", 8),
    ("2070", 8),
    ("2060", 6),
    ("1080", 8),
    ("1070", 8),
    ("1660", 6),
    ("1060", 6),
    ("1650", 4),
    ("1050", 4),
    ("a10g", 24),
    ("l40s", 48),
    ("mi300x", 192),
    ("h200", 141),
    ("h100", 80),
    ("a40", 48),
    ("l40", 48),
    ("a30", 24),
    ("p40", 24),
    ("p100", 16),
    ("a10", 24),
    ("t4", 16),
    ("l4", 24),
];
/// Boards that come with one amount of memory, in GiB. Source: NVIDIA's data sheets.
const BOARDS: &[(&str, u64)] = &[
    ("gb10", 128),
    ("dgx spark", 128),
    ("dgx-spark", 128),
    ("agx thor", 128),
    ("agx-thor", 128),
    ("jetson-thor", 128),
    ("jetson thor", 128),
    ("nvidia thor", 128),
];
/// Names whose memory is not told by them.
const AMBIGUOUS: &[&str] = &["4060 ti", "5060 ti", "laptop", "mobile", "max-q", " mig"];
/// Part of a model that is on the host by choice.
const ON_HOST: &[&str] = &[
    "exps=cpu",
    "cpu-moe",
    "--cpu",
    "offload",
    "-ot ",
    "override-tensor",
    "device_map",
    "-ngl ",
    "n-gpu-layers",
    "n_gpu_layers",
    "num_gpu",
    "zero",
    "lora",
    "llama-server",
    "llama-cli",
    "llama.cpp",
    "llama_model_load",
    "ollama",
    "gguf",
    "kobold",
];
/// Bits that a weight takes, by how a quantisation is called. Source: ggml's block sizes; scales and what stays wider included.
const BITS: &[(&str, f64)] = &[
    ("fp32", 32.0),
    ("float32", 32.0),
    ("bf16", 16.0),
    ("bfloat16", 16.0),
    ("fp16", 16.0),
    ("float16", 16.0),
    ("half", 16.0),
    ("f16", 16.0),
    ("fp8", 8.2),
    ("int8", 8.5),
    ("8bit", 8.5),
    ("8-bit", 8.5),
    ("q8", 8.5),
    ("w8a8", 8.2),
    ("q6", 6.6),
    ("q5", 5.6),
    ("q4", 4.7),
    ("iq4", 4.4),
    ("awq", 4.4),
    ("gptq", 4.4),
    ("int4", 4.4),
    ("4bit", 4.4),
    ("4-bit", 4.4),
    ("nf4", 4.4),
    ("mxfp4", 4.4),
    ("nvfp4", 4.6),
    ("iq3", 3.5),
    ("q3", 3.7),
    ("q2", 2.9),
    ("iq2", 2.5),
    ("iq1", 1.8),
];

pub(super) fn read(evidence: &mut Evidence, text: &str) {
    let lower = text.to_ascii_lowercase();
    evidence.parameters = parameters(&lower).or(evidence.parameters);
    evidence.bits = bits(&lower).or(evidence.bits);
    evidence.on_host |= ON_HOST.iter().any(|words| lower.contains(words));
    evidence.named_cards = cards(&lower).or(evidence.named_cards);
    nouns::read(evidence, &lower, CARDS);
    let board = BOARDS.iter().find(|(name, _)| lower.contains(name));
    evidence.told_host = evidence.told_host.or(board.map(|(_, gib)| Bytes::gib(*gib)));
}

/// The card that a line of a program names, by its name alone.
pub(super) fn card(line: &str) -> Option<Bytes> {
    cards(&line.to_ascii_lowercase())
}

/// True where `text`, in small letters, names two different cards; `rtx 3080 ti` is one.
pub(super) fn several(text: &str) -> bool {
    let places = CARDS
        .iter()
        .filter(|(name, _)| name.len() > 3)
        .filter_map(|(name, _)| {
            let found = text
                .match_indices(name)
                .find(|(at, _)| is_word(text, *at, name.len()))?;
            Some(found.0)
        });
    let mut first = None;
    for place in places {
        match first {
            None => first = Some(place),
            Some(other) if place.abs_diff(other) > 8 => return true,
            Some(_) => {}
        }
    }
    false
}

/// Starts of `name` in `text` where it is a word, or behind `rtx`, with the number of cards that stands before.
fn cards(text: &str) -> Option<Bytes> {
    if AMBIGUOUS.iter().any(|words| text.contains(words)) {
        return None;
    }
    let (at, name, gib) = CARDS.iter().find_map(|(name, gib)| {
        let at = text
            .match_indices(name)
            .map(|(at, _)| at)
            .find(|at| is_word(text, *at, name.len()))?;
        Some((at, name, *gib))
    })?;
    let mut before = text[..at].trim_end();
    for maker in ["rtx", "gtx", "geforce", "nvidia", "tesla", "amd", "radeon", "rx"] {
        before = before.strip_suffix(maker).unwrap_or(before).trim_end();
    }
    let behind = text[at + name.len()..].trim_start();
    let count = times_before(before).or_else(|| times_behind(behind)).unwrap_or(1);
    Some(Bytes::gib(gib) * count)
}

fn is_word(text: &str, at: usize, length: usize) -> bool {
    let before = at > 0 && text.as_bytes()[at - 1].is_ascii_alphanumeric() && text.as_bytes()[at - 1] != b'x';
    let behind = text
        .as_bytes()
        .get(at + length)
        .is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    !before && !behind
}

/// `4x` or `4 x` at the end of `text`.
fn times_before(text: &str) -> Option<u64> {
    let rest = text.strip_suffix('x')?.trim_end();
    let digit = rest.chars().next_back()?.to_digit(10)?;
    let longer = rest.len() > 1 && rest.as_bytes()[rest.len() - 2].is_ascii_alphanumeric();
    (!longer && digit > 0).then_some(u64::from(digit))
}

/// `x4` or `x 4` at the start of `text`.
fn times_behind(text: &str) -> Option<u64> {
    let digit = text
        .strip_prefix('x')?
        .trim_start()
        .chars()
        .next()?
        .to_digit(10)?;
    (digit > 0).then_some(u64::from(digit))
}

/// `Qwen1.5-14B-Chat`: 14 thousand million parameters; the largest that is named. Experts share a sixth: `8x7B` has 47.
fn parameters(lower: &str) -> Option<f64> {
    let words = lower.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    let sizes = words.filter_map(|word| {
        let number = word.strip_suffix('b')?;
        let (experts, number) = number.split_once('x').unwrap_or(("1", number));
        let (experts, number): (f64, f64) = (experts.parse().ok()?, number.parse().ok()?);
        let all = if experts > 1.0 {
            experts * number * 0.84
        } else {
            number
        };
        (0.1..=2000.0).contains(&all).then_some(all)
    });
    sizes.fold(None, |largest, size| {
        Some(largest.map_or(size, |before: f64| before.max(size)))
    })
}

/// The first name of a quantisation that stands as the start of a word.
fn bits(lower: &str) -> Option<f64> {
    let starts = |name: &str| {
        lower
            .match_indices(name)
            .find(|(at, _)| *at == 0 || !lower.as_bytes()[at - 1].is_ascii_alphanumeric())
            .map(|(at, _)| at)
    };
    BITS.iter()
        .filter_map(|(name, bits)| Some((starts(name)?, *bits)))
        .min_by_key(|(at, _)| *at)
        .map(|(_, bits)| bits)
}
