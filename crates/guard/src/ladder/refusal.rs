//! Reports a refused allocation: in the shared-memory file for the daemon, in the trace file, and on stderr.

use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

use plimsoll_wire::page::{Refusal, UNLIMITED};
use plimsoll_wire::size::ByteSize;

use super::RefusedRequest;
use crate::driver_guard;
use crate::policy::siblings::Siblings;
use crate::say::{ReportCount, say};
use crate::state::{card, ledger, refusals};
use crate::trace::{TraceEvent, TraceKind};

/// Records a refusal everywhere.
pub(super) fn record(request: &RefusedRequest<'_>) {
    let free = driver_guard::memory_of(request.card.device()).map(|(free, _)| free);
    refusals::record(request.card, request.refusal, request.size, free.unwrap_or(0));
    let event = TraceEvent::on(request.card).of(0, request.size);
    let detail = u8::try_from(request.refusal.code()).unwrap_or(0);
    TraceEvent { detail, ..event }.emit(TraceKind::Oom);
    static TIMES: ReportCount = ReportCount::new();
    if let Some(times) = TIMES.again() {
        on_stderr(request, free, times);
    }
}

fn on_stderr(request: &RefusedRequest<'_>, free: Option<u64>, times: u32) {
    let card = card(request.card);
    let (number, requested) = (request.card.number(), ByteSize(request.size));
    let allocated = ByteSize(ledger::occupied(request.card));
    let (spilled, free) = (ByteSize(card.spilled.load(Relaxed)), FreeMemory(free));
    let (budget, siblings) = (ledger::budget(request.card), Siblings::of(ledger::others(request.card)));
    let why = match request.refusal {
        Refusal::Budget => "the request exceeds the budget",
        Refusal::Driver => "the driver refused the request",
        Refusal::Spill => "neither the card nor the spill limit has room for the request",
        Refusal::Context => "this program may not use the card",
    };
    if budget == UNLIMITED {
        say!(
            "card {number}: a request for {requested} was refused because {why}; {allocated} allocated, \
                {spilled} spilled{free} (refusal {times}){siblings}"
        );
    } else {
        let budget = ByteSize(budget);
        say!(
            "card {number}: a request for {requested} was refused because {why}; {allocated} of a budget of \
                {budget} allocated, {spilled} spilled{free} (refusal {times}){siblings}"
        );
    }
}

/// `, 5 MiB free`, or nothing where it is not known.
struct FreeMemory(Option<u64>);

impl fmt::Display for FreeMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |free| write!(f, ", {} free", ByteSize(free)))
    }
}
