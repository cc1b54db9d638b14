//! Judges an engine that died: how it ended (for the scheduler) and why (for the user).

use plimsoll_base::{End, Exit, Hint, Reason, Stage};

use super::diagnosis::{Diagnosis, by_rules};
use super::facts::LineSource;
use super::formats::captured;
use super::last_lines::{LastLinesFinding, read_last_lines};
use super::line::shortened;
use super::reader::LogReader;
use super::refused::RefusedAllocation;
use super::remedy;
use super::sign::CauseSign;

#[cfg(test)]
mod tests;

/// Lines that are shown where none of them is known.
const SHOWN_LINES: usize = 5;
const SIGKILL: i32 = 9;
/// Signals that a program does not send itself when something goes wrong: SIGHUP, SIGINT, SIGKILL, SIGTERM.
const FROM_OUTSIDE: &[i32] = &[1, 2, SIGKILL, 15];

/// Everything that is known of a dead engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineDeath<'a> {
    /// The model's name.
    pub model: &'a str,
    pub exit: Exit,
    /// The scheduler stopped the engine.
    pub requested: bool,
    /// The engine had given up and hung, so the supervisor killed it: the cause is in its lines, not in the
    /// signal.
    pub stuck: bool,
    pub stage: Stage,
    /// The kernel's out-of-memory killer ran meanwhile.
    pub kernel_oom_kill: bool,
    /// Lines of the stage in which it died, the oldest first.
    pub last_lines: &'a [String],
    /// The last refusal on guard's page.
    pub refused: Option<&'a RefusedAllocation>,
}

/// Judgement of a dead engine.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineVerdict {
    /// `None` if no line is known.
    pub sign: Option<CauseSign>,
    pub end: End,
    pub hints: Vec<Hint>,
    /// The diagnosis of `plimsoll doctor`; `None` for an expected end.
    pub diagnosis: Option<Diagnosis>,
}

pub fn judge(death: &EngineDeath<'_>) -> EngineVerdict {
    // DECISION: the scheduler takes the missing bytes only from guard's page (the preloaded library's shared
    // file). A log's sizes are only shown, because a client may have chosen the text.

    // llama-server and the Python engines leave with 0 after SIGTERM.
    if death.requested || death.exit == Exit::Code(0) {
        return EngineVerdict { sign: None, end: End::Expected, hints: Vec::new(), diagnosis: None };
    }
    // An engine that is killed from outside may have logged an older error that it survived.
    if struck_down(death.exit) && !death.stuck {
        return of_status(death);
    }
    match read_last_lines(death.last_lines.iter().map(String::as_str)) {
        Some(finding) => of_finding(death, &finding),
        None => of_status(death),
    }
}

/// True for a signal that another process sent.
fn struck_down(exit: Exit) -> bool {
    matches!(exit, Exit::Signal(signal) if FROM_OUTSIDE.contains(&signal))
}

/// The rules of `plimsoll doctor` over the last lines and guard's page.
fn diagnosed(death: &EngineDeath<'_>) -> Diagnosis {
    let mut reader = LogReader::new();
    if death.stage == Stage::Serving {
        reader.served();
    }
    // The supervisor cuts the lines at their newlines, the reader needs them back.
    for line in death.last_lines {
        reader.feed(LineSource::Log, line.as_bytes());
        reader.feed(LineSource::Log, b"\n");
    }
    if let Some(refused) = death.refused {
        reader.guard(refused);
    }
    // No classifier here: the last lines of a server are no report, and their words are partly its clients'.
    by_rules(&reader.finish())
}

