//! Warns about a model's forecast: too little host memory, and flags that its plan ignores.

use std::path::Path;
use std::sync::Arc;

use plimsoll_base::{Card, MemoryModel, Reason};
use plimsoll_cards::HostMemory;
use plimsoll_config::{ConfiguredModel, Launch, LeftOutFlag, flags_left_out, own_llama_server};
use plimsoll_engine::program;
use plimsoll_flags::Warning;
use plimsoll_planner::HostRoom;
use plimsoll_process::find_program;

use super::{Forecast, requested};
use crate::operator_log::in_a_line;
use crate::survey::FoundProgram;

/// The memory of this machine's host.
pub fn this_host() -> Option<HostRoom> {
    HostMemory::read().map(|host| HostRoom { total: host.total, free: host.available })
}

impl Forecast {
    /// Warns where the host has too little memory for the model's part beside its cards, as `plan` does.
    pub(super) fn on_host(mut self, entry: &ConfiguredModel, cards: &[Card], host: Option<HostRoom>) -> Self {
        let need =
            |demand: &Arc<dyn MemoryModel>| demand.alongside_cards(&requested(entry, cards, &**demand));
        let need = self.demand.as_ref().and_then(need);
        let doubt = need.zip(host).and_then(|(need, host)| host.doubt(need.bytes, need.mapped));
        if let Some((reason, fits)) = doubt {
            self.warnings.insert(0, reason);
            self.host_too_small = !fits;
        }
        self
    }

    /// Reports flags that the figure leaves out: nothing where the engine lists them in its help, and no
    /// start where the engine does not.
    pub fn judge_flags(
        &mut self,
        entry: &ConfiguredModel,
        engine: Option<&[String]>,
        left_out: &FlagsLeftOut,
    ) {
        for (flag, place) in &left_out.0 {
            let known = flag.argument.as_deref().and_then(|argument| is_known(entry, engine, argument));
            let reason = match known {
                Some(true) => continue,
                Some(false) => {
                    let end = "the engine does not know this flag, and does not start with it";
                    Reason::new("flag_unknown", format!("{place}{}", flag.reported(end)))
                }
                None => Reason::new("flag_left_out", format!("{place}{}", flag.ignored())),
            };
            if known.is_none() {
                self.warnings.push(reason);
            } else if self.refused.is_none() {
                self.text += &format!("; cannot be loaded: {}", in_a_line(&reason));
                self.refused = Some(reason);
            }
        }
    }
}

/// Whether the engine of a command lists a flag in its help; `None` where it cannot be asked.
fn is_known(entry: &ConfiguredModel, engine: Option<&[String]>, argument: &str) -> Option<bool> {
    let Launch::Command { argv, .. } = &entry.launch else { return None };
    let at = own_llama_server(argv)?;
    let written = find_program(Path::new(argv.get(at)?), None, std::env::var_os("PATH").as_deref());
    // The engine that stands in for a `llama-server` that is missing.
    let instead = || FoundProgram::of(entry, engine).ok().filter(|_| at == 0).map(|found| found.path);
    let program = written.ok().or_else(instead)?;
    // A shell script may start the engine anywhere (a container), and start it whatever it is asked.
    if program::is_shell_script(&program) {
        return None;
    }
    program::lists_flag(&program, argument)
}

/// Flags of one model that its plan leaves out, each with its place in the file.
#[derive(Debug)]
pub struct FlagsLeftOut(Vec<(LeftOutFlag, String)>);

impl FlagsLeftOut {
    /// Takes the warnings of these flags out of those of the file, so that each is reported once.
    pub(crate) fn take(entry: &ConfiguredModel, warnings: &mut Vec<Warning>) -> Self {
        let placed = |flag: LeftOutFlag| {
            let text = flag.ignored();
            let at = warnings.iter().position(|warning| warning.text == text);
            let place = at.map(|at| format!("{}: ", warnings.remove(at).origin));
            (flag, place.unwrap_or_default())
        };
        Self(flags_left_out(&entry.launch).into_iter().map(placed).collect())
    }
}
