//! PyTorch's refusal in each of its wordings, ComfyUI's block, and what vLLM says of a card and of its cache.
//!
//! `CUDACachingAllocator.cpp` has changed its sentence often: `total capacty` until 2.2, `(GPU 0; T total capacity; A already
//! allocated; …)` before 2.1, `cached` before 1.8. Sizes are therefore taken by the words around them, never by their order.

use crate::bytes::Bytes;
use crate::diagnose::evidence::{Evidence, Quote, Startup, Torch};
use crate::diagnose::saying::Saying;
use crate::diagnose::sizes::{after, all, behind};

pub(super) fn read(evidence: &mut Evidence, saying: Saying, text: &str, quote: &Quote) {
    match saying {
        Saying::TorchRefused => refused(evidence, text, quote),
        Saying::TorchAllocated => block(
            evidence,
            quote,
            |torch| &mut torch.allocated,
            after(text, "allocated"),
        ),
        Saying::TorchLimit => block(evidence, quote, |torch| &mut torch.total, after(text, "limit")),
        Saying::TorchFree => block(evidence, quote, |torch| &mut torch.free, after(text, "cuda)")),
        Saying::TorchRequested => {
            if let (Some(torch), Some(asked)) = (&mut evidence.torch, after(text, "requested")) {
                torch.asked = asked;
            }
        }
        Saying::CardSize if behind(text, "total capac").is_some() => parts(evidence, text),
        Saying::VllmStartup => evidence.startup = startup(text, quote).or(evidence.startup.take()),
        _ => {}
    }
}

fn refused(evidence: &mut Evidence, text: &str, quote: &Quote) {
    let Some(asked) = after(text, "tried to allocate ") else {
        return;
    };
    evidence.torch = Some(Torch {
        asked,
        total: None,
        free: None,
        allocated: None,
        idle: None,
        ours: None,
        others: None,
        quote: quote.clone(),
    });
    parts(evidence, text);
}

/// The sizes of the sentence, which some reports break over lines.
fn parts(evidence: &mut Evidence, text: &str) {
    let Some(torch) = &mut evidence.torch else { return };
    let (mut reserved, mut others) = (None, None);
    for (size, behind) in all(text) {
        let behind = behind.trim_start();
        let starts = |words: &[&str]| words.iter().any(|word| behind.starts_with(word));
        if starts(&["total capac"]) {
            torch.total = Some(size);
        } else if starts(&["free", "is free"]) {
            torch.free = Some(size);
        } else if starts(&[
            "already allocated",
            "is allocated by PyTorch",
            "allocated by PyTorch",
        ]) {
            torch.allocated = Some(size);
        } else if starts(&["is reserved by PyTorch but", "reserved by PyTorch but"]) {
            torch.idle = Some(size);
        } else if starts(&["reserved in total", "cached"]) {
            reserved = Some(size);
        } else if starts(&["memory in use"]) {
            let before = &text[..text.len() - behind.len()];
            match before.rfind("rocess").map(|at| &before[at..]) {
                Some(process) if process.starts_with("rocess has") => torch.ours = Some(size),
                _ => others = Some(others.unwrap_or(Bytes::ZERO) + size),
            }
        }
    }
    torch.total = torch.total.or_else(|| total_behind(text));
    torch.others = others.or(torch.others);
    if let (Some(reserved), Some(allocated)) = (reserved, torch.allocated) {
        torch.idle = Some(reserved.saturating_sub(allocated));
    }
}

/// `has a total capacity of 23.69 GiB of which`.
fn total_behind(text: &str) -> Option<Bytes> {
    after(text, "total capacity of ").or_else(|| after(text, "total capacty of "))
}

/// ComfyUI and older allocators list their figures below each other.
fn block(
    evidence: &mut Evidence,
    quote: &Quote,
    field: fn(&mut Torch) -> &mut Option<Bytes>,
    size: Option<Bytes>,
) {
    let torch = evidence.torch.get_or_insert_with(|| Torch {
        asked: Bytes::ZERO,
        total: None,
        free: None,
        allocated: None,
        idle: None,
        ours: None,
        others: None,
        quote: quote.clone(),
    });
    if size.is_some() {
        *field(torch) = size;
    }
}

/// `Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less than desired GPU memory utilization (0.9, 19.84 GiB)`.
fn startup(text: &str, quote: &Quote) -> Option<Startup> {
    let (before, behind) = text.split_once("on startup")?;
    let pair = &before[before.rfind('(')? + 1..];
    let (free, total) = pair.split_once('/')?;
    let total = all(total).next()?.0;
    let free = all(&format!("{} GiB", free.trim())).next()?.0;
    let wanted = all(behind).next()?.0;
    Some(Startup {
        free,
        total,
        wanted,
        quote: quote.clone(),
    })
}
