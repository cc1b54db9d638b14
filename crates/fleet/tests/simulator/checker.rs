//! Checks the history of the simulated fleet store. It reports every revision that breaks a rule, such as
//! more memory promised on a host than it has.

use std::collections::BTreeMap;

use plimsoll_base::Bytes;
use plimsoll_fleet::{FleetKey, FleetView, SeatCause, StoreChange};

/// Faults of a history, by kind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults(pub(crate) BTreeMap<&'static str, u64>);

impl Faults {
    pub(crate) fn count(&mut self, kind: &'static str) {
        *self.0.entry(kind).or_default() += 1;
    }
}

/// Replays the history from its first revision and looks at every one.
pub(crate) fn check(history: &[StoreChange]) -> Faults {
    let (mut faults, mut view) = (Faults::default(), FleetView::default());
    for changes in history.chunk_by(|one, other| one.revision == other.revision) {
        let before = view.clone();
        changes.iter().for_each(|change| view.apply(change));
        let claimed = changes.iter().find(|change| matches!(change.key, FleetKey::Turn(_)));
        if let Some(FleetKey::Turn(host)) = claimed.map(|change| &change.key) {
            check_claim(&before, &view, host, changes, &mut faults);
        }
        check_sums(&view, changes, &mut faults);
    }
    faults
}

fn check_claim(
    before: &FleetView,
    after: &FleetView,
    host: &str,
    changes: &[StoreChange],
    faults: &mut Faults,
) {
    for change in changes {
        let FleetKey::Seat { model, number } = &change.key else { continue };
        let seat_of = |view: &FleetView| {
            let seat = view.seats.get(&(model.clone(), *number));
            seat.map(|seat| seat.record.body.clone())
        };
        let former = seat_of(before);
        if change.value.is_none() {
            if former.as_ref().is_none_or(|seat| seat.host != host) {
                faults.count("a claim deleted a seat of another host, or none");
            }
            continue;
        }
        let Some(seat) = seat_of(after) else { continue };
        if before.living_host(&seat).is_none() {
            faults.count("a seat on a host that is gone");
        }
        if before.drains.contains_key(host) {
            faults.count("a seat on a host that drains");
        }
        let is_taken = former.is_some_and(|former| before.living_host(&former).is_some());
        let of_host = after.living_seats(model).filter(|(_, other)| other.record.body.host == seat.host);
        if of_host.count() > 1 {
            faults.count("two seats of a model on one host");
        }
        if is_taken && seat.cause == SeatCause::Wanted {
            faults.count("a seat taken from a living host");
        }
    }
}

/// The hosts that changed hold no more than their capacity.
fn check_sums(view: &FleetView, changes: &[StoreChange], faults: &mut Faults) {
    let is_news = |change: &StoreChange| matches!(change.key, FleetKey::Host(_) | FleetKey::Seat { .. });
    if !changes.iter().any(is_news) {
        return;
    }
    for (name, host) in &view.hosts {
        let host = &host.record.body;
        let seated: Bytes = view.seats_on(name, &host.incarnation).map(|(_, _, seat)| seat.need).sum();
        if seated + host.unseated > host.capacity {
            faults.count("a host over-committed");
        }
    }
}
