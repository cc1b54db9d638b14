//! Plans the memory on each card of a llama.cpp program that `plimsoll run` starts.
//!
//! With `--spill`, guard (the preloaded library) uses this total to choose the allocations that go to host
//! memory. If planning fails, the program runs without a plan.

use std::ffi::OsString;
use std::path::Path;

use plimsoll_base::{Card, RequestedMemory};
use plimsoll_engine::program::{EngineOrigin, EngineProgram, identify};
use plimsoll_flags::ProgramKind;
use plimsoll_planner::{EngineBuild, Plan};
use plimsoll_wire::env as names;

use super::flags::flags;
use crate::command::plan;
use crate::report::ErrorReport;

/// Planned memory on the card with this UUID.
pub(super) type Need = (String, RequestedMemory);

/// Plans `program` with these arguments. `ordered` says that it sees the cards in this order. Returns `None`
/// if it is no program whose memory is known.
pub(super) fn planned(
    program: &Path,
    arguments: &[OsString],
    cards: &[Card],
    ordered: bool,
) -> Option<Result<Vec<Need>, ErrorReport>> {
    let kind = ProgramKind::from_name(program.file_name()?.to_str()?)?;
    Some(plan(program, kind, arguments, cards, ordered).map(|plan| {
        let requested = cards.iter().zip(&plan.cards);
        requested
            .filter_map(|(card, planned)| Some((card.names().of_guard()?, planned.requested()?)))
            .collect()
    }))
}

fn plan(
    program: &Path,
    kind: ProgramKind,
    arguments: &[OsString],
    cards: &[Card],
    ordered: bool,
) -> Result<Plan, ErrorReport> {
    if cards.is_empty() {
        return Err(ErrorReport::new("no GPU is visible"));
    }
    // Cards of one kind are interchangeable, so their order changes no plan.
    let differ = cards.iter().any(|card| card.name != cards[0].name);
    if differ
        && !ordered
        && std::env::var_os(names::CUDA_DEVICE_ORDER).is_none_or(|order| order != "PCI_BUS_ID")
    {
        return Err(ErrorReport::new(
            "the cards differ, and CUDA numbers them in its own order; name them with --card, or set CUDA_DEVICE_ORDER=PCI_BUS_ID",
        ));
    }
    plan::by_formulas(&flags(arguments)?, engine_of(program), kind, cards)
}

/// Identifies the engine; an unknown one is planned with the newest formulas.
fn engine_of(program: &Path) -> EngineBuild {
    let program = EngineProgram { path: program.to_owned(), origin: EngineOrigin::Configured };
    identify(&program).map_or(EngineBuild::LLAMA_CPP, |identity| identity.engine)
}
