//! Copies of model files: the host that is to make one, for requests that wait for their model, and the copies of this host.

use std::time::Duration;

use plimsoll_base::Reason;

use super::{FleetEffect, FleetNode};
use crate::claim::Write;
use crate::keys::FleetKey;
use crate::place::{CopyPlan, SeatWish, copier};
use crate::records::{HostCopies, Record};

/// Time for which all hosts with the file have to be busy before it is copied to another: most are busy for less.
const BUSY: Duration = Duration::from_secs(10);
/// Time between two orders of one copy: the host tells the store that it has begun within that.
const AGAIN: Duration = Duration::from_secs(5);

/// Copy that requests for one model wait for.
#[derive(Debug, Default)]
pub(super) struct WantedCopy {
    /// Since when no host with the file has room.
    since: Option<Duration>,
    ordered: Option<Duration>,
}

impl FleetNode {
    /// Orders a copy of the model's files where that helps. Gives the reason of the refusal, with what the copy does.
    pub(super) fn copy_instead(
        &self,
        now: Duration,
        wish: &SeatWish<'_>,
        wanted: &mut WantedCopy,
        reason: Reason,
        effects: &mut Vec<FleetEffect>,
    ) -> Reason {
        // Hosts that disagree about the file have none to copy.
        if reason.code != "no_host" {
            return reason;
        }
        let since = *wanted.since.get_or_insert(now);
        let is_busy = reason.because.iter().any(|host| host.code == "host_full");
        if is_busy && now < since + BUSY {
            return reason;
        }
        let Some(plan) = copier(&self.view, wish) else { return reason };
        if let CopyPlan::Begin { host, address } = &plan
            && wanted.ordered.is_none_or(|ordered| now >= ordered + AGAIN)
        {
            wanted.ordered = Some(now);
            let (model, host, address) = (wish.model.to_owned(), host.clone(), address.clone());
            effects.push(FleetEffect::Copy { model, host, address });
        }
        reason.because(plan.reason())
    }

    /// Takes what this host lacks and copies.
    pub(super) fn copies_changed(&mut self, copies: HostCopies) {
        if self.copies != copies {
            self.copies = copies;
            self.registration.state_changed();
        }
    }

    /// The record of this host's copies, if the store is to have another one.
    pub(super) fn copies_record(&self) -> Option<Write> {
        let name = &self.settings.name;
        let key = || FleetKey::Copies(name.clone());
        let stored = self.view.copies.get(name);
        match self.copies == HostCopies::default() {
            true => stored.map(|_| Write::delete(key())),
            false => Some(Write::put(key(), Record::new(self.copies.clone()).write()).leased()),
        }
    }
}
