//! Sets the memory budgets of engines under guard (the preloaded library), and passes on their requests for
//! more.
//!
//! An engine gets a new budget after the scheduler has changed its claim (the memory that it may take).

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use plimsoll_base::{Bytes, CardId, Share};
use plimsoll_config::GuardMode;
use plimsoll_probe::guard::{answer_room_request, set_budget};
use plimsoll_scheduler::{RunId, SchedulerEvent};
use plimsoll_wire::tree::key;

use super::options::budget_on;
use super::{GuardHandler, GuardedRun, card_of};
use plimsoll_runtime::{EngineRun, Runtime};

/// Time between two checks for requests: a process that has made one is blocked until the answer.
const REQUESTS: Duration = Duration::from_millis(50);
/// The same, if no engine may make a request.
const NO_REQUESTS: Duration = Duration::from_secs(1);

/// A budget request that was passed to the scheduler and is not answered yet.
#[derive(Clone, Debug)]
pub(super) struct PendingRequest {
    pid: u32,
    number: u64,
    card: CardId,
}

/// Looks for requests for as long as the daemon lives.
pub(super) async fn watch(guard: Rc<GuardHandler>, runtime: Rc<Runtime>) {
    loop {
        let asking = |run: &Rc<EngineRun>| {
            let guarded = guard.of(run.id)?;
            (guarded.settings.reclaim == Some(true)).then_some(guarded)
        };
        let runs = runtime.state.runs().into_iter();
        let asking: Vec<_> = runs.filter_map(|run| Some((asking(&run)?, run))).collect();
        for (guarded, run) in &asking {
            guard.take_request(&runtime, run, guarded);
        }
        let pause = if asking.is_empty() { NO_REQUESTS } else { REQUESTS };
        tokio::time::sleep(pause).await;
    }
}

impl GuardedRun {
    /// True if its budget follows the claim.
    fn is_claimed(&self) -> bool {
        self.settings.mode() == GuardMode::Budget && self.settings.budget.is_none()
    }
}

impl GuardHandler {
    /// Hands a request to the scheduler; one at a time.
    fn take_request(&self, runtime: &Runtime, run: &EngineRun, guarded: &GuardedRun) {
        if guarded.pending.borrow().is_some() {
            return;
        }
        let pages = guarded.live();
        let request = pages.iter().find_map(|page| Some((page, page.room_request?)));
        let Some((page, (number, index, requested))) = request else {
            return;
        };
        let on_page = usize::try_from(index).ok().and_then(|index| page.cards().get(index));
        let Some((snapshot, card)) = on_page.and_then(|card| Some((card, card_of(runtime, run, card)?)))
        else {
            // The page names a card that is not served from: nothing can be granted there.
            let _ = answer_room_request(&guarded.pages, page.pid, number);
            return;
        };
        let occupied = self.occupied_by_pages(runtime, run);
        let occupied = occupied.into_iter().find(|(id, _)| *id == card);
        // The claim is that of all processes together, so the others' memory counts, too.
        let occupied = occupied.map_or(Bytes::new(snapshot.allocated), |(_, bytes)| bytes);
        let requested = Bytes::new(requested);
        guarded.pending.replace(Some(PendingRequest { pid: page.pid, number, card: card.clone() }));
        runtime.submit(SchedulerEvent::BudgetRequested {
            run: run.id,
            card,
            requested,
            wanted: occupied + requested,
        });
    }

    /// Passes the scheduler's answer to the process that made the request.
    pub(super) fn answer_budget(&self, runtime: &Runtime, run: RunId, claim: Option<Bytes>) {
        let Some((run, guarded)) = runtime.state.run(run).zip(self.of(run)) else {
            return;
        };
        let Some(request) = guarded.pending.take() else {
            return;
        };
        if let Some(claim) = claim.filter(|_| guarded.is_claimed()) {
            set_budgets(runtime, &run, &guarded, &request.card, claim);
        }
        // A process that died meanwhile needs no answer.
        let _ = answer_room_request(&guarded.pages, request.pid, request.number);
    }

    /// Sets the budget of an engine to its claim.
    pub(super) fn follow_claim(&self, runtime: &Runtime, run: RunId, share: &Share) {
        if let Some((run, guarded)) = runtime.state.run(run).zip(self.of(run))
            && guarded.is_claimed()
        {
            set_budgets(runtime, &run, &guarded, &share.card, share.bytes);
        }
    }
}

/// Sets the budget that all processes of a run share on a card.
fn set_budgets(runtime: &Runtime, run: &EngineRun, guarded: &GuardedRun, card: &CardId, claim: Bytes) {
    let Some(of_plan) = runtime.settings.cards().find(|known| known.id == *card) else { return };
    let Some(budget) = budget_on(&guarded.settings, run, of_plan, claim) else { return };
    let pages = guarded.live();
    let seen = pages.iter().flat_map(|page| page.cards().iter().zip(0..));
    let on_card = seen.filter(|(seen, _)| card_of(runtime, run, seen).as_ref() == Some(card));
    // Processes may number the same card differently, and each numbering has a budget of its own.
    let keys: BTreeSet<u64> = on_card.map(|(seen, number)| key(seen.uuid, number)).collect();
    for key in keys {
        let _ = set_budget(&guarded.pages, key, budget);
    }
}
