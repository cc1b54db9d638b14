//! Reader of nvidia-smi and rocm-smi tables, and of card sizes that programs print.

use plimsoll_base::Bytes;

use super::llama::card_in;
use super::names;
use crate::facts::{CardHolder, CardUsage, Facts, LineOrigin, Quote};
use crate::pattern::Pattern;
use crate::sizes::{after, all};

pub(super) fn read(facts: &mut Facts, pattern: Pattern, text: &str, quote: &Quote) {
    match pattern {
        Pattern::CardSize => card(facts, text),
        Pattern::CardFree => free_at_start(facts, text),
        Pattern::CardTotals => totals(facts, text),
        Pattern::CardUsed => usage(facts, text, quote),
        Pattern::SmiProcess => holder(facts, text, quote),
        _ => {}
    }
}

/// `VRAM: 45490 MiB`, `24 GB VRAM`.
fn card(facts: &mut Facts, text: &str) {
    let of_card = |behind: &str| {
        let word = behind.trim_start().to_ascii_lowercase();
        word.starts_with("vram") || word.starts_with("of vram") || word.starts_with("gpu")
    };
    let labelled = after(text, "vram: ").or_else(|| after(text, "vram "));
    let total = labelled
        .filter(|size| *size >= Bytes::mib(256))
        .or_else(|| all(text).find(|(_, behind)| of_card(behind)).map(|(size, _)| size));
    facts.add_card_size(total);
}

/// `using device CUDA0 (NVIDIA GeForce RTX 3090) - 6210 MiB free`,
/// `CUDA0 : NVIDIA GeForce RTX 3090 (24123 MiB, 23755 MiB free)`. Of several cards the emptiest counts.
fn free_at_start(facts: &mut Facts, text: &str) {
    let mut before = None;
    for (size, behind) in all(text) {
        let behind = behind.trim_start();
        let is_free = ["free", "of free", "memory:  ->"].iter().any(|words| behind.starts_with(words));
        if is_free && !text.contains("CPU") {
            facts.add_card_free(Some(size));
            if let Some(card) = behind_device(text) {
                facts.add_free_of_card(card, size);
            }
            // llama_params_fit prints its plan before the free memory: that is no total.
            let printed = before.filter(|_| behind.starts_with("free"));
            // A printed total outweighs a name: the program may see a part of the card.
            let named = || names::card(text).filter(|_| !facts.has_card_size());
            let total = printed.or_else(named).filter(|total| *total >= size);
            facts.add_card_size(total);
            return;
        }
        before = Some(size);
    }
}

/// The card's number in `using device CUDA1 (`: lists of all devices name cards that the load may not use.
fn behind_device(text: &str) -> Option<u64> {
    card_in(text.split_once("using device ")?.1.split('(').next()?)
}

/// TensorFlow's `Total memory: 7.92GiB` and `Free memory: 190.31MiB` of each card at its start.
fn totals(facts: &mut Facts, text: &str) {
    facts.add_card_size(after(text, "total memory: ").or_else(|| after(text, "totalmemory: ")));
    facts.add_card_free(after(text, "free memory: ").or_else(|| after(text, "freememory: ")));
}

/// `| N/A   36C    P0    41W / 300W |  12799MiB / 16280MiB |      0%      Default |`.
fn usage(facts: &mut Facts, text: &str, quote: &Quote) {
    let cells = text.split('|').find(|cell| cell.contains("MiB /"));
    let sizes: Vec<Bytes> = cells.into_iter().flat_map(all).map(|(size, _)| size).collect();
    if let [used, total] = sizes[..]
        && used <= total
    {
        facts.add_usage(CardUsage { used, total, quote: quote.clone() });
    }
}

/// `|    0   N/A  N/A      1234      C   python3            12345MiB |`: card, process, kind, name, memory.
fn holder(facts: &mut Facts, text: &str, quote: &Quote) {
    // Columns of MIG print `N/A` without a card that has it.
    let words: Vec<&str> = text.split_whitespace().filter(|word| !matches!(*word, "|" | "N/A")).collect();
    let [card, pid, kind, .., name, _] = words[..] else {
        return;
    };
    // Only the table of processes has a column of these kinds.
    if !matches!(kind, "C" | "G" | "C+G" | "M+C") {
        return;
    }
    // NVML's words for a process without a name: it has exited.
    if matches!(name, "Error" | "Found]" | "[N/A]" | "-") {
        facts.note(Pattern::Nameless, quote);
    }
    if let Some((used, _)) = all(text).last() {
        facts.add_holder(CardHolder {
            card: card.parse().ok(),
            pid: pid.parse().ok(),
            name: name.to_owned(),
            used,
            quote: quote.clone(),
        });
    }
}

/// Rows of a process and its memory without a frame: `3794364 5144MiB`, or rocm-smi's `--showpids`.
pub(super) fn read_processes(facts: &mut Facts, origin: &LineOrigin, text: &str) {
    for (line, row) in (1..).zip(text.lines()) {
        let mut words = row.trim_start_matches(['#', '|', ' ']).split_whitespace();
        let pid = words.next().filter(|word| word.len() >= 3).and_then(|word| word.parse().ok());
        let Some(pid) = pid else { continue };
        let rest = words.collect::<Vec<_>>().join(" ");
        // A row of other numbers ends in something else than a size.
        let bare = || all(&rest).next().filter(|(_, behind)| behind.is_empty() && rest.ends_with("iB"));
        let found = rocm_row(&rest)
            .map(|(name, used)| (name.to_owned(), used))
            .or_else(|| bare().map(|(used, _)| (format!("process {pid}"), used)));
        if let Some((name, used)) = found {
            let quote = Quote::new(origin, line, row);
            facts.add_holder(CardHolder { card: None, pid: Some(pid), name, used, quote });
        }
    }
}

/// `VLLM::EngineCor 1 114151137280 0 0` after the number of a process: name, cards, bytes of VRAM.
fn rocm_row(rest: &str) -> Option<(&str, Bytes)> {
    let mut words = rest.split(' ');
    let (name, cards, used) = (words.next()?, words.next()?, words.next()?);
    let named = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let used = Bytes::new(used.parse().ok()?);
    (named && cards.parse::<u8>().is_ok() && used >= Bytes::mib(64)).then_some((name, used))
}
