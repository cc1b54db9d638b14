//! What no header tells: the driver's context, modules and library handles, as measured.
//!
//! Nothing predicts these numbers. What `plimsoll calibrate` measured on the machine itself comes first (`contexts`), then this table
//! of published values by card; a card without a row gets a marked default. The H200 rows follow from
//! `data/measured/h200-b10605.json`: the process's total less what the engine says it allocated. Guard counts less than the driver:
//! the context as it was opened, and of cuBLAS what it asks for ([`Counting`]).

use std::borrow::Cow;

use plimsoll_base::{Bytes, Card, Counting, Source};

use super::contexts::{self, MeasuredContext};
use super::outcome::Term;
use super::request::PlanRequest;

struct PublishedContext {
    /// A word of the card's name.
    name: &'static str,
    /// Context, modules and handles of a process that computes on the card.
    context: Bytes,
    /// The same for a card that the process sees but does not use.
    idle: Bytes,
    /// What the first use of cuBLAS adds: its workspace and its kernels.
    cublas: Bytes,
    /// Streaming multiprocessors, by the vendor's data sheet.
    processors: u64,
    source: &'static str,
}

const MEASURED: &str = "H200, driver 580.159.04, CUDA 13.0, b10605 (measured)";

const ROWS: &[PublishedContext] = &[
    PublishedContext {
        name: "H200",
        context: Bytes::mib(590),
        idle: Bytes::mib(518),
        cublas: Bytes::mib(98),
        processors: 132,
        source: MEASURED,
    },
    PublishedContext {
        name: "H100",
        context: Bytes::mib(590),
        idle: Bytes::mib(518),
        cublas: Bytes::mib(98),
        processors: 132,
        source: "H200 taken for the H100, same chip",
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
    cublas: Bytes::mib(98),
    processors: 132,
    source: "assumed, no measurement for this card",
};

fn row(card: &Card) -> &'static PublishedContext {
    ROWS.iter()
        .find(|row| card.name.contains(row.name))
        .unwrap_or(&DEFAULT)
}

/// What cuBLAS of CUDA 13.0 asks the driver for on an H200: guard's page of b8799 less what the engine's pool asked for
/// (`data/measured/h200-growth-b8799.json`). The rest of what it takes are its kernels.
const CUBLAS_ASKED: Bytes = Bytes::new(67_240_960);

fn measured<'a>(request: &PlanRequest<'a>, card: &Card) -> Option<&'a MeasuredContext> {
    contexts::find(request.contexts, &card.name, request.engine)
}

/// Driver context and modules on a card that computes.
pub(super) fn context(request: &PlanRequest<'_>, card: &Card) -> Term {
    match card.counting {
        Counting::Driver => loaded_context(request, card),
        Counting::Guard => opened_context(request, card),
    }
}

fn loaded_context(request: &PlanRequest<'_>, card: &Card) -> Term {
    if let Some(measured) = measured(request, card) {
        return Term::new(measured.context, Source::Calibration(measured.label().into()));
    }
    let row = row(card);
    let published = Source::Calibration(Cow::Borrowed(row.source));
    Term::new(row.context, published)
}

/// The context as it is opened, which is all of it on a card that the process only sees: never more than on one that computes. Of a
/// table that does not say it, the published value stands in where there is one, else all of the context.
pub(super) fn opened_context(request: &PlanRequest<'_>, card: &Card) -> Term {
    let row = row(card);
    match measured(request, card) {
        Some(measured) => {
            let published = || is_published(row).then_some(row.idle);
            let opened = measured.opened.or_else(published);
            Term::new(
                opened.map_or(measured.context, |opened| opened.min(measured.context)),
                Source::Calibration(measured.label().into()),
            )
        }
        None => Term::new(row.idle, Source::Calibration(Cow::Borrowed(row.source))),
    }
}

/// What the first cuBLAS call takes and keeps.
pub(super) fn cublas(request: &PlanRequest<'_>, card: &Card) -> Bytes {
    match card.counting {
        Counting::Driver => loaded_cublas(request, card),
        Counting::Guard => loaded_cublas(request, card).min(CUBLAS_ASKED),
    }
}

fn loaded_cublas(request: &PlanRequest<'_>, card: &Card) -> Bytes {
    let measured = measured(request, card).and_then(|measured| measured.cublas);
    measured.unwrap_or(row(card).cublas)
}

pub(super) fn processors(card: &Card) -> u64 {
    row(card).processors
}

/// False where the context is only assumed.
pub(super) fn is_known(request: &PlanRequest<'_>, card: &Card) -> bool {
    measured(request, card).is_some() || is_published(row(card))
}

fn is_published(row: &PublishedContext) -> bool {
    row.source != DEFAULT.source
}
