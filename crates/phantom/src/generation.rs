//! Generation of ggml's CUDA backend that is mirrored.
//!
//! DECISION: three, told apart by what was measured in the engine, and by its build's number where that is
//! known. Interface version 3 is the third. Among those of version 2 the line is PR 23907, which moved the
//! f16 copies of a quantised cache out of the run-time pool; it was merged between b9305 and b9893, about
//! b9400, and left no mark in the interface. So the number decides (`PLIMSOLL_PHANTOM_BUILD`, else the
//! engine's exported `llama_build_number`); without one, whether ggml has the operation `col2im_1d`, which
//! b8799 lacks and b10605 has. The report says which evidence it was. ik_llama.cpp loads no backend, so it is
//! never met here.

pub(crate) use plimsoll_pool::demand::Engine as Generation;

use crate::engine::Engine;
use crate::probe::Version;

/// The first build whose copies are in the compute buffer, within a few dozen.
const RESERVING_SINCE: u32 = 9400;

/// The generation, and what tells it.
pub(crate) fn of(version: Version, asked: Option<u32>, engine: &Engine) -> (Generation, &'static str) {
    if version == Version::Three {
        return (Generation::Third, "interface version 3");
    }
    let by_number = |build: u32| {
        if build < RESERVING_SINCE {
            Generation::Copying
        } else {
            Generation::Reserving
        }
    };
    match (asked, engine.build) {
        (Some(build), _) => (by_number(build), "the build number given"),
        (None, Some(build)) => (by_number(build), "the engine's build number"),
        (None, None) if engine.has_col2im => (Generation::Reserving, "ggml_col2im_1d is there"),
        (None, None) => (Generation::Copying, "ggml_col2im_1d is not there"),
    }
}

pub(crate) const fn name(generation: Generation) -> &'static str {
    match generation {
        Generation::Ik | Generation::Copying => "copying",
        Generation::Reserving => "reserving",
        Generation::Third => "third",
    }
}
