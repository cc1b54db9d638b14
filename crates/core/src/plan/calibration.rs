//! What no header tells: the driver's context, modules and library handles, as measured.
//!
//! Nothing predicts these numbers. What `plimsoll calibrate` measured on the machine itself comes first (`contexts`), then this table
//! of published values by card; a card without a row gets a marked default. The H200 rows follow from
//! `data/measured/h200-b10605.json`: the process's total less what the engine says it allocated.

use std::borrow::Cow;

use super::contexts::{self, MeasuredContext};
use super::outcome::Term;
use super::request::{Engine, PlanRequest};
use crate::bytes::Bytes;
use crate::explain::Source;
use crate::place::Card;

struct Row {
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

const ROWS: &[Row] = &[
    Row {
        name: "H200",
        context: Bytes::mib(590),
        idle: Bytes::mib(518),
        cublas: Bytes::mib(98),
        processors: 132,
        source: MEASURED,
    },
    Row {
        name: "H100",
        context: Bytes::mib(590),
        idle: Bytes::mib(518),
        cublas: Bytes::mib(98),
        processors: 132,
        source: "H200 taken for the H100, same chip",
    },
    Row {
        name: "RTX PRO 6000",
        context: Bytes::mib(555),
        idle: Bytes::mib(555),
        cublas: Bytes::mib(98),
        processors: 188,
        source: "RTX PRO 6000 Blackwell, published in llama.cpp PR 23604",
    },
    Row {
        name: "4060 Ti",
        context: Bytes::mib(107),
        idle: Bytes::mib(107),
        cublas: Bytes::mib(70),
        processors: 34,
        source: "RTX 4060 Ti, published in llama.cpp PR 23604",
    },
];

/// Published values lie between 107 and 590 MiB; the default is near the upper end.
const DEFAULT: Row = Row {
    name: "",
    context: Bytes::mib(512),
    idle: Bytes::mib(512),
    cublas: Bytes::mib(98),
    processors: 132,
    source: "assumed, no measurement for this card",
};

fn row(card: &Card) -> &'static Row {
    ROWS.iter()
        .find(|row| card.name.contains(row.name))
        .unwrap_or(&DEFAULT)
}

/// What llama.cpp's builds before b9400 take besides: measured with b8799 on the H200. ik_llama.cpp's do not.
const OLDER_BUILDS: Bytes = Bytes::mib(60);

fn measured<'a>(request: &PlanRequest<'a>, card: &Card) -> Option<&'a MeasuredContext> {
    contexts::find(request.contexts, &card.name, request.engine)
}

/// Driver context and modules on a card that computes.
pub(super) fn context(request: &PlanRequest<'_>, card: &Card) -> Term {
    if let Some(measured) = measured(request, card) {
        return Term::new(measured.context, Source::Calibration(measured.label().into()));
    }
    let row = row(card);
    let published = Source::Calibration(Cow::Borrowed(row.source));
    Term::new(row.context + besides(request.engine), published)
}

fn besides(engine: Engine) -> Bytes {
    match engine.is_older() {
        true => OLDER_BUILDS,
        false => Bytes::ZERO,
    }
}

/// The same on a card that the process only sees: never more than on one that computes.
pub(super) fn idle_context(request: &PlanRequest<'_>, card: &Card) -> Term {
    let row = row(card);
    match measured(request, card) {
        Some(measured) => {
            let idle = if is_published(row) {
                row.idle.min(measured.context)
            } else {
                measured.context
            };
            Term::new(idle, Source::Calibration(measured.label().into()))
        }
        None => Term::new(row.idle, Source::Calibration(Cow::Borrowed(row.source))),
    }
}

/// What the first cuBLAS call takes and keeps.
pub(super) fn cublas(request: &PlanRequest<'_>, card: &Card) -> Bytes {
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

fn is_published(row: &Row) -> bool {
    row.source != DEFAULT.source
}
