//! Names what a waiting model waits for: engines that must stop, and memory that is kept free for other
//! programs.
//!
//! A yield is memory that models leave to other programs.
//!
//! DECISION: the obstacle is computed by the search for memory. Only the search knows what it has promised to
//! models that come before. A run that is ending but whose memory is not needed is left out, because waiting
//! for it would be in vain.

use plimsoll_base::{Bytes, CardId, Placement, RunId};

use super::StateRef;
use crate::models::RoomObstacle;
use crate::place::{Ledger, PlacementVerdict, Reservations};
use crate::time::ModelId;

impl StateRef<'_> {
    /// Obstacle that the search found for a load.
    pub(super) fn obstacle(
        self,
        id: ModelId,
        verdict: &PlacementVerdict,
        barred: &[RunId],
        reserved: &Reservations,
    ) -> RoomObstacle {
        let occupied = |runs| RoomObstacle::Occupied { kept: Vec::new(), runs };
        match verdict {
            PlacementVerdict::Fits(_) if !barred.is_empty() => occupied(barred.to_vec()),
            PlacementVerdict::Fits(placement) => self.in_motion(id, placement, reserved).unwrap_or_default(),
            PlacementVerdict::FitsAfter { placement, stop: runs, .. } => {
                let on_port = || self.model(id).is_some_and(|slot| self.on_port_of(slot, runs).is_some());
                // Of these, the one that is in the way is needed whatever its memory.
                let all = on_port() || self.apart_from_any(id, runs).is_some();
                occupied(if all { runs.clone() } else { needed_for(placement, runs, self.ledger, reserved) })
            }
            PlacementVerdict::Later => RoomObstacle::Turn,
            PlacementVerdict::Unplanned(_) => RoomObstacle::Unplanned,
            PlacementVerdict::Never(_) => RoomObstacle::Unread,
        }
    }

    /// Obstacle of a model that fits once yields have ended, as in `ledger`.
    pub(super) fn obstacle_of_yields(
        self,
        later: &PlacementVerdict,
        ledger: &Ledger,
        reserved: &Reservations,
    ) -> RoomObstacle {
        let ends = |card: &CardId| {
            let now = self.ledger.account(card).filter(|account| !account.kept_now().is_zero());
            now.is_some() && ledger.account(card).is_some_and(|account| account.kept().is_none())
        };
        let (placement, runs) = match later {
            PlacementVerdict::Fits(placement) => (Some(placement), Vec::new()),
            PlacementVerdict::FitsAfter { placement, stop: runs, .. } => {
                (Some(placement), needed_for(placement, runs, ledger, reserved))
            }
            _ => (None, Vec::new()),
        };
        let on = |card: &CardId| placement.is_none_or(|placement| !placement.on(card).is_zero());
        let cards = self.ledger.accounts().iter().map(|account| &account.card().id);
        RoomObstacle::Occupied { kept: cards.filter(|card| ends(card) && on(card)).cloned().collect(), runs }
    }
}

/// Those of the runs whose memory the placement cannot do without.
pub(super) fn needed_for(
    placement: &Placement,
    runs: &[RunId],
    ledger: &Ledger,
    reserved: &Reservations,
) -> Vec<RunId> {
    // Each run that leaves is a place among the most that may be loaded.
    if ledger.full_at().is_some() {
        return runs.to_vec();
    }
    let suffice = |runs: &[RunId]| {
        placement.cards().all(|card| {
            ledger.account(card).is_some_and(|account| {
                let freed: Bytes = runs.iter().map(|run| account.occupied_by(*run)).sum();
                placement.on(card) + reserved.on(card) + account.claimed() <= account.capacity() + freed
            })
        })
    };
    // Each that can be left out while the others suffice is.
    let mut needed = runs.to_vec();
    for run in runs {
        let without: Vec<RunId> = needed.iter().copied().filter(|other| other != run).collect();
        if suffice(&without) {
            needed = without;
        }
    }
    needed
}
