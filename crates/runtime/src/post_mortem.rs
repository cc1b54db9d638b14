//! Diagnoses a child process that has ended, from its exit status and last log lines.

use plimsoll_base::Stage;
use plimsoll_doctor::{EngineDeath, EngineVerdict, RefusedAllocation, judge};

use plimsoll_engine::{ChildEnded, EndCause};

/// Judges the end of the child that ran `model`; `refused` is the last that guard refused it.
pub fn post_mortem(model: &str, ended: &ChildEnded, refused: Option<&RefusedAllocation>) -> EngineVerdict {
    judge(&EngineDeath {
        model,
        exit: ended.exit,
        requested: matches!(ended.cause, EndCause::Requested | EndCause::RequestedAndKilled),
        stuck: ended.cause == EndCause::Stuck,
        stage: if ended.was_ready { Stage::Serving } else { Stage::Loading },
        kernel_oom_kill: ended.kernel_oom_kill,
        last_lines: &ended.last_lines,
        refused,
    })
}
