//! Warns about known errors of the planner's formulas, by GPU interface (such as CUDA or Vulkan) and model
//! architecture.
//!
//! `cargo xtask drift --write` generates the table from the newest engine of each interface.

use plimsoll_base::{Bytes, Reason};

use crate::margin;
use crate::named::interface;
use crate::quirks::NEWEST_COMPARED;
use crate::{EngineKind, PlanRequest};
use plimsoll_flags::CARD_INTERFACES;

/// `INTERFACE VERSION`, then `ARCHITECTURE MIB` for each of more than 1 MiB: closed form less engine. A third
/// word, `off`, says that it was seen without flash attention.
const SEEN: &str = include_str!("../data/closed-forms.txt");

/// An error of the formulas: closed form less engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeenError<'a> {
    interface: &'a str,
    version: &'a str,
    /// Tenths of a MiB.
    mib: i32,
    pub(super) without_flash: bool,
}

impl SeenError<'_> {
    fn size(self) -> Bytes {
        Bytes::mib(1).scaled(u64::from(self.mib.unsigned_abs()), 10)
    }

    /// Bytes that the formulas lacked.
    pub(super) fn missing(self) -> Option<Bytes> {
        (self.mib < 0).then(|| self.size())
    }
}

/// The error of the formulas for this model on the newest engine compared, where it is more than 1 MiB and
/// the plan has no margin for it. `flash` is true with flash attention.
pub(super) fn stated(request: &PlanRequest<'_>, flash: bool) -> Option<Reason> {
    let engine = request.engine;
    // Builds up to the one that the formulas mirror are held by rows of their own.
    let newer = engine.build.is_none_or(|build| build > NEWEST_COMPARED);
    if engine.kind != EngineKind::LlamaCpp || !newer || request.cards.is_empty() {
        return None;
    }
    let architecture = request.model.architecture.as_str();
    let seen = seen(SEEN, interface(request), architecture)?;
    if margin::covers(request, flash, seen) {
        return None;
    }
    let SeenError { interface, version, .. } = seen;
    let off = seen.size();
    let (word, fact) = if seen.missing().is_some() { ("low", "too_low") } else { ("high", "too_high") };
    let text = format!(
        "the formulas mirror llama.cpp b{NEWEST_COMPARED}; for architecture `{architecture}` on the newest \
        engine compared (llama.cpp {version}, {interface}), they were up to {off} too {word}; `plimsoll plan \
        --exact` asks the engine itself"
    );
    Some(Reason::new("formulas_off", text).fact(fact, off))
}

fn seen<'a>(table: &'a str, wanted: &str, architecture: &str) -> Option<SeenError<'a>> {
    let rows = table.lines().filter_map(|line| line.split_once(' '));
    let mut part = ("", "");
    for (name, value) in rows {
        if CARD_INTERFACES.contains(&name) {
            part = (name, value);
        } else if part.0 == wanted && name == architecture {
            let (number, without_flash) =
                value.strip_suffix(" off").map_or((value, false), |number| (number, true));
            let (whole, tenth) = number.split_once('.')?;
            let mib = format!("{whole}{tenth}").parse().ok()?;
            return Some(SeenError { interface: part.0, version: part.1, mib, without_flash });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{SeenError, seen};

    #[test]
    fn a_row_is_found_in_the_part_of_its_interface() {
        let table = "# x\nCUDA b11063\nglm4moe -107.4\nllama -0.5\nVulkan b11669\nllama 8.0 off\nbad x\n";
        let found = |interface: &'static str, version, mib, without_flash| {
            Some(SeenError { interface, version, mib, without_flash })
        };
        assert_eq!(seen(table, "CUDA", "glm4moe"), found("CUDA", "b11063", -1074, false));
        assert_eq!(seen(table, "CUDA", "llama"), found("CUDA", "b11063", -5, false));
        assert_eq!(seen(table, "Vulkan", "llama"), found("Vulkan", "b11669", 80, true));
        for (interface, architecture) in
            [("ROCm", "llama"), ("CUDA", "qwen2"), ("Vulkan", "bad"), ("CUDA", "Vulkan")]
        {
            assert_eq!(seen(table, interface, architecture), None, "{interface} {architecture}");
        }
    }

    #[test]
    fn every_row_that_is_compiled_in_is_read() {
        let rows = super::SEEN.lines().filter(|line| !line.starts_with('#'));
        let mut part = "";
        for (name, _) in rows.map(|line| line.split_once(' ').unwrap()) {
            if plimsoll_flags::CARD_INTERFACES.contains(&name) {
                part = name
            } else {
                assert!(seen(super::SEEN, part, name).is_some(), "{part} {name}")
            }
        }
    }
}
