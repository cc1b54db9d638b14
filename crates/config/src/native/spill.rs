//! Checks a model's key `spill` (host memory for what does not fit on the card) against its other keys.

use crate::failure::ConfigProblem;
use crate::guard::{GuardMode, GuardSettings};
use crate::roster::ConfiguredModel;

/// The first key that `spill` contradicts.
pub(super) fn mistake(entry: &ConfiguredModel) -> Option<ConfigProblem> {
    let launch = &entry.launch;
    let (why, remedy) = if entry.is_foreign() {
        ("`spill` is for an engine of this host, but `proxy` names another host", "remove `spill`")
    } else if launch.options().is_none() {
        (
            "`spill` divides the cache of a llama-server, and `cmd` starts another program",
            "remove `spill`, or give the model less memory by its own options",
        )
    } else if !launch.is_own_llama_server() {
        (
            "`spill` needs a llama-server that Plimsoll starts itself, but `cmd` starts it in a container or by a shell",
            "start it with `model` and `flags`, or remove `spill`",
        )
    } else if entry.memory.is_some() {
        (
            "`spill` follows from the model's plan, which `memory` replaces",
            "remove `memory`, or remove `spill`",
        )
    } else {
        (of_guard(&entry.guard)?, "remove that key from `guard`, or remove `spill`")
    };
    Some(ConfigProblem::ReadLine { why, remedy })
}

/// Settings in the model's own `guard` that contradict `spill`. Defaults of `[serve.guard]` give way to it.
fn of_guard(guard: &GuardSettings) -> Option<&'static str> {
    let GuardSettings { mode, budget, spill, need, keep, on_oom, .. } = guard;
    Some(match mode {
        Some(GuardMode::Off) => "`spill` needs guard, but the model's `guard` has `mode = \"off\"`",
        Some(GuardMode::Observe) => {
            "`spill` needs a budget, but the model's `guard` has `mode = \"observe\"`"
        }
        _ if spill.is_some() => "the model has `spill` in its section and in its `guard`",
        _ if budget.is_some() => "`spill` sets the budget itself, but the model's `guard` has `budget`",
        _ if need.is_some() => "`spill` follows from the model's plan, but the model's `guard` has `need`",
        _ if keep.is_some() => "`spill` follows from the model's plan, but the model's `guard` has `keep`",
        _ if on_oom.is_some() => {
            "`spill` and `on-oom` both say where an allocation goes that does not \
            fit, but the model's `guard` has `on-oom`"
        }
        _ => return None,
    })
}
