//! Reader of PyTorch's out-of-memory error of all versions, ComfyUI's figures, and Python frames.
//!
//! PyTorch has often changed the error's wording, so each size is found by the words next to it.

use plimsoll_base::Bytes;

use crate::facts::{Facts, Purpose, Quote, TorchRefusal, TracebackFrame};
use crate::pattern::Pattern;
use crate::sizes::{after, all, behind, count_after};

/// Lines between a frame of a traceback and the error at its end.
const TRACEBACK: u64 = 120;

pub(super) fn read(facts: &mut Facts, pattern: Pattern, text: &str, quote: &Quote) {
    match pattern {
        Pattern::FrameLoads => frame(facts, Purpose::Weights, quote),
        Pattern::FrameCaches => frame(facts, Purpose::Cache, quote),
        Pattern::FrameComputes => frame(facts, Purpose::Compute, quote),
        Pattern::TorchRefused => refused(facts, text, quote),
        Pattern::TorchAllocated => {
            block(facts, quote, |torch| &mut torch.allocated, after(text, "allocated"))
        }
        Pattern::TorchLimit => block(facts, quote, |torch| &mut torch.total, after(text, "limit")),
        Pattern::TorchFree => block(facts, quote, |torch| &mut torch.free, after(text, "cuda)")),
        Pattern::TorchRequested => {
            if let (Some(torch), Some(requested)) = (&mut facts.torch, after(text, "requested")) {
                torch.requested = requested;
            }
        }
        Pattern::CardSize if behind(text, "total capac").is_some() => parts(facts, text),
        // Some reports break the sentence over lines.
        Pattern::TorchParts if facts.torch.as_ref().is_some_and(|torch| is_next(&torch.quote, quote)) => {
            parts(facts, text);
        }
        _ => {}
    }
}

fn refused(facts: &mut Facts, text: &str, quote: &Quote) {
    let Some(requested) = after(text, "tried to allocate ") else {
        return;
    };
    let frame = facts.frame.take().filter(|frame| is_near(&frame.quote, quote));
    let device = count_after(text, "(gpu ").or_else(|| count_after(text, " gpu "));
    facts.torch = Some(TorchRefusal { frame, device, ..TorchRefusal::of(requested, quote) });
    parts(facts, text);
}

/// Most tracebacks end with the error; some tools print the error first and its innermost frame next.
fn frame(facts: &mut Facts, purpose: Purpose, quote: &Quote) {
    // A finished progress bar is no frame, and a path through the cache of a hub is no cache.
    let is_cache = purpose == Purpose::Weights && quote.text.to_ascii_lowercase().contains("cache");
    if quote.text.contains("100%") || is_cache {
        return;
    }
    let frame = TracebackFrame { purpose, quote: quote.clone() };
    if let Some(torch) = &mut facts.torch
        && torch.frame.is_none()
        && is_near(&torch.quote, quote)
    {
        torch.frame = Some(frame.clone());
    }
    facts.frame = Some(frame);
}

fn is_next(one: &Quote, other: &Quote) -> bool {
    one.origin == other.origin && (1..=3).contains(&other.line.saturating_sub(one.line))
}

fn is_near(one: &Quote, other: &Quote) -> bool {
    one.origin == other.origin && one.line.abs_diff(other.line) <= TRACEBACK
}

/// The sizes of the sentence, by the words that follow them.
fn parts(facts: &mut Facts, text: &str) {
    let Some(torch) = &mut facts.torch else { return };
    let (mut reserved, mut cached, mut others, mut named) = (None, None, None, 0_u32);
    for (size, behind) in all(text) {
        let behind = behind.trim_start();
        let starts = |words: &[&str]| words.iter().any(|word| behind.starts_with(word));
        if starts(&["total capac"]) || behind == "total" {
            torch.total = Some(size);
        } else if starts(&["free", "is free"]) {
            torch.free = Some(size);
        } else if starts(&["already allocated", "is allocated by", "allocated by PyTorch"]) {
            torch.allocated = Some(size);
        } else if starts(&["is reserved by", "reserved by PyTorch"]) {
            torch.idle = Some(size);
        } else if starts(&["reserved in total"]) {
            reserved = Some(size);
        } else if starts(&["cached"]) {
            cached = Some(size);
        // `Process N has` is another process, `this process has` is the program itself.
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
    // The newer sentence puts the total before `of which`, not after its number.
    torch.total = torch.total.or_else(|| total_behind(text));
    // Some drivers of integrated cards count less as free than is in use, which wraps around.
    torch.free = torch.free.filter(|free| torch.total.is_none_or(|total| *free <= total));
    torch.others = others.or(torch.others);
    torch.named = named.max(torch.named);
    torch.idle = idle_of(torch, reserved, cached).or(torch.idle);
}

/// Idle memory of the older wordings. `cached` was the idle part until 1.3 and all reserved memory in 1.4: it
/// is the idle part where the sum then fits the card.
fn idle_of(torch: &TorchRefusal, reserved: Option<Bytes>, cached: Option<Bytes>) -> Option<Bytes> {
    let allocated = torch.allocated?;
    if let Some(reserved) = reserved {
        return Some(reserved.saturating_sub(allocated));
    }
    let (cached, total, free) = (cached?, torch.total?, torch.free?);
    let is_idle = cached < allocated || allocated + free + cached <= total;
    Some(if is_idle { cached } else { cached.saturating_sub(allocated) })
}

/// `has a total capacity of 23.69 GiB of which`.
fn total_behind(text: &str) -> Option<Bytes> {
    after(text, "total capacity of ").or_else(|| after(text, "total capacty of "))
}

/// ComfyUI lists the driver's figures one per line (`cudaMallocAsync`'s error).
fn block(
    facts: &mut Facts,
    quote: &Quote,
    field: fn(&mut TorchRefusal) -> &mut Option<Bytes>,
    size: Option<Bytes>,
) {
    // The block has no sentence, so its first figure opens the refusal.
    if facts.torch.is_none() {
        let frame = facts.frame.take().filter(|frame| is_near(&frame.quote, quote));
        facts.torch = Some(TorchRefusal { frame, ..TorchRefusal::of(Bytes::ZERO, quote) });
    }
    let Some(torch) = &mut facts.torch else { return };
    if size.is_some() {
        *field(torch) = size;
    }
}
