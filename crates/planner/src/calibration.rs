//! Gives the memory of CUDA contexts, loaded modules and library handles, as measured or published.
//!
//! A plan uses what `plimsoll measure calibrate` measured, else this table of published values, else a
//! default.

use std::borrow::Cow;

use plimsoll_base::{Bytes, Card, Counting, Source};

use crate::{MeasuredContext, PlanRequest, PlanTerm, contexts};

struct PublishedContext {
    /// Context, modules and handles of a process that computes on the card.
    context: Bytes,
    /// Context size on a card that the process sees but does not use.
    idle: Bytes,
    /// Workspace and kernels that the first use of cuBLAS adds.
    cublas: Bytes,
    /// Streaming multiprocessors, by the vendor's data sheet.
    processors: u64,
    source: &'static str,
}

/// A word of the card's name; MiB of context, idle and cuBLAS; multiprocessors; source.
type PublishedRow = (&'static str, [u64; 3], u64, &'static str);

// Those of the H200 are in `data/measured/h200-b10605.json`. Guard counts less than the driver does
// (`Counting`). No H100 was measured; the chip is the same.
#[rustfmt::skip]
const PUBLISHED: [PublishedRow; 4] = [
    ("H200", [590, 518, 98], 132, "H200, driver 580.159.04, CUDA 13.0, b10605 (measured)"),
    ("H100", [590, 518, 98], 132, "the value of the H200, which has the same chip as the H100"),
    ("RTX PRO 6000", [555, 555, 98], 188, "RTX PRO 6000 Blackwell, published in llama.cpp PR 23604"),
    ("4060 Ti", [107, 107, 70], 34, "RTX 4060 Ti, published in llama.cpp PR 23604"),
];

/// Published values lie between 107 and 590 MiB; the default is near the upper end.
const DEFAULT: PublishedRow = ("", [512, 512, 98], 132, "assumed, no measurement for this card");

fn published(card: &Card) -> PublishedContext {
    let row = PUBLISHED.into_iter().find(|(name, ..)| card.name.contains(name));
    let (_, sizes, processors, source) = row.unwrap_or(DEFAULT);
    let [context, idle, cublas] = sizes.map(Bytes::mib);
    PublishedContext { context, idle, cublas, processors, source }
}

/// Memory that cuBLAS of CUDA 13.0 asks for on an H200, besides its kernels: guard's count for b8799 minus
/// the pool's requests (`data/measured/h200-growth-b8799.json`).
const CUBLAS_REQUESTED: Bytes = Bytes::new(67_240_960);

fn measured<'a>(request: &PlanRequest<'a>, card: &Card) -> Option<&'a MeasuredContext> {
    contexts::find(request.contexts, &card.name, request.engine)
}

fn term(bytes: Bytes, source: impl Into<Cow<'static, str>>) -> PlanTerm {
    PlanTerm::new(bytes, Source::Calibration(source.into()))
}

/// Driver context and modules on a card that computes.
pub(super) fn context(request: &PlanRequest<'_>, card: &Card) -> PlanTerm {
    match (card.counting, measured(request, card)) {
        // Guard cannot see the modules that the driver loads lazily into an open context.
        (Counting::Guard, _) => opened_context(request, card),
        (Counting::Driver, Some(measured)) => term(measured.context, measured.label()),
        (Counting::Driver, None) => term(published(card).context, published(card).source),
    }
}

/// The context as it is opened: all of it on a card that is seen but not used, and never more than when used.
pub(super) fn opened_context(request: &PlanRequest<'_>, card: &Card) -> PlanTerm {
    let row = published(card);
    let Some(measured) = measured(request, card) else { return term(row.idle, row.source) };
    // Tables of the first schema lack the opened size; a published one is nearer than the whole context.
    let opened = measured.opened.or((row.source != DEFAULT.3).then_some(row.idle));
    let opened = opened.unwrap_or(measured.context).min(measured.context);
    term(opened, measured.label())
}

/// Memory that the first cuBLAS call takes and keeps.
pub(super) fn cublas(request: &PlanRequest<'_>, card: &Card) -> Bytes {
    let measured = measured(request, card).and_then(|measured| measured.cublas);
    let loaded = measured.unwrap_or(published(card).cublas);
    // Kernels are loaded by the driver, which guard does not see.
    match card.counting {
        Counting::Driver => loaded,
        Counting::Guard => loaded.min(CUBLAS_REQUESTED),
    }
}

pub(super) fn processors(card: &Card) -> u64 {
    published(card).processors
}

/// False if the context is only assumed.
pub(super) fn is_known(request: &PlanRequest<'_>, card: &Card) -> bool {
    measured(request, card).is_some() || published(card).source != DEFAULT.3
}
