//! Gives plans what they depend on besides the model: this machine's measured CUDA contexts, and the features
//! of its processor.

use plimsoll_flags::ProgramKind;
use plimsoll_plan::{Estimate, Models};
use plimsoll_planner::EngineBuild;

use crate::{contexts, processor};

/// An estimate for this machine.
pub fn estimate(models: Models, engine: EngineBuild, program: ProgramKind) -> Estimate {
    Estimate {
        engine,
        program,
        contexts: contexts::measured(),
        processor: processor(),
        ..Estimate::new(models)
    }
}
