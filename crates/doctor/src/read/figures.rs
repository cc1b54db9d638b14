//! An allocator's figures as people retell them: `15.9 GiB reserved but only 9.2 GiB allocated`, `Reserved but unallocated: 402 MiB`.
//!
//! DECISION: a figure is what the nearest word beside it says it is. They stand in only for what the allocator's own sentence did not tell, and only where
//! the report speaks of such an allocator: reserved and allocated are told apart nowhere else.

use plimsoll_base::Bytes;

use crate::evidence::{Evidence, Quote, Source, Torch};
use crate::line::shortened;
use crate::sizes::all;

/// How far from its figure a word may stand, in bytes.
const NEAR: usize = 28;
const LONGEST: usize = 600;

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Asked,
    Total,
    Free,
    Allocated,
    Reserved,
    Idle,
}

/// The first that is found counts, so that `unallocated` is not `allocated`.
const WORDS: [(&str, What); 18] = [
    ("reserved but unallocated", What::Idle),
    ("reserved-but-unallocated", What::Idle),
    ("unallocated", What::Idle),
    ("inactive", What::Idle),
    ("fragment", What::Idle),
    ("tried to allocate", What::Asked),
    ("tried", What::Asked),
    ("trying to allocate", What::Asked),
    ("requested", What::Asked),
    ("asked", What::Asked),
    ("oom for", What::Asked),
    ("allocated", What::Allocated),
    ("live", What::Allocated),
    ("reserved", What::Reserved),
    ("cached", What::Reserved),
    ("capacity", What::Total),
    ("total", What::Total),
    ("free", What::Free),
];

#[derive(Default)]
struct Figures {
    asked: Option<Bytes>,
    total: Option<Bytes>,
    free: Option<Bytes>,
    allocated: Option<Bytes>,
    reserved: Option<Bytes>,
    idle: Option<Bytes>,
    quote: Option<Quote>,
}

pub(super) fn read(evidence: &mut Evidence, source: Source, text: &str) {
    let mut figures = Figures::default();
    for (line, row) in (1..).zip(text.lines()).filter(|(_, row)| row.len() <= LONGEST) {
        let lower = row.to_ascii_lowercase();
        for (size, behind) in all(&lower) {
            let Some(what) = told(&lower, behind) else {
                continue;
            };
            let field = match what {
                What::Asked => &mut figures.asked,
                What::Total => &mut figures.total,
                What::Free => &mut figures.free,
                What::Allocated => &mut figures.allocated,
                What::Reserved => &mut figures.reserved,
                What::Idle => &mut figures.idle,
            };
            field.get_or_insert(size);
            if matches!(what, What::Reserved | What::Idle) && figures.quote.is_none() {
                let text = shortened(row.trim()).to_owned();
                figures.quote = Some(Quote { source, line, text });
            }
        }
    }
    add(evidence, figures);
}

/// What the size is of that ends where `behind` begins: by the words behind it up to the next mark, else by those before.
fn told(line: &str, behind: &str) -> Option<What> {
    let clause = |text: &str| {
        text.split([',', ';', '(', ')', '.', '|'])
            .next()
            .unwrap_or_default()
            .len()
    };
    let after = near(behind, 0, clause(behind).min(NEAR));
    let until_figure = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
    let after = &after[..until_figure];
    let ahead = &line[..line.len() - behind.len()];
    // The figure itself, with its unit.
    let ahead = ahead.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let ahead = ahead.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | ','));
    let start = ahead.rfind([',', ';', ')', '|']).map_or(0, |at| at + 1);
    let ahead = &ahead[start..];
    let ahead = near(ahead, ahead.len().saturating_sub(NEAR), ahead.len());
    let find = |text: &str, last: bool| {
        let places = WORDS.iter().enumerate().filter_map(|(rank, (word, what))| {
            let at = if last { text.rfind(word) } else { text.find(word) }?;
            let distance = if last { text.len() - at - word.len() } else { at };
            Some(((distance, rank), *what))
        });
        places.min_by_key(|(place, _)| *place).map(|(_, what)| what)
    };
    let labelled = ahead.trim_end().ends_with([':', '=']);
    let (behind, before) = (find(after, false), find(ahead, true));
    if labelled {
        before.or(behind)
    } else {
        behind.or(before)
    }
}

/// A part of `text` between two places, moved to where letters begin.
fn near(text: &str, from: usize, to: usize) -> &str {
    let start = (from..=text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    let end = (to..=text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(text.len());
    text.get(start..end).unwrap_or_default()
}

fn add(evidence: &mut Evidence, figures: Figures) {
    let Some(quote) = figures.quote else { return };
    let reserved = figures.reserved.zip(figures.allocated);
    let idle = figures
        .idle
        .or_else(|| reserved.map(|(reserved, allocated)| reserved.saturating_sub(allocated)));
    match &mut evidence.torch {
        Some(torch) => {
            let bare = torch.total.is_none() && torch.free.is_none() && torch.idle.is_none();
            if bare {
                torch.total = figures.total;
                torch.free = figures.free;
                torch.allocated = torch.allocated.or(figures.allocated);
                torch.idle = idle;
            }
        }
        None if evidence.refusals.is_empty() && evidence.required.is_none() => {
            let (Some(asked), Some(idle)) = (figures.asked, idle) else {
                return;
            };
            evidence.torch = Some(Torch {
                asked,
                device: None,
                frame: None,
                total: figures.total,
                // Whoever names pieces says that nothing else was free.
                free: figures.free.or(Some(Bytes::ZERO)),
                allocated: figures.allocated,
                idle: Some(idle),
                ours: None,
                others: None,
                named: 0,
                quote,
            });
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn torch(text: &str) -> Option<Torch> {
        let mut evidence = Evidence::default();
        read(&mut evidence, Source::Log, text);
        evidence.torch
    }

    #[test]
    fn retold_figures_are_of_the_nearest_word() {
        let told = torch("allocated 18.1GB, reserved 23.2GB, free 200MB, tried 1.0GB").unwrap();
        assert_eq!((told.asked, told.free), (Bytes::gib(1), Some(Bytes::mib(200))));
        assert_eq!(told.idle.map(Bytes::whole_mib), Some(5222));
        let told = torch("Tried to allocate 384 MiB.\nGPU has 19 GiB total, 329 MiB free.\nReserved but unallocated: 402 MiB").unwrap();
        assert_eq!(
            (told.total, told.idle),
            (Some(Bytes::gib(19)), Some(Bytes::mib(402)))
        );
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
