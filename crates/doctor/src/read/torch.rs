//! PyTorch's refusal in each of its wordings, ComfyUI's block, and what vLLM and ollama say of a card and of their caches.
//!
//! `CUDACachingAllocator.cpp` has changed its sentence often: `total capacty` until 2.2, `(GPU 0; T total capacity; A already
//! allocated; …)` before 2.1, `cached` before 1.8. Sizes are therefore taken by the words around them, never by their order.

use plimsoll_base::Bytes;

use crate::evidence::{Evidence, Frame, Purpose, Quote, Required, Startup, Torch};
use crate::saying::Saying;
use crate::sizes::{after, all, behind, count_after};

/// Lines between a frame of a traceback and the refusal at its end.
const TRACEBACK: u64 = 120;

pub(super) fn read(evidence: &mut Evidence, saying: Saying, text: &str, quote: &Quote) {
    match saying {
        Saying::FrameLoads => frame(evidence, Purpose::Weights, quote),
        Saying::FrameCaches => frame(evidence, Purpose::Cache, quote),
        Saying::FrameComputes => frame(evidence, Purpose::Compute, quote),
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
        Saying::TorchParts
            if evidence
                .torch
                .as_ref()
                .is_some_and(|torch| is_next(&torch.quote, quote)) =>
        {
            parts(evidence, text)
        }
        Saying::OllamaRequired => evidence.required = required(text, quote).or(evidence.required.take()),
        Saying::VllmStartup => evidence.startup = startup(text, quote).or(evidence.startup.take()),
        _ => {}
    }
}

fn refused(evidence: &mut Evidence, text: &str, quote: &Quote) {
    let Some(asked) = after(text, "tried to allocate ") else {
        return;
    };
    let frame = evidence.frame.take().filter(|frame| is_near(&frame.quote, quote));
    evidence.torch = Some(Torch {
        frame,
        device: count_after(text, "(gpu ").or_else(|| count_after(text, " gpu ")),
        ..nothing_but(asked, quote)
    });
    parts(evidence, text);
}

fn nothing_but(asked: Bytes, quote: &Quote) -> Torch {
    Torch {
        asked,
        device: None,
        frame: None,
        total: None,
        free: None,
        allocated: None,
        idle: None,
        ours: None,
        others: None,
        named: 0,
        quote: quote.clone(),
    }
}

/// Most tracebacks end with the error; some tools print it first, and its innermost frame next.
fn frame(evidence: &mut Evidence, purpose: Purpose, quote: &Quote) {
    // A bar of progress that has come to its end is no frame.
    let is_cache = purpose == Purpose::Weights && quote.text.to_ascii_lowercase().contains("cache");
    if quote.text.contains("100%") || is_cache {
        return;
    }
    let frame = Frame {
        purpose,
        quote: quote.clone(),
    };
    if let Some(torch) = &mut evidence.torch
        && torch.frame.is_none()
        && is_near(&torch.quote, quote)
    {
        torch.frame = Some(frame.clone());
    }
    evidence.frame = Some(frame);
}

/// Some reports break the sentence over lines.
fn is_next(one: &Quote, other: &Quote) -> bool {
    one.source == other.source && (1..=3).contains(&other.line.saturating_sub(one.line))
}

fn is_near(one: &Quote, other: &Quote) -> bool {
    one.source == other.source && one.line.abs_diff(other.line) <= TRACEBACK
}

/// The sizes of the sentence, which some reports break over lines.
fn parts(evidence: &mut Evidence, text: &str) {
    let Some(torch) = &mut evidence.torch else { return };
    let (mut reserved, mut cached, mut others, mut named) = (None, None, None, 0_u32);
    for (size, behind) in all(text) {
        let behind = behind.trim_start();
        let starts = |words: &[&str]| words.iter().any(|word| behind.starts_with(word));
        if starts(&["total capac"]) || behind == "total" {
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
        } else if starts(&["reserved in total"]) {
            reserved = Some(size);
        } else if starts(&["cached"]) {
            cached = Some(size);
        } else if starts(&["memory in use"]) {
            let before = &text[..text.len() - behind.len()];
            match before.rfind("rocess").map(|at| &before[at..]) {
                Some(process) if process.starts_with("rocess has") => torch.ours = Some(size),
                _ => {
                    others = Some(others.unwrap_or(Bytes::ZERO) + size);
                    named = named.saturating_add(1);
                }
            }
        }
    }
    torch.total = torch.total.or_else(|| total_behind(text));
    torch.others = others.or(torch.others);
    torch.named = named.max(torch.named);
    // Until 1.3 it was what is idle, in 1.4 all that is reserved: what adds up to no more than the card is told apart from it.
    if let (Some(cached), Some(total), Some(free), Some(allocated)) =
        (cached, torch.total, torch.free, torch.allocated)
    {
        let is_idle = cached < allocated || allocated + free + cached <= total;
        torch.idle = Some(if is_idle {
            cached
        } else {
            cached.saturating_sub(allocated)
        });
    }
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
    let torch = evidence
        .torch
        .get_or_insert_with(|| nothing_but(Bytes::ZERO, quote));
    if size.is_some() {
        *field(torch) = size;
    }
}

/// `memory.available="[9.5 GiB]" … memory.required.full="11.0 GiB" … memory.weights.total="5.2 GiB"`.
fn required(text: &str, quote: &Quote) -> Option<Required> {
    Some(Required {
        full: after(text, "memory.required.full=")?,
        available: behind(text, "memory.available=")
            .map(|rest| rest.split(']').next().unwrap_or(rest))
            .map(|cards| all(cards).map(|(size, _)| size).sum())?,
        weights: after(text, "memory.weights.total="),
        cache: after(text, "memory.required.kv="),
        quote: quote.clone(),
    })
}

/// `Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less than desired GPU memory utilization (0.9, 19.84 GiB)`.
fn startup(text: &str, quote: &Quote) -> Option<Startup> {
    let (before, behind) = text.split_once("on startup")?;
    let pair = &before[before.rfind('(')? + 1..];
    let (free, total) = pair.split_once('/')?;
    let total = all(total).next()?.0;
    let free = all(&format!("{} GiB", free.trim())).next()?.0;
    // Some reports break the line here; nine tenths are the default.
    let wanted = all(behind).next().map_or(total.scaled(9, 10), |(size, _)| size);
    Some(Startup {
        free,
        total,
        wanted,
        quote: quote.clone(),
    })
}
