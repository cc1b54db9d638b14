//! Finds the last allocation that guard (the preloaded library) refused to an engine, to diagnose why it
//! exited.

use std::path::Path;
use std::time::Duration;

use plimsoll_base::{Bytes, CardId};
use plimsoll_doctor::RefusedAllocation;
use plimsoll_probe::guard::read_pages;
use plimsoll_scheduler::{RunId, SchedulerSnapshot};
use plimsoll_wire::options::Uuid;
use plimsoll_wire::page::{CardSnapshot, OomSnapshot};
use rustix::time::{ClockId, clock_gettime};

use super::card_of;
use plimsoll_runtime::{EngineRun, Runtime};

/// Reads the last refusal from a run's pages, and adds the other holders of the card.
pub(super) fn last(runtime: &Runtime, run: &EngineRun, pages: &Path) -> Option<RefusedAllocation> {
    let pages = read_pages(pages);
    let count = pages.iter().map(|page| page.oom_count).sum();
    let all = pages.iter().flat_map(|page| page.ooms().map(move |oom| (page, oom)));
    // Guard writes refusals of all processes; the last one led to the death.
    let (page, oom) = all.max_by_key(|(_, oom)| oom.time)?;
    let card = page.cards().get(usize::try_from(oom.card).ok()?)?;
    Some(refused(runtime, run, card, oom, count))
}

fn refused(
    runtime: &Runtime,
    run: &EngineRun,
    card: &CardSnapshot,
    oom: &OomSnapshot,
    count: u64,
) -> RefusedAllocation {
    let id = card_of(runtime, run, card);
    let named = id.as_ref().map(|id| runtime.settings.label(id));
    let snapshot = runtime.state.snapshot();
    let model = snapshot.models.iter().find(|model| model.id == run.model);
    RefusedAllocation {
        why: oom.refusal,
        // A card that is not served from is named by its UUID.
        card: named.unwrap_or_else(|| Uuid(card.uuid).to_string()),
        id: id.clone(),
        requested: Bytes::new(oom.requested),
        allocated: Bytes::new(oom.allocated),
        budget: oom.budget.map(Bytes::new),
        free: Bytes::new(oom.free),
        count,
        ago: since(oom.time),
        growth: model.and_then(|model| Some(model.growth?.bytes_per_token)),
        neighbours: id.map_or_else(Vec::new, |id| neighbours(&snapshot, run.id, &id)),
    }
}

/// Other holders of the card: runs by name, other processes together.
fn neighbours(snapshot: &SchedulerSnapshot, run: RunId, card: &CardId) -> Vec<(String, Bytes)> {
    let Some(card) = snapshot.cards.iter().find(|view| view.id == *card) else {
        return Vec::new();
    };
    let runs = card.holders.iter().filter(|holder| holder.run != run);
    let runs = runs.map(|holder| (holder.model.clone(), holder.measured.unwrap_or(holder.claim)));
    let foreign = [("other programs".to_owned(), card.foreign)];
    runs.chain(foreign).filter(|(_, bytes)| !bytes.is_zero()).collect()
}

/// Time since a moment of the monotonic clock, in nanoseconds.
fn since(moment: u64) -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos).saturating_sub(Duration::from_nanos(moment))
}
