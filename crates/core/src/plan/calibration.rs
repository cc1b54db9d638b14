//! What no header tells: the driver's context, modules and library handles, as measured.
//!
//! A table by card, driver and build, because nothing predicts these numbers. A card without a row gets a marked
//! default; `plimsoll` replaces it by what it measures on the machine itself. The H200 rows follow from
//! `data/measured/h200-b10605.json`: the process's total less what the engine says it allocated.

use std::borrow::Cow;

use super::outcome::Term;
use super::request::Engine;
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

/// What builds before b9400 take besides: measured with b8799 on the H200.
const OLDER_BUILDS: Bytes = Bytes::mib(60);

/// Driver context and modules on a card that computes.
pub(super) fn context(card: &Card, engine: Engine) -> Term {
    let row = row(card);
    let older = if engine.reserves_cache_copy() {
        Bytes::ZERO
    } else {
        OLDER_BUILDS
    };
    Term::new(
        row.context + older,
        Source::Calibration(Cow::Borrowed(row.source)),
    )
}

/// The same on a card that the process only sees.
pub(super) fn idle_context(card: &Card) -> Term {
    let row = row(card);
    Term::new(row.idle, Source::Calibration(Cow::Borrowed(row.source)))
}

/// What the first cuBLAS call takes and keeps.
pub(super) fn cublas(card: &Card) -> Bytes {
    row(card).cublas
}

pub(super) fn processors(card: &Card) -> u64 {
    row(card).processors
}

/// False where the context is only assumed.
pub(super) fn is_known(card: &Card) -> bool {
    row(card).source != DEFAULT.source
}
