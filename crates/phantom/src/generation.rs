//! Generation of ggml's CUDA backend to mirror.
//!
//! DECISION: there are three, distinguished by measurements in the engine, and by its build number where that
//! is known. Interface version 3 is the third. Within version 2 the boundary is PR 23907, which moved the f16
//! copies of a quantised cache out of the run-time pool. It was merged between b9305 and b9893, about b9400,
//! and left no trace in the interface. The build number decides (`PLIMSOLL_PHANTOM_BUILD`, else the engine's
//! exported `llama_build_number`). Without one, the operation `col2im_1d` decides, which b8799 lacks and
//! b10605 has. The report names the evidence. ik_llama.cpp loads no backends, so it never occurs here.

pub(crate) use plimsoll_pool::demand::DemandRules as Generation;

use crate::engine::Engine;
use crate::probe::Version;

/// First build with the copies in the compute buffer, within a few dozen builds.
const RESERVING_SINCE: u32 = 9400;

/// The generation, and the evidence for it.
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
    // The given number comes from `--version`, which every build answers; many do not export the symbol.
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
