//! Plans the size of llama.cpp's pool of temporary buffers, which `run --pool plan` allocates once, at the
//! start.

use std::ffi::OsString;
use std::path::Path;

use plimsoll_base::{Bytes, Card};
use plimsoll_flags::ProgramKind;
use plimsoll_planner::EngineBuild;

use super::flags::flags;
use crate::command::plan;
use crate::report::ErrorReport;

/// Bytes that the blocks of a pool take together at full depth, on the card that needs the most.
pub(super) fn planned(
    program: &Path,
    arguments: &[OsString],
    cards: &[Card],
    engine: EngineBuild,
) -> Result<Bytes, ErrorReport> {
    let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let kind = ProgramKind::from_name(&name).ok_or_else(|| {
        ErrorReport::input(ErrorReport::new(format!(
            "the pool of `{name}` cannot be planned: it is none of {}\nhint: --pool ours needs no plan",
            ProgramKind::NAMES
        )))
    })?;
    if cards.is_empty() {
        return Err(ErrorReport::new(
            "the pool cannot be planned: no NVIDIA card is visible\nhint: --pool ours needs no plan",
        ));
    }
    let plan = plan::by_formulas(&flags(arguments)?, engine, kind, cards)?;
    let pools: Option<Vec<Bytes>> = plan.cards.iter().map(|card| card.terms.pool.bytes).collect();
    // Nothing known about a pool must not become an arena of 0.
    let most = pools.and_then(|pools| pools.into_iter().max());
    most.ok_or_else(|| {
        ErrorReport::new("the pool of this model is not known\nhint: --pool ours needs no plan")
    })
}
