//! Warns about known errors of the planner's formulas, by GPU interface (such as CUDA or Vulkan) and model
//! architecture.
//!
//! `cargo xtask drift --write` generates the table from the newest engine of each interface.

use plimsoll_base::{Bytes, Reason};

use crate::named::interface;
use crate::quirks::NEWEST_COMPARED;
use crate::{EngineKind, PlanRequest};
use plimsoll_flags::CARD_INTERFACES;

/// `INTERFACE VERSION`, then `ARCHITECTURE MIB` for each of more than 1 MiB: closed form less engine.
const SEEN: &str = include_str!("../data/closed-forms.txt");

/// The error of the formulas for this model on the newest engine compared, where it is more than 1 MiB.
pub(super) fn stated(request: &PlanRequest<'_>) -> Option<Reason> {
    let engine = request.engine;
    // Builds up to the one that the formulas mirror are held by rows of their own.
    let newer = engine.build.is_none_or(|build| build > NEWEST_COMPARED);
    if engine.kind != EngineKind::LlamaCpp || !newer || request.cards.is_empty() {
        return None;
    }
    let architecture = request.model.architecture.as_str();
    let (interface, version, mib) = seen(SEEN, interface(request), architecture)?;
    let off = Bytes::mib(1).scaled(u64::from(mib.unsigned_abs()), 10);
    let (word, fact) = if mib < 0 { ("low", "too_low") } else { ("high", "too_high") };
    let text = format!(
        "the formulas mirror llama.cpp b{NEWEST_COMPARED}; for architecture `{architecture}` on the newest \
        engine compared (llama.cpp {version}, {interface}), they were up to {off} too {word}; `plimsoll plan \
        --exact` asks the engine itself"
    );
    Some(Reason::new("formulas_off", text).fact(fact, off))
}

/// Interface, version and tenths of a MiB.
fn seen<'a>(table: &'a str, wanted: &str, architecture: &str) -> Option<(&'a str, &'a str, i32)> {
    let rows = table.lines().filter_map(|line| line.split_once(' '));
    let mut part = ("", "");
    for (name, value) in rows {
        if CARD_INTERFACES.contains(&name) {
            part = (name, value);
        } else if part.0 == wanted && name == architecture {
            let (whole, tenth) = value.split_once('.')?;
            return Some((part.0, part.1, format!("{whole}{tenth}").parse().ok()?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::seen;

    #[test]
    fn a_row_is_found_in_the_part_of_its_interface() {
        let table = "# x\nCUDA b11063\nglm4moe -107.4\nllama -0.5\nVulkan b11669\nllama 8.0\nbad x\n";
        assert_eq!(seen(table, "CUDA", "glm4moe"), Some(("CUDA", "b11063", -1074)));
        assert_eq!(seen(table, "CUDA", "llama"), Some(("CUDA", "b11063", -5)));
        assert_eq!(seen(table, "Vulkan", "llama"), Some(("Vulkan", "b11669", 80)));
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