fn of_finding(death: &EngineDeath<'_>, finding: &LastLinesFinding) -> EngineVerdict {
    let diagnosis = diagnosed(death);
    let (code, what) = (finding.sign.code(), finding.sign.words());
    let when = match death.stage {
        Stage::Loading => "while loading",
        Stage::Serving => "while serving",
    };
    let flag = finding.evidence.iter().find_map(|line| flag_in(line));
    let flag = flag.filter(|_| finding.sign == CauseSign::UnknownFlag);
    let named = flag.map_or(String::new(), |flag| format!(" at `{flag}`"));
    let mut reason = Reason::new(code, format!("{}: {what}{named} {when}", death.model))
        .fact("exit", death.exit.to_string())
        .because_all(finding.evidence.iter().map(|line| stated(line)));
    if let Some(requested) = finding.requested {
        reason = reason.fact("asked", requested);
    }
    if let Some(free) = finding.free {
        reason = reason.fact("free", free);
    }
    if let Some(device) = &finding.device {
        reason = reason.fact("device", device.as_str());
    }
    // Guard sees the cards only; a refusal of host memory beside it has another reason.
    let refused = death.refused.filter(|_| finding.sign == CauseSign::CardMemory);
    let end = match finding.sign {
        CauseSign::CardMemory | CauseSign::HostMemory => End::OutOfMemory {
            stage: death.stage,
            reason: reason.because_all(refused.map(RefusedAllocation::reason)).because_all(diagnosis.brief()),
            shortfall: refused.and_then(RefusedAllocation::shortfall),
        },
        CauseSign::CardFault => End::Crashed { reason: reason.because_all(diagnosis.brief()) },
        // Another process has the port, and may leave it.
        CauseSign::PortTaken => End::Unstartable { reason, lasts: false },
        CauseSign::NotStarted | CauseSign::MissingLibrary => End::Unstartable { reason, lasts: true },
        // A server that has answered had a command line and a model that its engine accepts.
        CauseSign::UnknownFlag | CauseSign::ModelFile if death.stage == Stage::Serving => {
            End::Crashed { reason }
        }
        CauseSign::UnknownFlag => End::Unstartable { reason, lasts: true },
        CauseSign::ModelFile if finding.names_fault() => End::Unstartable { reason, lasts: true },
        CauseSign::ModelFile => End::Crashed { reason },
    };
    EngineVerdict {
        sign: Some(finding.sign),
        end,
        hints: remedy::of_sign(finding.sign),
        diagnosis: Some(diagnosis),
    }
}

/// The name of the flag in a line about one, without its value: clients read it, and a value may be a secret.
fn flag_in(line: &str) -> Option<&str> {
    // A short flag has a few letters; anything longer may be a value that begins with a hyphen.
    captured("long_flag", line).or_else(|| captured("short_flag", line))
}

/// The level of a line of llama.cpp, such as the I of `0.00.029.779 I slot release: …`.
// `common/log.cpp:common_log_entry::print @ b10605`: the time, then a letter for the level.
fn level(line: &str) -> Option<&str> {
    captured("level", line)
}

/// Whether a line may explain an end of this kind.
///
/// DECISION: information explains no death, and a warning none by a signal: of an engine that is killed it is
/// mostly one that it lived with for hours. Where another process sent the signal, only an error is worth a
/// look.
fn may_explain(exit: Exit, line: &str) -> bool {
    const ERRORS: [&str; 4] = ["error", "assert", "failed", "fatal"];
    match (level(line), exit) {
        (Some("I" | "D"), _) | (Some("W"), Exit::Signal(_)) => false,
        (None, exit) if struck_down(exit) => {
            let line = line.to_ascii_lowercase();
            ERRORS.iter().any(|word| line.contains(word))
        }
        _ => true,
    }
}

fn of_status(death: &EngineDeath<'_>) -> EngineVerdict {
    let explains = |line: &&String| !line.trim().is_empty() && may_explain(death.exit, line);
    let lines = death.last_lines.iter().filter(explains);
    let skip = lines.clone().count().saturating_sub(SHOWN_LINES);
    let shown = lines.skip(skip).map(|line| stated(shortened(line)));
    let reason = Reason::new("engine_died", format!("{} {}", death.model, death.exit))
        .fact("exit", death.exit.to_string());
    // The counter is of the whole machine (`/proc/vmstat: oom_kill`), so the signal has to fit too.
    let kernel = death.kernel_oom_kill && death.exit == Exit::Signal(SIGKILL);
    // An engine may end without a word, as after `free(): invalid pointer`; the page still has the refusal.
    let fresh = death.refused.filter(|refused| refused.is_fresh() && !struck_down(death.exit));
    let end = if let Some(refused) = fresh {
        let (code, what) = (CauseSign::CardMemory.code(), CauseSign::CardMemory.words());
        let text = format!("{}: {what} and {}", death.model, death.exit);
        End::OutOfMemory {
            stage: death.stage,
            reason: Reason::new(code, text)
                .fact("exit", death.exit.to_string())
                .because(refused.reason())
                .because_all(shown),
            shortfall: refused.shortfall(),
        }
    } else if kernel {
        let kernel = Reason::new(
            "kernel_oom_kill",
            "the kernel's out-of-memory killer ran while the engine was alive, and Plimsoll sent no SIGKILL",
        );
        End::OutOfMemory {
            stage: death.stage,
            reason: reason.because(kernel).because_all(shown),
            shortfall: None,
        }
    } else {
        End::Crashed { reason: reason.because_all(shown) }
    };
    EngineVerdict { sign: None, end, hints: Vec::new(), diagnosis: Some(diagnosed(death)) }
}

fn stated(line: &str) -> Reason {
    Reason::new("engine_said", line)
}
