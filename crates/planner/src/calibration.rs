//! Memory of CUDA contexts, loaded modules and library handles, as measured or published.
//!
//! A plan uses what `plimsoll calibrate` measured, else this table of published values, else a default.

use std::borrow::Cow;

use plimsoll_base::{Bytes, Card, Counting, Source};

use crate::{MeasuredContext, PlanRequest, PlanTerm, contexts};

struct PublishedContext {
    /// A word of the card's name.
    name: &'static str,
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

// The values of `data/measured/h200-b10605.json`. Guard counts less than the driver does (`Counting`).
const H200: PublishedContext = PublishedContext {
    name: "H200",
    context: Bytes::mib(590),
    idle: Bytes::mib(518),
    cublas: Bytes::mib(98),
    processors: 132,
    source: "H200, driver 580.159.04, CUDA 13.0, b10605 (measured)",
};

const PUBLISHED: &[PublishedContext] = &[
    H200,
    PublishedContext {
        // No H100 was measured; the chip is the same.
        name: "H100",
        source: "the value of the H200, which has the same chip as the H100",
        ..H200
    },
    PublishedContext {
        name: "RTX PRO 6000",
        context: Bytes::mib(555),
        idle: Bytes::mib(555),
        cublas: Bytes::mib(98),
        processors: 188,
        source: "RTX PRO 6000 Blackwell, published in llama.cpp PR 23604",
    },
    PublishedContext {
        name: "4060 Ti",
        context: Bytes::mib(107),
        idle: Bytes::mib(107),
        cublas: Bytes::mib(70),
        processors: 34,
        source: "RTX 4060 Ti, published in llama.cpp PR 23604",
    },
];

/// Published values lie between 107 and 590 MiB; the default is near the upper end.
const DEFAULT: PublishedContext = PublishedContext {
    name: "",
    context: Bytes::mib(512),
    idle: Bytes::mib(512),
    source: "assumed, no measurement for this card",
    ..H200
};

fn published(card: &Card) -> &'static PublishedContext {
    let mut rows = PUBLISHED.iter();
    rows.find(|row| card.name.contains(row.name)).unwrap_or(&DEFAULT)
}

/// Memory that cuBLAS of CUDA 13.0 asks for on an H200, besides its kernels: guard's count for b8799 minus
/// the pool's requests (`data/measured/h200-growth-b8799.json`).
const CUBLAS_ASKED: Bytes = Bytes::new(67_240_960);

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
    let opened = measured.opened.or(is_published(row).then_some(row.idle));
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
        Counting::Guard => loaded.min(CUBLAS_ASKED),
    }
}

pub(super) fn processors(card: &Card) -> u64 {
    published(card).processors
}

/// False if the context is only assumed.
pub(super) fn is_known(request: &PlanRequest<'_>, card: &Card) -> bool {
    measured(request, card).is_some() || is_published(published(card))
}

fn is_published(row: &PublishedContext) -> bool {
    row.source != DEFAULT.source
}
