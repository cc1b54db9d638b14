//! Reads the memory figures of a caching allocator (such as PyTorch's) that a report quotes without the
//! error.

use std::collections::BTreeMap;

use plimsoll_base::Bytes;

use crate::facts::{Facts, LineOrigin, Quote, TorchRefusal};
use crate::sizes::all;

/// Distance of a label from its figure, in bytes.
const NEAR: usize = 28;
/// A longer line is a dump.
const LONGEST: usize = 600;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FigureKind {
    Requested,
    Total,
    Free,
    Allocated,
    Reserved,
    Idle,
}

// DECISION: the nearest known label says what a size means. The sizes count only if one is labelled as
// reserved, because only caching allocators distinguish reserved from allocated memory.
/// The first match counts, so that `unallocated` is not `allocated`.
const LABELS: [(FigureKind, &str); 6] = [
    (FigureKind::Idle, "reserved but unallocated|reserved-but-unallocated|unallocated|inactive|fragment"),
    (FigureKind::Requested, "tried to allocate|tried|trying to allocate|requested|asked|oom for"),
    (FigureKind::Allocated, "allocated|live"),
    (FigureKind::Reserved, "reserved|cached"),
    (FigureKind::Total, "capacity|total"),
    (FigureKind::Free, "free"),
];

pub(super) fn read(facts: &mut Facts, origin: &LineOrigin, text: &str) {
    let (mut figures, mut quote) = (BTreeMap::new(), None);
    for (line, row) in (1..).zip(text.lines()).filter(|(_, row)| row.len() <= LONGEST) {
        let lower = row.to_ascii_lowercase();
        for (size, behind) in all(&lower) {
            let Some(kind) = kind_of(&lower, behind) else {
                continue;
            };
            figures.entry(kind).or_insert(size);
            if matches!(kind, FigureKind::Reserved | FigureKind::Idle) && quote.is_none() {
                quote = Some(Quote::new(origin, line, row));
            }
        }
    }
    if let Some(quote) = quote {
        add(facts, &figures, &quote);
    }
}

/// The kind of the size that ends where `behind` begins: by the label after it within its clause, else by the
/// one before.
fn kind_of(line: &str, behind: &str) -> Option<FigureKind> {
    let clause = behind.find([',', ';', '(', ')', '.', '|']).unwrap_or(behind.len());
    let after = near(behind, 0, clause.min(NEAR));
    // The next figure's label is not this one's.
    let after = &after[..after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len())];
    let ahead = &line[..line.len() - behind.len()];
    // Drop the figure itself, with its unit.
    let ahead = ahead.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let ahead = ahead.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | ','));
    let ahead = &ahead[ahead.rfind([',', ';', ')', '|']).map_or(0, |at| at + 1)..];
    let ahead = near(ahead, ahead.len().saturating_sub(NEAR), ahead.len());
    let (behind, before) = (label(after, false), label(ahead, true));
    // `Reserved: 4 GiB` is labelled from the front, `4 GiB reserved` from behind.
    if ahead.trim_end().ends_with([':', '=']) { before.or(behind) } else { behind.or(before) }
}

/// The label nearest to the end of `text`, or to its start.
fn label(text: &str, from_end: bool) -> Option<FigureKind> {
    let labels = LABELS.iter().flat_map(|(kind, labels)| labels.split('|').map(move |label| (label, kind)));
    let places = labels.enumerate().filter_map(|(rank, (label, kind))| {
        let at = if from_end { text.rfind(label) } else { text.find(label) }?;
        let distance = if from_end { text.len() - at - label.len() } else { at };
        Some(((distance, rank), *kind))
    });
    places.min_by_key(|(place, _)| *place).map(|(_, kind)| kind)
}

/// A part of `text`, moved to the borders of characters.
fn near(text: &str, from: usize, to: usize) -> &str {
    let border = |at: usize| (at..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    text.get(border(from)..border(to)).unwrap_or_default()
}

fn add(facts: &mut Facts, figures: &BTreeMap<FigureKind, Bytes>, quote: &Quote) {
    let figure = |kind| figures.get(&kind).copied();
    let (total, free, allocated) =
        (figure(FigureKind::Total), figure(FigureKind::Free), figure(FigureKind::Allocated));
    let unused = || Some(figure(FigureKind::Reserved)?.saturating_sub(allocated?));
    let idle = figure(FigureKind::Idle).or_else(unused);
    let alone = facts.refusals.is_empty() && facts.estimate.is_none();
    match &mut facts.torch {
        // The sentence of the log was cut before its figures.
        Some(torch) if torch.total.is_none() && torch.free.is_none() && torch.idle.is_none() => {
            let allocated = torch.allocated.or(allocated);
            *torch = TorchRefusal { total, free, allocated, idle, ..torch.clone() };
        }
        Some(_) => {}
        torch @ None if alone => {
            let Some(requested) = figure(FigureKind::Requested).filter(|_| idle.is_some()) else { return };
            // A report that gives the idle memory without the free memory means that nothing was free.
            let free = free.or(Some(Bytes::ZERO));
            *torch =
                Some(TorchRefusal { total, free, allocated, idle, ..TorchRefusal::of(requested, quote) });
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn torch(text: &str) -> Option<TorchRefusal> {
        let mut facts = Facts::default();
        read(&mut facts, &LineOrigin::default(), text);
        facts.torch.clone()
    }

    #[test]
    fn repeated_figures_are_of_the_nearest_word() {
        let reported = torch("allocated 18.1GB, reserved 23.2GB, free 200MB, tried 1.0GB").unwrap();
        assert_eq!((reported.requested, reported.free), (Bytes::gib(1), Some(Bytes::mib(200))));
        assert_eq!(reported.idle.map(Bytes::whole_mib), Some(5222));
        let reported = torch("Tried to allocate 384 MiB.\nGPU has 19 GiB total, 329 MiB free.\nReserved but unallocated: 402 MiB").unwrap();
        assert_eq!((reported.total, reported.idle), (Some(Bytes::gib(19)), Some(Bytes::mib(402))));
    }

    #[test]
    fn figures_of_nothing_that_is_reserved_are_left_alone() {
        for text in [
            "",
            "24 GiB total, 3 GiB free",
            "tried to allocate 3 GiB",
            "reserved",
            "9 GiB reserved",
            "9 GiB \u{e9}",
        ] {
            assert_eq!(torch(text), None, "{text}");
        }
    }
}
